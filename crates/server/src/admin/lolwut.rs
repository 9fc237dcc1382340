//! LOLWUT's drawing: a piece of woven cloth.
//!
//! Three small tables determine a loom's cloth. The threading says which shaft lifts each warp
//! thread, the treadling says which treadle each row presses, and the tie-up says which shafts a
//! treadle lifts. A lifted warp thread is visible where it crosses a row. Elsewhere the weft is.

use crate::base::random::Random;

/// Draws a piece of cloth.
pub fn weave(columns: usize, rows: usize, random: &mut Random) -> String {
    let shafts = 4 + 2 * random.below(3) as usize;
    let threading = path(columns, shafts, random);
    let treadling = path(rows, shafts, random);
    let lifted = tie_up(shafts, random);
    let (warp, weft) = YARNS[random.below(YARNS.len() as u32) as usize];
    let mut cloth = String::with_capacity(rows * (columns + 1) * 3);
    for treadle in &treadling {
        for shaft in &threading {
            cloth.push(if lifted[*treadle][*shaft] { warp } else { weft });
        }
        cloth.push('\n');
    }
    cloth
}

/// A path over the shafts: in one direction, or turning at regular points.
fn path(len: usize, shafts: usize, random: &mut Random) -> Vec<usize> {
    let turns = match random.below(3) {
        0 => usize::MAX,
        1 => shafts - 1,
        _ => shafts - 1 + shafts * (1 + random.below(2) as usize),
    };
    let (mut at, mut ahead) = (0, true);
    (0..len)
        .map(|step| {
            let here = at;
            if turns != usize::MAX && step > 0 && step % turns == 0 {
                ahead = !ahead;
            }
            at = if ahead { (at + 1) % shafts } else { (at + shafts - 1) % shafts };
            here
        })
        .collect()
}

/// Which shafts each treadle lifts: one pattern, shifted by one from treadle to treadle, as in a
/// twill.
fn tie_up(shafts: usize, random: &mut Random) -> Vec<Vec<bool>> {
    let mut pattern: Vec<bool> = (0..shafts).map(|_| random.below(2) == 0).collect();
    // A thread that is always or never lifted would hold nothing together.
    pattern[0] = true;
    pattern[shafts - 1] = false;
    (0..shafts)
        .map(|treadle| (0..shafts).map(|shaft| pattern[(shaft + treadle) % shafts]).collect())
        .collect()
}

/// The characters for the warp and for the weft.
const YARNS: [(char, char); 5] = [('█', '░'), ('▓', ' '), ('╱', '╲'), ('▞', '·'), ('#', '-')];

pub const COLUMNS: usize = 64;
pub const ROWS: usize = 24;
pub const COLUMNS_MAX: usize = 1000;
pub const ROWS_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cloth_has_its_size_and_both_yarns_in_every_row() {
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let cloth = weave(40, 12, &mut random);
            assert_eq!(cloth.lines().count(), 12);
            for line in cloth.lines() {
                let cells: Vec<char> = line.chars().collect();
                assert_eq!(cells.len(), 40);
                assert!(cells.iter().any(|cell| *cell != cells[0]), "{line}");
            }
        }
    }
}
