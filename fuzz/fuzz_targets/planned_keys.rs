//! Commands with random arguments from a user that may use few keys: what they touch is what their
//! plans name.

#![no_main]

use std::cell::RefCell;

use grammar::{Choices, Keys, Row, Walls, Way};
use libfuzzer_sys::fuzz_target;

// The tests use more of it.
#[allow(dead_code)]
#[path = "../../crates/server/tests/grammar/mod.rs"]
mod grammar;

thread_local! {
    static BENCH: RefCell<(Walls, Vec<Row>)> = RefCell::new((Walls::new(), grammar::rows()));
}

fuzz_target!(|data: &[u8]| BENCH.with_borrow_mut(|(walls, rows)| {
    let mut choices = Choices::new(data);
    let row = &rows[(choices.below(256) * 256 + choices.below(256)) % rows.len()];
    let way = [Way::Alone, Way::Exec][choices.below(2)];
    let mut command = row.command(&mut choices, Keys::Both);
    // Words of the command itself, or of another, in odd places.
    for _ in 0..choices.below(4) {
        let other = rows[choices.below(256) % rows.len()].command(&mut choices, Keys::Both);
        let word = other[choices.below(other.len())].clone();
        let at = 1 + choices.below(command.len());
        command.insert(at, word);
    }
    walls.send(row, &command, way);
}));
