//! A script's command that takes long. It works in slices, and the script may pause between them.

use std::vec::IntoIter;

use bobbin_resp::{Protocol, Reply};
use bobbin_script::Called;

use crate::engine::buffers::output::Arena;
use crate::engine::command::Data;
use crate::engine::command::job::{LongCommand, Slice};
use crate::engine::server::Server;

/// A script's command that takes long.
pub(super) enum SlicedCall {
    Working(Box<LongCommand>),
    /// The command is done. Its reply is joined to one piece, which the script needs.
    Joining(IntoIter<Vec<u8>>, Arena),
}

impl SlicedCall {
    /// Works on for a slice, and appends the reply once it is complete. The reply may have `room`
    /// bytes. Returns `None` if there is more to do.
    pub(super) fn step(
        &mut self,
        slice: &mut Slice<'_>,
        room: usize,
        reply: &mut Vec<u8>,
    ) -> Option<Called> {
        if let Self::Working(long) = self {
            let is_done = long.step(slice);
            if long.job.reply_bytes() > room {
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
        let Self::Working(long) = std::mem::replace(self, nothing) else { return 0 };
        let mut rest = Arena::default();
        let pieces = long.close(slice.server, slice.stats, slice.client, &mut rest);
        let bytes = pieces.iter().map(Vec::len).sum::<usize>() + rest.len_since(0);
        *self = Self::Joining(pieces.into_iter(), rest);
        bytes
    }

    /// Stops the command.
    pub(super) fn abandon(self, server: &'static Server, data: &mut Data) {
        if let Self::Working(long) = self {
            long.abandon(server, data);
        }
    }
}
