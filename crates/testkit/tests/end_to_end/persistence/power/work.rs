//! A server at work with its calls written down, its clients, and what they were promised.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bobbin_testkit::disk::Folder;
use bobbin_testkit::power::disk::Before;
use bobbin_testkit::power::{INTRODUCTION, PowerRecording, plant};
use bobbin_testkit::random::TestRandom;
use bobbin_testkit::{ReplyFrame, TestConnection, TestServer};

pub(crate) const CLIENTS: usize = 3;

/// What is there of a client's work: units that are one command, and units of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) plain: u64,
    pub(crate) grouped: u64,
}

impl Count {
    pub(crate) fn raise(&mut self, other: Self) {
        self.plain = self.plain.max(other.plain);
        self.grouped = self.grouped.max(other.grouped);
    }
}

pub(crate) type ReplyCounts = [Count; CLIENTS];

/// From this reply on so much has to be there.
#[derive(Debug)]
pub(crate) struct Promise {
    client: String,
    reply: usize,
    counts: ReplyCounts,
}

/// What was done, and promised, until the end.
pub(crate) struct Work {
    pub(crate) recording: PowerRecording,
    /// What was there before.
    pub(crate) before: ReplyCounts,
    /// With the lines from which on they hold.
    promises: Vec<(usize, ReplyCounts)>,
    /// How a server is started on what is left.
    pub(crate) restart: &'static [&'static str],
}

impl Work {
    /// What has to be there when the power goes at a line.
    pub(crate) fn promised(&self, moment: usize) -> ReplyCounts {
        let mut all = self.before;
        for (_, counts) in self.promises.iter().filter(|(line, _)| *line < moment) {
            all.iter_mut().zip(counts).for_each(|(all, count)| all.raise(*count));
        }
        all
    }
}

/// A server under trace, and what its clients know of each other.
pub(crate) struct PowerStage {
    pub(crate) server: TestServer,
    folder: Folder,
    trace: Folder,
    before: Before,
    counts_before: ReplyCounts,
    told: [Told; CLIENTS],
    /// Whether a unit that was acknowledged is promised; held while one is carried out.
    promises_units: RwLock<bool>,
    /// Whether what clients read in the beginning is promised.
    pub(crate) promises_reads: AtomicBool,
    /// Whether clients ask for promises by WAITAOF.
    pub(crate) waits: AtomicBool,
    promises: Mutex<Vec<Promise>>,
    stop: AtomicBool,
}

#[derive(Default)]
struct Told {
    plain: AtomicU64,
    grouped: AtomicU64,
}

impl Told {
    fn count(&self) -> Count {
        let load = |number: &AtomicU64| number.load(Ordering::SeqCst);
        Count { plain: load(&self.plain), grouped: load(&self.grouped) }
    }
}

impl PowerStage {
    /// `counts` has to be there before anything is done.
    pub(crate) fn new(before: impl Into<Before>, counts: ReplyCounts, arguments: &[&str]) -> Self {
        let before = before.into();
        let (folder, trace) = (Folder::new(), Folder::new());
        plant(&before.tree, folder.path()).expect("a folder");
        let common = ["--dir", folder.text(), "--io-driver", "epoll", "--io-threads", "2"];
        let spread = ["--connections-per-io-thread", "0"];
        let server = TestServer::traced(
            &trace.path().join("trace"),
            &[&common[..], &spread, arguments].concat(),
        );
        let server = server.unwrap_or_else(|error| panic!("{error}"));
        let told: [Told; CLIENTS] = Default::default();
        for (told, count) in told.iter().zip(counts) {
            told.plain.store(count.plain, Ordering::SeqCst);
            told.grouped.store(count.grouped, Ordering::SeqCst);
        }
        Self {
            server,
            folder,
            trace,
            before,
            counts_before: counts,
            told,
            promises_units: RwLock::new(false),
            promises_reads: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            promises: Mutex::default(),
            stop: AtomicBool::new(false),
        }
    }

    /// Has the clients work while `conduct` does what it does; then the server is killed.
    pub(crate) fn play(
        mut self,
        random: &mut TestRandom,
        restart: &'static [&'static str],
        conduct: impl FnOnce(&Self, &mut CountingClient),
    ) -> Work {
        self.perform(random, conduct);
        assert!(self.server.kill());
        self.read(restart)
    }

    /// Has the clients work while `conduct` runs; then a command ends the server. So all is
    /// promised.
    pub(crate) fn play_to_the_end(
        mut self,
        random: &mut TestRandom,
        restart: &'static [&'static str],
        end: &str,
        conduct: impl FnOnce(&Self, &mut CountingClient),
    ) -> Work {
        self.perform(random, conduct);
        let told = self.told();
        let words: Vec<_> = end.split(' ').collect();
        // It is not answered.
        let _ = self.server.connect().call(&words);
        let status = self.server.wait(LIMIT).expect("it ends");
        assert!(status.success(), "{status}");
        let mut work = self.read(restart);
        let calls = &work.recording.calls;
        let last = calls.iter().filter(|call| call.returned()).map(|call| call.ended).max();
        work.promises.push((last.expect("it did something"), told));
        work
    }

    fn perform(&self, random: &mut TestRandom, conduct: impl FnOnce(&Self, &mut CountingClient)) {
        let stage = self;
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let mut random = TestRandom::new(random.number());
                scope.spawn(move || stage.work(number, &mut random));
            }
            let mut conductor = CountingClient::new(stage, "conductor");
            let conducted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                conduct(stage, &mut conductor);
                conductor.settle();
            }));
            stage.stop.store(true, Ordering::SeqCst);
            if let Err(panic) = conducted {
                std::panic::resume_unwind(panic);
            }
        });
    }

    fn read(self, restart: &'static [&'static str]) -> Work {
        let process = self.server.id();
        let file = self.trace.path().join("trace");
        let recording = PowerRecording::read(&file, process, self.folder.path(), &self.before);
        let recording = recording.unwrap_or_else(|error| panic!("{error}"));
        let promises = self.promises.into_inner().unwrap_or_else(PoisonError::into_inner);
        let promises = promises.into_iter().map(|promise| {
            let lines = recording.replies.get(&promise.client).map_or(&[][..], Vec::as_slice);
            let line = lines
                .get(promise.reply)
                .unwrap_or_else(|| panic!("{promise:?} is not in the trace"));
            (*line, promise.counts)
        });
        Work { promises: promises.collect(), recording, before: self.counts_before, restart }
    }

    /// From now on, or not, what is acknowledged is promised.
    pub(crate) fn promise_units(&self, promise: bool) {
        *self.promises_units.write().unwrap_or_else(PoisonError::into_inner) = promise;
    }

    /// What was acknowledged until now.
    pub(crate) fn told(&self) -> ReplyCounts {
        std::array::from_fn(|number| self.told[number].count())
    }

    /// Waits until the clients have been told of `more` more units.
    pub(crate) fn await_units(&self, more: u64) {
        let all = || self.told().iter().map(|count| count.plain + count.grouped).sum::<u64>();
        let (before, deadline) = (all(), Instant::now() + LIMIT);
        while all() < before + more {
            assert!(Instant::now() < deadline, "the clients are stuck");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn promise(&self, client: &CountingClient, counts: ReplyCounts) {
        let promise = Promise { client: client.name.clone(), reply: client.replies - 1, counts };
        self.promises.lock().unwrap_or_else(PoisonError::into_inner).push(promise);
    }

    /// What a client does.
    fn work(&self, number: usize, random: &mut TestRandom) {
        let mut client = CountingClient::new(self, &format!("client {number}"));
        let mut there = |key| {
            let reply = client.call(&["GET", &format!("{key}:{number}")]);
            reply.text().parse().unwrap_or(0)
        };
        let mut count = Count { plain: there("plain"), grouped: there("counter") };
        if self.promises_reads.load(Ordering::SeqCst) {
            let mut counts = ReplyCounts::default();
            counts[number] = count;
            self.promise(&client, counts);
        }
        let mut waited_for = count;
        while !self.stop.load(Ordering::SeqCst) {
            let promises = self.promises_units.read().unwrap_or_else(PoisonError::into_inner);
            if random.below(2) == 0 {
                count.plain += 1;
                client.say(&["SET", &format!("plain:{number}"), &count.plain.to_string()]);
            } else {
                count.grouped += 1;
                let replies = client.exchange(&group(number, count.grouped, random));
                let fault = replies.iter().find(|reply| reply.is_error());
                assert!(fault.is_none(), "{fault:?}");
            }
            if *promises {
                let mut counts = ReplyCounts::default();
                counts[number] = count;
                self.promise(&client, counts);
            }
            drop(promises);
            self.told[number].plain.store(count.plain, Ordering::SeqCst);
            self.told[number].grouped.store(count.grouped, Ordering::SeqCst);
            if self.waits.load(Ordering::SeqCst) && random.below(10) == 0 && waited_for != count {
                let reply = client.call(&["WAITAOF", "1", "0", "0"]);
                assert_eq!(reply.items()[0].as_integer(), Some(1));
                waited_for = count;
                let mut counts = ReplyCounts::default();
                counts[number] = count;
                self.promise(&client, counts);
            }
        }
        client.settle();
    }
}

/// A connection that counts its replies.
pub(crate) struct CountingClient {
    connection: TestConnection,
    name: String,
    replies: usize,
}

impl CountingClient {
    fn new(stage: &PowerStage, name: &str) -> Self {
        let mut connection = stage.server.connect();
        connection.call(&["ECHO", &format!("{INTRODUCTION}{name}")]).expect("it answers");
        Self { connection, name: name.to_owned(), replies: 0 }
    }

    pub(crate) fn call(&mut self, words: &[&str]) -> ReplyFrame {
        let words = words.iter().map(|&word| word.to_owned()).collect();
        self.exchange(&[words]).remove(0)
    }

    pub(crate) fn say(&mut self, words: &[&str]) {
        assert_eq!(self.call(words).text(), "OK", "{words:?}");
    }

    fn exchange(&mut self, requests: &[Vec<String>]) -> Vec<ReplyFrame> {
        requests.iter().for_each(|words| self.connection.send(words).expect("is sent"));
        self.replies += requests.len();
        requests.iter().map(|_| self.connection.receive().expect("it answers")).collect()
    }

    /// Returns when the trace has all replies until now: a thread is only let go on when the end of
    /// its call is noted.
    fn settle(&mut self) {
        assert_eq!(self.call(&["PING"]).text(), "PONG");
    }

    /// Has something done by a command; when the field of INFO says that it is over, what had been
    /// told before is promised.
    pub(crate) fn promise_after(&mut self, stage: &PowerStage, command: &[&str], over: &[&str]) {
        let told = stage.told();
        let reply = self.call(command);
        assert!(!reply.is_error(), "{command:?}: {}", reply.text());
        let deadline = Instant::now() + LIMIT;
        while !over.is_empty() {
            let info = self.call(&["INFO", "persistence"]).text();
            if over.iter().all(|field| info.contains(field)) {
                break;
            }
            assert!(Instant::now() < deadline, "{command:?}: {info}");
            std::thread::sleep(Duration::from_millis(2));
        }
        stage.promise(self, told);
    }
}

/// A unit of several commands, as a transaction or by a script.
fn group(number: usize, count: u64, random: &mut TestRandom) -> Vec<Vec<String>> {
    let line = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let length = if count.is_multiple_of(16) { 40_000 } else { 1 + random.below(3000) };
    let mut large = line(format!("SET large:{number}"));
    large.push(format!("{count},").repeat(length / 3 + 1));
    if random.below(2) == 0 {
        let add = [format!("INCR counter:{number}"), format!("RPUSH list:{number} {count}")];
        let [incr, push] = add.map(line);
        return vec![line("MULTI".into()), incr, push, large, line("EXEC".into())];
    }
    let keys = format!("3 counter:{number} list:{number} large:{number} {count}");
    let mut words = vec!["EVAL".to_owned(), SCRIPT.to_owned()];
    words.extend(line(keys));
    words.extend(large.pop());
    vec![words]
}

const SCRIPT: &str = "redis.call('INCR', KEYS[1]) redis.call('RPUSH', KEYS[2], ARGV[1]) \
                      redis.call('SET', KEYS[3], ARGV[2]) return 'done'";

const LIMIT: Duration = Duration::from_secs(60);
