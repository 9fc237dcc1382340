//! Requests as templates: the bytes are made once, and only what differs from request to request is
//! written again.

use super::{Workload, WorkloadState};

/// One request: one command, or several that always go together (MULTI ... EXEC).
#[derive(Clone, Debug)]
pub struct Template {
    /// The row of the statistics that its replies count in.
    pub class: u16,
    /// Replies that one request gets.
    pub replies: u32,
    /// The pattern that each number of the request is drawn from.
    slots: Vec<usize>,
    pieces: Vec<Piece>,
    /// The bytes of a request whose length never changes, and where its placeholders lie.
    fixed: Option<Fixed>,
}

/// A piece of an argument.
#[derive(Clone, Debug, PartialEq)]
pub enum TemplatePart {
    Text(Vec<u8>),
    /// A number of the slot, as [`PADDED_LEN`] digits.
    Padded(usize),
    /// A number of the slot without leading zeros.
    Decimal(usize),
    /// A value of these [`super::Values`]; its size may depend on the number in `key_slot`.
    Value {
        values: usize,
        key_slot: Option<usize>,
    },
    /// Three bytes that lead the key to the connection's node of a cluster.
    Tag,
}

#[derive(Clone, Debug)]
enum Piece {
    Literal(Vec<u8>),
    /// An argument whose length is known only when it is written.
    Argument(Vec<TemplatePart>),
    Padded(usize),
    Tag,
}

#[derive(Clone, Debug)]
struct Fixed {
    bytes: Vec<u8>,
    patches: Vec<(usize, Patch)>,
}

#[derive(Clone, Copy, Debug)]
enum Patch {
    Padded(usize),
    Tag,
}

impl Template {
    /// A template of `commands`, each a list of arguments. `slots` are the patterns, by their index
    /// in the workload, of the numbers that the arguments refer to.
    pub fn new(class: u16, slots: Vec<usize>, commands: &[Vec<Vec<TemplatePart>>]) -> Self {
        let mut pieces = Vec::new();
        for arguments in commands {
            literal(&mut pieces, format!("*{}\r\n", arguments.len()).as_bytes());
            for argument in arguments {
                push_argument(&mut pieces, argument);
            }
        }
        Self::of_pieces(class, commands.len() as u32, slots, pieces)
    }

    /// Bytes that are sent as they are and get one reply.
    pub fn raw(class: u16, bytes: &[u8]) -> Self {
        Self::of_pieces(class, 1, Vec::new(), vec![Piece::Literal(bytes.to_vec())])
    }

    fn of_pieces(class: u16, replies: u32, slots: Vec<usize>, pieces: Vec<Piece>) -> Self {
        let mut fixed = Some(Fixed { bytes: Vec::new(), patches: Vec::new() });
        for piece in &pieces {
            let Some(Fixed { bytes, patches }) = &mut fixed else { break };
            match piece {
                Piece::Literal(literal) => bytes.extend_from_slice(literal),
                Piece::Padded(slot) => {
                    patches.push((bytes.len(), Patch::Padded(*slot)));
                    bytes.extend_from_slice(&[b'0'; PADDED_LEN]);
                }
                Piece::Tag => {
                    patches.push((bytes.len(), Patch::Tag));
                    bytes.extend_from_slice(&[b'0'; TAG_LEN]);
                }
                Piece::Argument(_) => fixed = None,
            }
        }
        Self { class, replies, slots, pieces, fixed }
    }

    /// The length in bytes of a request, when it is always the same.
    pub(super) fn fixed_len(&self) -> Option<usize> {
        self.fixed.as_ref().map(|fixed| fixed.bytes.len())
    }

    /// The bytes before any placeholder is written, of a request of fixed length.
    pub(super) fn fixed_bytes(&self) -> &[u8] {
        self.fixed.as_ref().map_or(&[], |fixed| &fixed.bytes)
    }

    /// Whether one request differs from the next.
    pub(super) fn is_constant(&self) -> bool {
        self.fixed.as_ref().is_some_and(|fixed| fixed.patches.is_empty())
    }

    /// Draws the numbers of the request with index `request`.
    #[inline]
    pub(super) fn draw(&self, workload: &Workload, state: &mut WorkloadState, request: u64) {
        for (slot, &pattern) in self.slots.iter().enumerate() {
            let mut draw = || {
                workload.patterns[pattern].draw(
                    &mut state.cursors[pattern],
                    request,
                    &mut state.random,
                )
            };
            let mut number = draw();
            if let (Some(slots), Some(prefix)) = (&state.slots, &workload.key_prefix)
                && !workload.free_patterns.contains(&pattern)
            {
                for _ in 0..OTHER_NODES_MAX {
                    state.key.clear();
                    state.key.extend_from_slice(prefix);
                    append_decimal(number, &mut state.key);
                    if slots.contains(bobbin_client::key_slot(&state.key)) {
                        break;
                    }
                    number = draw();
                }
            }
            state.drawn[slot] = number;
        }
    }

    /// Writes the drawn numbers into `bytes`, a request of fixed length.
    #[inline]
    pub(super) fn patch(&self, state: &WorkloadState, tag: [u8; TAG_LEN], bytes: &mut [u8]) {
        let Some(fixed) = &self.fixed else { return };
        for &(at, patch) in &fixed.patches {
            match patch {
                Patch::Padded(slot) => write_padded(state.drawn[slot], &mut bytes[at..]),
                Patch::Tag => bytes[at..at + TAG_LEN].copy_from_slice(&tag),
            }
        }
    }

    /// Appends a request with the drawn numbers.
    pub(super) fn append(
        &self,
        workload: &Workload,
        state: &mut WorkloadState,
        tag: [u8; TAG_LEN],
        output: &mut Vec<u8>,
    ) {
        for piece in &self.pieces {
            match piece {
                Piece::Literal(bytes) => output.extend_from_slice(bytes),
                Piece::Padded(slot) => append_padded(state.drawn[*slot], output),
                Piece::Tag => output.extend_from_slice(&tag),
                Piece::Argument(parts) => append_argument(parts, workload, state, tag, output),
            }
        }
    }
}

/// The number as digits, `PADDED_LEN` of them: the lowest of longer numbers.
#[inline]
fn write_padded(mut number: u64, bytes: &mut [u8]) {
    for digit in bytes[..PADDED_LEN].iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

fn append_padded(number: u64, output: &mut Vec<u8>) {
    let start = output.len();
    output.resize(start + PADDED_LEN, 0);
    write_padded(number, &mut output[start..]);
}

fn append_decimal(mut number: u64, output: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    output.extend_from_slice(&digits[at..]);
}

fn append_argument(
    parts: &[TemplatePart],
    workload: &Workload,
    state: &mut WorkloadState,
    tag: [u8; TAG_LEN],
    output: &mut Vec<u8>,
) {
    let mut value = 0..0;
    let mut len = 0;
    for part in parts {
        len += match part {
            TemplatePart::Text(text) => text.len(),
            TemplatePart::Padded(_) => PADDED_LEN,
            TemplatePart::Decimal(slot) => {
                state.drawn[*slot].checked_ilog10().unwrap_or(0) as usize + 1
            }
            TemplatePart::Tag => TAG_LEN,
            TemplatePart::Value { values, key_slot } => {
                let key = key_slot.map_or(0, |slot| state.drawn[slot]);
                value = workload.values[*values].choose(key, &mut state.random);
                value.len()
            }
        };
    }
    output.push(b'$');
    append_decimal(len as u64, output);
    output.extend_from_slice(b"\r\n");
    for part in parts {
        match part {
            TemplatePart::Text(text) => output.extend_from_slice(text),
            TemplatePart::Padded(slot) => append_padded(state.drawn[*slot], output),
            TemplatePart::Decimal(slot) => append_decimal(state.drawn[*slot], output),
            TemplatePart::Tag => output.extend_from_slice(&tag),
            TemplatePart::Value { values, .. } => {
                output.extend_from_slice(workload.values[*values].bytes(value.clone()));
            }
        }
    }
    output.extend_from_slice(b"\r\n");
}

/// An argument holds at most one [`TemplatePart::Value`].
fn push_argument(pieces: &mut Vec<Piece>, argument: &[TemplatePart]) {
    let len = argument.iter().try_fold(0, |len, part| match part {
        TemplatePart::Text(text) => Some(len + text.len()),
        TemplatePart::Padded(_) => Some(len + PADDED_LEN),
        TemplatePart::Tag => Some(len + TAG_LEN),
        TemplatePart::Decimal(_) | TemplatePart::Value { .. } => None,
    });
    let Some(len) = len else {
        pieces.push(Piece::Argument(argument.to_vec()));
        return;
    };
    literal(pieces, format!("${len}\r\n").as_bytes());
    for part in argument {
        match part {
            TemplatePart::Text(text) => literal(pieces, text),
            TemplatePart::Padded(slot) => pieces.push(Piece::Padded(*slot)),
            TemplatePart::Tag => pieces.push(Piece::Tag),
            TemplatePart::Decimal(_) | TemplatePart::Value { .. } => {
                unreachable!("their length is not fixed")
            }
        }
    }
    literal(pieces, b"\r\n");
}

fn literal(pieces: &mut Vec<Piece>, bytes: &[u8]) {
    if let Some(Piece::Literal(last)) = pieces.last_mut() {
        last.extend_from_slice(bytes);
    } else {
        pieces.push(Piece::Literal(bytes.to_vec()));
    }
}

/// The digits of a padded number: as many as `__rand_int__` has letters, so that replacing it
/// changes no length.
pub const PADDED_LEN: usize = 12;
/// Keys of other nodes of a cluster that are passed over before one is taken all the same; the node
/// then answers that it moved.
const OTHER_NODES_MAX: usize = 100_000;
/// `{x}` is a hash tag; this long is what `{tag}` is replaced with, less its braces.
pub const TAG_LEN: usize = 3;
