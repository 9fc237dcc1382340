//! Redis's strings, expiry and transactions, as plainly as they can be written down.

use std::collections::BTreeMap;

use super::sequence::DATABASES;

/// A key's database and name.
type Name = (usize, Vec<u8>);
type Command = Vec<Vec<u8>>;

/// The model of a database.
pub struct DatabaseModel {
    pub now_ms: i64,
    keys: BTreeMap<Name, Entry>,
    /// Changes of each key ever, for WATCH.
    changes: BTreeMap<Name, u64>,
    sessions: Vec<Session>,
}

#[derive(Clone)]
struct Entry {
    value: Vec<u8>,
    expire_ms: Option<i64>,
}

#[derive(Default)]
struct Session {
    database: usize,
    queue: Option<Vec<Command>>,
    spoiled: bool,
    watched: BTreeMap<Name, u64>,
}

impl DatabaseModel {
    pub fn new(now_ms: i64) -> Self {
        let sessions = (0..8).map(|_| Session::default()).collect();
        Self { now_ms, keys: BTreeMap::new(), changes: BTreeMap::new(), sessions }
    }

    /// Appends the reply to a command of a session.
    pub fn execute(&mut self, session: usize, command: Command, out: &mut Vec<u8>) {
        self.bury();
        let name = String::from_utf8_lossy(&command[0]).into_owned();
        let client = &mut self.sessions[session];
        let error = match (name.as_str(), command.len()) {
            ("GET", 1) => Some("ERR wrong number of arguments for 'get' command".to_owned()),
            ("MULTI" | "WATCH", _) if client.queue.is_some() => Some(format!(
                "ERR Command '{}' not allowed inside a transaction",
                name.to_lowercase()
            )),
            _ => None,
        };
        if let Some(text) = error {
            client.spoiled |= client.queue.is_some();
            return failure(out, &text);
        }
        match (name.as_str(), &mut client.queue) {
            ("EXEC", _) => self.commit(session, out),
            ("DISCARD", None) => failure(out, "ERR DISCARD without MULTI"),
            ("DISCARD", Some(_)) => {
                *client = Session { database: client.database, ..Session::default() };
                ok(out);
            }
            ("MULTI", _) => {
                client.queue = Some(Vec::new());
                ok(out);
            }
            (_, Some(queue)) => {
                queue.push(command);
                out.extend_from_slice(b"+QUEUED\r\n");
            }
            _ => self.run(session, &command, out),
        }
    }

    /// Commands that show all there is, and leave nothing.
    pub fn questions(&self) -> Vec<Command> {
        let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let mut questions = Vec::new();
        for database in 0..DATABASES {
            questions.push(words(&["SELECT", &database.to_string()]));
            questions.push(words(&["DBSIZE"]));
            for (_, key) in self.keys.keys().filter(|(of, _)| *of == database) {
                questions.push(vec![b"GET".to_vec(), key.clone()]);
                questions.push(vec![b"PEXPIRETIME".to_vec(), key.clone()]);
                questions.push(vec![b"DEL".to_vec(), key.clone()]);
            }
        }
        questions.push(words(&["SELECT", "0"]));
        questions
    }

    /// The answer to one of `questions`.
    pub fn answer(&mut self, command: &[Vec<u8>], out: &mut Vec<u8>) {
        self.bury();
        let last = self.sessions.len() - 1;
        if command[0] == b"DBSIZE" {
            let database = self.sessions[last].database;
            return integer(out, self.keys.keys().filter(|(of, _)| *of == database).count() as i64);
        }
        self.run(last, command, out);
    }

    /// Dead keys are gone before any command looks. A key lives through its last millisecond.
    fn bury(&mut self) {
        let now_ms = self.now_ms;
        let dead = |entry: &Entry| entry.expire_ms.is_some_and(|expire_ms| expire_ms < now_ms);
        let names: Vec<_> =
            self.keys.iter().filter(|(_, e)| dead(e)).map(|(name, _)| name.clone()).collect();
        names.into_iter().for_each(|name| drop(self.take(&name)));
    }

    fn commit(&mut self, session: usize, out: &mut Vec<u8>) {
        let client = &mut self.sessions[session];
        let Some(queue) = client.queue.take() else {
            return failure(out, "ERR EXEC without MULTI");
        };
        let watched = std::mem::take(&mut client.watched);
        if std::mem::take(&mut client.spoiled) {
            let text = "EXECABORT Transaction discarded because of previous errors.";
            return failure(out, text);
        }
        if watched.iter().any(|(name, changes)| self.changes_of(name) != *changes) {
            out.extend_from_slice(b"*-1\r\n");
            return;
        }
        out.extend_from_slice(format!("*{}\r\n", queue.len()).as_bytes());
        queue.iter().for_each(|command| self.run(session, command, out));
    }

    fn run(&mut self, session: usize, command: &[Vec<u8>], out: &mut Vec<u8>) {
        let database = self.sessions[session].database;
        let name = String::from_utf8_lossy(&command[0]).into_owned();
        let named = |index: usize| (database, command[index].clone());
        let number =
            |index: usize| parse(&command[index]).expect("the sequence has integers there");
        let has = |word: &str| command[3..].iter().any(|option| option == word.as_bytes());
        match name.as_str() {
            "PING" => out.extend_from_slice(b"+PONG\r\n"),
            "SELECT" => {
                self.sessions[session].database = number(1) as usize;
                ok(out);
            }
            "GET" => bulk(out, self.value(&named(1))),
            "SET" => self.set(database, command, out),
            "SETNX" => {
                let free = !self.keys.contains_key(&named(1));
                if free {
                    self.put(named(1), command[2].clone(), None);
                }
                integer(out, i64::from(free));
            }
            "GETSET" => {
                bulk(out, self.value(&named(1)));
                self.put(named(1), command[2].clone(), None);
            }
            "GETDEL" => {
                let entry = self.take(&named(1));
                bulk(out, entry.as_ref().map(|entry| entry.value.as_slice()));
            }
            "GETEX" => {
                let expire_ms = match command.get(2).map(Vec::as_slice) {
                    Some(b"PX") if number(3) <= 0 => {
                        return failure(out, "ERR invalid expire time in 'getex' command");
                    }
                    Some(b"PX") => Some(Some(self.now_ms + number(3))),
                    Some(_) => Some(None),
                    None => None,
                };
                bulk(out, self.value(&named(1)));
                if let Some(expire_ms) = expire_ms {
                    self.expire(&named(1), expire_ms);
                }
            }
            "APPEND" => {
                let (mut value, expire_ms) = self.edit(&named(1));
                value.extend_from_slice(&command[2]);
                integer(out, value.len() as i64);
                self.put(named(1), value, expire_ms);
            }
            "SETRANGE" => {
                let (offset, part) = (number(2), &command[3]);
                let (mut value, expire_ms) = self.edit(&named(1));
                if offset < 0 {
                    return failure(out, "ERR offset is out of range");
                }
                if !part.is_empty() {
                    let end = offset as usize + part.len();
                    value.resize(value.len().max(end), 0);
                    value[offset as usize..end].copy_from_slice(part);
                    self.put(named(1), value.clone(), expire_ms);
                }
                integer(out, value.len() as i64);
            }
            "GETRANGE" => {
                let value = self.value(&named(1)).unwrap_or_default();
                bulk(out, Some(range(value, number(2), number(3))));
            }
            "STRLEN" => integer(out, self.value(&named(1)).map_or(0, |value| value.len() as i64)),
            "SETBIT" => {
                if number(2) < 0 {
                    return failure(out, "ERR bit offset is not an integer or out of range");
                }
                let (byte, mask) = (number(2) as usize / 8, 0x80 >> (number(2) % 8));
                let (mut value, expire_ms) = self.edit(&named(1));
                value.resize(value.len().max(byte + 1), 0);
                integer(out, i64::from(value[byte] & mask != 0));
                value[byte] = if number(3) == 1 { value[byte] | mask } else { value[byte] & !mask };
                // A bit that stays as it is changes nothing, for WATCH either.
                if self.value(&named(1)) != Some(&value) {
                    self.put(named(1), value, expire_ms);
                }
            }
            "GETBIT" => {
                let value = self.value(&named(1)).unwrap_or_default();
                let byte = value.get(number(2) as usize / 8).copied().unwrap_or(0);
                integer(out, i64::from(byte & (0x80 >> (number(2) % 8)) != 0));
            }
            "INCR" => self.add(named(1), Some(1), out),
            "DECR" => self.add(named(1), Some(-1), out),
            "INCRBY" => self.add(named(1), Some(number(2)), out),
            "DECRBY" => self.add(named(1), number(2).checked_neg(), out),
            "DEL" | "UNLINK" => {
                let gone = (1..command.len()).filter(|index| self.take(&named(*index)).is_some());
                integer(out, gone.count() as i64);
            }
            "EXISTS" | "TOUCH" => {
                let there = (1..command.len()).filter(|at| self.keys.contains_key(&named(*at)));
                integer(out, there.count() as i64);
            }
            "TYPE" => {
                let there = self.keys.contains_key(&named(1));
                out.extend_from_slice(if there { b"+string\r\n" } else { b"+none\r\n" });
            }
            "MGET" => {
                out.extend_from_slice(format!("*{}\r\n", command.len() - 1).as_bytes());
                (1..command.len()).for_each(|index| bulk(out, self.value(&named(index))));
            }
            "MSET" | "MSETNX" => {
                let pairs = || (1..command.len()).step_by(2);
                let only_new = name == "MSETNX";
                let taken = only_new && pairs().any(|index| self.keys.contains_key(&named(index)));
                if !taken {
                    pairs().for_each(|at| self.put(named(at), command[at + 1].clone(), None));
                }
                if only_new { integer(out, i64::from(!taken)) } else { ok(out) }
            }
            "PEXPIRE" | "PEXPIREAT" => {
                let base_ms = if name == "PEXPIRE" { self.now_ms } else { 0 };
                let expire_ms = base_ms + number(2);
                let done = self.keys.get(&named(1)).is_some_and(|entry| {
                    let before_ms = entry.expire_ms;
                    !(has("NX") && before_ms.is_some()
                        || has("XX") && before_ms.is_none()
                        || has("GT") && before_ms.is_none_or(|before_ms| expire_ms <= before_ms)
                        || has("LT") && before_ms.is_some_and(|before_ms| expire_ms >= before_ms))
                });
                if done {
                    self.expire(&named(1), Some(expire_ms));
                }
                integer(out, i64::from(done));
            }
            "PERSIST" => integer(out, i64::from(self.expire(&named(1), None))),
            "PTTL" | "PEXPIRETIME" => {
                let base_ms = if name == "PTTL" { self.now_ms } else { 0 };
                let entry = self.keys.get(&named(1));
                let left = |entry: &Entry| entry.expire_ms.map_or(-1, |at_ms| at_ms - base_ms);
                integer(out, entry.map_or(-2, left));
            }
            "RENAME" | "RENAMENX" => {
                let only_new = name == "RENAMENX";
                let Some(entry) = self.keys.get(&named(1)).cloned() else {
                    return failure(out, "ERR no such key");
                };
                let taken = only_new && self.keys.contains_key(&named(2));
                if !taken && command[1] != command[2] {
                    self.take(&named(1));
                    self.put(named(2), entry.value, entry.expire_ms);
                }
                if only_new { integer(out, i64::from(!taken)) } else { ok(out) }
            }
            "COPY" => {
                let to = if has("DB") { number(4) as usize } else { database };
                let target = (to, command[2].clone());
                self.copy(&named(1), target, has("REPLACE"), out);
            }
            "MOVE" => {
                let target = (number(2) as usize, command[1].clone());
                let before = out.len();
                self.copy(&named(1), target, false, out);
                if out[before..] == *b":1\r\n" {
                    self.take(&named(1));
                }
            }
            "WATCH" => {
                for name in (1..command.len()).map(named) {
                    let changes = self.changes_of(&name);
                    self.sessions[session].watched.entry(name).or_insert(changes);
                }
                ok(out);
            }
            "UNWATCH" => {
                self.sessions[session].watched.clear();
                ok(out);
            }
            "FLUSHDB" => {
                let names: Vec<_> =
                    self.keys.keys().filter(|(of, _)| *of == database).cloned().collect();
                names.iter().for_each(|name| drop(self.take(name)));
                ok(out);
            }
            "SWAPDB" => {
                let before = std::mem::take(&mut self.keys);
                for ((database, key), entry) in before {
                    // On both sides something changed: it went, or it came.
                    self.changed(&(database, key.clone()));
                    self.changed(&(1 - database, key.clone()));
                    self.keys.insert((1 - database, key), entry);
                }
                ok(out);
            }
            _ => unreachable!("{name} is not in the model"),
        }
    }

    fn set(&mut self, database: usize, command: &[Vec<u8>], out: &mut Vec<u8>) {
        let name = (database, command[1].clone());
        let old = self.keys.get(&name).cloned();
        let (mut expire_ms, mut unless, mut only_if, mut get) = (None, false, false, false);
        let mut is_past = false;
        let mut options = command[3..].iter();
        while let Some(option) = options.next() {
            match option.as_slice() {
                b"PX" | b"PXAT" => {
                    let ms = options.next().and_then(|ms| parse(ms)).expect("it is a number");
                    if ms <= 0 {
                        return failure(out, "ERR invalid expire time in 'set' command");
                    }
                    let ms = if option == b"PX" { self.now_ms + ms } else { ms };
                    (expire_ms, is_past) = (Some(ms), ms <= self.now_ms);
                }
                b"KEEPTTL" => expire_ms = old.as_ref().and_then(|entry| entry.expire_ms),
                b"NX" => unless = true,
                b"XX" => only_if = true,
                _ => get = true,
            }
        }
        let refused = unless && old.is_some() || only_if && old.is_none();
        match (get, refused) {
            (true, _) => bulk(out, old.as_ref().map(|entry| entry.value.as_slice())),
            (false, true) => bulk(out, None),
            (false, false) => ok(out),
        }
        match (refused, is_past) {
            (true, _) => {}
            // A value that is dead from the start only takes away what was there.
            (false, true) => drop(self.take(&name)),
            (false, false) => self.put(name, command[2].clone(), expire_ms),
        }
    }

    fn add(&mut self, name: Name, number: Option<i64>, out: &mut Vec<u8>) {
        let Some(number) = number else { return failure(out, "ERR decrement would overflow") };
        let (value, expire_ms) = self.edit(&name);
        let old = if self.keys.contains_key(&name) { parse(&value) } else { Some(0) };
        let Some(old) = old else {
            return failure(out, "ERR value is not an integer or out of range");
        };
        let Some(sum) = old.checked_add(number) else {
            return failure(out, "ERR increment or decrement would overflow");
        };
        self.put(name, sum.to_string().into_bytes(), expire_ms);
        integer(out, sum);
    }

    fn copy(&mut self, from: &Name, to: Name, replace: bool, out: &mut Vec<u8>) {
        if *from == to {
            return failure(out, "ERR source and destination objects are the same");
        }
        let entry = self.keys.get(from).cloned();
        let entry = entry.filter(|_| replace || !self.keys.contains_key(&to));
        integer(out, i64::from(entry.is_some()));
        if let Some(entry) = entry {
            self.put(to, entry.value, entry.expire_ms);
        }
    }

    /// What a change of the value begins from.
    fn edit(&self, name: &Name) -> (Vec<u8>, Option<i64>) {
        self.keys.get(name).map_or((Vec::new(), None), |e| (e.value.clone(), e.expire_ms))
    }

    fn value(&self, name: &Name) -> Option<&[u8]> {
        self.keys.get(name).map(|entry| entry.value.as_slice())
    }

    fn put(&mut self, name: Name, value: Vec<u8>, expire_ms: Option<i64>) {
        self.changed(&name);
        self.keys.insert(name, Entry { value, expire_ms });
    }

    fn take(&mut self, name: &Name) -> Option<Entry> {
        let entry = self.keys.remove(name)?;
        self.changed(name);
        Some(entry)
    }

    /// Whether there was anything to change.
    fn expire(&mut self, name: &Name, expire_ms: Option<i64>) -> bool {
        let Some(entry) = self.keys.get_mut(name) else { return false };
        if expire_ms.is_none() && entry.expire_ms.is_none() {
            return false;
        }
        entry.expire_ms = expire_ms;
        self.changed(name);
        if expire_ms.is_some_and(|expire_ms| expire_ms <= self.now_ms) {
            self.take(name);
        }
        true
    }

    fn changed(&mut self, name: &Name) {
        *self.changes.entry(name.clone()).or_default() += 1;
    }

    fn changes_of(&self, name: &Name) -> u64 {
        self.changes.get(name).copied().unwrap_or(0)
    }
}

/// The bytes from `start` to `end`, both included and both from the end when negative.
fn range(value: &[u8], start: i64, end: i64) -> &[u8] {
    let len = value.len() as i128;
    let at = |index: i64| i128::from(index) + if index < 0 { len } else { 0 };
    if start < 0 && end < 0 && start > end {
        return &[];
    }
    let (start, end) = (at(start).max(0), at(end).max(0).min(len - 1));
    if start > end || len == 0 { &[] } else { &value[start as usize..=end as usize] }
}

/// An integer in the only form that Redis takes for one.
fn parse(bytes: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(bytes).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == bytes).then_some(number)
}

fn ok(out: &mut Vec<u8>) {
    out.extend_from_slice(b"+OK\r\n");
}

fn integer(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(format!(":{number}\r\n").as_bytes());
}

fn failure(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(format!("-{text}\r\n").as_bytes());
}

fn bulk(out: &mut Vec<u8>, value: Option<&[u8]>) {
    let Some(value) = value else { return out.extend_from_slice(b"$-1\r\n") };
    out.extend_from_slice(format!("${}\r\n", value.len()).as_bytes());
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}
