//! Replies with repeated values: a command of a few megabytes may name one thing a million times.
//!
//! A value that is shown again is kept as a shared block, to which each further copy in the reply
//! refers. So many copies take little more memory than the command's own words. Clients' limits
//! count the copies in full, because they are sent.

use std::collections::HashMap;
use std::sync::Arc;

use bobbin_resp::Reply;

/// The values in a command's reply, by name.
#[derive(Default)]
pub(super) struct Repeats<'a>(HashMap<&'a [u8], Option<Arc<Vec<u8>>>>);

/// Commands with fewer words need not check for repetitions.
pub(crate) const MANY: usize = 1000;
/// Shorter values are copied. A reference and the header before it take half as much memory.
const SHARED_MIN: usize = 128;

impl<'a> Repeats<'a> {
    /// Appends a bulk string. It is the same each time for one name.
    pub(super) fn bulk(&mut self, reply: &mut Reply<'_>, name: &'a [u8], bytes: &[u8]) {
        if bytes.len() < SHARED_MIN {
            return reply.bulk(bytes);
        }
        match self.0.get_mut(name) {
            None => {
                self.0.insert(name, None);
                reply.bulk(bytes);
            }
            Some(again) => reply.bulk_shared(again.get_or_insert_with(|| Arc::new(bytes.into()))),
        }
    }

    /// Appends a whole reply. It is the same each time for one name.
    pub(super) fn whole(
        &mut self,
        reply: &mut Reply<'_>,
        name: &'a [u8],
        make: impl Fn(&mut Reply<'_>),
    ) {
        if let Some(again) = self.0.get_mut(name) {
            let protocol = reply.protocol();
            reply.whole_shared(again.get_or_insert_with(|| {
                let mut bytes = Vec::new();
                make(&mut Reply::new(&mut bytes, protocol));
                Arc::new(bytes)
            }));
            return;
        }
        let start = reply.output().len();
        make(reply);
        if reply.output().len() - start >= SHARED_MIN {
            self.0.insert(name, None);
        }
    }
}
