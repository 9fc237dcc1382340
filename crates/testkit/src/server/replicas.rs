//! What tests of replication ask of servers of any kind.

use std::time::Duration;

use super::TestServer;
use crate::{ReplyFrame, until};

impl TestServer {
    /// A field of INFO.
    ///
    /// # Panics
    /// When there is no such field.
    pub fn info(&self, field: &str) -> String {
        let text = self.connect().say("INFO everything").text();
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {field} in {text}")).to_owned()
    }

    /// Has it follow the primary at a port.
    ///
    /// # Panics
    /// When it refuses.
    pub fn follow(&self, port: u16) {
        let reply = self.connect().say(&format!("REPLICAOF 127.0.0.1 {port}"));
        assert_eq!(reply, ReplyFrame::simple("OK"));
    }

    /// What DEBUG DIGEST says of all keys.
    ///
    /// # Panics
    /// When it refuses.
    pub fn digest(&self) -> String {
        let reply = self.connect().say("DEBUG DIGEST");
        assert!(!reply.is_error() && reply.bytes().is_some(), "{reply:?}");
        reply.text()
    }

    /// Waits until these replicas have all that it has.
    ///
    /// # Panics
    /// When they do not come to have it.
    pub fn settle(&self, replicas: &[&Self]) {
        let mut still = 0;
        until(|| {
            let offset = self.info("master_repl_offset");
            let has_it = |replica: &&Self| {
                replica.info("master_link_status") == "up"
                    && replica.info("master_replid") == self.info("master_replid")
                    && replica.info("master_repl_offset") == offset
            };
            // What was written last may not be in the primary's stream yet.
            std::thread::sleep(Duration::from_millis(10));
            let all_have_it =
                replicas.iter().all(has_it) && self.info("master_repl_offset") == offset;
            still = if all_have_it { still + 1 } else { 0 };
            still >= 3
        });
    }
}
