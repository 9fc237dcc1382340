//! The server's threads: what each program tells of its own.

use super::{super::text, NAME_LEN_MAX};
use crate::modes::info::{Info, part};

/// A thread, by what it did since it started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thread {
    pub name: String,
    /// Its time on a processor, and the time in which it did not wait.
    pub processor_s: Option<f64>,
    pub busy_s: Option<f64>,
    pub clients: Option<u64>,
    pub commands: Option<u64>,
    pub reads: Option<u64>,
    pub writes: Option<u64>,
    /// What waits to be written to the log or to others.
    pub backlog_bytes: Option<u64>,
}

/// The process and its main thread, of which every server tells, then the others: Bobbin's workers,
/// Redis's and Valkey's threads for the network.
pub fn read(info: &Info) -> Vec<Thread> {
    let times = |user: &str, system: &str| Some(info.number(user)? + info.number(system)?);
    let named = |name: &str| Thread { name: name.to_owned(), ..Thread::default() };
    let process = times("used_cpu_user", "used_cpu_sys");
    let main = times("used_cpu_user_main_thread", "used_cpu_sys_main_thread");
    let active = info.number("used_active_time_main_thread");
    let mut threads = Vec::new();
    if process.is_some() {
        threads.push(Thread { processor_s: process, ..named("process") });
    }
    if main.is_some() || active.is_some() {
        threads.push(Thread { processor_s: main, busy_s: active, ..named("main") });
    }
    let workers = info.named("worker_").filter(|(name, _)| is_number(name));
    threads.extend(workers.take(THREADS_MAX).map(|(number, value)| {
        let (user, system) = (seconds(value, "cpu_user"), seconds(value, "cpu_sys"));
        Thread {
            processor_s: user.zip(system).map(|(user, system)| user + system),
            busy_s: integer(value, "busy_us").map(|us| us as f64 / 1e6),
            clients: integer(value, "connections"),
            commands: integer(value, "commands"),
            backlog_bytes: integer(value, "backlog_bytes"),
            ..named(&format!("worker {}", text::safe(number.as_bytes(), NAME_LEN_MAX)))
        }
    }));
    let of_redis = info.named("io_thread_").filter(|(name, _)| is_number(name));
    threads.extend(of_redis.take(THREADS_MAX).map(|(number, value)| Thread {
        clients: integer(value, "clients"),
        reads: integer(value, "reads"),
        writes: integer(value, "writes"),
        ..named(&format!("io {}", text::safe(number.as_bytes(), NAME_LEN_MAX)))
    }));
    let of_valkey = info.named("used_active_time_io_thread_").filter(|(name, _)| is_number(name));
    threads.extend(of_valkey.take(THREADS_MAX).map(|(number, value)| {
        let busy_s = value.parse().ok().filter(|time: &f64| time.is_finite());
        let name = format!("io {}", text::safe(number.as_bytes(), NAME_LEN_MAX));
        Thread { busy_s, ..named(&name) }
    }));
    threads
}

fn integer(value: &str, name: &str) -> Option<u64> {
    part(value, name)?.parse().ok()
}

fn seconds(value: &str, name: &str) -> Option<f64> {
    part(value, name)?.parse().ok().filter(|seconds: &f64| seconds.is_finite())
}

fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

const THREADS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::super::tests::of_info;

    #[test]
    fn threads_of_three_programs() {
        let names = |text: &str| {
            let sample = of_info(0, text);
            sample.threads.iter().map(|thread| thread.name.clone()).collect::<Vec<_>>()
        };
        let bobbin = "used_cpu_sys:0.5\nused_cpu_user:1.5\nworker_threads:2\n\
                      worker_0:id=0,connections=4,commands=7,busy_us=2500000,cpu_user=1.25,\
                      cpu_sys=2,backlog_bytes=3\n";
        assert_eq!(names(bobbin), ["process", "worker 0"]);
        let worker = of_info(0, bobbin).threads[1].clone();
        assert_eq!((worker.processor_s, worker.busy_s), (Some(3.25), Some(2.5)));
        assert_eq!(worker.clients, Some(4));
        assert_eq!((worker.commands, worker.backlog_bytes), (Some(7), Some(3)));
        assert_eq!(names("io_thread_1:clients=1,reads=3,writes=1\n"), ["io 1"]);
        let valkey = "used_active_time_main_thread:0.25\nused_active_time_io_thread_1:nan\n";
        assert_eq!(names(valkey), ["main", "io 1"]);
        assert_eq!(of_info(0, valkey).threads[1].busy_s, None);
        assert_eq!(names("worker_x:id=1\nworker_:a\nio_threads_active:1\n"), [""; 0]);
    }
}
