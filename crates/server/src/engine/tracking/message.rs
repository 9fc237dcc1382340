//! What a client is sent that it did not ask for at this moment.

use std::sync::Arc;

use bobbin_resp::{Protocol, Reply};

use crate::engine::clients::{ClientFlag, ClientInfo};

/// A push message. Written for the protocol that the client speaks when it gets there.
#[derive(Clone)]
pub enum Push {
    /// What another client did, for one that monitors.
    Seen(Arc<[u8]>),
    /// Copies of these keys are no longer right.
    Invalid {
        /// An array of the keys; empty: no copy of anything is right.
        keys: Arc<[u8]>,
        /// Another client's copies: this one is told in its place.
        redirected: bool,
    },
    /// The client of this number, which was to be told of invalid copies, is gone.
    Broken(u64),
}

impl Push {
    /// One key whose copies are invalid.
    pub fn invalid(key: &[u8]) -> Arc<[u8]> {
        Self::invalid_all(std::iter::once(key))
    }

    /// Several of them.
    pub fn invalid_all<'a>(keys: impl ExactSizeIterator<Item = &'a [u8]>) -> Arc<[u8]> {
        let mut bytes = Vec::new();
        let mut reply = Reply::new(&mut bytes, Protocol::Resp3);
        reply.array(keys.len());
        keys.for_each(|key| reply.bulk(key));
        bytes.into()
    }

    /// Whether it counts as an answer, which CLIENT REPLY OFF suppresses.
    pub const fn is_answer(&self) -> bool {
        matches!(self, Self::Seen(_))
    }

    /// Appends it as the client understands it; nothing if the client has no way to tell it from a
    /// reply.
    pub fn append_for(&self, info: &ClientInfo, output: &mut Vec<u8>) {
        let protocol = info.protocol();
        match self {
            // Behind the answer of RESET it would be taken for the next one's.
            Self::Seen(line) if info.has(ClientFlag::MONITOR) => output.extend_from_slice(line),
            Self::Seen(_) => {}
            Self::Invalid { keys, redirected } => {
                let mut reply = Reply::new(output, protocol);
                if protocol == Protocol::Resp3 {
                    reply.push(2);
                    reply.bulk(b"invalidate");
                } else if *redirected && info.has(ClientFlag::PUBSUB) {
                    reply.array(3);
                    reply.bulk(b"message");
                    reply.bulk(CHANNEL);
                } else {
                    return;
                }
                if keys.is_empty() { reply.null() } else { reply.raw(keys) }
            }
            Self::Broken(redirect) if protocol == Protocol::Resp3 => {
                let mut reply = Reply::new(output, protocol);
                reply.push(2);
                reply.bulk(b"tracking-redir-broken");
                reply.integer(*redirect as i64);
            }
            Self::Broken(_) => {}
        }
    }
}

/// Where a client of the older protocol hears of other clients' copies.
const CHANNEL: &[u8] = b"__redis__:invalidate";
