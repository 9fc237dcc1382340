//! A script's command that takes long. It works in slices, and the script may pause between them.

use std::vec::IntoIter;

use bobbin_resp::{Protocol, Reply};
use bobbin_script::Called;

use crate::base::clock::ticks;
use crate::engine::buffers::output::Arena;
use crate::engine::command::Data;
use crate::engine::command::job::{Account, Job, Slice};
use crate::engine::lazyfree;
use crate::engine::server::Server;

/// A script's command that takes long.
pub(super) enum LongCommand {
    Working(Box<dyn Job>, Account),
    /// The command is done. Its reply is joined to one piece, which the script needs.
    Joining(IntoIter<Vec<u8>>, Arena),
}

impl LongCommand {
    pub(super) fn new(job: Box<dyn Job>, account: Account) -> Self {
        Self::Working(job, account)
    }

    /// Works on for a slice, and appends the reply once it is complete. The reply may have `room`
    /// bytes. Returns `None` if there is more to do.
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
            // These bytes were made for the script's protocol, and are appended unchanged.
            Reply::new(reply, Protocol::Resp2).append(&rest.bytes, &rest.parts);
        }
        Some(Called::Replied)
    }

    /// Takes the reply of a command that is done, and returns its length in bytes.
    fn close(&mut self, slice: &Slice<'_>) -> usize {
        let nothing = Self::Joining(Vec::new().into_iter(), Arena::default());
        let Self::Working(mut job, account) = std::mem::replace(self, nothing) else { return 0 };
        let (server, stats, client) = (slice.server, slice.stats, &*slice.client);
        let mut rest = Arena::default();
        let pieces = account.close(&mut *job, server, stats, client, &mut rest);
        lazyfree::free_pins(job);
        let bytes = pieces.iter().map(Vec::len).sum::<usize>() + rest.len_since(0);
        *self = Self::Joining(pieces.into_iter(), rest);
        bytes
    }

    /// Stops the command. The rest of its work is not done.
    pub(super) fn abandon(self, server: &'static Server, data: &mut Data) {
        if let Self::Working(mut job, _) = self {
            job.abandon(server, data);
            lazyfree::free_pins(job);
        }
    }
}
