//! How other threads reach a worker: the posts that they leave for it, and how it is woken.

use std::sync::Arc;

use bobbin_io::Waker;
use bobbin_sync::inbox::Inbox;

use crate::engine::client::connection::Connection;
use crate::engine::clients::ClientInfo;
use crate::engine::pubsub::Message;
use crate::engine::server::unsent::UnsentBytes;
use crate::engine::tracking::Push;

/// A worker's queue of posts. Posting never blocks.
pub type Mailbox = Inbox<Post, Waker>;

/// A post for a worker.
pub enum Post {
    /// A connection that the worker serves from now on: new, or from another worker.
    Adopt(Box<Connection>),
    /// Something for one client. It follows the client's connection to other workers.
    ToClient(Arc<ClientInfo>, ClientPost),
    /// A message for those of the worker's clients that listen to its channel.
    Message { message: Arc<Message>, unsent: UnsentBytes },
    /// These users (by identity) may no longer listen to all channels that they could before: check
    /// the subscriptions of their clients.
    Revoked(Arc<[u64]>),
    /// A pause has ended: try the clients again that it put off.
    Resume,
    /// More of the log is on disk: check the replies that wait for that.
    Durable,
    /// The number of workers changed: give away the connections above the worker's fair share, or
    /// all if the worker no longer serves clients.
    Rebalance,
    /// The server ends: end now.
    Stop,
}

/// A post for one client.
pub enum ClientPost {
    /// The client must be closed.
    Kill,
    /// A message that is not a reply.
    Push { push: Push, unsent: UnsentBytes },
    /// The wait of the blocked client has ended.
    Unblock,
    /// There may be more bytes to feed the client with.
    Feed,
}

impl Post {
    /// Bytes of a message for one client; 0 for other posts.
    pub fn pushed_bytes(&self) -> usize {
        match self {
            Self::ToClient(_, ClientPost::Push { push, .. }) => push.memory(),
            _ => 0,
        }
    }
}

/// Bytes of memory for a post whose contents have this size, where posts come in numbers: the list
/// in which it waits grows by doubling.
pub const fn post_memory(contents: usize) -> usize {
    2 * size_of::<Post>() + contents
}
