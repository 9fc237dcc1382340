//! A recording: what the server said over time, in a file that other programs read too.
//!
//! Each line is a JSON object. The first says what the file is. Each of the others is one look,
//! with the replies as JSON (an error reply as `{"error": "..."}`, bytes that are no UTF-8
//! replaced), or says why there was none:
//!
//! ```text
//! {"format":"bobbin-cli recording","version":1,"server":"127.0.0.1:6379","started_unix_ms":...}
//! {"at_ms":1000,"round_trip_us":120,"replies":{"INFO":"...","SLOWLOG":[],"LATENCY":[]}}
//! {"at_ms":2000,"lost":"Server closed the connection"}
//! ```

use std::{
    io::{BufRead, Read},
    time::Duration,
};

use bobbin_client::Value;
use serde_json::{Map, Value as Json, json};

use super::{
    sample::{Question, Sample},
    text,
};

/// What the first line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingHeader {
    pub server: String,
    /// Milliseconds since 1970.
    pub started_unix_ms: u64,
}

/// What another line says.
pub enum RecordingLine {
    Sample(Box<Sample>),
    /// There was no answer, and why.
    Lost {
        at: Duration,
        reason: String,
    },
}

impl RecordingHeader {
    /// As the first line.
    pub fn line(&self) -> String {
        let header = json!({
            "format": FORMAT,
            "version": VERSION,
            "server": self.server,
            "started_unix_ms": self.started_unix_ms,
        });
        format!("{header}\n")
    }

    fn read(line: &Json) -> Result<Self, String> {
        if line["format"] != FORMAT {
            return Err("it is no recording of bobbin-cli".into());
        }
        if line["version"] != VERSION {
            return Err(format!("version {} is not known", line["version"]));
        }
        let server = line["server"].as_str().unwrap_or("a server");
        Ok(Self {
            server: text::safe(server.as_bytes(), TEXT_LEN_MAX),
            started_unix_ms: line["started_unix_ms"].as_u64().unwrap_or(0),
        })
    }
}

/// The line of a sample, which has kept its replies.
pub fn sample_line(sample: &Sample) -> String {
    let replies = sample.replies.iter();
    let replies: Map<String, Json> =
        replies.map(|(question, reply)| (question.name().into(), to_json(reply))).collect();
    let line = json!({
        "at_ms": milliseconds(sample.at),
        "round_trip_us": u64::try_from(sample.round_trip.as_micros()).unwrap_or(u64::MAX),
        "replies": replies,
    });
    format!("{line}\n")
}

pub fn lost_line(at: Duration, reason: &str) -> String {
    format!("{}\n", json!({ "at_ms": milliseconds(at), "lost": reason }))
}

/// Reads a recording, a line at a time. The errors are for the user.
pub struct RecordingReader<R> {
    input: R,
    number: u64,
    /// When the last look was.
    at: Duration,
}

impl<R: BufRead> RecordingReader<R> {
    pub fn open(input: R) -> Result<(Self, RecordingHeader), String> {
        let mut reader = Self { input, number: 0, at: Duration::ZERO };
        let line = reader.line()?.ok_or("The recording is empty.")?;
        let header = RecordingHeader::read(&line).map_err(|fault| reader.fault(&fault))?;
        Ok((reader, header))
    }

    /// The next line. `None` at the end; a last line that is cut off, as a full disk may leave it,
    /// is the end.
    pub fn next(&mut self) -> Result<Option<RecordingLine>, String> {
        let Some(line) = self.line()? else { return Ok(None) };
        let at = line["at_ms"].as_u64().ok_or_else(|| self.fault("there is no number at_ms"))?;
        // Time does not run backwards in what is shown, whatever the file says.
        let at = Duration::from_millis(at).max(self.at);
        self.at = at;
        if let Some(reason) = line["lost"].as_str() {
            let reason = text::safe(reason.as_bytes(), TEXT_LEN_MAX);
            return Ok(Some(RecordingLine::Lost { at, reason }));
        }
        let replies = line["replies"].as_object();
        let replies = replies.ok_or_else(|| self.fault("there are no replies"))?;
        let round_trip_us = line["round_trip_us"].as_u64().unwrap_or(0);
        let mut sample = Sample::new(at, Duration::from_micros(round_trip_us));
        for question in Question::ALL {
            if let Some(reply) = replies.get(question.name()) {
                sample.read(question, &from_json(reply));
            }
        }
        Ok(Some(RecordingLine::Sample(Box::new(sample))))
    }

    fn line(&mut self) -> Result<Option<Json>, String> {
        let mut line = Vec::new();
        let mut limited = (&mut self.input).take(LINE_LEN_MAX);
        self.number += 1;
        limited
            .read_until(b'\n', &mut line)
            .map_err(|error| format!("The recording cannot be read: {error}"))?;
        if line.last() != Some(&b'\n') {
            if line.len() as u64 == LINE_LEN_MAX {
                return Err(self.fault("it is too long"));
            }
            return Ok(None);
        }
        serde_json::from_slice(&line)
            .map(Some)
            .map_err(|error| self.fault(&format!("it is not JSON: {error}")))
    }

    fn fault(&self, what: &str) -> String {
        format!("Line {} of the recording: {what}.", self.number)
    }
}

fn to_json(reply: &Value) -> Json {
    match reply {
        Value::Error(text) | Value::BulkError(text) => {
            json!({ "error": String::from_utf8_lossy(text) })
        }
        Value::Integer(integer) => json!(integer),
        Value::Boolean(boolean) => json!(boolean),
        Value::Array(elements) | Value::Set(elements) => elements.iter().map(to_json).collect(),
        // As version 2 of the protocol has it.
        Value::Map(pairs) => {
            pairs.iter().flat_map(|(name, value)| [to_json(name), to_json(value)]).collect()
        }
        Value::Attribute { value, .. } => to_json(value),
        Value::Null | Value::NullArray | Value::Push(_) => Json::Null,
        Value::Simple(text)
        | Value::Bulk(text)
        | Value::BigNumber(text)
        | Value::Double { text, .. }
        | Value::Verbatim { text, .. } => json!(String::from_utf8_lossy(text)),
    }
}

/// JSON that no recording has, such as an object with other fields, is nothing.
fn from_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(boolean) => Value::Boolean(*boolean),
        Json::Number(number) => match number.as_i64() {
            Some(integer) => Value::Integer(integer),
            None => Value::Bulk(number.to_string().into_bytes()),
        },
        Json::String(text) => Value::Bulk(text.clone().into_bytes()),
        Json::Array(elements) => Value::Array(elements.iter().map(from_json).collect()),
        Json::Object(fields) => match fields.get("error").and_then(Json::as_str) {
            Some(error) => Value::Error(error.as_bytes().to_vec()),
            None => Value::Null,
        },
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

const FORMAT: &str = "bobbin-cli recording";
const VERSION: u64 = 1;
/// Twice what a look can bring, as JSON writes some bytes as several.
const LINE_LEN_MAX: u64 = 256 << 20;
const TEXT_LEN_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> RecordingHeader {
        RecordingHeader { server: "127.0.0.1:6379".into(), started_unix_ms: 17 }
    }

    fn open(text: &str) -> Result<RecordingReader<&[u8]>, String> {
        RecordingReader::open(text.as_bytes()).map(|(reader, _)| reader)
    }

    #[test]
    fn what_is_written_is_read() {
        let mut sample = Sample::new(Duration::from_millis(1500), Duration::from_micros(120));
        let info = Value::Bulk(b"# Server\r\nrun_id:a\r\n\xff:1\r\n".to_vec());
        let error = Value::Error(b"NOPERM no".to_vec());
        sample.replies = vec![(Question::Info, info), (Question::SlowLog, error)];
        let lost = lost_line(Duration::from_secs(2), "gone");
        let text = header().line() + &sample_line(&sample) + &lost;
        let (mut reader, read) = RecordingReader::open(text.as_bytes()).unwrap();
        assert_eq!(read, header());
        let Ok(Some(RecordingLine::Sample(read))) = reader.next() else { panic!("{text}") };
        assert_eq!((read.at, read.round_trip), (sample.at, sample.round_trip));
        assert_eq!(read.info.text("run_id"), Some("a"));
        let reason = read.slow.why_missing(Question::SlowLog);
        assert_eq!(reason.as_deref(), Some("SLOWLOG: NOPERM no"));
        let Ok(Some(RecordingLine::Lost { at, reason })) = reader.next() else { panic!("{text}") };
        assert_eq!((at, reason.as_str()), (Duration::from_secs(2), "gone"));
        assert!(matches!(reader.next(), Ok(None)));
    }

    #[test]
    fn replies_as_json() {
        let bulk = |text: &str| Value::Bulk(text.as_bytes().to_vec());
        let nested = Value::Array(vec![Value::Integer(-1), Value::Null, bulk("a")]);
        for value in [nested, Value::Boolean(true), Value::Error(b"ERR".to_vec()), bulk("\0")] {
            assert_eq!(from_json(&to_json(&value)), value);
        }
        let map = Value::Map(vec![(bulk("a"), Value::Integer(1))]);
        assert_eq!(to_json(&map), json!(["a", 1]));
        assert_eq!(from_json(&json!({"a": 1})), Value::Null);
        assert_eq!(from_json(&json!(1.5)), bulk("1.5"));
    }

    #[test]
    fn what_is_no_recording() {
        assert!(open("").is_err());
        for (text, fault) in [
            ("x\n", "Line 1 of the recording: it is not JSON"),
            ("[]\n", "Line 1 of the recording: it is no recording"),
            ("{\"format\":\"bobbin-cli recording\",\"version\":2}\n", "version 2 is not known"),
        ] {
            let error = open(text).err().unwrap();
            assert!(error.contains(fault), "{error}");
        }
        let head = header().line();
        for line in ["5\n", "{}\n", "{\"at_ms\":-1}\n", "{\"at_ms\":1}\n", "\n", "\"\n"] {
            let text = format!("{head}{line}");
            let error = open(&text).unwrap().next().err().unwrap();
            assert!(error.starts_with("Line 2 of the recording: "), "{line:?}: {error}");
        }
        let deep = format!("{head}{{\"at_ms\":1,\"replies\":{}\n", "[".repeat(100_000));
        assert!(open(&deep).unwrap().next().is_err());
        // A line that was cut off is the end, and time only goes on.
        let text =
            format!("{head}{{\"at_ms\":9,\"lost\":\"\"}}\n{{\"at_ms\":3,\"lost\":\"\"}}\n{{\"at");
        let mut reader = open(&text).unwrap();
        for _ in 0..2 {
            let Ok(Some(RecordingLine::Lost { at, .. })) = reader.next() else { panic!("{text}") };
            assert_eq!(at, Duration::from_millis(9));
        }
        assert!(matches!(reader.next(), Ok(None)));
    }

    #[test]
    fn replies_of_any_kind_are_no_harm() {
        let values = ["null", "5", "\"x\"", "[[1,2],[3]]", "{\"error\":\"no\"}", "[null,[],{}]"];
        for value in values {
            let replies: Vec<String> =
                Question::ALL.map(|question| format!("\"{}\":{value}", question.name())).into();
            let line = format!("{{\"at_ms\":1,\"replies\":{{{}}}}}\n", replies.join(","));
            let text = header().line() + &line;
            let mut reader = open(&text).unwrap();
            assert!(matches!(reader.next(), Ok(Some(RecordingLine::Sample(_)))), "{line}");
        }
    }
}
