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
pub enum Key {
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
    pub fn keys(&mut self, moment: Duration) -> io::Result<Option<Vec<Key>>> {
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
    pub fn key(&mut self) -> io::Result<Option<Key>> {
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
fn take_keys(bytes: &mut Vec<u8>, is_all: bool) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut taken = 0;
    while let Some((key, len)) = first_key(&bytes[taken..]) {
        keys.extend(key);
        taken += len;
    }
    bytes.drain(..taken);
    if is_all || bytes.len() > SEQUENCE_LEN_MAX {
        if bytes.first() == Some(&ESCAPE) {
            keys.push(Key::Escape);
        }
        bytes.clear();
    }
    keys
}

/// The key that the bytes begin with, if it means something, and its length. `None` when it has not
/// come as a whole.
fn first_key(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let (first, rest) = bytes.split_first()?;
    let key = match first {
        &ESCAPE => return sequence(rest).map(|(key, len)| (key, len + 1)),
        0x03 => Key::Interrupt,
        0x15 => Key::EraseLine,
        b'\r' | b'\n' => Key::Enter,
        b'\t' => Key::Tab,
        0x08 | 0x7f => Key::Backspace,
        0..0x20 => return Some((None, 1)),
        _ => return character(bytes),
    };
    Some((Some(key), 1))
}

/// What follows an Esc: of a key that has no character, or nothing.
fn sequence(rest: &[u8]) -> Option<(Option<Key>, usize)> {
    let (parameters, last, len) = match rest {
        [] | [b'O'] => return None,
        [b'O', last, ..] => (&b""[..], *last, 2),
        [b'[', rest @ ..] => {
            let count = rest.iter().take_while(|byte| (0x20..0x40).contains(*byte)).count();
            (&rest[..count], *rest.get(count)?, count + 2)
        }
        _ => return Some((Some(Key::Escape), 0)),
    };
    // Behind a semicolon are Shift and others.
    let number = parameters.split(|byte| *byte == b';').next().unwrap_or_default();
    let key = match (last, number) {
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'C', _) => Key::Right,
        (b'D', _) => Key::Left,
        (b'H', _) | (b'~', b"1" | b"7") => Key::Home,
        (b'F', _) | (b'~', b"4" | b"8") => Key::End,
        (b'Z', _) => Key::BackTab,
        (b'~', b"5") => Key::PageUp,
        (b'~', b"6") => Key::PageDown,
        _ => return Some((None, len)),
    };
    Some((Some(key), len))
}

/// A character of UTF-8, or a byte of none.
fn character(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let chunk = bytes.utf8_chunks().next()?;
    if let Some(character) = chunk.valid().chars().next() {
        let key = (!character.is_control()).then_some(Key::Char(character));
        return Some((key, character.len_utf8()));
    }
    let is_begun = std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none());
    (!is_begun).then_some((Some(Key::Byte(bytes[0])), 1))
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

    fn keys(bytes: &[u8]) -> Vec<Key> {
        let mut bytes = bytes.to_vec();
        let keys = take_keys(&mut bytes, false);
        assert_eq!(bytes, b"", "{keys:?}");
        keys
    }

    #[test]
    fn what_terminals_send() {
        assert_eq!(
            keys(b"q\r\t\x03\x7f"),
            [Key::Char('q'), Key::Enter, Key::Tab, Key::Interrupt, Key::Backspace]
        );
        assert_eq!(
            keys(b"\x1b[A\x1bOB\x1b[1;2C\x1b[D"),
            [Key::Up, Key::Down, Key::Right, Key::Left]
        );
        assert_eq!(
            keys(b"\x1b[5~\x1b[6~\x1b[H\x1b[4~\x1b[Z"),
            [Key::PageUp, Key::PageDown, Key::Home, Key::End, Key::BackTab]
        );
        assert_eq!(keys("ä世".as_bytes()), [Key::Char('ä'), Key::Char('世')]);
        assert_eq!(
            keys(b"\x1bk\xff\x01\x1b[15~x\xc2\x9b"),
            [Key::Escape, Key::Char('k'), Key::Byte(0xff), Key::Char('x')]
        );
        assert_eq!(keys(b"\xe4\xb8\x15"), [Key::Byte(0xe4), Key::Byte(0xb8), Key::EraseLine]);
    }

    #[test]
    fn keys_in_pieces() {
        for (start, end) in [("\x1b[1;", "2A"), ("\x1b", "[A"), ("\x1bO", "A")] {
            let mut bytes = start.as_bytes().to_vec();
            assert_eq!(take_keys(&mut bytes, false), []);
            assert_eq!(take_keys(&mut bytes.clone(), true), [Key::Escape]);
            bytes.extend(end.bytes());
            assert_eq!(take_keys(&mut bytes, false), [Key::Up]);
        }
        let mut bytes = "世".as_bytes()[..2].to_vec();
        assert_eq!(take_keys(&mut bytes, false), []);
        bytes.extend(&"世".as_bytes()[2..]);
        assert_eq!(take_keys(&mut bytes, false), [Key::Char('世')]);
        let mut endless = [b"\x1b[".to_vec(), b"1".repeat(99)].concat();
        assert_eq!(take_keys(&mut endless, false), [Key::Escape]);
        assert_eq!(endless, b"");
    }

    #[test]
    fn the_end_of_a_terminal() {
        let (mut far, near) = UnixStream::pair().unwrap();
        let mut keyboard = Keyboard::new(near);
        let moment = Duration::from_millis(1);
        assert_eq!(keyboard.keys(moment).unwrap(), Some(vec![]));
        far.write_all(b"a\x1b").unwrap();
        assert_eq!(keyboard.keys(moment).unwrap(), Some(vec![Key::Char('a')]));
        assert_eq!(keyboard.keys(moment).unwrap(), Some(vec![Key::Escape]));
        drop(far);
        assert_eq!(keyboard.keys(moment).unwrap(), None);
    }
}
