//! A simulator of replication: several nodes on a network that cuts, delays and loses what they
//! say, while their roles change. No thread, no socket and no clock: a seed says all that happens.
//!
//! What is tried are the parts of the server that decide: the replica's `LinkMachine`, the names of
//! histories (`History`) and the stream (`Feed`). `node.rs` puts them together as the server does;
//! `network.rs` carries bytes; `stage.rs` draws what happens, and checks after each step that no
//! node has anything that the primary of its history did not have.
//!
//! `BOBBIN_UNITS=1000000 cargo test -p bobbin-server --test replicas` runs as many seeds as it
//! says, from `BOBBIN_SEED` on (else from 0).

mod network;
mod node;
mod stage;

use stage::ReplicaStage;

/// Seeds in the tests.
const SEEDS: u64 = 300;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn replicas_converge_and_lose_nothing_that_was_acknowledged() {
    let first = variable("BOBBIN_SEED").unwrap_or(0);
    let mut seen = stage::StageCounts::default();
    for seed in first..first + variable("BOBBIN_UNITS").unwrap_or(SEEDS) {
        let mut stage = ReplicaStage::new(seed);
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stage.play()));
        if let Err(fault) = played {
            eprintln!("BOBBIN_SEED={seed} BOBBIN_UNITS=1\n{}", stage.story());
            std::panic::resume_unwind(fault);
        }
        seen.add(&stage.counts);
    }
    println!("{seen:?}");
    assert!(variable("BOBBIN_UNITS").is_some() || seen.is_telling(), "{seen:?}");
}
