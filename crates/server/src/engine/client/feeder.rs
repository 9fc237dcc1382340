//! What sends a connection bytes that are no replies: the copy of all keys and the stream that a
//! replica gets.

use std::any::Any;
use std::sync::Arc;

use crate::engine::buffers::output::ConnectionOutput;
use crate::engine::clients::ClientInfo;
use crate::engine::server::Server;
use crate::engine::server::mailbox::Post;

/// What feeds a connection. Its worker asks it for more whenever the connection has sent most of
/// what it had, another thread has woken it, and once a second.
pub trait Feeder: Any + Send {
    /// Appends about `bytes_max` bytes that may be sent now, if there are as many.
    fn fill(&mut self, now_ms: i64, bytes_max: usize, output: &mut ConnectionOutput) -> Feeding;

    /// Bytes that wait for the peer and count to its output limit, of which its output takes
    /// `output_bytes`. What the feeder itself has put there does not count: that has a limit.
    fn waiting_bytes(&self, output_bytes: usize) -> u64;
}

/// How it goes on with a connection that is fed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Feeding {
    GoesOn,
    /// The connection ends once what it has to send is sent.
    Finishes,
    /// The connection ends at once.
    Ends,
    /// It does, as too much waits for it.
    Overcome,
}

/// Has the client's worker ask its feeder for more.
pub fn wake(server: &Server, client: &Arc<ClientInfo>) {
    server.workers.post_to(client, || Post::Feed(Arc::clone(client)));
}

impl Server {
    /// Lets replicas have what the feed got.
    pub fn publish_feed(&self) {
        let backlog_max = self.config.repl_backlog_size();
        let waiting_max = self.config.replica_bytes_max();
        self.feed.publish(backlog_max, waiting_max, |client| wake(self, client));
    }
}
