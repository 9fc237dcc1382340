//! `--hotkeys` by HOTKEYS, of Redis 8.6 and Bobbin: the server looks at the keys of all commands
//! for a while, whatever its `maxmemory-policy`.

use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use bobbin_client::{RespClient, Value};

use super::super::{progress::Progress, server};
use crate::{format::quoted, interrupt};

/// Watches and tells. `None`: the server has no HOTKEYS.
pub fn run(client: &mut RespClient, wanted: usize, interval: Option<Duration>) -> Option<ExitCode> {
    let length = interval.unwrap_or(LENGTH).clamp(LENGTH_MIN, LENGTH_MAX);
    let session = match begin(client, wanted.min(COUNT_MAX), length) {
        Ok(session) => session,
        Err(text) if text.starts_with("ERR unknown") => return None,
        Err(text) => {
            complain!("Error: {text}");
            return Some(ExitCode::FAILURE);
        }
    };
    out!(
        "\n# Watching for {} seconds which keys commands use. -i 60 watches for a minute; Ctrl-C \
         ends it.\n",
        length.as_secs_f64()
    );
    wait(length);
    if session == Watch::Own {
        server::ask(client, &["HOTKEYS", "STOP"]);
    }
    let report = server::demand(client, &["HOTKEYS", "GET"]);
    if session == Watch::Own {
        // The server need not keep what has been told.
        server::ask(client, &["HOTKEYS", "RESET"]);
    }
    out!("\n-------- Summary --------\n\n");
    if session == Watch::Others {
        out!("Somebody else had the server watch already, and it goes on.\n");
    }
    out!("{}", summary(&report, wanted));
    Some(ExitCode::SUCCESS)
}

/// Which client has asked the server to watch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watch {
    Own,
    Others,
}

fn begin(client: &mut RespClient, count: usize, length: Duration) -> Result<Watch, String> {
    let count = count.to_string();
    // It ends by itself if no client is left to end it.
    let duration = (length.as_secs() + 2).to_string();
    let tail = ["COUNT", &count, "DURATION", &duration];
    // Sizes are Bobbin's own.
    let mut refusal = String::new();
    for metrics in [&["3", "CPU", "NET", "SIZE"][..], &["2", "CPU", "NET"]] {
        let words = [&["HOTKEYS", "START", "METRICS"][..], metrics, &tail].concat();
        let reply = server::ask(client, &words);
        let Some(text) = reply.as_error() else { return Ok(Watch::Own) };
        refusal = String::from_utf8_lossy(text).into_owned();
        if refusal.contains("in progress") {
            return Ok(Watch::Others);
        }
        if !refusal.starts_with("ERR METRICS") {
            break;
        }
    }
    Err(refusal)
}

fn wait(length: Duration) {
    let hold = interrupt::hold();
    let progress = Progress::towards(length.as_millis() as u64, "ms");
    let start = Instant::now();
    while start.elapsed() < length && !hold.is_pressed() {
        progress.set(start.elapsed().as_millis() as u64);
        thread::sleep(MOMENT.min(length.saturating_sub(start.elapsed())));
    }
    progress.finish();
}

/// A line for each key of each list. The fields are pairs of a name and a value, in an array of
/// their own or not.
fn summary(report: &Value, wanted: usize) -> String {
    let mut fields = report.as_elements().unwrap_or_default();
    if let [Value::Array(inner)] = fields {
        fields = inner;
    }
    let pairs = match fields {
        [Value::Map(pairs)] => pairs.clone(),
        _ => fields.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect(),
    };
    let mut lines = String::new();
    for (name, value) in &pairs {
        let (about, unit) = match name.as_bytes().unwrap_or_default() {
            b"by-cpu-time-us" => ("hot key found with time", "us"),
            b"by-net-bytes" => ("hot key found with traffic", "bytes"),
            b"by-size-bytes" => ("large key found with size", "bytes"),
            _ => continue,
        };
        let keys = value.as_elements().unwrap_or_default().chunks_exact(2);
        for pair in keys.take(wanted) {
            let key = quoted(pair[0].as_bytes().unwrap_or_default());
            let number = pair[1].as_integer().unwrap_or(0);
            lines.push_str(&format!("{about}: {number} {unit}\tkeyname: {key}\n"));
        }
    }
    if lines.is_empty() {
        lines.push_str("No keys were used.\n");
    }
    lines
}

/// How long the server watches unless the user says otherwise.
const LENGTH: Duration = Duration::from_secs(10);
const LENGTH_MIN: Duration = Duration::from_millis(100);
const LENGTH_MAX: Duration = Duration::from_secs(86_400);
/// As many as the servers allow.
const COUNT_MAX: usize = 64;
/// How soon Ctrl-C is noticed.
const MOMENT: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_key() {
        let bulk = |text: &str| Value::Bulk(text.into());
        let keys = |number| Value::Array(vec![bulk("a\n"), Value::Integer(number)]);
        let fields = vec![
            (bulk("tracking-active"), Value::Integer(0)),
            (bulk("by-cpu-time-us"), keys(5)),
            (bulk("by-size-bytes"), keys(70)),
            (bulk("by-net-bytes"), Value::Null),
        ];
        let flat = fields.iter().flat_map(|(name, value)| [name.clone(), value.clone()]).collect();
        let expected = "hot key found with time: 5 us\tkeyname: \"a\\n\"\n\
                        large key found with size: 70 bytes\tkeyname: \"a\\n\"\n";
        for reply in
            [Value::Array(vec![Value::Map(fields)]), Value::Array(vec![Value::Array(flat)])]
        {
            assert_eq!(summary(&reply, 9), expected);
        }
        assert_eq!(summary(&Value::Null, 9), "No keys were used.\n");
    }
}
