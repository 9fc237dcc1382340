//! Sequences of commands on a worker without sockets: every reply is that of a model of plain maps.

#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use model::Bench;

#[path = "../../crates/server/tests/model/mod.rs"]
mod model;

thread_local! {
    static BENCH: RefCell<Bench> = RefCell::new(Bench::new());
}

fuzz_target!(|data: &[u8]| BENCH.with_borrow_mut(|bench| bench.run(data)));
