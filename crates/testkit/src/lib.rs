//! What the tests are made of: servers on free ports, transcripts that are replayed on Bobbin and
//! on a real peer, and a checker of concurrent histories.
//!
//! Nothing in here knows how Bobbin works inside. A server is a binary that takes redis.conf-style
//! flags and speaks RESP; Valkey, Redis and Bobbin are started and judged in the same way.

pub mod connection;
pub mod disk;
pub mod history;
pub mod load;
pub mod pages;
pub mod peers;
pub mod power;
pub mod random;
pub mod reply;
pub mod server;
pub mod shell;
pub mod transcript;

use std::process::Child;
use std::time::{Duration, Instant};

pub use connection::{ReceiveOutcome, TestConnection, encode_command};
pub use reply::ReplyFrame;
pub use server::TestServer;

/// How long something may take on a machine that has other things to do.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Calls `test` with a fresh Bobbin for each way to wait for connections.
pub fn on_each_driver(arguments: &[&str], test: impl Fn(&TestServer)) {
    for driver in ["epoll", "io_uring"] {
        test(&TestServer::bobbin(&[arguments, &["--io-driver", driver]].concat()));
    }
}

/// Waits for something to hold.
///
/// # Panics
/// It does not within [`PATIENCE`].
#[track_caller]
pub fn until(mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "it does not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A program that runs for ever, ended when this is dropped.
pub struct Endless(pub Child);

impl Drop for Endless {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
