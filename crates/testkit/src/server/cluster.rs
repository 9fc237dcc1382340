//! A cluster of real Valkeys, small and without replicas.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use super::{TestServer, free_port};
use crate::ReplyFrame;

/// Primaries that share the slots evenly, in order.
#[derive(Debug)]
pub struct TestCluster {
    pub nodes: Vec<TestServer>,
}

impl TestCluster {
    /// Starts `count` nodes and waits until they agree.
    pub fn valkey(count: u16) -> Self {
        let nodes = nodes(count, &[]);
        let cluster = Self { nodes };
        for (index, node) in cluster.nodes.iter().enumerate() {
            let index = index as u16;
            let (first, end) = (SLOTS / count * index, SLOTS / count * (index + 1));
            let last = if index + 1 == count { SLOTS - 1 } else { end - 1 };
            ok(node.connect().say(&format!("CLUSTER ADDSLOTSRANGE {first} {last}")));
            // Epochs of their own keep nodes from quarrelling.
            ok(node.connect().say(&format!("CLUSTER SET-CONFIG-EPOCH {}", index + 1)));
        }
        for other in &cluster.nodes[1..] {
            let (port, bus) = (other.address().port(), bus_port(other));
            ok(cluster.nodes[0].connect().say(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}")));
        }
        cluster.wait("the nodes agree", |node| {
            let info = node.connect().say("CLUSTER INFO").text();
            info.contains("cluster_state:ok")
                && info.contains(&format!("cluster_known_nodes:{count}"))
        });
        cluster
    }

    /// Slots without keys get another node.
    pub fn give(&self, slots: Range<u16>, to: usize) {
        let id = self.nodes[to].connect().say("CLUSTER MYID").text();
        // The new owner first: else the old one would learn of itself from it.
        let others = (0..self.nodes.len()).filter(|node| *node != to);
        for node in [to].into_iter().chain(others) {
            let mut connection = self.nodes[node].connect();
            for slot in slots.clone() {
                ok(connection.say(&format!("CLUSTER SETSLOT {slot} NODE {id}")));
            }
        }
    }

    /// Waits until all nodes serve all slots.
    pub fn wait_until_ok(&self) {
        self.wait("the cluster is ok", |node| {
            node.connect().say("CLUSTER INFO").text().contains("cluster_state:ok")
        });
    }

    fn wait(&self, what: &str, holds: impl Fn(&TestServer) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.nodes.iter().all(&holds) {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Valkeys that could be nodes of a cluster and know no others. `arguments` follow those that all
/// have.
pub fn nodes(count: u16, arguments: &[&str]) -> Vec<TestServer> {
    let start = |_| {
        // It would else be 10,000 above the server's port, which may be beyond all ports.
        let bus = free_port().expect("there is a free port").to_string();
        let own = [
            "--cluster-enabled",
            "yes",
            "--cluster-port",
            &bus,
            // A primary that gave its last slot away stays one.
            "--cluster-allow-replica-migration",
            "no",
        ];
        // A node forces its view of the cluster to disk for each slot that moves.
        TestServer::valkey_in_memory(&[&own, arguments].concat())
    };
    (0..count).map(start).collect()
}

fn ok(reply: ReplyFrame) {
    assert!(!reply.is_error(), "{}", reply.text());
}

fn bus_port(node: &TestServer) -> String {
    let reply = node.connect().say("CONFIG GET cluster-port");
    reply.items()[1].text()
}

const SLOTS: u16 = 16384;
