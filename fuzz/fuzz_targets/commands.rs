//! Sequences of commands on a worker without sockets: every reply is that of a model of plain maps.

#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use model::ModelBench;

#[path = "../../crates/server/tests/model/mod.rs"]
mod model;

thread_local! {
    static BENCH: RefCell<ModelBench> = RefCell::new(ModelBench::new());
}

fuzz_target!(|data: &[u8]| BENCH.with_borrow_mut(|bench| bench.run(data)));
