//! What happened between two samples.

use super::sample::{ClientSample, CommandSample, Sample, Thread};

/// A sample, and one before it of the same process, if there is one.
pub struct Change<'a> {
    pub now: &'a Sample,
    before: Option<&'a Sample>,
    seconds: f64,
}

/// What a command did in between.
pub struct CommandChange {
    pub calls_per_second: f64,
    pub failures_per_second: Option<f64>,
    /// Of one thread's time, the part that was spent on it.
    pub share: f64,
    /// Of a call. `None` without calls.
    pub mean_us: Option<f64>,
}

/// What a connection did in between.
pub struct ConnectionChange {
    pub commands_per_second: Option<f64>,
    pub received_per_second: Option<f64>,
    pub sent_per_second: Option<f64>,
}

/// What a thread did in between.
#[derive(Default)]
pub struct ThreadChange {
    /// The part of the time in which it had a processor: more than 1 where it stands for several.
    pub load: Option<f64>,
    /// The part of the time in which it did not wait.
    pub busy: Option<f64>,
    pub commands_per_second: Option<f64>,
    pub reads_per_second: Option<f64>,
    pub writes_per_second: Option<f64>,
}

impl<'a> Change<'a> {
    pub fn new(now: &'a Sample, before: Option<&'a Sample>) -> Self {
        let before = before.filter(|before| now.is_of_same_process(before) && now.at > before.at);
        let seconds = before.map_or(0.0, |before| (now.at - before.at).as_secs_f64());
        Self { now, before, seconds }
    }

    /// How much a field of INFO grew in a second.
    pub fn rate(&self, field: &str) -> Option<f64> {
        let before = self.before?.info.number(field)?;
        self.growth(self.now.info.number(field)?, before)
    }

    /// The part of the reads that found their key.
    pub fn hit_share(&self) -> Option<f64> {
        let (hits, misses) = (self.rate("keyspace_hits")?, self.rate("keyspace_misses")?);
        (hits + misses > 0.0).then(|| hits / (hits + misses))
    }

    /// The time that a command took in the server, on average over all of them.
    pub fn mean_us(&self) -> Option<f64> {
        let sums = |sample: &Sample| {
            let commands = sample.commands.iter();
            commands.fold((0.0, 0.0), |(calls, us), command| {
                (calls + command.calls as f64, us + command.time_us as f64)
            })
        };
        let ((calls, us), (calls_before, us_before)) = (sums(self.now), sums(self.before?));
        let (calls, us) = (calls - calls_before, us - us_before);
        (calls > 0.0 && us >= 0.0).then(|| us / calls)
    }

    pub fn command(&self, now: &CommandSample) -> Option<CommandChange> {
        let none = CommandSample::default();
        let found = self.before?.commands.iter().find(|before| before.name == now.name);
        let before = found.unwrap_or(&none);
        let grown = |now: u64, before: u64| self.growth(now as f64, before as f64);
        let calls_per_second = grown(now.calls, before.calls)?;
        let us_per_second = grown(now.time_us, before.time_us)?;
        Some(CommandChange {
            calls_per_second,
            failures_per_second: now
                .failures
                .and_then(|failures| grown(failures, before.failures.unwrap_or(0))),
            share: us_per_second / 1e6,
            mean_us: (calls_per_second > 0.0).then(|| us_per_second / calls_per_second),
        })
    }

    /// Of all connections, in their order.
    pub fn connections(&self) -> Vec<ConnectionChange> {
        let nobody = Vec::new();
        let before = self.before.and_then(|before| before.clients.given()).unwrap_or(&nobody);
        let before: std::collections::HashMap<u64, &ClientSample> =
            before.iter().map(|connection| (connection.id, connection)).collect();
        let now = self.now.clients.given().unwrap_or(&nobody);
        let rate = |now: &ClientSample, of: fn(&ClientSample) -> Option<u64>| {
            let before = of(before.get(&now.id)?)?;
            self.growth(of(now)? as f64, before as f64)
        };
        let change = |now| ConnectionChange {
            commands_per_second: rate(now, |connection| connection.commands),
            received_per_second: rate(now, |connection| connection.received_bytes),
            sent_per_second: rate(now, |connection| connection.sent_bytes),
        };
        now.iter().map(change).collect()
    }

    pub fn thread(&self, now: &Thread) -> ThreadChange {
        let threads = self.before.map_or(&[][..], |before| &before.threads);
        let Some(before) = threads.iter().find(|before| before.name == now.name) else {
            return ThreadChange::default();
        };
        let rate = |now: Option<u64>, before: Option<u64>| self.growth(now? as f64, before? as f64);
        let share = |now: Option<f64>, before: Option<f64>| self.growth(now?, before?);
        ThreadChange {
            load: share(now.processor_s, before.processor_s),
            busy: share(now.busy_s, before.busy_s),
            commands_per_second: rate(now.commands, before.commands),
            reads_per_second: rate(now.reads, before.reads),
            writes_per_second: rate(now.writes, before.writes),
        }
    }

    /// In a second. Counters that were reset in between say nothing.
    fn growth(&self, now: f64, before: f64) -> Option<f64> {
        (self.seconds > 0.0 && now >= before).then(|| (now - before) / self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Answer, tests::of_info};
    use super::*;

    #[test]
    fn counters_become_rates() {
        let before = of_info(10, "a:100\nkeyspace_hits:0\nkeyspace_misses:0\n");
        let now = of_info(12, "a:300\nkeyspace_hits:30\nkeyspace_misses:10\nb:5\n");
        let change = Change::new(&now, Some(&before));
        assert_eq!(
            (change.rate("a"), change.rate("b"), change.rate("c")),
            (Some(100.0), None, None)
        );
        assert_eq!(change.hit_share(), Some(0.75));
        assert_eq!(Change::new(&now, None).rate("a"), None);
        assert_eq!(Change::new(&before, Some(&before)).rate("a"), None);
        assert_eq!(Change::new(&before, Some(&now)).rate("a"), None);
    }

    #[test]
    fn what_was_reset_or_started_anew_has_no_rate() {
        let before = of_info(10, "run_id:x\na:100\n");
        let reset = of_info(11, "run_id:x\na:5\n");
        assert_eq!(Change::new(&reset, Some(&before)).rate("a"), None);
        let other = of_info(11, "run_id:y\na:500\n");
        assert_eq!(Change::new(&other, Some(&before)).rate("a"), None);
    }

    #[test]
    fn commands() {
        let before = of_info(0, "cmdstat_get:calls=10,usec=100,rejected_calls=0,failed_calls=0\n");
        let now = of_info(
            2,
            "cmdstat_get:calls=30,usec=500,rejected_calls=1,failed_calls=1\n\
             cmdstat_set:calls=2,usec=4\n",
        );
        let change = Change::new(&now, Some(&before));
        let get = change.command(&now.commands[0]).unwrap();
        assert_eq!((get.calls_per_second, get.mean_us), (10.0, Some(20.0)));
        assert_eq!((get.failures_per_second, get.share), (Some(1.0), 200.0 / 1e6));
        let set = change.command(&now.commands[1]).unwrap();
        assert_eq!((set.calls_per_second, set.failures_per_second), (1.0, None));
        assert_eq!(change.mean_us(), Some(404.0 / 22.0));
    }

    #[test]
    fn threads_and_connections() {
        let mut before = of_info(0, "worker_0:busy_us=1000000,commands=5\n");
        let mut now = of_info(1, "worker_0:busy_us=1250000,commands=9\nworker_1:busy_us=1\n");
        let connection = |id, commands| ClientSample { id, commands, ..ClientSample::default() };
        before.clients = Answer::Given(vec![connection(7, Some(10))]);
        now.clients = Answer::Given(vec![connection(8, Some(9)), connection(7, Some(12))]);
        let change = Change::new(&now, Some(&before));
        let worker = change.thread(&now.threads[0]);
        assert_eq!((worker.load, worker.busy), (None, Some(0.25)));
        assert_eq!(worker.commands_per_second, Some(4.0));
        assert_eq!(change.thread(&now.threads[1]).busy, None);
        let rates = change.connections();
        let rates: Vec<_> = rates.iter().map(|change| change.commands_per_second).collect();
        assert_eq!(rates, [None, Some(2.0)]);
    }
}
