//! Runs one script with any bytes as its arguments. It must end by itself, with 1, or be stopped as
//! it takes long.

// Each target uses a part of it.
#![allow(dead_code)]

use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use bobbin_resp::{Protocol, Reply};
use bobbin_script::{Api, Called, Chunk, Ended, Host, Level, MemoryPool, Profile, Verdict, Vm};

/// `ARGV[1]` is `data`, `ARGV[2]` its first bytes, as many as `split`.
pub fn run(code: &'static str, bytes: &[u8], split: usize) {
    STATE.with_borrow_mut(|state| {
        let (vm, chunk) = state.get_or_insert_with(|| {
            let mut vm =
                Vm::new(Profile::Scripts, Api::Safe, 1, Arc::new(MemoryPool::new(256 << 20)));
            let chunk = vm.compile(code.as_bytes(), c"@fuzz").expect("the script is right");
            (vm, chunk)
        });
        let (first, data) = bytes.split_at(bytes.len().min(split));
        let (mut host, mut out) = (Nobody { looks: 0 }, Vec::new());
        // SAFETY: the host lives until the script is over, which never pauses.
        unsafe { vm.start(NonNull::from(&mut host), *chunk, &[], &[data, first], Protocol::Resp2) };
        match vm.finish(&mut Reply::new(&mut out, Protocol::Resp2)) {
            Ended::Replied => assert_eq!(out, b":1\r\n"),
            ended => assert!(host.looks > LOOKS_MAX, "{ended:?}"),
        }
    });
}

/// Runs one script with any bytes as its argument. However it ends, memory was enough, no look was
/// missing for long, and the next script finds all as it was.
pub fn survive(code: &'static str, bytes: &[u8]) {
    let mut vm = Vm::new(Profile::Scripts, Api::Safe, 1, Arc::new(MemoryPool::new(MEMORY)));
    let chunk = vm.compile(code.as_bytes(), c"@fuzz").expect("the script is right");
    let next = vm.compile(b"return 1", c"@next").expect("the script is right");
    let (mut host, mut out) = (Patient::default(), Vec::new());
    for (chunk, is_last) in [(chunk, false), (next, true)] {
        host.looked = thread_time();
        out.clear();
        // SAFETY: the host lives until the script is over, which never pauses.
        unsafe { vm.start(NonNull::from(&mut host), chunk, &[], &[bytes], Protocol::Resp2) };
        let ended = vm.finish(&mut Reply::new(&mut out, Protocol::Resp2));
        assert!(!is_last || ended == Ended::Replied && out == b":1\r\n", "{ended:?}");
    }
    assert!(vm.memory_peak() < 3 * MEMORY, "{} bytes", vm.memory_peak());
}

fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Lets a script run for a while, and sees that it is asked often.
struct Patient {
    /// In time of this thread on a core, so that a busy machine makes no finding.
    started: Duration,
    looked: Duration,
}

impl Default for Patient {
    fn default() -> Self {
        Self { started: thread_time(), looked: thread_time() }
    }
}

impl Host for Patient {
    fn call(&mut self, _: &[&[u8]], _: bool, _: usize, reply: &mut Vec<u8>) -> Called {
        reply.extend_from_slice(b"+OK\r\n");
        Called::Replied
    }
    fn logs(&self, _: Level) -> bool {
        true
    }
    fn log(&mut self, _: Level, _: &[u8]) {}
    fn set_replication(&mut self, _: u8) {}
    fn may_call(&mut self, _: &[&[u8]]) -> Option<bool> {
        Some(true)
    }
    fn watch(&mut self) -> Verdict {
        let now = thread_time();
        let since = now - self.looked;
        assert!(since < SILENCE_MAX, "nobody asked for {since:?}");
        self.looked = now;
        if now - self.started > RUN_MAX { Verdict::Stop("it takes long") } else { Verdict::GoOn }
    }
}

struct Nobody {
    looks: u32,
}

impl Host for Nobody {
    fn call(&mut self, _: &[&[u8]], _: bool, _: usize, reply: &mut Vec<u8>) -> Called {
        reply.extend_from_slice(b"+OK\r\n");
        Called::Replied
    }
    fn logs(&self, _: Level) -> bool {
        true
    }
    fn log(&mut self, _: Level, _: &[u8]) {}
    fn set_replication(&mut self, _: u8) {}
    fn may_call(&mut self, _: &[&[u8]]) -> Option<bool> {
        Some(true)
    }
    fn watch(&mut self) -> Verdict {
        self.looks += 1;
        if self.looks > LOOKS_MAX { Verdict::Stop("it takes long") } else { Verdict::GoOn }
    }
}

thread_local! {
    static STATE: RefCell<Option<(Vm, Chunk)>> = const { RefCell::new(None) };
}

const LOOKS_MAX: u32 = 200;
/// Memory of a script of any calls, in bytes.
const MEMORY: usize = 64 << 20;
/// How long such a script runs.
const RUN_MAX: Duration = Duration::from_millis(300);
/// Longer than a look may be missing, on a machine that is busy with other things.
const SILENCE_MAX: Duration = Duration::from_secs(2);
