//! `--hotkeys`: the keys that OBJECT FREQ counts highest; where the server does not count, the keys
//! that HOTKEYS finds while it watches.

mod watch;

use std::process::ExitCode;

use bobbin_client::RespClient;

use super::{
    big_keys::CYCLES_BETWEEN_PAUSES,
    server::{self, KeyScan},
};
use crate::{format::quoted, interrupt, session::Session};

pub fn run(session: &mut Session) -> ExitCode {
    let (wanted, interval) = (session.options.modes.hot_keys, session.options.interval);
    let client = session.connect_or_exit();
    if !counts_uses(client)
        && let Some(status) = watch::run(client, wanted, interval)
    {
        return status;
    }
    let hold = interrupt::hold();
    let mut top = Top { wanted, keys: Vec::new() };
    let mut scan = KeyScan::new(session, 0, CYCLES_BETWEEN_PAUSES);
    let client = session.connect_or_exit();
    let total = server::count_keys(client);
    out!("{INTRODUCTION}");
    let progress = server::keys_progress(total);
    let mut sampled = 0_u64;
    let mut percent = 0.0;
    let mut is_cut = false;
    while let Some(keys) = scan.next(client) {
        if total > 0 {
            percent = sampled as f64 * 100.0 / total as f64;
        }
        let frequencies = match frequencies(client, &keys) {
            Ok(frequencies) => frequencies,
            Err(text) => {
                progress.finish();
                complain!("Error: {text}");
                return ExitCode::FAILURE;
            }
        };
        for (key, frequency) in keys.iter().zip(frequencies) {
            sampled += 1;
            if sampled.is_multiple_of(KEYS_BETWEEN_LINES) {
                progress.print(&format!("[{percent:05.2}%] Sampled {sampled} keys so far\n"));
            }
            if let Some(key) = top.offer(key, frequency) {
                progress.print(&format!(
                    "[{percent:05.2}%] Hot key '{key}' found so far with counter {frequency}\n"
                ));
            }
        }
        progress.set(sampled);
        if hold.is_pressed() {
            is_cut = true;
            break;
        }
    }
    progress.finish();
    out!("\n-------- Summary --------\n\n");
    if is_cut {
        out!("[{percent:05.2}%] ");
    }
    out!("Sampled {sampled} keys in the keyspace!\n");
    for (frequency, key) in &top.keys {
        out!("hot key found with counter: {frequency}\tkeyname: {key}\n");
    }
    ExitCode::SUCCESS
}

/// Whether the policy is one with counts. A server that does not say is taken to have them: then
/// OBJECT FREQ has the last word.
fn counts_uses(client: &mut RespClient) -> bool {
    let info = server::ask(client, &["INFO", "memory"]);
    let info = String::from_utf8_lossy(info.as_bytes().unwrap_or_default()).into_owned();
    let policy = info.lines().find_map(|line| line.strip_prefix("maxmemory_policy:"));
    policy.is_none_or(|policy| policy.contains("lfu"))
}

/// The keys with the highest counts, the highest first.
struct Top {
    wanted: usize,
    keys: Vec<(i64, String)>,
}

impl Top {
    /// Takes a key that belongs there, and gives it back in quotes. A key that no client used does
    /// not.
    fn offer(&mut self, key: &[u8], frequency: i64) -> Option<&str> {
        let place = self.keys.partition_point(|(other, _)| *other >= frequency);
        if frequency == 0 || place >= self.wanted {
            return None;
        }
        self.keys.insert(place, (frequency, quoted(key)));
        self.keys.truncate(self.wanted);
        self.keys.get(place).map(|(_, key)| key.as_str())
    }
}

fn frequencies(client: &mut RespClient, keys: &[Vec<u8>]) -> Result<Vec<i64>, String> {
    for key in keys {
        client.send(&[b"OBJECT", &b"FREQ"[..], key]);
    }
    let mut frequencies = Vec::with_capacity(keys.len());
    let mut refusal = None;
    for key in keys {
        let reply = server::receive(client);
        if let Some(text) = reply.as_error() {
            refusal = refusal.or_else(|| Some(String::from_utf8_lossy(text).into_owned()));
        } else if reply.as_integer().is_none() {
            let key = quoted(key);
            complain!("Warning: OBJECT freq on '{key}' failed (may have been deleted)");
        }
        frequencies.push(reply.as_integer().unwrap_or(0));
    }
    refusal.map_or(Ok(frequencies), Err)
}

const KEYS_BETWEEN_LINES: u64 = 1_000_000;

const INTRODUCTION: &str = "
# Looking at all keys for those used most.
# With -i 0.1 it rests 0.1 seconds after every 100 SCANs.

";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_stay() {
        let mut top = Top { wanted: 2, keys: Vec::new() };
        assert_eq!(top.offer(b"a", 1), Some("\"a\""));
        assert_eq!(top.offer(b"b", 0), None);
        assert_eq!(top.offer(b"c", 5), Some("\"c\""));
        assert_eq!(top.offer(b"d", 1), None);
        assert_eq!(top.offer(b"e", 3), Some("\"e\""));
        assert_eq!(top.keys, [(5, "\"c\"".to_owned()), (3, "\"e\"".to_owned())]);
    }
}
