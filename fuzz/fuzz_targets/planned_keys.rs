//! Commands with random arguments from a user that may use few keys: what they touch is what their
//! plans name.

#![no_main]

use std::cell::RefCell;

use grammar::{Choices, GrammarRow, KeyNames, SendWay, Walls};
use libfuzzer_sys::fuzz_target;

// The tests use more of it.
#[allow(dead_code)]
#[path = "../../crates/server/tests/grammar/mod.rs"]
mod grammar;

thread_local! {
    static BENCH: RefCell<(Walls, Vec<GrammarRow>)> = RefCell::new((Walls::new(), rows()));
}

/// All commands but the one that takes many seconds here, whatever its arguments.
fn rows() -> Vec<GrammarRow> {
    let mut rows = grammar::rows();
    rows.retain(|row| row.name != "pfselftest");
    rows
}

fuzz_target!(|data: &[u8]| BENCH.with_borrow_mut(|(walls, rows)| {
    let mut choices = Choices::new(data);
    let row = &rows[(choices.below(256) * 256 + choices.below(256)) % rows.len()];
    let way = [SendWay::Alone, SendWay::Exec][choices.below(2)];
    let mut command = row.command(&mut choices, KeyNames::Both);
    // Words of the command itself, or of another, in odd places.
    for _ in 0..choices.below(4) {
        let other = rows[choices.below(256) % rows.len()].command(&mut choices, KeyNames::Both);
        let word = other[choices.below(other.len())].clone();
        let at = 1 + choices.below(command.len());
        command.insert(at, word);
    }
    walls.send(row, &command, way);
}));
