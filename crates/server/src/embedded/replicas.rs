//! Replicas without sockets: their copies and stream, and periodic work.

use std::sync::mpsc::channel;

use super::{Embedded, EmbeddedSession};
use crate::engine::client::feeder::Feeding;
use crate::persistence::aof;
use crate::replication::Replication;
use crate::replication::replica::ReplicaState;

impl Embedded {
    /// Does the periodic work of replication.
    pub fn look_at_replicas(&mut self) {
        self.data.enter();
        Replication::tick(self.server, &mut self.data);
        self.data.leave();
    }

    /// Waits until the stream has everything that was logged.
    pub fn await_stream(&mut self) {
        if self.server.feed.takes_log() {
            let (done, is_there) = channel();
            let tell = move |_| done.send(()).expect("somebody waits for it");
            aof::reach_in_feed(self.server, self.server.log.last(), tell).expect("there is a log");
            is_there.recv().expect("the log's thread tells");
        }
    }

    /// Takes at most `bytes_max` of the bytes that a replica's session gets beside replies. `None`:
    /// its connection ends.
    pub fn take_fed(&mut self, session: &mut EmbeddedSession, bytes_max: usize) -> Option<Vec<u8>> {
        let (mut bytes, output) = (Vec::new(), &mut session.output);
        let feeding = match &mut session.client.feeder {
            Some(feeder) => feeder.fill(self.data.conditions.now_ms, FED_MAX, output),
            None => return Some(bytes),
        };
        output.free();
        output.drain_free(bytes_max, &mut |piece| bytes.extend_from_slice(piece));
        (feeding == Feeding::GoesOn).then_some(bytes)
    }

    /// Whether replicas are receiving a copy of all keys.
    pub fn is_copying(&self) -> bool {
        let mut replicas = Replication::of(self.server).replicas().into_iter();
        replicas.any(|replica| {
            matches!(replica.state(), ReplicaState::Receives | ReplicaState::ReceivesFile)
        })
    }

    /// How many replicas the server has, and how many bytes of memory their stream takes.
    pub fn replicas(&self) -> (usize, usize) {
        (Replication::of(self.server).replicas().len(), self.server.feed.memory())
    }
}

/// How many bytes a replica is given at once.
const FED_MAX: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn a_replica_may_ask_for_any_number() {
        let mut embedded = Embedded::new(Config::new(), 1).unwrap();
        for number in [i64::MIN, -1, 0, 1, i64::MAX] {
            let mut session = embedded.connect();
            let asked = format!("PSYNC {} {number}\r\n", "0".repeat(40));
            assert_eq!(embedded.feed(&mut session, asked.as_bytes()), b"");
            assert_eq!(embedded.replicas().0, 1);
            embedded.disconnect(session);
        }
    }
}
