//! Cells of the map: the Earth is halved along both coordinates once for each step of a cell.

use std::ops::Range;

use super::{LATITUDE_MAX, LONGITUDE_MAX, STEPS_MAX};

/// A place on the map.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GeoPosition {
    pub longitude: f64,
    pub latitude: f64,
}

/// Two bits for each step, the first step in the highest bits: longitude, then latitude.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GeoCell {
    pub(super) bits: u64,
    pub(super) steps: u32,
}

/// The ranges of the coordinates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub longitude: (f64, f64),
    pub latitude: (f64, f64),
}

impl GeoCell {
    /// The cell that contains a position.
    pub(super) fn around(position: GeoPosition, steps: u32) -> Self {
        let bits = interleave(
            fraction(position.latitude, LATITUDE_MAX, steps),
            fraction(position.longitude, LONGITUDE_MAX, steps),
        );
        Self { bits, steps }
    }

    /// The cell `east` cells to the east and `north` cells to the north. The map's edges are
    /// joined.
    pub(super) fn neighbour(self, east: i32, north: i32) -> Self {
        let (latitude, longitude) = separate(self.bits);
        let mask = (1u64 << self.steps) - 1;
        // The upper edge of the map is a cell of its own behind the last one, unless the caller
        // moves from it.
        let moved = |at: u32, by: i32| match by {
            0 => at,
            _ => (u64::from(at.wrapping_add_signed(by)) & mask) as u32,
        };
        Self { bits: interleave(moved(latitude, north), moved(longitude, east)), steps: self.steps }
    }

    pub(super) fn area(self) -> Area {
        let (latitude, longitude) = separate(self.bits);
        let bounds = |at: u32, bound: f64| {
            let scale = bound - -bound;
            let cells = (1u64 << self.steps) as f64;
            let edge = |at: u32| -bound + (f64::from(at) / cells) * scale;
            (edge(at), edge(at.wrapping_add(1)))
        };
        Area {
            longitude: bounds(longitude, LONGITUDE_MAX),
            latitude: bounds(latitude, LATITUDE_MAX),
        }
    }

    /// The scores of the positions in the cell.
    pub(super) fn scores(self) -> Range<u64> {
        let shift = 2 * (STEPS_MAX - self.steps);
        self.bits << shift..(self.bits + 1) << shift
    }
}

/// A coordinate as a fraction of the way from `-bound` to `bound`, in units of 2^-steps.
pub(super) fn fraction(coordinate: f64, bound: f64, steps: u32) -> u32 {
    let part = (coordinate - -bound) / (bound - -bound);
    (part * (1u64 << steps) as f64) as u32
}

/// Interleaves the bits of two numbers; the second number's are the higher ones.
pub(super) fn interleave(low: u32, high: u32) -> u64 {
    spread(low) | spread(high) << 1
}

fn separate(bits: u64) -> (u32, u32) {
    (gather(bits), gather(bits >> 1))
}

/// Leaves a gap of one bit before each bit.
fn spread(number: u32) -> u64 {
    GAPS.iter().fold(u64::from(number), |bits, (shift, mask)| (bits | bits << shift) & mask)
}

/// The opposite of `spread`. Ignores the gaps.
fn gather(bits: u64) -> u32 {
    let even = bits & GAPS[4].1;
    let masks = [GAPS[3].1, GAPS[2].1, GAPS[1].1, GAPS[0].1, u64::from(u32::MAX)];
    let shifts = [1, 2, 4, 8, 16];
    let gathered =
        shifts.iter().zip(masks).fold(even, |bits, (shift, mask)| (bits | bits >> shift) & mask);
    gathered as u32
}

/// By how much to shift, and which bits to keep then.
const GAPS: [(u32, u64); 5] = [
    (16, 0x0000_ffff_0000_ffff),
    (8, 0x00ff_00ff_00ff_00ff),
    (4, 0x0f0f_0f0f_0f0f_0f0f),
    (2, 0x3333_3333_3333_3333),
    (1, 0x5555_5555_5555_5555),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bits_in_turn(low: u32, high: u32) {
            let bits = interleave(low, high);
            for at in 0..32 {
                prop_assert_eq!(bits >> (2 * at) & 1, u64::from(low >> at & 1));
                prop_assert_eq!(bits >> (2 * at + 1) & 1, u64::from(high >> at & 1));
            }
            prop_assert_eq!(separate(bits), (low, high));
        }
    }

    #[test]
    fn neighbours_wrap() {
        let corner = GeoCell { bits: 0, steps: 2 };
        assert_eq!(corner.neighbour(-1, 0), GeoCell { bits: interleave(0, 3), steps: 2 });
        assert_eq!(corner.neighbour(1, -1), GeoCell { bits: interleave(3, 1), steps: 2 });
    }
}
