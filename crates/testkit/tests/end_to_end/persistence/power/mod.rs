//! What is left when the power goes: servers work with their system calls written down; then, for
//! moments between any two of them, the folders that a disk may hold are made, a server is started
//! on each, and has to come up with all that had been promised by then.
//!
//! `BOBBIN_POWER` says how many folders of each load are tried, `BOBBIN_POWER_LOAD` which load
//! alone.

mod check;
mod load;
mod work;

use bobbin_testkit::random::{TestRandom, seed};

use check::check;
use work::Work;

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_was_promised_survives_a_power_cut() {
    let variable = |name| std::env::var(name).ok();
    let folders = variable("BOBBIN_POWER").and_then(|text| text.parse().ok()).unwrap_or(FOLDERS);
    let (seed, only) = (seed(), variable("BOBBIN_POWER_LOAD"));
    for (name, load) in load::LOADS {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let mut random = TestRandom::new(seed);
        let work = load(&mut random);
        match check(&work, folders, &mut random) {
            Ok(tried) => println!("{name}: {tried}"),
            Err(error) => panic!("{name}, seed {seed}: {error}"),
        }
    }
}

/// A server that never forces anything to disk loses what it told of, and one that leaves out any
/// kind of `fsync` loses that or does not start: the check sees it.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_promise_that_is_not_kept_is_seen() {
    let mut random = TestRandom::new(seed());
    let careless = load::careless(&mut random);
    let error =
        check(&careless, FOLDERS, &mut random).expect_err("it cannot keep what it promises");
    assert!(error.contains("promised"), "{error}");
    let leaves_out = |load: fn(&mut TestRandom) -> Work, what, is_meant: fn(&str) -> bool| {
        let mut random = TestRandom::new(seed());
        let mut work = load(&mut random);
        work.recording.without_syncs(is_meant).expect("the calls are understood");
        if let Ok(tried) = check(&work, FOLDERS, &mut random) {
            panic!("all is well without forcing {what} to disk: {tried}");
        }
    };
    leaves_out(load::always, "increments", |path| path.ends_with(".incr.aof"));
    leaves_out(load::always, "bases", |path| path.contains("temp-rewriteaof"));
    leaves_out(load::always, "manifests", |path| path.ends_with(".manifest"));
    leaves_out(load::always, "names of the log", |path| path == "appendonlydir");
    leaves_out(load::always, "the name of the log's directory", str::is_empty);
    leaves_out(load::snapshots, "snapshots", |path| path.ends_with(".rdb"));
    leaves_out(load::snapshots, "names of snapshots", str::is_empty);
}

/// Folders of each load.
const FOLDERS: usize = 80;
