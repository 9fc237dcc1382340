//! SLOWLOG GET and LATENCY LATEST: what took long.

use bobbin_client::Value;

use super::{super::text, NAME_LEN_MAX, number};

/// A command that took long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slow {
    pub id: u64,
    /// When it ran, in seconds since 1970.
    pub unix_s: u64,
    pub time_us: u64,
    /// The words of the command.
    pub command: String,
    pub address: String,
    pub client: String,
}

/// Something of the server's own that took long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowEvent {
    pub name: String,
    pub unix_s: u64,
    pub latest_ms: u64,
    pub max_ms: u64,
}

impl SlowEvent {
    /// `latency event command: 12ms, 5s ago; at most 40ms`
    pub fn line(&self, now_unix_s: Option<u64>) -> String {
        let ago = now_unix_s.map(|now| now.saturating_sub(self.unix_s));
        let ago = ago.map(|seconds| format!(", {} ago", text::duration(seconds)));
        let Self { name, latest_ms, max_ms, .. } = self;
        let ago = ago.unwrap_or_default();
        format!("latency event {name}: {latest_ms}ms{ago}; at most {max_ms}ms")
    }
}

pub fn read(reply: &Value) -> Vec<Slow> {
    let entries = reply.as_elements().unwrap_or_default();
    entries.iter().filter_map(entry).take(SLOW_MAX).collect()
}

fn entry(entry: &Value) -> Option<Slow> {
    let fields = entry.as_elements()?;
    let [id, unix_s, time_us, words, rest @ ..] = fields else { return None };
    let mut command = String::new();
    for word in words.as_elements()?.iter().take(WORDS_MAX) {
        if !command.is_empty() {
            command.push(' ');
        }
        command.push_str(&text::safe(word.as_bytes().unwrap_or_default(), NAME_LEN_MAX));
    }
    let shown = |place: usize| {
        let bytes = rest.get(place).and_then(Value::as_bytes).unwrap_or_default();
        text::safe(bytes, NAME_LEN_MAX)
    };
    Some(Slow {
        id: number(id)?,
        unix_s: number(unix_s)?,
        time_us: number(time_us)?,
        command: text::safe(command.as_bytes(), COMMAND_LEN_MAX),
        address: shown(0),
        client: shown(1),
    })
}

pub fn events(reply: &Value) -> Vec<SlowEvent> {
    let events = reply.as_elements().unwrap_or_default();
    events.iter().filter_map(event).take(EVENTS_MAX).collect()
}

fn event(event: &Value) -> Option<SlowEvent> {
    let [name, unix_s, latest_ms, max_ms, ..] = event.as_elements()? else { return None };
    Some(SlowEvent {
        name: text::safe(name.as_bytes()?, NAME_LEN_MAX),
        unix_s: number(unix_s)?,
        latest_ms: number(latest_ms)?,
        max_ms: number(max_ms)?,
    })
}

/// More than is asked for.
const SLOW_MAX: usize = 128;
const EVENTS_MAX: usize = 64;
/// Servers keep 32 words of a command.
const WORDS_MAX: usize = 40;
const COMMAND_LEN_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &[u8]) -> Value {
        Value::Bulk(text.to_vec())
    }

    #[test]
    fn entries_of_new_and_of_old_servers() {
        let words = Value::Array(vec![bulk(b"lpush"), bulk(b"a\nb"), bulk(b"\xff")]);
        let head = vec![Value::Integer(3), Value::Integer(1000), Value::Integer(81), words];
        let mut whole = head.clone();
        whole.extend([bulk(b"127.0.0.1:5"), bulk(b"app")]);
        let entries = read(&Value::Array(vec![
            Value::Array(head),
            Value::Array(whole),
            Value::Array(vec![Value::Integer(1)]),
            Value::Null,
        ]));
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].command, r"lpush a\x0ab \xff");
        assert_eq!((entries[0].id, entries[0].time_us), (3, 81));
        assert_eq!((entries[0].address.as_str(), entries[1].client.as_str()), ("", "app"));
    }

    #[test]
    fn latency_events() {
        let event = Value::Array(vec![
            bulk(b"command"),
            Value::Integer(1000),
            Value::Integer(12),
            Value::Integer(40),
        ]);
        let events = events(&Value::Array(vec![event, Value::Integer(3)]));
        assert_eq!(events.len(), 1);
        assert_eq!((events[0].name.as_str(), events[0].max_ms), ("command", 40));
        let line = events[0].line(Some(1005));
        assert_eq!(line, "latency event command: 12ms, 5s ago; at most 40ms");
    }
}
