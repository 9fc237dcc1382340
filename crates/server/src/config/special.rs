//! Options of several words: how the words become the one text that is stored and shown.

use super::kind::WRONG_ARITY;
use super::{Classes, memory};

/// The most addresses, as in Valkey.
const BIND_MAX: usize = 16;
/// The classes of clients in the order in which they are shown, each with its other name.
const CLASSES: [(&str, &str); 3] =
    [("normal", "normal"), ("slave", "replica"), ("pubsub", "pubsub")];

/// The output limits of one class of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// Bytes at which the client is disconnected at once; 0 for never.
    pub hard_bytes: u64,
    /// Bytes above which the client may stay only for `soft_s`; 0 for any time.
    pub soft_bytes: u64,
    pub soft_s: i64,
}

impl OutputLimit {
    /// The limits that there are, raised to as many bytes.
    pub fn at_least(self, bytes: u64) -> Self {
        let raised = |limit: u64| if limit == 0 { 0 } else { limit.max(bytes) };
        let (hard_bytes, soft_bytes) = (raised(self.hard_bytes), raised(self.soft_bytes));
        Self { hard_bytes, soft_bytes, ..self }
    }
}

pub(super) fn bind(words: &[&[u8]], _: &[u8]) -> Result<Vec<u8>, String> {
    // A quoted word of a file may have spaces. It becomes several words when it is written again.
    let addresses = words.join(&b' ');
    if addresses.split(|&byte| byte == b' ').count() > BIND_MAX {
        return Err("Too many bind addresses specified.".into());
    }
    Ok(addresses)
}

pub(super) fn names(words: &[&[u8]], _: &[u8]) -> Result<Vec<u8>, String> {
    Ok(words.join(&b' '))
}

/// Pairs of seconds and changes. The loader adds up the lines of a file.
pub(super) fn save_points(words: &[&[u8]], _: &[u8]) -> Result<Vec<u8>, String> {
    if let [b""] = words {
        return Ok(Vec::new());
    }
    let invalid = || "Invalid save parameters".to_owned();
    if !words.len().is_multiple_of(2) {
        return Err(invalid());
    }
    let mut points = Vec::new();
    for pair in words.chunks_exact(2) {
        let seconds = leading_integer(pair[0]).filter(|seconds| *seconds >= 1);
        let changes = leading_integer(pair[1]).filter(|changes| *changes >= 0);
        let (Some(seconds), Some(changes)) = (seconds, changes) else { return Err(invalid()) };
        points.push(format!("{seconds} {changes}"));
    }
    Ok(points.join(" ").into())
}

/// Four words for each class: its name, hard limit, soft limit, seconds. Classes that are not named
/// keep their limits.
pub(super) fn output_buffer_limits(words: &[&[u8]], current: &[u8]) -> Result<Vec<u8>, String> {
    if !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".into());
    }
    let mut limits = output_limits(current);
    for quad in words.chunks_exact(4) {
        let is_class = |(name, other): &(&str, &str)| {
            name.as_bytes().eq_ignore_ascii_case(quad[0])
                || other.as_bytes().eq_ignore_ascii_case(quad[0])
        };
        let class = CLASSES.iter().position(is_class);
        let class = class.ok_or("Invalid client class specified in buffer limit configuration.")?;
        limits[class] = output_limit(quad[1], quad[2], quad[3])
            .ok_or("Error in hard, soft or soft_seconds setting in buffer limit configuration.")?;
    }
    let shown = CLASSES.iter().zip(limits).map(|((name, _), limit)| {
        format!("{name} {} {} {}", limit.hard_bytes, limit.soft_bytes, limit.soft_s)
    });
    Ok(shown.collect::<Vec<_>>().join(" ").into())
}

/// Parses the text that [`output_buffer_limits`] made.
pub(super) fn output_limits(text: &[u8]) -> [OutputLimit; CLASSES.len()] {
    let mut limits = [OutputLimit::default(); CLASSES.len()];
    let words: Vec<&[u8]> = text.split(|byte| *byte == b' ').collect();
    for (limit, quad) in limits.iter_mut().zip(words.chunks_exact(4)) {
        *limit = output_limit(quad[1], quad[2], quad[3]).unwrap_or_default();
    }
    limits
}

fn output_limit(hard: &[u8], soft: &[u8], seconds: &[u8]) -> Option<OutputLimit> {
    Some(OutputLimit {
        hard_bytes: memory::parse(hard)?,
        soft_bytes: memory::parse(soft)?,
        soft_s: leading_integer(seconds)
            .filter(|seconds| (0..=i64::from(i32::MAX)).contains(seconds))?,
    })
}

pub(super) fn notification_classes(text: &[u8]) -> Result<i64, String> {
    let classes = Classes::parse(text);
    let classes = classes.ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")?;
    Ok(classes.bits().into())
}

pub(super) fn notification_letters(bits: i64) -> String {
    Classes::of_bits(bits as u32).text()
}

/// The lines for CONFIG REWRITE: one for each class, with units.
pub(super) fn output_limit_lines(text: &[u8]) -> Vec<String> {
    let limits = CLASSES.iter().zip(output_limits(text));
    let line = |((_, name), limit): (&(&str, &str), OutputLimit)| {
        let hard = memory::format(limit.hard_bytes);
        let soft = memory::format(limit.soft_bytes);
        format!("{name} {hard} {soft} {}", limit.soft_s)
    };
    limits.map(line).collect()
}

pub(super) fn percentiles(words: &[&[u8]], _: &[u8]) -> Result<Vec<u8>, String> {
    if let [b""] = words {
        return Ok(Vec::new());
    }
    let mut shown = Vec::new();
    for word in words {
        let number = std::str::from_utf8(word).ok().and_then(|word| word.parse::<f64>().ok());
        let number = number.filter(|number| !number.is_nan());
        let number = number.ok_or("Invalid latency-tracking-info-percentiles parameters")?;
        if !(0.0..=100.0).contains(&number) {
            return Err("latency-tracking-info-percentiles parameters should sit between \
                        [0.0,100.0]"
                .into());
        }
        // Redis shows a percentile with six decimals, without zeros at the end.
        let decimals = format!("{number:.6}");
        shown.push(decimals.trim_end_matches('0').trim_end_matches('.').to_owned());
    }
    Ok(shown.join(" ").into())
}

pub(super) fn oom_score_adj_values(words: &[&[u8]], _: &[u8]) -> Result<Vec<u8>, String> {
    const COUNT: usize = 3;
    const LIMIT: i64 = 2000;
    if words.len() != COUNT {
        return Err(WRONG_ARITY.into());
    }
    let mut shown = Vec::new();
    for word in words {
        let number = leading_integer(word).filter(|number| number.abs() <= LIMIT);
        let number = number
            .ok_or("Invalid oom-score-adj-values, elements must be between -2000 and 2000.")?;
        shown.push(number.to_string());
    }
    Ok(shown.join(" ").into())
}

pub(super) fn replica_of(words: &[&[u8]], _: &[u8]) -> Result<Vec<u8>, String> {
    let &[host, port] = words else { return Err(WRONG_ARITY.into()) };
    if host.eq_ignore_ascii_case(b"no") && port.eq_ignore_ascii_case(b"one") {
        return Ok(Vec::new());
    }
    let valid = leading_integer(port).is_some_and(|port| (0..=65535).contains(&port));
    if !valid {
        return Err("Invalid primary port".into());
    }
    if host.is_empty() || host.iter().any(u8::is_ascii_whitespace) {
        return Err("Invalid primary host".into());
    }
    Ok([host, port].join(&b' '))
}

/// Parses a number as C's `strtoll` does, with nothing allowed behind it: leading spaces, a sign
/// and leading zeros are accepted, and an empty text is 0.
fn leading_integer(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let number = text.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    if text.is_empty() {
        return Some(0);
    }
    number.parse().ok()
}
