//! The keyboard: what a terminal sends, as keys. When the terminal has gone, that is noticed.

use std::{io, os::fd::AsFd, time::Duration};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, read},
    termios::{
        InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
    },
};

/// A key, as far as keys mean something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPress {
    Char(char),
    /// One of no character.
    Byte(u8),
    Interrupt,
    /// Ctrl-U.
    EraseLine,
    Enter,
    Escape,
    Backspace,
    Tab,
    BackTab,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
}

pub struct Keyboard<F> {
    terminal: F,
    /// The beginning of a key.
    started: Vec<u8>,
}

impl<F: AsFd> Keyboard<F> {
    pub fn new(terminal: F) -> Self {
        Self { terminal, started: Vec::new() }
    }

    /// The keys that are pressed within a moment. `None` when there are no more, as the terminal
    /// has gone.
    pub fn keys(&mut self, moment: Duration) -> io::Result<Option<Vec<KeyPress>>> {
        let moment = Timespec::try_from(moment).map_err(io::Error::other)?;
        let mut ready = [PollFd::new(&self.terminal, PollFlags::IN)];
        match poll(&mut ready, Some(&moment)) {
            // What began a moment ago was a key of its own: Esc.
            Ok(0) => return Ok(Some(take_keys(&mut self.started, true))),
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Some(Vec::new())),
            Err(error) => return Err(error.into()),
        }
        let mut buffer = [0; BUFFER_LEN];
        match read(&self.terminal, &mut buffer) {
            Ok(0) | Err(Errno::IO) => Ok(None),
            Ok(len) => {
                self.started.extend_from_slice(&buffer[..len]);
                Ok(Some(take_keys(&mut self.started, false)))
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(Some(Vec::new())),
            Err(error) => Err(error.into()),
        }
    }
}

impl<F: AsFd> Keyboard<F> {
    /// The next key, and no byte of those behind it: other code reads them. `None` when the
    /// terminal has gone.
    pub fn key(&mut self) -> io::Result<Option<KeyPress>> {
        loop {
            let moment = if self.started.is_empty() { None } else { Some(&ESCAPE_MOMENT) };
            let mut ready = [PollFd::new(&self.terminal, PollFlags::IN)];
            let keys = match poll(&mut ready, moment) {
                Ok(0) => take_keys(&mut self.started, true),
                Ok(_) => {
                    let mut byte = [0];
                    match read(&self.terminal, &mut byte) {
                        Ok(0) | Err(Errno::IO) => return Ok(None),
                        Ok(_) => self.started.extend(byte),
                        Err(Errno::INTR | Errno::AGAIN) => {}
                        Err(error) => return Err(error.into()),
                    }
                    take_keys(&mut self.started, false)
                }
                Err(Errno::INTR) => Vec::new(),
                Err(error) => return Err(error.into()),
            };
            // A single byte completes a single key.
            if let Some(key) = keys.into_iter().next() {
                return Ok(Some(key));
            }
        }
    }
}

/// A terminal that sends each key at once, unseen and as it is, until this is dropped.
pub struct Raw<F: AsFd> {
    terminal: F,
    before: Termios,
}

impl<F: AsFd> Raw<F> {
    pub fn enter(terminal: F) -> io::Result<Self> {
        let before = tcgetattr(&terminal)?;
        let mut raw = before.clone();
        make_raw(&mut raw);
        tcsetattr(&terminal, OptionalActions::Drain, &raw)?;
        Ok(Self { terminal, before })
    }
}

impl<F: AsFd> Drop for Raw<F> {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.terminal, OptionalActions::Drain, &self.before);
    }
}

/// Has a terminal send each key as it is. What it shows stays as it was.
pub fn make_raw(modes: &mut Termios) {
    modes.input_modes.remove(
        InputModes::BRKINT
            | InputModes::ICRNL
            | InputModes::INPCK
            | InputModes::ISTRIP
            | InputModes::IXON,
    );
    let local = LocalModes::ECHO | LocalModes::ICANON | LocalModes::IEXTEN | LocalModes::ISIG;
    modes.local_modes.remove(local);
    modes.special_codes[SpecialCodeIndex::VMIN] = 1;
    modes.special_codes[SpecialCodeIndex::VTIME] = 0;
}

/// Takes all whole keys, and, if no more bytes will come, what is no whole one.
fn take_keys(bytes: &mut Vec<u8>, is_all: bool) -> Vec<KeyPress> {
    let mut keys = Vec::new();
    let mut taken = 0;
    while let Some((key, len)) = first_key(&bytes[taken..]) {
        keys.extend(key);
        taken += len;
    }
    bytes.drain(..taken);
    if is_all || bytes.len() > SEQUENCE_LEN_MAX {
        if bytes.first() == Some(&ESCAPE) {
            keys.push(KeyPress::Escape);
        }
        bytes.clear();
    }
    keys
}

/// The key that the bytes begin with, if it means something, and its length. `None` when it has not
/// come as a whole.
fn first_key(bytes: &[u8]) -> Option<(Option<KeyPress>, usize)> {
    let (first, rest) = bytes.split_first()?;
    let key = match first {
        &ESCAPE => return sequence(rest).map(|(key, len)| (key, len + 1)),
        0x03 => KeyPress::Interrupt,
        0x15 => KeyPress::EraseLine,
        b'\r' | b'\n' => KeyPress::Enter,
        b'\t' => KeyPress::Tab,
        0x08 | 0x7f => KeyPress::Backspace,
        0..0x20 => return Some((None, 1)),
        _ => return character(bytes),
    };
    Some((Some(key), 1))
}

/// What follows an Esc: of a key that has no character, or nothing.
fn sequence(rest: &[u8]) -> Option<(Option<KeyPress>, usize)> {
    let (parameters, last, len) = match rest {
        [] | [b'O'] => return None,
        [b'O', last, ..] => (&b""[..], *last, 2),
        [b'[', rest @ ..] => {
            let count = rest.iter().take_while(|byte| (0x20..0x40).contains(*byte)).count();
            (&rest[..count], *rest.get(count)?, count + 2)
        }
        _ => return Some((Some(KeyPress::Escape), 0)),
    };
    // Behind a semicolon are Shift and others.
    let number = parameters.split(|byte| *byte == b';').next().unwrap_or_default();
    let key = match (last, number) {
        (b'A', _) => KeyPress::Up,
        (b'B', _) => KeyPress::Down,
        (b'C', _) => KeyPress::Right,
        (b'D', _) => KeyPress::Left,
        (b'H', _) | (b'~', b"1" | b"7") => KeyPress::Home,
        (b'F', _) | (b'~', b"4" | b"8") => KeyPress::End,
        (b'Z', _) => KeyPress::BackTab,
        (b'~', b"5") => KeyPress::PageUp,
        (b'~', b"6") => KeyPress::PageDown,
        _ => return Some((None, len)),
    };
    Some((Some(key), len))
}

/// A character of UTF-8, or a byte of none.
fn character(bytes: &[u8]) -> Option<(Option<KeyPress>, usize)> {
    let chunk = bytes.utf8_chunks().next()?;
    if let Some(character) = chunk.valid().chars().next() {
        let key = (!character.is_control()).then_some(KeyPress::Char(character));
        return Some((key, character.len_utf8()));
    }
    let is_begun = std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none());
    (!is_begun).then_some((Some(KeyPress::Byte(bytes[0])), 1))
}

const ESCAPE: u8 = 0x1b;
/// What comes later than that behind an Esc is a key of its own.
const ESCAPE_MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
const BUFFER_LEN: usize = 256;
/// No key sends more.
const SEQUENCE_LEN_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::net::UnixStream};

    use super::*;

    fn keys(bytes: &[u8]) -> Vec<KeyPress> {
        let mut bytes = bytes.to_vec();
        let keys = take_keys(&mut bytes, false);
        assert_eq!(bytes, b"", "{keys:?}");
        keys
    }

    #[test]
    fn what_terminals_send() {
        assert_eq!(
            keys(b"q\r\t\x03\x7f"),
            [
                KeyPress::Char('q'),
                KeyPress::Enter,
                KeyPress::Tab,
                KeyPress::Interrupt,
                KeyPress::Backspace
            ]
        );
        assert_eq!(
            keys(b"\x1b[A\x1bOB\x1b[1;2C\x1b[D"),
            [KeyPress::Up, KeyPress::Down, KeyPress::Right, KeyPress::Left]
        );
        assert_eq!(
            keys(b"\x1b[5~\x1b[6~\x1b[H\x1b[4~\x1b[Z"),
            [
                KeyPress::PageUp,
                KeyPress::PageDown,
                KeyPress::Home,
                KeyPress::End,
                KeyPress::BackTab
            ]
        );
        assert_eq!(keys("ä世".as_bytes()), [KeyPress::Char('ä'), KeyPress::Char('世')]);
        assert_eq!(
            keys(b"\x1bk\xff\x01\x1b[15~x\xc2\x9b"),
            [KeyPress::Escape, KeyPress::Char('k'), KeyPress::Byte(0xff), KeyPress::Char('x')]
        );
        assert_eq!(
            keys(b"\xe4\xb8\x15"),
            [KeyPress::Byte(0xe4), KeyPress::Byte(0xb8), KeyPress::EraseLine]
        );
    }

    #[test]
    fn keys_in_pieces() {
        for (start, end) in [("\x1b[1;", "2A"), ("\x1b", "[A"), ("\x1bO", "A")] {
            let mut bytes = start.as_bytes().to_vec();
            assert_eq!(take_keys(&mut bytes, false), []);
            assert_eq!(take_keys(&mut bytes.clone(), true), [KeyPress::Escape]);
            bytes.extend(end.bytes());
            assert_eq!(take_keys(&mut bytes, false), [KeyPress::Up]);
        }
        let mut bytes = "世".as_bytes()[..2].to_vec();
        assert_eq!(take_keys(&mut bytes, false), []);
        bytes.extend(&"世".as_bytes()[2..]);
        assert_eq!(take_keys(&mut bytes, false), [KeyPress::Char('世')]);
        let mut endless = [b"\x1b[".to_vec(), b"1".repeat(99)].concat();
        assert_eq!(take_keys(&mut endless, false), [KeyPress::Escape]);
        assert_eq!(endless, b"");
    }

    #[test]
    fn the_end_of_a_terminal() {
        let (mut far, near) = UnixStream::pair().unwrap();
        let mut keyboard = Keyboard::new(near);
        let moment = Duration::from_millis(1);
        assert_eq!(keyboard.keys(moment).unwrap(), Some(vec![]));
        far.write_all(b"a\x1b").unwrap();
        assert_eq!(keyboard.keys(moment).unwrap(), Some(vec![KeyPress::Char('a')]));
        assert_eq!(keyboard.keys(moment).unwrap(), Some(vec![KeyPress::Escape]));
        drop(far);
        assert_eq!(keyboard.keys(moment).unwrap(), None);
    }
}
