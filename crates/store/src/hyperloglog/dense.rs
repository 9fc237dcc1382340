//! The dense form: all registers, 6 bits each, beginning at the lowest bits. Four of them fill
//! three bytes.

use super::estimate::Histogram;
use super::{Element, REGISTER_MAX, Registers};

/// Of the bytes behind the header, as everywhere here.
pub(super) fn register(body: &[u8], index: usize) -> u8 {
    let (at, shift) = place(index);
    (window(body, at) >> shift) as u8 & REGISTER_MAX
}

/// Raises a register; whether it was lower.
pub(super) fn raise(body: &mut [u8], element: Element) -> bool {
    let (at, shift) = place(element.register);
    let before = window(body, at);
    if (before >> shift) as u8 & REGISTER_MAX >= element.rank {
        return false;
    }
    let after = before & !(u32::from(REGISTER_MAX) << shift) | u32::from(element.rank) << shift;
    body[at..at + 3].copy_from_slice(&after.to_le_bytes()[..3]);
    true
}

pub(super) fn histogram(body: &[u8]) -> Histogram {
    let mut histogram = Histogram::default();
    for &[a, b, c] in body.as_chunks::<3>().0 {
        let word = u32::from_le_bytes([a, b, c, 0]);
        for shift in [0, 6, 12, 18] {
            histogram.add((word >> shift) as u8 & REGISTER_MAX, 1);
        }
    }
    histogram
}

pub(super) fn merge_into(body: &[u8], registers: &mut Registers) {
    for (&[a, b, c], four) in body.as_chunks::<3>().0.iter().zip(registers.as_chunks_mut::<4>().0) {
        let word = u32::from_le_bytes([a, b, c, 0]);
        for (value, shift) in four.iter_mut().zip([0, 6, 12, 18]) {
            *value = (*value).max((word >> shift) as u8 & REGISTER_MAX);
        }
    }
}

/// Appends the registers in this form.
pub(super) fn append(registers: &Registers, bytes: &mut Vec<u8>) {
    for &[a, b, c, d] in registers.as_chunks::<4>().0 {
        let word = u32::from(a) | u32::from(b) << 6 | u32::from(c) << 12 | u32::from(d) << 18;
        bytes.extend_from_slice(&word.to_le_bytes()[..3]);
    }
}

/// Where a register lies: in three bytes from here, at this bit.
fn place(index: usize) -> (usize, usize) {
    (index / 4 * 3, index % 4 * 6)
}

fn window(body: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([body[at], body[at + 1], body[at + 2], 0])
}
