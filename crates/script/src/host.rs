//! What a script needs of its surroundings: the host that runs it carries out what it calls.

/// Carries out what a script asks for.
pub trait Host {
    /// Executes a command, whose name is the first argument, and appends its reply to `reply`:
    /// errors too, in RESP2 or RESP3. There is memory for a reply of `room` bytes.
    fn call(&mut self, args: &[&[u8]], resp3: bool, room: usize, reply: &mut Vec<u8>) -> Called;
    /// Goes on with the command that is `Called::Unfinished`; appends its reply once it is over.
    /// Hosts whose commands are over at once need not have it.
    fn go_on(&mut self, _room: usize, _reply: &mut Vec<u8>) -> Called {
        Called::Stop
    }
    /// Whether messages of this level are logged at all.
    fn logs(&self, level: Level) -> bool;
    /// `redis.log`, with a message that is logged.
    fn log(&mut self, level: Level, message: &[u8]);
    /// `redis.set_repl`: bit 0: the log, bit 1: replicas.
    fn set_replication(&mut self, flags: u8);
    /// `redis.acl_check_cmd`; `None`: there is no such command.
    fn may_call(&mut self, args: &[&[u8]]) -> Option<bool>;
    /// An error stands within what the script returned: its text, and whether it was counted when
    /// a command failed with it.
    fn note_error(&mut self, _text: &[u8], _counted: bool) {}
    /// Bytes that commands of the script have the host keep until the script ends. They count as
    /// the script's.
    fn kept_bytes(&mut self) -> usize {
        0
    }
    /// Asked from time to time, what the script is to do.
    fn watch(&mut self) -> Verdict;
}

/// What a script that runs is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    GoOn,
    /// To go on when it is resumed.
    Pause,
    /// To end with an error of this text; empty: nobody is told.
    Stop(&'static str),
}

/// What became of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Called {
    Replied,
    /// It replied, and it is time to ask `Host::watch`.
    Late,
    /// It takes long: ask `Host::watch`, and then `Host::go_on`.
    Unfinished,
    /// It has done nothing, as it must wait: ask `Host::watch`, and then `Host::call` again.
    Postponed,
    /// There is no memory for what it would reply.
    TooLong,
    /// The script is to end: no reply.
    Stop,
}

/// Levels of `redis.log`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    Debug,
    Verbose,
    Notice,
    Warning,
}
