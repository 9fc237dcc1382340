//! From bytes to steps: commands over few keys, so that they meet.

/// What happens next.
pub enum ModelStep {
    Wait {
        ms: i64,
    },
    /// Takes out what has expired.
    Expire,
    /// A pipeline of one client.
    Send {
        session: usize,
        commands: Vec<Vec<Vec<u8>>>,
    },
}

/// Bytes to choose by; when they are used up every choice is the first.
pub struct ChoiceBytes<'a> {
    rest: &'a [u8],
}

impl<'a> ChoiceBytes<'a> {
    pub const fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    fn next(&mut self) -> u8 {
        let [first, rest @ ..] = self.rest else { return 0 };
        self.rest = rest;
        *first
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::from(self.next()) % limit
    }

    fn one_of<'b>(&mut self, words: &[&'b str]) -> &'b str {
        words[self.below(words.len())]
    }

    fn key(&mut self) -> Vec<u8> {
        match self.below(KEYS) {
            0 => b"k".to_vec(),
            1 => b"".to_vec(),
            2 => b"key:000000001".to_vec(),
            3 => vec![b'm'; 70],
            4 => vec![b'l'; 300],
            number => format!("key {number}").into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        match self.below(12) {
            0..=2 => i64::from(self.next() as i8).to_string().into_bytes(),
            3 => self.one_of(&INTEGERS).as_bytes().to_vec(),
            4 => self.one_of(&[" 1", "+1", "01", "-0", "1.5", "9223372036854775808"]).into(),
            5 => Vec::new(),
            len => vec![b'a' + self.next() % 26; LENGTHS[len - 6]],
        }
    }

    fn integer(&mut self) -> Vec<u8> {
        match self.below(8) {
            0 => self.one_of(&INTEGERS).as_bytes().to_vec(),
            _ => i64::from(self.next() as i8).to_string().into_bytes(),
        }
    }

    /// Milliseconds from now.
    fn period_ms(&mut self) -> i64 {
        match self.below(8) {
            0 => i64::from(self.next() as i8),
            1 => 1_000_000_000,
            _ => i64::from(self.next()) + 1,
        }
    }
}

/// The next step; `None` at the end of the bytes.
pub fn step(bytes: &mut ChoiceBytes<'_>, sessions: usize, now_ms: i64) -> Option<ModelStep> {
    if bytes.rest.is_empty() {
        return None;
    }
    Some(match bytes.below(16) {
        0 | 1 => ModelStep::Wait { ms: i64::from(bytes.next()) },
        2 => ModelStep::Expire,
        _ => {
            let session = bytes.below(sessions);
            let count = 1 + bytes.below(6);
            let commands = (0..count).map(|_| command(bytes, now_ms)).collect();
            ModelStep::Send { session, commands }
        }
    })
}

fn command(b: &mut ChoiceBytes<'_>, now_ms: i64) -> Vec<Vec<u8>> {
    let text = |number: i64| number.to_string().into_bytes();
    let w = |word: &str| word.as_bytes().to_vec();
    match b.below(48) {
        0..=3 => vec![w("GET"), b.key()],
        4..=6 => vec![w("SET"), b.key(), b.value()],
        7..=10 => {
            let mut words = vec![w("SET"), b.key(), b.value()];
            match b.below(5) {
                0 => words.extend([w("PX"), text(b.period_ms())]),
                1 => words.extend([w("PXAT"), text(now_ms + b.period_ms())]),
                2 => words.push(w("KEEPTTL")),
                _ => {}
            }
            match b.below(4) {
                0 => words.push(w("NX")),
                1 => words.push(w("XX")),
                _ => {}
            }
            if b.below(3) == 0 {
                words.push(w("GET"));
            }
            words
        }
        11 => vec![w("SETNX"), b.key(), b.value()],
        12 => vec![w("GETSET"), b.key(), b.value()],
        13 => vec![w("GETDEL"), b.key()],
        14 => {
            let mut words = vec![w("GETEX"), b.key()];
            match b.below(3) {
                0 => words.extend([w("PX"), text(b.period_ms())]),
                1 => words.push(w("PERSIST")),
                _ => {}
            }
            words
        }
        15 | 16 => vec![w("APPEND"), b.key(), b.value()],
        17 | 18 => vec![w("SETRANGE"), b.key(), text(OFFSETS[b.below(OFFSETS.len())]), b.value()],
        19 => vec![w("GETRANGE"), b.key(), b.integer(), b.integer()],
        20 => vec![w("STRLEN"), b.key()],
        21 => vec![
            w("SETBIT"),
            b.key(),
            text(OFFSETS[b.below(OFFSETS.len())]),
            text(b.below(2) as i64),
        ],
        22 => vec![w("GETBIT"), b.key(), text(i64::from(b.next()))],
        23 | 24 => vec![w(b.one_of(&["INCR", "DECR"])), b.key()],
        25 => vec![w(b.one_of(&["INCRBY", "DECRBY"])), b.key(), b.integer()],
        26 => vec![w(b.one_of(&["DEL", "UNLINK", "EXISTS", "TOUCH"])), b.key(), b.key()],
        27 => vec![w(b.one_of(&["DEL", "TYPE"])), b.key()],
        28 => vec![w("MGET"), b.key(), b.key(), b.key()],
        29 => vec![w("MSET"), b.key(), b.value(), b.key(), b.value()],
        30 => vec![w("MSETNX"), b.key(), b.value(), b.key(), b.value()],
        31..=33 => {
            let mut words = vec![w("PEXPIRE"), b.key(), text(b.period_ms())];
            match b.below(8) {
                0 => words.push(w("NX")),
                1 => words.push(w("XX")),
                2 => words.push(w("GT")),
                3 => words.push(w("LT")),
                _ => {}
            }
            words
        }
        34 => vec![w("PEXPIREAT"), b.key(), text(now_ms + b.period_ms())],
        35 => vec![w("PERSIST"), b.key()],
        36 => vec![w(b.one_of(&["PTTL", "PEXPIRETIME"])), b.key()],
        37 => vec![w(b.one_of(&["RENAME", "RENAMENX"])), b.key(), b.key()],
        38 => {
            let mut words = vec![w("COPY"), b.key(), b.key()];
            match b.below(3) {
                0 => words.push(w("REPLACE")),
                1 => words.extend([w("DB"), text(b.below(DATABASES) as i64)]),
                _ => {}
            }
            words
        }
        39 => vec![w("MOVE"), b.key(), text(b.below(DATABASES) as i64)],
        40 => vec![w("SELECT"), text(b.below(DATABASES) as i64)],
        41 => vec![w("MULTI")],
        42 | 43 => vec![w("EXEC")],
        44 => vec![w("WATCH"), b.key(), b.key()],
        45 => vec![w(b.one_of(&["DISCARD", "UNWATCH"]))],
        46 => match b.below(4) {
            0 => vec![w("FLUSHDB")],
            1 => vec![w("FLUSHDB"), w("ASYNC")],
            2 => vec![w("SWAPDB"), w("0"), w("1")],
            _ => vec![w("GET")],
        },
        _ => vec![w("PING")],
    }
}

/// How many databases are used.
pub const DATABASES: usize = 2;
const KEYS: usize = 8;
/// Around the sizes at which a value is kept in another way.
const LENGTHS: [usize; 6] = [1, 12, 44, 130, 1000, 20_000];
const INTEGERS: [&str; 6] =
    ["9223372036854775807", "-9223372036854775808", "9223372036854775806", "0", "10000", "-1"];
const OFFSETS: [i64; 8] = [0, 1, 7, 30, 64, 200, 1100, -1];
