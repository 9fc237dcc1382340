//! Differences between two servers, looked for by sampling keys.
//!
//! The source is written to meanwhile. So a key counts as different only if the source's value
//! stood still while the target's was another one, again and again.

use std::thread;
use std::time::Duration;

use bobbin_client::Value;

use super::node::MigrationNode;

/// What was found so far.
#[derive(Default)]
pub struct Samples {
    pub equal: u64,
    /// Keys that changed too often to be compared.
    pub moving: u64,
    /// Keys that differ, and in what.
    pub different: Vec<(Vec<u8>, String)>,
}

enum Comparison {
    Equal,
    Moving,
    Different(String),
}

impl Samples {
    /// Compares a random key of a database; `false`: there is none.
    pub fn take(
        &mut self,
        source: &mut MigrationNode,
        target: &mut MigrationNode,
        database: u32,
    ) -> Result<bool, String> {
        source.select(database)?;
        target.select(database)?;
        let Value::Bulk(key) = source.demand(&["RANDOMKEY"])? else { return Ok(false) };
        if self.different.iter().any(|(other, _)| *other == key) {
            return Ok(true);
        }
        match compare(source, target, &key)? {
            Comparison::Equal => self.equal += 1,
            Comparison::Moving => self.moving += 1,
            Comparison::Different(what) => self.different.push((key, what)),
        }
        Ok(true)
    }

    pub fn show(&self) -> String {
        let all = self.equal + self.different.len() as u64;
        let mut text = format!("{} of {all} sampled keys are equal", self.equal);
        if self.moving > 0 {
            text.push_str(&format!(", {} change too fast", self.moving));
        }
        text
    }
}

fn compare(
    source: &mut MigrationNode,
    target: &mut MigrationNode,
    key: &[u8],
) -> Result<Comparison, String> {
    let mut outcome = Comparison::Moving;
    for attempt in 0..ATTEMPTS {
        let before = View::of(source, key)?;
        thread::sleep(PAUSE * attempt);
        let there = View::of(target, key)?;
        let after = View::of(source, key)?;
        if before != after {
            outcome = Comparison::Moving;
            continue;
        }
        match before.difference(&there) {
            None => return Ok(Comparison::Equal),
            Some(what) => outcome = Comparison::Different(what),
        }
    }
    Ok(outcome)
}

/// What is looked at of a key.
#[derive(PartialEq)]
struct View {
    kind: String,
    /// When it ends (Unix ms), or how many milliseconds that server gives no absolute time.
    ends: Value,
    length: Value,
    parts: Vec<Value>,
}

impl View {
    fn of(node: &mut MigrationNode, key: &[u8]) -> Result<Self, String> {
        let kind = node.demand(&[b"TYPE", key])?;
        let kind = String::from_utf8_lossy(kind.as_bytes().unwrap_or_default()).into_owned();
        // Servers before 7.0 do not know it: then deadlines are not compared.
        let ends = node.ask(&[b"PEXPIRETIME", key])?;
        let (length, parts): (&str, &[&[&str]]) = match kind.as_str() {
            "string" => ("STRLEN", &[&["GETRANGE", "0", "4095"], &["GETRANGE", "-4096", "-1"]]),
            "list" => ("LLEN", &[&["LRANGE", "0", "99"], &["LRANGE", "-100", "-1"]]),
            "hash" => ("HLEN", &[&["HGETALL"]]),
            "set" => ("SCARD", &[&["SMEMBERS"]]),
            "zset" => (
                "ZCARD",
                &[&["ZRANGE", "0", "99", "WITHSCORES"], &["ZRANGE", "-100", "-1", "WITHSCORES"]],
            ),
            "stream" => ("XLEN", &[&["XRANGE", "-", "+", "COUNT", "50"]]),
            _ => return Ok(Self { kind, ends, length: Value::Null, parts: Vec::new() }),
        };
        // The key may get another type, or be gone, at any time: then these are errors, or null.
        let length = node.ask(&[length.as_bytes(), key])?;
        let is_whole = matches!(kind.as_str(), "hash" | "set");
        let is_short = length.as_integer().is_some_and(|length| length <= WHOLE_MAX);
        let mut contents = Vec::new();
        for part in parts.iter().filter(|_| !is_whole || is_short) {
            let (name, rest) = part.split_first().expect("a command has a name");
            let rest = rest.iter().map(|word| word.as_bytes());
            let words: Vec<&[u8]> = [name.as_bytes(), key].into_iter().chain(rest).collect();
            let reply = node.ask(&words)?;
            contents.push(if is_whole { in_order(reply, kind == "hash") } else { reply });
        }
        Ok(Self { kind, ends, length, parts: contents })
    }

    /// In what another server's view is different.
    fn difference(&self, other: &Self) -> Option<String> {
        if self.kind != other.kind {
            return Some(format!("{} here, {} there", self.kind, other.kind));
        }
        if self.length != other.length {
            let shown = |value: &Value| value.as_integer().unwrap_or(-1);
            return Some(format!(
                "length {} here, {} there",
                shown(&self.length),
                shown(&other.length)
            ));
        }
        if self.parts != other.parts {
            return Some(format!("another value ({})", self.kind));
        }
        let is_known = !self.ends.is_error() && !other.ends.is_error();
        (is_known && self.ends != other.ends).then(|| "another time to live".to_owned())
    }
}

/// The elements of a set, or the pairs of a hash, in an order of their own.
fn in_order(reply: Value, is_hash: bool) -> Value {
    let Value::Array(elements) = reply else { return reply };
    let bytes = |value: &Value| value.as_bytes().map(<[u8]>::to_vec);
    let mut rows: Vec<_> = elements
        .chunks(1 + usize::from(is_hash))
        .map(|row| row.iter().map(bytes).collect())
        .collect();
    rows.sort_unstable();
    let flat = rows.into_iter().flat_map(|row: Vec<_>| row);
    Value::Array(flat.map(|item| Value::Bulk(item.unwrap_or_default())).collect())
}

const ATTEMPTS: u32 = 6;
/// The n-th attempt gives the target n times as long.
const PAUSE: Duration = Duration::from_millis(30);
/// Hashes and sets of more elements are compared by their length alone.
const WHOLE_MAX: i64 = 500;

#[cfg(test)]
mod tests {
    use super::*;

    fn array(items: &[&str]) -> Value {
        Value::Array(items.iter().map(|item| Value::Bulk(item.as_bytes().to_vec())).collect())
    }

    #[test]
    fn order_does_not_matter_where_there_is_none() {
        assert_eq!(in_order(array(&["b", "a"]), false), array(&["a", "b"]));
        assert_eq!(in_order(array(&["b", "1", "a", "2"]), true), array(&["a", "2", "b", "1"]));
    }

    #[test]
    fn views_differ_in_one_thing_that_is_named() {
        let view = |kind: &str, ends, length, part: &str| View {
            kind: kind.to_owned(),
            ends,
            length: Value::Integer(length),
            parts: vec![Value::Bulk(part.as_bytes().to_vec())],
        };
        let at = Value::Integer;
        let base = view("string", at(-1), 1, "a");
        for (other, expected) in [
            (view("string", at(-1), 1, "a"), None),
            (view("list", at(-1), 1, "a"), Some("string here, list there")),
            (view("string", at(-1), 2, "a"), Some("length 1 here, 2 there")),
            (view("string", at(-1), 1, "b"), Some("another value (string)")),
            (view("string", at(9), 1, "a"), Some("another time to live")),
            (view("string", Value::Error(b"ERR unknown command".to_vec()), 1, "a"), None),
        ] {
            assert_eq!(base.difference(&other).as_deref(), expected);
        }
    }
}
