//! Answers that repeat: a command of a few megabytes may name one thing a million times.
//!
//! A value that is answered again is kept as a shared block, which each further answer refers to,
//! so that many of them take little more memory than the command's own words. Clients' limits count
//! them in full, as what they are sent.

use std::collections::HashMap;
use std::sync::Arc;

use bobbin_resp::Reply;

/// What a command has answered, by the names that it was asked for.
#[derive(Default)]
pub(super) struct Repeats<'a>(HashMap<&'a [u8], Option<Arc<Vec<u8>>>>);

/// Commands with fewer words need not look: as many copies are no burden.
pub(crate) const MANY: usize = 1000;
/// Shorter values are copied. A reference, with the header before it, takes half as much memory.
const SHARED_MIN: usize = 128;

impl<'a> Repeats<'a> {
    /// Appends a bulk, which is the same whenever it has this name.
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

    /// Appends a whole reply, which is the same whenever it has this name.
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
