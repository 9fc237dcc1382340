//! Where results come from: what ran, when, and on which machine. A result without it cannot be
//! repeated.

use std::time::{SystemTime, UNIX_EPOCH};

use bobbin_client::{RespClient, Value as Reply};
use serde_json::{Value, json};

use crate::server;

/// What is known before anything is measured.
#[derive(Clone, Debug)]
pub struct Provenance {
    /// In UTC, as `2026-01-31 12:00:00 UTC`.
    pub date: String,
    pub machine: String,
    pub kernel: String,
    /// The load of the last minute, from before the measurements: processes that wanted to run.
    pub load: String,
    /// The command line of this program.
    pub command: String,
}

impl Provenance {
    pub fn now() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let uname = rustix::system::uname();
        let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let load = read("/proc/loadavg");
        Self {
            date: date(SystemTime::now()),
            machine: machine(&read("/proc/cpuinfo"), &read("/proc/meminfo")),
            kernel: format!("{} {}", text(uname.sysname()), text(uname.release())),
            load: load.split(' ').next().filter(|load| !load.is_empty()).unwrap_or("?").into(),
            command: command_line(std::env::args()),
        }
    }

    pub fn json(&self) -> Value {
        json!({
            "date": self.date,
            "machine": self.machine,
            "kernel": self.kernel,
            "load": self.load,
            "command": self.command,
        })
    }

    /// Names and values, for people.
    pub fn lines(&self) -> Vec<(String, String)> {
        let version = format!("bobbin-benchmark {}", env!("CARGO_PKG_VERSION"));
        [
            ("Date", &self.date),
            ("Machine", &self.machine),
            ("Kernel", &self.kernel),
            ("Load before", &self.load),
            ("Generator", &version),
            ("Command", &self.command),
        ]
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .into()
    }
}

/// The lines of a file that was written before.
pub fn lines_of(document: &Value) -> Vec<(String, String)> {
    let provenance = &document["provenance"];
    let named = [
        ("Date", "date"),
        ("Machine", "machine"),
        ("Kernel", "kernel"),
        ("Load before", "load"),
        ("Command", "command"),
    ];
    let line = |(title, name): (&str, &str)| {
        Some((title.to_owned(), provenance[name].as_str()?.to_owned()))
    };
    named.into_iter().filter_map(line).collect()
}

/// Words as a shell takes them. Passwords are left out.
pub fn command_line(words: impl Iterator<Item = String>) -> String {
    let mut shown: Vec<String> = Vec::new();
    let mut is_secret = false;
    for word in words {
        let hidden = std::mem::replace(&mut is_secret, SECRETS.contains(&word.as_str()));
        let with_value = word.split_once('=').filter(|(name, _)| SECRETS.contains(name));
        shown.push(match with_value {
            _ if hidden => "...".into(),
            Some((name, _)) => format!("{name}=..."),
            None if word.contains("://") && word.contains('@') => "...".into(),
            None => quoted(&word),
        });
    }
    shown.join(" ")
}

/// The name and version that a server tells, `Valkey 9.1.2` say.
pub fn version(client: &mut RespClient) -> Option<String> {
    let reply = server::call(client, &["INFO", "server"]).ok()?;
    let (Reply::Bulk(text) | Reply::Verbatim { text, .. }) = reply else { return None };
    let text = String::from_utf8_lossy(&text).into_owned();
    PRODUCTS.into_iter().find_map(|(product, field)| {
        let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        let value: String = value.trim().chars().take(VERSION_LEN_MAX).collect();
        Some(format!("{product} {value}"))
    })
}

fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:,=+@%".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// `2 processors (AMD EPYC), 15.6 GiB of memory`
fn machine(processors: &str, memory: &str) -> String {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let model = field(processors, "model name").or_else(|| field(processors, "CPU part"));
    let model = model.map_or_else(String::new, |model| format!(" ({model})"));
    let kilobytes = field(memory, "MemTotal");
    let kilobytes = kilobytes.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    let memory = kilobytes
        .map_or_else(String::new, |kb| format!(", {:.1} GiB of memory", kb / f64::from(1 << 20)));
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} processor{plural}{model}{memory}")
}

fn date(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(day);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Year, month and day of a number of days since 1970, in the Gregorian calendar.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

/// Whose field says which version it is; a server has also those of the servers it stands in for.
const PRODUCTS: [(&str, &str); 4] = [
    ("Bobbin", "bobbin_version"),
    ("Valkey", "valkey_version"),
    ("Dragonfly", "dragonfly_version"),
    ("Redis", "redis_version"),
];
const VERSION_LEN_MAX: usize = 40;
/// Options whose value is a password.
const SECRETS: [&str; 2] = ["-a", "--authenticate"];

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_798_761_599, "2026-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(date(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn command_lines_can_be_pasted_and_hold_no_password() {
        let shown = |line: &[&str]| command_line(line.iter().map(|&word| word.to_owned()));
        assert_eq!(
            shown(&["b", "-t", "get,set", "a b", "it's", ""]),
            r"b -t get,set 'a b' 'it'\''s' ''"
        );
        assert_eq!(shown(&["b", "-a", "pw", "--authenticate=pw"]), "b -a ... --authenticate=...");
        assert_eq!(shown(&["b", "-u", "redis://me:pw@host"]), "b -u ...");
    }

    #[test]
    fn machines() {
        let text = machine("model name\t: X 9\nmodel name\t: X 9\n", "MemTotal:  2097152 kB\n");
        assert!(text.ends_with("(X 9), 2.0 GiB of memory"), "{text}");
        assert!(machine("", "").contains("processor"));
    }
}
