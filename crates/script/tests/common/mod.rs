//! Runs scripts without a server.

#![allow(dead_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use bobbin_resp::{Protocol, Reply};
use bobbin_script::{
    Api, Called, Ended, Host, Level, MemoryPool, Profile, ScriptProgress, Verdict, Vm,
};

/// Answers each command with its own words, `slow` only after some more calls. Lets scripts go on
/// until it has been asked `looks` times, then returns `verdict`.
pub struct Echo {
    pub looks: u32,
    pub verdict: Verdict,
    /// How many more calls the last command takes.
    pub left: u32,
}

impl Host for Echo {
    fn call(&mut self, args: &[&[u8]], resp3: bool, _: usize, reply: &mut Vec<u8>) -> Called {
        let protocol = if resp3 { Protocol::Resp3 } else { Protocol::Resp2 };
        let mut reply = Reply::new(reply, protocol);
        match args[0] {
            b"fail" => reply.error("ERR failed"),
            b"stop" => return Called::Stop,
            b"null" => reply.null(),
            b"slow" => {
                self.left = SLOW_CALLS;
                return Called::Unfinished;
            }
            _ => {
                reply.array(args.len());
                args.iter().for_each(|arg| reply.bulk(arg));
            }
        }
        Called::Replied
    }
    fn go_on(&mut self, _: usize, reply: &mut Vec<u8>) -> Called {
        self.left -= 1;
        if self.left > 0 {
            return Called::Unfinished;
        }
        Reply::new(reply, Protocol::Resp2).simple("done");
        Called::Replied
    }
    fn logs(&self, level: Level) -> bool {
        matches!(level, Level::Notice | Level::Warning)
    }
    fn log(&mut self, _: Level, _: &[u8]) {}
    fn set_replication(&mut self, _: u8) {}
    fn may_call(&mut self, _: &[&[u8]]) -> Option<bool> {
        Some(true)
    }
    fn watch(&mut self) -> Verdict {
        self.looks = self.looks.saturating_sub(1);
        if self.looks == 0 { self.verdict } else { Verdict::GoOn }
    }
}

/// How often a command that is slow is gone on with.
pub const SLOW_CALLS: u32 = 3;

/// A state that may take `memory` bytes.
pub fn new_vm(memory: usize) -> Vm {
    new_vm_with(Api::Safe, memory)
}

pub fn new_vm_with(api: Api, memory: usize) -> Vm {
    Vm::new(Profile::Scripts, api, 1, Arc::new(MemoryPool::new(memory)))
}

pub fn run(vm: &mut Vm, code: &str) -> (Ended, String) {
    run_for(vm, code, 2000)
}

/// Runs a script that is killed when its host has been asked `looks` times.
pub fn run_for(vm: &mut Vm, code: &str, looks: u32) -> (Ended, String) {
    let chunk = vm.compile(code.as_bytes(), c"@user_script").expect("it compiles");
    let mut host = Echo { looks, verdict: Verdict::Stop("Script killed."), left: 0 };
    let mut out = Vec::new();
    // SAFETY: the host lives until the script is over, which never pauses.
    let progress = unsafe {
        vm.start(NonNull::from(&mut host), chunk, &[b"k"], &[b"1", b"2"], Protocol::Resp2)
    };
    assert_eq!(progress, ScriptProgress::Over);
    let ended = vm.finish(&mut Reply::new(&mut out, Protocol::Resp2));
    vm.forget(chunk);
    (ended, String::from_utf8_lossy(&out).into_owned())
}

pub fn failure(vm: &mut Vm, code: &str) -> String {
    failure_for(vm, code, 200)
}

pub fn failure_for(vm: &mut Vm, code: &str, looks: u32) -> String {
    match run_for(vm, code, looks) {
        (Ended::Failed { text, .. }, _) => String::from_utf8_lossy(&text).into_owned(),
        other => panic!("{code}: {other:?}"),
    }
}
