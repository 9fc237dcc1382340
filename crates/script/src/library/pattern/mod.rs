//! The functions of `string` that may take for ever in one call: those that search for patterns,
//! and `rep`. Lua's own versions check nothing while they work, so a script could not be paused or
//! ended inside them. These give the same results, and ask the script's host while they work.
//!
//! All but the matching itself is done by functions of Lua that raise errors by jumping (see
//! `frame`). A [`Matcher`] has nothing with a destructor.

mod matcher;

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ops::Range;

use memchr::memmem;
use mlua_sys as lua;

use self::matcher::{CAPTURES_MAX, Capture, Extent, Fault, Matcher};
use crate::state::frame::{Frame, StringBuilder, raising_function};
use crate::state::raw::{
    LUA_TFUNCTION, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, Raise, Stack, lua_CFunction,
};

/// Puts the functions into the table of `string`, at this index.
pub(crate) fn replace(stack: Stack, table: c_int) {
    for (name, function) in [
        ("find", find as lua_CFunction),
        ("match", find_captures),
        ("gmatch", find_all),
        ("gfind", find_all),
        ("gsub", substitute),
        ("rep", repeat),
    ] {
        stack.push_function(function);
        stack.set_field(table, name.as_bytes());
    }
}

raising_function!(find, |frame| search(frame, true));
raising_function!(find_captures, |frame| search(frame, false));
raising_function!(find_all, begin_matches);
raising_function!(find_next, next_match);
raising_function!(substitute, replace_matches);
raising_function!(repeat, repeat_string);

/// `find(s, pattern [, init [, plain]])` and `match(s, pattern [, init])`, which differ in whether
/// they return the positions of a match.
fn search(frame: Frame, positions: bool) -> c_int {
    let (subject, pattern) = (frame.argument(1), frame.argument(2));
    let init = frame.integer_or(3, 1);
    let init = if init < 0 { init + subject.len() as i64 } else { init - 1 };
    let init = (init.max(0) as usize).min(subject.len());
    if positions && (frame.boolean(4) || is_plain(pattern)) {
        match memmem::find(&subject[init..], pattern) {
            Some(at) => {
                push_positions(*frame, init + at..init + at + pattern.len());
                return 2;
            }
            None => frame.push_nil(),
        }
        return 1;
    }
    let mut matcher = Matcher::new(subject, pattern, || frame.core().look(*frame));
    let Some(found) = first(&mut matcher, init).unwrap_or_else(|fault| raise(frame, fault)) else {
        frame.push_nil();
        return 1;
    };
    if positions {
        push_positions(*frame, found);
        return 2 + push_captures(frame, &matcher, None);
    }
    push_captures(frame, &matcher, Some(found))
}

/// The first match at or behind `from`.
fn first<W: FnMut() -> bool>(
    matcher: &mut Matcher<'_, W>,
    from: usize,
) -> Result<Option<Range<usize>>, Fault> {
    let is_anchored = matcher.pattern.first() == Some(&b'^');
    let last = if is_anchored { from } else { matcher.subject.len() };
    for start in from..=last {
        if let Some(end) = matcher.matches(start, usize::from(is_anchored))? {
            return Ok(Some(start..end));
        }
    }
    Ok(None)
}

/// `gmatch(s, pattern)`: a function whose calls give one match after the other.
fn begin_matches(frame: Frame) -> c_int {
    frame.argument(1);
    frame.argument(2);
    frame.set_top(2);
    frame.push_number(0.0);
    frame.push_closure(find_next, 3);
    1
}

/// The function that `gmatch` returns: its upvalues are subject, pattern and where to go on.
fn next_match(frame: Frame) -> c_int {
    let (subject, pattern) = (upvalue(*frame, 1), upvalue(*frame, 2));
    let from = frame.number(lua::lua_upvalueindex(3)) as usize;
    let mut matcher = Matcher::new(subject, pattern, || frame.core().look(*frame));
    // No anchor here: it would find nothing but the first.
    for start in from..=subject.len() {
        match matcher.matches(start, 0) {
            Ok(None) => {}
            Ok(Some(end)) => {
                frame.push_number((end + usize::from(end == start)) as f64);
                frame.replace(lua::lua_upvalueindex(3));
                return push_captures(frame, &matcher, Some(start..end));
            }
            Err(fault) => raise(frame, fault),
        }
    }
    0
}

/// `gsub(s, pattern, replacement [, n])`
fn replace_matches(frame: Frame) -> c_int {
    let (subject, pattern) = (frame.argument(1), frame.argument(2));
    let kind = frame.kind(3);
    let limit = frame.integer_or(4, subject.len() + 1);
    if !matches!(kind, LUA_TNUMBER | LUA_TSTRING | LUA_TFUNCTION | LUA_TTABLE) {
        frame.refuse_argument(3, c"string/function/table expected");
    }
    frame.set_top(3);
    let is_anchored = pattern.first() == Some(&b'^');
    let mut place = MaybeUninit::uninit();
    let mut result = frame.begin_string(&mut place);
    let mut matcher = Matcher::new(subject, pattern, || frame.core().look(*frame));
    let (mut count, mut at) = (0, 0);
    while count < limit {
        let end = matcher.matches(at, usize::from(is_anchored));
        let end = end.unwrap_or_else(|fault| raise(frame, fault));
        if let Some(end) = end {
            count += 1;
            add_replacement(frame, &mut result, &matcher, at..end);
        }
        match end {
            Some(end) if end > at => at = end,
            _ if at < subject.len() => {
                result.add(&subject[at..=at]);
                at += 1;
            }
            _ => break,
        }
        if is_anchored {
            break;
        }
    }
    result.add(&subject[at..]);
    result.push();
    frame.push_number(count as f64);
    2
}

/// Adds what replaces a match; the replacement is argument 3.
fn add_replacement<W: FnMut() -> bool>(
    frame: Frame,
    result: &mut StringBuilder<'_>,
    matcher: &Matcher<'_, W>,
    found: Range<usize>,
) {
    let whole = &matcher.subject[found.clone()];
    match frame.kind(3) {
        LUA_TFUNCTION => {
            frame.copy(3);
            let count = push_captures(frame, matcher, Some(found));
            frame.call(count, 1);
        }
        LUA_TTABLE => {
            push_capture(frame, matcher, 0, &found);
            frame.look_up(3);
        }
        _ => {
            add_template(frame, result, matcher, &found);
            return;
        }
    }
    if !frame.boolean(-1) {
        frame.pop(1);
        result.add(whole);
        return;
    }
    if !matches!(frame.kind(-1), LUA_TSTRING | LUA_TNUMBER) {
        frame.push_place(1);
        frame.push_bytes(b"invalid replacement value (a ");
        frame.push_bytes(frame.kind_name(-3).as_bytes());
        frame.push_bytes(b")");
        frame.concat(4);
        frame.raise(Raise);
    }
    result.add_value();
}

/// Adds the replacement that is a text, with captures for what a `%` stands before.
fn add_template<W: FnMut() -> bool>(
    frame: Frame,
    result: &mut StringBuilder<'_>,
    matcher: &Matcher<'_, W>,
    found: &Range<usize>,
) {
    let mut rest = frame.bytes(3).unwrap_or_default();
    frame.charge(1 + rest.len() / 64);
    while let Some(at) = memchr::memchr(b'%', rest) {
        frame.charge(1 + at / 64 + found.len() / 64);
        result.add(&rest[..at]);
        // A last `%` stands for a zero byte: what Lua finds behind its strings.
        match rest.get(at + 1).copied().unwrap_or(0) {
            b'0' => result.add(&matcher.subject[found.clone()]),
            digit @ b'1'..=b'9' => {
                push_capture(frame, matcher, usize::from(digit - b'1'), found);
                result.add_value();
            }
            other => result.add(&[other]),
        }
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    result.add(rest);
}

/// `rep(s, n)`
fn repeat_string(frame: Frame) -> c_int {
    let text = frame.argument(1);
    // Lua 5.1 takes the count as an `int`: what is larger comes out as something else.
    let count = (frame.integer(2) as c_int).max(0) as usize;
    frame.charge(1);
    let total = text.len().checked_mul(count).filter(|&total| total <= REPEATED_MAX);
    let Some(total) = total else {
        frame.raise(frame.fail("not enough memory: resulting string too large"))
    };
    if total == 0 {
        frame.push_bytes(b"");
        return 1;
    }
    let block = frame.push_block(total);
    // For the result, which is a copy of the block.
    frame.charge_string(total);
    block[..text.len()].write_copy_of_slice(text);
    let (mut done, mut piece) = (text.len(), text.len());
    while done < total {
        let more = piece.min(total - done);
        block.copy_within(..more, done);
        done += more;
        if piece < REPEATED_PIECE {
            piece = done;
        }
        frame.charge(1 + more / 64);
    }
    // SAFETY: the first bytes were written, and copied on until all of them were.
    frame.push_bytes(unsafe { block.assume_init_ref() });
    1
}

fn upvalue<'a>(stack: Stack, number: c_int) -> &'a [u8] {
    stack.bytes(lua::lua_upvalueindex(number)).unwrap_or_default()
}

/// Whether nothing in the pattern has a meaning of its own.
fn is_plain(pattern: &[u8]) -> bool {
    let mut bytes = pattern.iter().take_while(|&&byte| byte != 0);
    !bytes.any(|byte| b"^$*+?.([%-".contains(byte))
}

fn push_positions(stack: Stack, found: Range<usize>) {
    stack.push_number(found.start as f64 + 1.0);
    stack.push_number(found.end as f64);
}

/// Pushes all captures; if there are none, the whole match, if one is given.
fn push_captures<W: FnMut() -> bool>(
    frame: Frame,
    matcher: &Matcher<'_, W>,
    whole: Option<Range<usize>>,
) -> c_int {
    let count = matcher.captures().len().max(usize::from(whole.is_some()));
    let whole = whole.unwrap_or(0..0);
    frame.insist_on_room(CAPTURES_MAX as c_int, c"too many captures");
    (0..count).for_each(|number| push_capture(frame, matcher, number, &whole));
    count as c_int
}

/// Pushes one capture; the first is the whole match if there are none.
fn push_capture<W: FnMut() -> bool>(
    frame: Frame,
    matcher: &Matcher<'_, W>,
    number: usize,
    whole: &Range<usize>,
) {
    match matcher.captures().get(number) {
        None if number == 0 => frame.push_bytes(&matcher.subject[whole.clone()]),
        Some(&Capture { start, extent: Extent::Bytes(len) }) => {
            frame.push_bytes(&matcher.subject[start..start + len]);
        }
        Some(&Capture { start, extent: Extent::Position }) => frame.push_number(start as f64 + 1.0),
        Some(_) => raise(frame, Fault::Pattern("unfinished capture")),
        None => raise(frame, Fault::Pattern("invalid capture index")),
    }
}

fn raise(frame: Frame, fault: Fault) -> ! {
    match fault {
        Fault::Pattern(text) => frame.raise(frame.fail(text)),
        Fault::Stopped => frame.raise_stop(),
    }
}

/// It may be jumped over.
const _: () = assert!(!std::mem::needs_drop::<Matcher<'static, fn() -> bool>>());

/// About how many bytes are copied before another slice may begin.
const REPEATED_PIECE: usize = 1 << 16;
/// In bytes: more than a state may have.
const REPEATED_MAX: usize = 1 << 31;
