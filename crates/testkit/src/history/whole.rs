//! Operations that concern very many keys at once, or all.
//!
//! There are two blocks of keys whose values are only written together, so all keys of a block have
//! the same value at every moment, and for the checker a block is one key. A client that reads two
//! values in one block has seen half a write.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::Client;
use super::linearizability::{HistoryCommand, KeyNumber, Operation, key_name};
use crate::{ReplyFrame, TestConnection};

/// Keys that are read and written at once.
struct Block {
    name: &'static str,
    keys: usize,
    /// What the checker calls all of them.
    key: KeyNumber,
}

const CALLED: Block = Block { name: "called", keys: 200, key: KeyNumber::MAX };
const QUEUED: Block = Block { name: "queued", keys: 1000, key: KeyNumber::MAX - 1 };

/// How a block is read or written.
#[derive(Clone, Copy, Debug)]
enum Form {
    Function,
    Transaction,
    Command,
}

/// Loads what the load needs.
pub fn prepare(address: SocketAddr) -> io::Result<()> {
    let reply = TestConnection::open(address)?.call(&["FUNCTION", "LOAD", "REPLACE", LIBRARY])?;
    if reply.is_error() { Err(io::Error::other(reply.text())) } else { Ok(()) }
}

impl Client<'_> {
    /// Something that concerns many keys, or all.
    pub(super) fn whole(&mut self, group: usize) -> io::Result<()> {
        match self.draw.random.below(12) {
            0 => self.everything(Operation::Flush, &["FLUSHALL"]),
            1 | 2 => self.everything(Operation::Swap, &["SWAPDB", "0", "1"]),
            // One client alone: a client that ends a pause ends all.
            3..6 if self.number == 0 => self.look_in_a_pause(group),
            6 if self.number == 0 => {
                self.connection.send(&["CLIENT", "PAUSE", "2", "ALL"])?;
                self.expect("OK")
            }
            _ => self.block(),
        }
    }

    fn everything(&mut self, operation: Operation, words: &[&str]) -> io::Result<()> {
        let start_ns = self.now();
        let reply = self.connection.call(words)?;
        self.note(start_ns, operation, reply);
        Ok(())
    }

    /// Reads keys one by one while no client may write: all at one moment.
    fn look_in_a_pause(&mut self, group: usize) -> io::Result<()> {
        self.connection.send(&["CLIENT", "PAUSE", "100000", "WRITE"])?;
        self.expect("OK")?;
        let start_ns = self.now();
        let (mut commands, mut replies) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let key = self.draw.key(group);
            let name = key_name(key);
            replies.push(self.connection.call(&[b"GET", name.as_slice()])?);
            commands.push(HistoryCommand::Get(key));
            std::thread::sleep(Duration::from_micros(self.draw.random.below(300) as u64));
        }
        self.note(start_ns, Operation::Transaction(commands), ReplyFrame::array(replies));
        self.connection.send(&["CLIENT", "UNPAUSE"])?;
        self.expect("OK")
    }

    /// Reads or writes a block.
    fn block(&mut self) -> io::Result<()> {
        let (block, form) = match self.draw.random.below(4) {
            0 => (CALLED, Form::Command),
            1 => (CALLED, Form::Function),
            2 => (QUEUED, Form::Command),
            _ => (QUEUED, Form::Transaction),
        };
        let value = (self.draw.random.below(2) == 0).then(|| self.draw.value());
        let mut bytes = Vec::new();
        for request in requests(&block, form, value.as_deref()) {
            crate::connection::encode_command(&request, &mut bytes);
        }
        let start_ns = self.now();
        self.connection.send_raw(&bytes)?;
        if matches!(form, Form::Transaction) {
            self.expect("OK")?;
            (0..block.keys).try_for_each(|_| self.expect("QUEUED"))?;
        }
        let reply = self.connection.receive()?;
        let replies = match &reply {
            ReplyFrame::Aggregate { items, .. } => &items[..],
            one => std::slice::from_ref(one),
        };
        let first = replies.first().cloned().unwrap_or(ReplyFrame::Null { kind: b'$' });
        if let Some(other) = replies.iter().find(|&other| *other != first) {
            let (name, load) = (block.name, self.load);
            return Err(io::Error::other(format!(
                "half a write of {name} was seen by {form:?}: {first:?} and {other:?}; {load:?}"
            )));
        }
        let command = match value {
            Some(value) => HistoryCommand::Set(block.key, value),
            None => HistoryCommand::Get(block.key),
        };
        self.note(start_ns, Operation::Single(command), first);
        Ok(())
    }
}

/// What reads a block, or writes a value to all of its keys.
fn requests(block: &Block, form: Form, value: Option<&[u8]>) -> Vec<Vec<Vec<u8>>> {
    let keys = || (0..block.keys).map(|number| format!("{}:{number}", block.name).into_bytes());
    let word = |word: &str| word.as_bytes().to_vec();
    let with_value = |key| std::iter::once(key).chain(value.map(<[u8]>::to_vec));
    match form {
        Form::Command => {
            let name = word(if value.is_some() { "MSET" } else { "MGET" });
            vec![std::iter::once(name).chain(keys().flat_map(with_value)).collect()]
        }
        Form::Function => {
            let name = word(if value.is_some() { "write_block" } else { "read_block" });
            let begin = [word("FCALL"), name, word(&block.keys.to_string())];
            let value = value.map(<[u8]>::to_vec);
            vec![begin.into_iter().chain(keys()).chain(value).collect()]
        }
        Form::Transaction => {
            let name = word(if value.is_some() { "SET" } else { "GET" });
            let command = |key| std::iter::once(name.clone()).chain(with_value(key)).collect();
            let commands = keys().map(command);
            let (first, last) = (vec![word("MULTI")], vec![word("EXEC")]);
            std::iter::once(first).chain(commands).chain([last]).collect()
        }
    }
}

const LIBRARY: &str = "#!lua name=blocks
redis.register_function('write_block', function(keys, args)
    for _, key in ipairs(keys) do
        redis.call('SET', key, args[1])
    end
    return redis.status_reply('OK')
end)
redis.register_function('read_block', function(keys)
    local values = {}
    for number, key in ipairs(keys) do
        values[number] = redis.call('GET', key)
    end
    return values
end)";
