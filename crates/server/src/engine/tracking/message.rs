//! Messages that a client has not asked for at that moment.

use std::sync::Arc;

use bobbin_resp::{Protocol, Reply};

use crate::engine::clients::{ClientFlag, ClientInfo};

/// A push message. It is encoded for the protocol that the client uses when the message gets there.
#[derive(Clone)]
pub enum Push {
    /// A command of another client, for a monitor.
    Seen(Arc<[u8]>),
    /// Copies of these keys are invalid.
    Invalid {
        /// An array of the keys; empty if all copies of all keys are invalid.
        keys: Arc<[u8]>,
        /// Whether the copies are another client's, in whose place this one is told.
        redirected: bool,
    },
    /// The client with this number, which was to be told of invalid copies, has gone.
    Broken(u64),
}

impl Push {
    /// One key whose copies are invalid.
    pub fn invalid(key: &[u8]) -> Arc<[u8]> {
        Self::invalid_all(std::iter::once(key))
    }

    /// Several keys whose copies are invalid.
    pub fn invalid_all<'a>(keys: impl ExactSizeIterator<Item = &'a [u8]>) -> Arc<[u8]> {
        let mut bytes = Vec::new();
        let mut reply = Reply::new(&mut bytes, Protocol::Resp3);
        reply.array(keys.len());
        keys.for_each(|key| reply.bulk(key));
        bytes.into()
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        match self {
            Self::Seen(text) | Self::Invalid { keys: text, .. } => text.len(),
            Self::Broken(_) => 0,
        }
    }

    /// Whether the message counts as an answer, which CLIENT REPLY OFF suppresses.
    pub const fn is_answer(&self) -> bool {
        matches!(self, Self::Seen(_))
    }

    /// Appends the message in the client's protocol. Appends nothing if the client could not tell
    /// it from a reply.
    pub fn append_for(&self, info: &ClientInfo, output: &mut Vec<u8>) {
        let protocol = info.protocol();
        match self {
            // After the answer of RESET, the client would take the line for the next answer.
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

/// The channel that tells a client of the older protocol about other clients' copies.
const CHANNEL: &[u8] = b"__redis__:invalidate";
