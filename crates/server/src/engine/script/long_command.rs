//! A command of a script that takes long: worked on in slices, between which the script may pause.

use std::vec::IntoIter;

use bobbin_resp::{Protocol, Reply};
use bobbin_script::Called;

use crate::base::clock::ticks;
use crate::engine::client::connection::output::Arena;
use crate::engine::command::Data;
use crate::engine::command::job::{Account, Job, Slice};
use crate::engine::lazyfree;
use crate::engine::server::Server;

/// A long command at work.
pub(super) enum LongCommand {
    Working(Box<dyn Job>, Account),
    /// Its reply becomes one piece, as the script needs it.
    Joining(IntoIter<Vec<u8>>, Arena),
}

impl LongCommand {
    pub(super) fn new(job: Box<dyn Job>, account: Account) -> Self {
        Self::Working(job, account)
    }

    /// Goes on for a slice, and appends the reply once that is complete. It may have `room` bytes.
    /// `None`: there is more to do.
    pub(super) fn step(
        &mut self,
        slice: &mut Slice<'_>,
        room: usize,
        reply: &mut Vec<u8>,
    ) -> Option<Called> {
        if let Self::Working(job, account) = self {
            let started = ticks();
            let is_done = job.step(slice);
            account.add(ticks() - started);
            if job.reply_bytes() > room {
                return Some(Called::TooLong);
            }
            if !is_done {
                return None;
            }
            let bytes = self.close(slice);
            if bytes > room {
                return Some(Called::TooLong);
            }
            reply.reserve(bytes);
        }
        if let Self::Joining(pieces, rest) = self {
            for piece in pieces {
                reply.extend_from_slice(&piece);
                if !(slice.more)() {
                    return None;
                }
            }
            // The bytes are what they are in any protocol.
            Reply::new(reply, Protocol::Resp2).append(&rest.bytes, &rest.parts);
        }
        Some(Called::Replied)
    }

    /// Takes the reply of work that is done; how many bytes it has.
    fn close(&mut self, slice: &Slice<'_>) -> usize {
        let nothing = Self::Joining(Vec::new().into_iter(), Arena::default());
        let Self::Working(mut job, account) = std::mem::replace(self, nothing) else { return 0 };
        let (server, stats, client) = (slice.server, slice.stats, &*slice.client);
        let mut rest = Arena::default();
        let pieces = account.close(&mut *job, server, stats, client, &mut rest);
        lazyfree::free_job(job);
        let bytes = pieces.iter().map(Vec::len).sum::<usize>() + rest.len_since(0);
        *self = Self::Joining(pieces.into_iter(), rest);
        bytes
    }

    /// Ends it. What it has not done yet is not done.
    pub(super) fn abandon(self, server: &'static Server, data: &mut Data) {
        if let Self::Working(mut job, _) = self {
            job.abandon(server, data);
            lazyfree::free_job(job);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::embedded::{Embedded, Session};

    struct Keys {
        embedded: Embedded,
        session: Session,
    }

    impl Keys {
        fn new() -> Self {
            let mut embedded = Embedded::new(Config::new(), 1).expect("it starts");
            embedded.log();
            let session = embedded.connect();
            Self { embedded, session }
        }

        /// Puts collections into a database whose commands take long.
        fn fill(&mut self, database: &str) {
            self.ask(&["SELECT", database]);
            for at in 0..6000 {
                let member = format!("member:{at}");
                let score = (at * 7919 % 6007).to_string();
                self.ask(&["SADD", "set", &member]);
                self.ask(&["SADD", "numbers", &score]);
                self.ask(&["RPUSH", "list", &member]);
                self.ask(&["HSET", "hash", &member, &score]);
                self.ask(&["ZADD", "sorted", &score, &member]);
                self.ask(&["XADD", "stream", &format!("1-{}", at + 1), "f", &member]);
                self.ask(&["SET", &format!("weight_{score}"), &member]);
            }
            self.ask(&["XGROUP", "CREATE", "stream", "group", "0"]);
        }

        fn ask(&mut self, words: &[&str]) -> Vec<u8> {
            let mut request = format!("*{}\r\n", words.len());
            for word in words {
                request += &format!("${}\r\n{word}\r\n", word.len());
            }
            self.embedded.feed(&mut self.session, request.as_bytes()).to_vec()
        }

        fn dump(&mut self, database: &str) -> Vec<Vec<u8>> {
            self.ask(&["SELECT", database]);
            VALUES.iter().map(|key| self.ask(&["DUMP", key])).collect()
        }
    }

    const VALUES: &[&str] =
        &["set", "list", "sorted", "stored", "sorted_numbers", "ranged", "summed"];

    /// Commands that take long: what they reply and what they leave.
    const LONG: &[&str] = &[
        "SMEMBERS set",
        "SUNION set numbers",
        "SINTERCARD 2 set numbers",
        "SUNIONSTORE stored set numbers",
        "SDIFFSTORE stored set numbers",
        "SORT numbers",
        "SORT set ALPHA DESC LIMIT 10 5000",
        "SORT numbers BY weight_* ALPHA STORE sorted_numbers",
        "SORT list GET weight_* GET # BY nosort",
        "LRANGE list 0 -1",
        "LREM list 0 member:5999",
        "LTRIM list 5000 -1",
        "HGETALL hash",
        "HVALS hash",
        "HSCAN hash 0 COUNT 5000",
        "ZRANGE sorted 0 -1 WITHSCORES",
        "ZRANGESTORE ranged sorted 0 -1",
        "ZUNIONSTORE summed 2 sorted set WEIGHTS 2 1",
        "ZREMRANGEBYRANK sorted 0 4999",
        "XRANGE stream - +",
        "XREADGROUP GROUP group consumer COUNT 5000 STREAMS stream >",
        "XPENDING stream group",
        "XREAD COUNT 5000 STREAMS stream 0",
        "SPOP set 6000",
        "KEYS *",
        "SCAN 0 COUNT 5000",
        // What is no number cannot be sorted as one.
        "SORT hash",
        "SORT numbers BY weight_*",
    ];

    #[test]
    fn long_commands_do_in_a_script_what_they_do_outside() {
        let mut keys = Keys::new();
        ["0", "1"].into_iter().for_each(|database| keys.fill(database));
        for command in LONG {
            let words: Vec<&str> = command.split(' ').collect();
            keys.ask(&["SELECT", "0"]);
            let outside = keys.ask(&words);
            let mut script = vec!["EVAL", "return redis.pcall(unpack(ARGV))", "0"];
            script.extend(&words);
            keys.ask(&["SELECT", "1"]);
            let inside = keys.ask(&script);
            assert!(!outside.is_empty(), "{command}");
            assert!(inside == outside, "{command}: {} bytes, {}", inside.len(), outside.len());
            assert!(keys.dump("0") == keys.dump("1"), "{command} leaves something else");
        }
    }
}
