//! Any bytes as changes of a sound payload.

/// The value that the bytes stand for: the first says of which seed (or that they are the value
/// themselves), the others are changes of it.
pub fn body(bytes: &[u8], seeds: &[Vec<u8>]) -> Vec<u8> {
    let [first, rest @ ..] = bytes else { return Vec::new() };
    let Some(seed) = seeds.get(usize::from(*first)) else { return rest.to_vec() };
    let mut body = seed.clone();
    for change in rest.chunks_exact(CHANGE_LEN) {
        let [what, high, low, value] = *change else { continue };
        let at = usize::from(u16::from_be_bytes([high, low])) % (body.len() + 1);
        apply(what, at, value, &mut body, seeds);
    }
    body
}

fn apply(what: u8, at: usize, value: u8, body: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    let there = body.get(at).copied().unwrap_or_default();
    let count = usize::from(value % 16);
    match what % 10 {
        0 => set(body, at, value),
        1 => set(body, at, there ^ (1 << (value % 8))),
        2 => set(body, at, there.wrapping_add(1)),
        3 => set(body, at, there.wrapping_sub(1)),
        4 => body.insert(at, value),
        5 => drop(body.drain(at..body.len().min(at + count))),
        6 => body.truncate(at),
        // Something twice.
        7 => {
            let part = body[at..body.len().min(at + count)].to_vec();
            body.splice(at..at, part);
        }
        // Another value's end.
        8 => {
            let other = &seeds[usize::from(value) % seeds.len()];
            body.truncate(at);
            body.extend_from_slice(&other[at.min(other.len())..]);
        }
        // Another kind.
        _ => set(body, 0, value % KINDS),
    }
}

fn set(body: &mut [u8], at: usize, value: u8) {
    if let Some(byte) = body.get_mut(at) {
        *byte = value;
    }
}

/// What, where (two bytes), and a number for it.
const CHANGE_LEN: usize = 4;
/// A few more than there are.
const KINDS: u8 = 28;
