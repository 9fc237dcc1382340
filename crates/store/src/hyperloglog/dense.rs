//! The dense form: all registers, 6 bits each, beginning at the lowest bits. Four of them fill
//! three bytes.

#[cfg(target_arch = "x86_64")]
use super::avx2::Avx2;
use super::estimate::Histogram;
use super::{REGISTER_MAX, REGISTERS, RegisterRank, Registers};

/// A register. `body` is always the bytes behind the header.
pub(super) fn register(body: &[u8], index: usize) -> u8 {
    let (at, shift) = place(index);
    (window(body, at) >> shift) as u8 & REGISTER_MAX
}

/// Raises a register. Returns whether it was lower.
pub(super) fn raise(body: &mut [u8], element: RegisterRank) -> bool {
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
    let mut registers = [0; REGISTERS];
    merge_into(body, &mut registers);
    Histogram::of(&registers)
}

/// Raises each register to at least its value in a whole body.
pub(super) fn merge_into(body: &[u8], registers: &mut Registers) {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = Avx2::new() {
        return avx2.merge_into(body, registers);
    }
    merge_plainly(body, registers);
}

fn merge_plainly(body: &[u8], registers: &mut Registers) {
    let blocks = registers.as_chunks_mut::<{ GROUPS * 4 }>().0;
    for (packed, registers) in body.as_chunks::<{ GROUPS * 3 }>().0.iter().zip(blocks) {
        let mut groups = [0; GROUPS];
        for (group, &[a, b, c]) in groups.iter_mut().zip(packed.as_chunks::<3>().0) {
            *group = u32::from_le_bytes([a, b, c, 0]);
        }
        let values = groups.map(|group| unpacked(group).to_le_bytes());
        for (register, &value) in registers.iter_mut().zip(values.as_flattened()) {
            *register = value.max(*register);
        }
    }
}

/// Writes all registers over a whole body.
pub(super) fn write(registers: &Registers, body: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = Avx2::new() {
        return avx2.write(registers, body);
    }
    write_plainly(registers, body);
}

fn write_plainly(registers: &Registers, body: &mut [u8]) {
    let blocks = body.as_chunks_mut::<{ GROUPS * 3 }>().0;
    for (registers, packed) in registers.as_chunks::<{ GROUPS * 4 }>().0.iter().zip(blocks) {
        let mut groups = [0; GROUPS];
        for (group, &values) in groups.iter_mut().zip(registers.as_chunks::<4>().0) {
            *group = in_three_bytes(u32::from_le_bytes(values));
        }
        for (bytes, group) in packed.as_chunks_mut::<3>().0.iter_mut().zip(groups) {
            let [a, b, c, _] = group.to_le_bytes();
            *bytes = [a, b, c];
        }
    }
}

/// Four registers of 6 bits as four bytes: separates two of 12 bits, then the registers in each.
const fn unpacked(group: u32) -> u32 {
    let pairs = group & 0xfff | (group & 0xfff_000) << 4;
    pairs & 0x3f_003f | (pairs & 0xfc0_0fc0) << 2
}

/// The opposite of `unpacked`.
const fn in_three_bytes(values: u32) -> u32 {
    let pairs = values & 0x3f_003f | values >> 2 & 0xfc0_0fc0;
    pairs & 0xfff | pairs >> 4 & 0xfff_000
}

/// Where a register lies: the first of its three bytes, and its lowest bit there.
fn place(index: usize) -> (usize, usize) {
    (index / 4 * 3, index % 4 * 6)
}

fn window(body: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([body[at], body[at + 1], body[at + 2], 0])
}

/// How many groups of four registers are handled at once. The compiler vectorises these loops.
const GROUPS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    /// With vectors, if the processor has them, and without.
    #[test]
    fn both_ways_give_the_same() {
        let mut state = 1u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8 & REGISTER_MAX
        };
        let [one, other] = [(); 2].map(|()| {
            let mut registers = [0; REGISTERS];
            registers.fill_with(&mut draw);
            registers
        });
        let mut body = vec![0; REGISTERS / 4 * 3];
        let mut plain_body = vec![0xff; REGISTERS / 4 * 3];
        write(&one, &mut body);
        write_plainly(&one, &mut plain_body);
        assert_eq!(body, plain_body);
        assert!((0..REGISTERS).all(|index| register(&body, index) == one[index]));
        let (mut merged, mut plainly_merged) = (other, other);
        merge_into(&body, &mut merged);
        merge_plainly(&body, &mut plainly_merged);
        assert!(merged == plainly_merged);
        assert!((0..REGISTERS).all(|index| merged[index] == one[index].max(other[index])));
    }
}
