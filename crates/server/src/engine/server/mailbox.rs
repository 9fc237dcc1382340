//! How other threads reach a worker: what they can leave for it, and how it is woken.

use std::sync::Arc;

use bobbin_io::Waker;
use bobbin_sync::inbox::Inbox;

use crate::engine::client::connection::Connection;
use crate::engine::clients::ClientInfo;
use crate::engine::pubsub::Message;
use crate::engine::tracking::Push;

/// A worker's queue of posts. Posting never blocks.
pub type Mailbox = Inbox<Post, Waker>;

/// What can be left for a worker.
pub enum Post {
    /// A connection to serve from now on: new, or from another worker.
    Adopt(Box<Connection>),
    /// Look whether the client must be closed.
    Kill(Arc<ClientInfo>),
    /// For a client that did not ask for it at this moment.
    Push { to: Arc<ClientInfo>, push: Push },
    /// A message for those of the worker's clients that listen.
    Message(Arc<Message>),
    /// The wait of this blocked client has ended.
    Unblock(Arc<ClientInfo>),
    /// These users (by identity) may not listen to all that they could: look at what their clients
    /// listen to.
    Revoked(Arc<[u64]>),
    /// A pause has ended: look again at the clients that it put off.
    Resume,
    /// There may be more to feed this client with.
    Feed(Arc<ClientInfo>),
    /// More of the log is on disk: look again at the replies that wait for it.
    Durable,
    /// The number of workers changed: give connections away that are more than a fair share, or all
    /// if this worker does not serve any more.
    Rebalance,
    /// End now.
    Stop,
}
