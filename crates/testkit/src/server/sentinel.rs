//! Real Sentinels that watch a primary.

use std::path::Path;
use std::time::Duration;

use super::TestServer;
use crate::{ReplyFrame, peers, until};

/// Sentinels that watch one primary and know each other.
#[derive(Debug)]
pub struct Sentinels {
    pub nodes: Vec<TestServer>,
}

/// The name that they know the primary by.
pub const PRIMARY: &str = "primary";

/// Silence after which a node counts as down.
pub const DOWN_AFTER: Duration = Duration::from_millis(500);

impl Sentinels {
    /// Starts `count` of them, `program` being the server that has them built in, and waits until
    /// each knows the others and `replicas` replicas. More than half of them decide.
    pub fn watch(program: &str, count: usize, primary: &TestServer, replicas: usize) -> Self {
        let nodes: Vec<_> = (0..count)
            .map(|index| {
                let file = primary.folder().join(format!("sentinel-{index}.conf"));
                std::fs::write(&file, configuration(primary, count / 2 + 1)).expect("a file");
                start(program, &file)
            })
            .collect();
        let sentinels = Self { nodes };
        until(|| {
            sentinels.nodes.iter().all(|node| {
                field(node, "num-other-sentinels") == (count - 1).to_string()
                    && field(node, "num-slaves") == replicas.to_string()
            })
        });
        sentinels
    }

    /// The port of the primary, if all of them agree.
    pub fn primary_port(&self) -> Option<u16> {
        let ports: Vec<_> = self.nodes.iter().map(primary_port).collect();
        ports.iter().all(|port| *port == ports[0]).then(|| ports[0])
    }
}

fn start(program: &str, file: &Path) -> TestServer {
    let file = file.to_str().expect("it is text");
    TestServer::start(&peers::peer(program), &[file, "--sentinel"])
        .unwrap_or_else(|error| panic!("{program} as Sentinel: {error}"))
}

fn configuration(primary: &TestServer, quorum: usize) -> String {
    let (port, down_ms) = (primary.address().port(), DOWN_AFTER.as_millis());
    format!(
        "sentinel monitor {PRIMARY} 127.0.0.1 {port} {quorum}\n\
         sentinel down-after-milliseconds {PRIMARY} {down_ms}\n\
         sentinel failover-timeout {PRIMARY} 10000\n\
         sentinel parallel-syncs {PRIMARY} 2\n"
    )
}

/// What a Sentinel says of the primary.
fn field(node: &TestServer, name: &str) -> String {
    let reply = node.connect().say(&format!("SENTINEL MASTER {PRIMARY}"));
    let mut items = reply.items().iter().map(ReplyFrame::text);
    items.find(|item| item == name).and_then(|_| items.next()).unwrap_or_default()
}

fn primary_port(node: &TestServer) -> u16 {
    let reply = node.connect().say(&format!("SENTINEL GET-MASTER-ADDR-BY-NAME {PRIMARY}"));
    reply.items()[1].text().parse().expect("it is a port")
}
