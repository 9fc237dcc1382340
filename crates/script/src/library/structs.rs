//! `struct`: values to bytes in C's layouts and back, by format strings (Roberto Ierusalimschy's
//! library).

use crate::state::Core;
use crate::state::budget::Output;
use crate::state::raw::{
    LUA_TNIL, LUA_TNUMBER, Raise, Returned, Stack, lua_CFunction, lua_function,
};

/// Pushes the table.
pub(crate) fn push_table(stack: Stack) {
    const FUNCTIONS: &[(&str, lua_CFunction)] =
        &[("pack", pack_shell), ("unpack", unpack_shell), ("size", size_shell)];
    stack.push_table(0, FUNCTIONS.len());
    for (name, function) in FUNCTIONS {
        stack.push_function(*function);
        stack.set_field(stack.top() - 1, name.as_bytes());
    }
}

lua_function!(pack_shell, pack);
lua_function!(unpack_shell, unpack);
lua_function!(size_shell, size);

/// A format string, read option by option.
struct Format<'a> {
    stack: Stack,
    core: &'a Core,
    function: &'static str,
    rest: &'a [u8],
    is_little: bool,
    /// Nothing is aligned to more than this many bytes.
    align_max: usize,
}

#[derive(Clone, Copy)]
enum Item {
    Padding,
    Integer {
        size: usize,
        is_signed: bool,
    },
    Float,
    Double,
    /// Up to a zero byte.
    Terminated,
    /// This many bytes. 0: as many as the value before says (unpacking), or as there are.
    Bytes(usize),
}

impl Item {
    const fn size(self) -> usize {
        match self {
            Self::Padding => 1,
            Self::Integer { size, .. } | Self::Bytes(size) => size,
            Self::Float => 4,
            Self::Double => 8,
            Self::Terminated => 0,
        }
    }
}

impl<'a> Format<'a> {
    /// The format is the function's first argument.
    fn new(stack: Stack, function: &'static str) -> Result<Self, Raise> {
        let rest = stack.check_bytes(1, function)?;
        let (core, is_little) = (stack.core(), cfg!(target_endian = "little"));
        Ok(Self { stack, core, function, rest, is_little, align_max: 1 })
    }

    /// The next value's form, past what only sets things.
    fn next(&mut self) -> Result<Option<(Item, u8)>, Raise> {
        while let Some((&option, rest)) = self.rest.split_first() {
            self.rest = rest;
            self.core.charge(self.stack, 1)?;
            let integer = |size, is_signed| Item::Integer { size, is_signed };
            let item = match option {
                b'x' => Item::Padding,
                b'b' | b'B' => integer(1, option == b'b'),
                b'h' | b'H' => integer(2, option == b'h'),
                b'l' | b'L' => integer(8, option == b'l'),
                b'T' => integer(8, false),
                b'f' => Item::Float,
                b'd' => Item::Double,
                b's' => Item::Terminated,
                b'c' => Item::Bytes(self.count()?.unwrap_or(1)),
                b'i' | b'I' => {
                    let size = self.count()?.unwrap_or(4);
                    if size > INTEGER_SIZE_MAX {
                        let text = format!(
                            "integral size {size} is larger than limit of {INTEGER_SIZE_MAX}"
                        );
                        return Err(self.stack.fail(&text));
                    }
                    integer(size, option == b'i')
                }
                b' ' => continue,
                b'<' => {
                    self.is_little = true;
                    continue;
                }
                b'>' => {
                    self.is_little = false;
                    continue;
                }
                b'!' => {
                    let align = self.count()?.unwrap_or(8);
                    if !align.is_power_of_two() {
                        let text = format!("alignment {align} is not a power of 2");
                        return Err(self.stack.fail(&text));
                    }
                    self.align_max = align;
                    continue;
                }
                // `size` passes over letters that it does not know, as the library does.
                _ if self.function == "size" && option.is_ascii_alphanumeric() => continue,
                _ => {
                    let text = format!("invalid format option '{}'", option as char);
                    return Err(self.stack.bad_argument(1, self.function, &text));
                }
            };
            return Ok(Some((item, option)));
        }
        Ok(None)
    }

    /// The digits at hand as a number.
    fn count(&mut self) -> Result<Option<usize>, Raise> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (text, rest) = self.rest.split_at(digits);
        self.core.charge_bytes(self.stack, digits)?;
        self.rest = rest;
        if digits == 0 {
            return Ok(None);
        }
        match bobbin_text::parse_i64(text.trim_ascii_start()).map(usize::try_from) {
            Some(Ok(count)) if count <= i32::MAX as usize => Ok(Some(count)),
            _ if text.iter().all(|digit| *digit == b'0') => Ok(Some(0)),
            _ => {
                // Zeros before the number are no harm.
                let zeros = text.iter().take_while(|digit| **digit == b'0').count();
                let count = bobbin_text::parse_i64(&text[zeros..]);
                match count.and_then(|count| usize::try_from(count).ok()) {
                    Some(count) if count <= i32::MAX as usize => Ok(Some(count)),
                    _ => Err(self.stack.fail("integral size overflow")),
                }
            }
        }
    }

    /// How many bytes lie between a position and where the value begins.
    fn padding(&self, item: Item, at: usize) -> usize {
        let size = match item {
            Item::Integer { size, .. } => size,
            Item::Float | Item::Double => item.size(),
            Item::Padding | Item::Terminated | Item::Bytes(_) => return 0,
        };
        let align = size.min(self.align_max);
        // For other sizes than powers of two it is the library's formula, too, that decides.
        if align <= 1 { 0 } else { (align - (at & (align - 1))) & (align - 1) }
    }
}

fn pack(stack: Stack) -> Returned {
    let mut format = Format::new(stack, "pack")?;
    let mut output = Output::new(stack, stack.core());
    let mut argument = 1;
    while let Some((item, _)) = format.next()? {
        // A number and what aligns it.
        output.reserve(2 * INTEGER_SIZE_MAX)?;
        let out = output.bytes();
        out.resize(out.len() + format.padding(item, out.len()), 0);
        match item {
            Item::Padding => out.push(0),
            Item::Integer { size, .. } => {
                argument += 1;
                let number = check_number(stack, argument)?;
                // Negative numbers as two's complement, large ones without a sign.
                let value = if number < 0.0 { number as i64 as u64 } else { number as u64 };
                let start = out.len();
                out.extend((0..size).map(|at| if at < 8 { (value >> (8 * at)) as u8 } else { 0 }));
                if !format.is_little {
                    out[start..].reverse();
                }
            }
            Item::Float | Item::Double => {
                argument += 1;
                let number = check_number(stack, argument)?;
                let start = out.len();
                match item {
                    Item::Float => out.extend_from_slice(&(number as f32).to_le_bytes()),
                    _ => out.extend_from_slice(&number.to_le_bytes()),
                }
                if !format.is_little {
                    out[start..].reverse();
                }
            }
            Item::Terminated | Item::Bytes(_) => {
                argument += 1;
                let bytes = check_string(stack, argument)?;
                match item {
                    Item::Bytes(size) if size > 0 => {
                        let Some(bytes) = bytes.get(..size) else {
                            // Counted as the library does, which has taken the argument already.
                            let at = argument + 1;
                            return Err(stack.bad_argument(at, "pack", "string too short"));
                        };
                        output.extend(bytes)?;
                    }
                    _ => output.extend(bytes)?,
                }
                if matches!(item, Item::Terminated) {
                    output.extend(b"\0")?;
                }
            }
        }
        if output.bytes().len() > SIZE_MAX {
            return Err(stack.fail("packed value too long"));
        }
    }
    output.push()?;
    Ok(1)
}

fn unpack(stack: Stack) -> Returned {
    let mut format = Format::new(stack, "unpack")?;
    let data = stack.check_bytes(2, "unpack")?;
    let start = if stack.has(3) { stack.check_integer(3, "unpack")? } else { 1 };
    if start == 0 {
        return Err(stack.bad_argument(3, "unpack", "offset must be 1 or greater"));
    }
    let short = || stack.bad_argument(2, "unpack", "data string too short");
    // Before the data there is as little as behind it.
    let mut at = usize::try_from(start).map_err(|_| short())? - 1;
    if at > data.len() && !format.rest.is_empty() {
        return Err(short());
    }
    let mut count = 0;
    while let Some((item, _)) = format.next()? {
        let begin = at.checked_add(format.padding(item, at));
        at = begin.filter(|begin| *begin <= data.len()).ok_or_else(short)?;
        let end = at.checked_add(item.size()).filter(|end| *end <= data.len());
        let end = end.ok_or_else(short)?;
        if !stack.reserve(STACK_ROOM) {
            return Err(stack.fail("too many results"));
        }
        let bytes = &data[at..end];
        at = end;
        match item {
            Item::Padding => continue,
            Item::Integer { size, is_signed } => {
                stack.push_number(integer(bytes, size, is_signed, format.is_little));
            }
            Item::Float => {
                let bytes = ordered::<4>(bytes, format.is_little);
                stack.push_number(f64::from(f32::from_le_bytes(bytes)));
            }
            Item::Double => {
                stack.push_number(f64::from_le_bytes(ordered::<8>(bytes, format.is_little)));
            }
            Item::Bytes(0) => {
                if count == 0 || stack.kind(-1) != LUA_TNUMBER {
                    return Err(stack.fail("format 'c0' needs a previous size"));
                }
                let size = stack.number(-1);
                stack.pop(1);
                count -= 1;
                let fits = size >= 0.0 && size <= (data.len() - at) as f64;
                let end = if fits { at + size as usize } else { return Err(short()) };
                format.core.charge_string(stack, end - at)?;
                stack.push_bytes(&data[at..end]);
                at = end;
            }
            Item::Bytes(_) => {
                format.core.charge_string(stack, bytes.len())?;
                stack.push_bytes(bytes);
            }
            Item::Terminated => {
                let Some(len) = memchr::memchr(0, &data[at..]) else {
                    return Err(stack.fail("unfinished string in data"));
                };
                format.core.charge_string(stack, len)?;
                stack.push_bytes(&data[at..at + len]);
                at += len + 1;
            }
        }
        count += 1;
    }
    stack.push_number((at + 1) as f64);
    Ok(count + 1)
}

fn size(stack: Stack) -> Returned {
    let mut format = Format::new(stack, "size")?;
    let mut all = 0usize;
    while let Some((item, option)) = format.next()? {
        let is_open = matches!(item, Item::Terminated | Item::Bytes(0));
        if is_open {
            let name = if option == b's' { "s" } else { "c0" };
            let text = format!("option '{name}' has no fixed size");
            return Err(stack.bad_argument(1, "size", &text));
        }
        all = all.saturating_add(format.padding(item, all)).saturating_add(item.size());
        if all > SIZE_MAX {
            return Err(stack.fail("size too large"));
        }
    }
    stack.push_number(all as f64);
    Ok(1)
}

fn check_number(stack: Stack, at: i32) -> Result<f64, Raise> {
    if stack.has(at) {
        return stack.check_number(at, "pack");
    }
    Err(stack.bad_argument(at, "pack", "number expected, got nil"))
}

fn check_string<'a>(stack: Stack, at: i32) -> Result<&'a [u8], Raise> {
    if stack.has(at) && stack.kind(at) != LUA_TNIL {
        return stack.check_bytes(at, "pack");
    }
    Err(stack.bad_argument(at, "pack", "string expected, got nil"))
}

/// An integer of up to eight bytes that count.
fn integer(bytes: &[u8], size: usize, is_signed: bool, is_little: bool) -> f64 {
    let byte = |at: usize| bytes[if is_little { at } else { size - 1 - at }];
    let counted = size.min(8);
    let value = (0..counted).fold(0u64, |value, at| value | u64::from(byte(at)) << (8 * at));
    if !is_signed {
        return value as f64;
    }
    let shift = 64 - 8 * counted as u32;
    if shift >= 64 { 0.0 } else { ((value << shift) as i64 >> shift) as f64 }
}

/// Bytes of a known number, the least first.
fn ordered<const N: usize>(bytes: &[u8], is_little: bool) -> [u8; N] {
    let mut all = [0; N];
    all.copy_from_slice(bytes);
    if !is_little {
        all.reverse();
    }
    all
}

const INTEGER_SIZE_MAX: usize = 32;
/// What is packed at once takes no more bytes than this.
const SIZE_MAX: usize = 512 << 20;
/// What one value has on the stack at most.
const STACK_ROOM: i32 = 4;
