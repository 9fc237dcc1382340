//! Sends a connection bytes that are not replies: the copy of all keys and the stream for a
//! replica.

use std::any::Any;
use std::sync::Arc;

use crate::engine::buffers::output::ConnectionOutput;
use crate::engine::clients::ClientInfo;
use crate::engine::server::Server;
use crate::engine::server::mailbox::ClientPost;

/// Feeds a connection. Its worker asks it for more when the connection has sent most of its output,
/// when another thread has woken it, and once a second.
pub trait Feeder: Any + Send {
    /// Appends about `bytes_max` bytes that may be sent now, or fewer if there are not as many.
    fn fill(&mut self, now_ms: i64, bytes_max: usize, output: &mut ConnectionOutput) -> Feeding;

    /// Bytes that wait for the peer and count towards its output limit. The connection's output
    /// holds `output_bytes`. Bytes that the feeder has put there do not count, as they have a limit
    /// of their own.
    fn waiting_bytes(&self, output_bytes: usize) -> u64;
}

/// What happens to a connection after it was fed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Feeding {
    GoesOn,
    /// The connection closes once its output is sent.
    Finishes,
    /// The connection closes at once.
    Ends,
    /// The connection closes at once, because too much waits for it.
    Overcome,
}

/// Tells the client's worker to ask its feeder for more.
pub fn wake(server: &Server, client: &Arc<ClientInfo>) {
    server.workers.post_to(client, ClientPost::Feed);
}

impl Server {
    /// Makes the new bytes of the feed available to replicas.
    pub fn publish_feed(&self) {
        let backlog_max = self.config.repl_backlog_size();
        let waiting_max = self.config.replica_bytes_max();
        self.feed.publish(backlog_max, waiting_max, |client| wake(self, client));
    }

    /// Drops what no replica needs any more of the feed.
    pub fn trim_feed(&self) {
        self.feed.trim(self.config.repl_backlog_size());
    }
}
