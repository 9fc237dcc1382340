//! The report as lines of words, which `cargo xtask lines` reads.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::atomic::Ordering;

use crate::caches::{Caches, InstructionMoves};

/// Lines of memory that are named.
const HOTTEST: usize = 20;

/// Numbers of places and lines are addresses in the program's memory:
///
/// ```text
/// instructions COUNT
/// code ADDRESS
/// place ADDRESS MOVES CLAIMS
/// line ADDRESS MOVES PLACE:COUNT ...
/// ```
pub(crate) fn text(
    instructions: u64,
    code: u64,
    places: &HashMap<u64, &'static InstructionMoves>,
    caches: &Caches,
) -> String {
    let mut text = format!("instructions {instructions}\ncode {code}\n");
    for place in places.values() {
        let moves = place.moves.load(Ordering::Relaxed);
        let claims = place.claims.load(Ordering::Relaxed);
        if moves + claims > 0 {
            writeln!(text, "place {} {moves} {claims}", place.address).expect("a string takes all");
        }
    }
    for (address, line) in caches.hottest(HOTTEST) {
        write!(text, "line {address} {}", line.moves).expect("a string takes all");
        for (place, count) in line.places.iter().filter(|(_, count)| *count > 0) {
            write!(text, " {place}:{count}").expect("a string takes all");
        }
        text.push('\n');
    }
    text
}
