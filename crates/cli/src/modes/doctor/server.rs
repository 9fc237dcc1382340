//! What the server says of itself.

use bobbin_client::{RespClient, Value};

use super::Finding;
use crate::modes::{info::Info, server, statistics::human};

/// A finding for everything that the server tells.
pub fn examine(client: &mut RespClient) -> Vec<Finding> {
    let info = server::ask(client, &["INFO", "everything"]);
    if let Some(text) = info.as_error() {
        let text = String::from_utf8_lossy(text).into_owned();
        return vec![Finding::bad(format!("INFO: {text}"), "-a or --user, for a user who may ask")];
    }
    let info = Info::read(&info);
    let mut findings = vec![name(&info)];
    findings.extend(slow_log(client));
    findings.extend(latency_events(client));
    findings.extend(memory(&info));
    findings.extend(persistence(client, &info));
    findings.extend(replication(&info));
    findings.extend(clients(&info));
    findings.extend(keyspace(&info));
    findings
}

fn name(info: &Info) -> Finding {
    let version = ["bobbin_version", "valkey_version", "redis_version"]
        .into_iter()
        .find_map(|field| Some((field.strip_suffix("_version")?, info.text(field)?)));
    let (name, version) = version.unwrap_or(("server", "of unknown version"));
    let role = info.text("role").unwrap_or("unknown");
    let days = info.integer("uptime_in_seconds") as f64 / 86_400.0;
    let threads = info.text("io_threads").or_else(|| info.text("io_threads_active"));
    let threads = threads.map_or_else(String::new, |threads| format!(", io-threads {threads}"));
    Finding::good(format!("{name} {version}, {role}, up {days:.1} days{threads}"))
}

fn slow_log(client: &mut RespClient) -> Option<Finding> {
    let threshold = option(client, "slowlog-log-slower-than");
    if threshold.as_deref() == Some("-1") {
        return Some(Finding::note(
            "slow log: off",
            "CONFIG SET slowlog-log-slower-than 10000 notes commands of 10 ms and more",
        ));
    }
    let entries = server::ask(client, &["SLOWLOG", "LEN"]).as_integer()?;
    if entries == 0 {
        return Some(Finding::good("slow log: empty"));
    }
    let reply = server::ask(client, &["SLOWLOG", "GET", "128"]);
    let slowest = reply.as_elements().unwrap_or_default().iter().filter_map(slow_entry).max()?;
    let (micros, command) = slowest;
    Some(Finding::note(
        format!(
            "slow log: {entries} entries, the slowest {:.1} ms: {command}",
            micros as f64 / 1000.0
        ),
        "SLOWLOG GET lists them; SCAN and smaller ranges keep commands short",
    ))
}

/// The microseconds and the beginning of the command.
fn slow_entry(entry: &Value) -> Option<(i64, String)> {
    let [_, _, micros, words, ..] = entry.as_elements()? else { return None };
    let words = words.as_elements()?.iter().filter_map(Value::as_bytes);
    let words: Vec<String> = words
        .take(WORDS_SHOWN)
        .map(|word| String::from_utf8_lossy(&word[..word.len().min(WORD_LEN_SHOWN)]).into_owned())
        .collect();
    Some((micros.as_integer()?, words.join(" ")))
}

fn latency_events(client: &mut RespClient) -> Option<Finding> {
    if option(client, "latency-monitor-threshold")? == "0" {
        return Some(Finding::note(
            "latency events: not monitored",
            "CONFIG SET latency-monitor-threshold 100 notes what took 100 ms and more",
        ));
    }
    let reply = server::ask(client, &["LATENCY", "LATEST"]);
    let events: Vec<String> = reply.as_elements()?.iter().filter_map(latency_event).collect();
    if events.is_empty() {
        return Some(Finding::good("latency events: none"));
    }
    Some(Finding::note(
        format!("latency events: {}", events.join(", ")),
        "LATENCY DOCTOR and LATENCY HISTORY <event> tell more",
    ))
}

fn latency_event(event: &Value) -> Option<String> {
    let [name, _, _, max_ms, ..] = event.as_elements()? else { return None };
    let name = String::from_utf8_lossy(name.as_bytes()?);
    Some(format!("{name} up to {} ms", max_ms.as_integer()?))
}

fn memory(info: &Info) -> Vec<Finding> {
    let used = info.integer("used_memory");
    let max = info.integer("maxmemory");
    let policy = info.text("maxmemory_policy").unwrap_or("noeviction");
    let mut findings = Vec::new();
    let ratio = info.number("mem_fragmentation_ratio").unwrap_or(1.0);
    if used > FRAGMENTATION_BYTES_MIN && ratio > FRAGMENTATION_MAX {
        findings.push(Finding::note(
            format!("fragmentation: the process takes {ratio:.2} times what is used"),
            "MEMORY PURGE, or activedefrag yes",
        ));
    } else if used > FRAGMENTATION_BYTES_MIN && ratio < FRAGMENTATION_MIN {
        findings.push(Finding::bad(
            format!("fragmentation ratio {ratio:.2}: part of the memory is swapped out"),
            "more memory, or a smaller maxmemory",
        ));
    } else {
        findings.push(Finding::good(format!(
            "memory: {} used; the process takes {ratio:.2} times that",
            human(used)
        )));
    }
    let system = info.integer("total_system_memory");
    findings.push(match (max, policy) {
        (0, _) => Finding::note(
            "maxmemory: no limit; the system may end the server when memory is short",
            "CONFIG SET maxmemory, to three quarters of the memory or so",
        ),
        (max, _) if system > 0 && max > system / 10 * 9 => Finding::bad(
            format!("maxmemory: {} of {} there are", human(max), human(system)),
            "leave room for buffers, fragmentation and saving",
        ),
        (max, "noeviction") if used > max / 10 * 9 => Finding::bad(
            format!(
                "maxmemory: {} of {} used, and noeviction: writes will fail",
                human(used),
                human(max)
            ),
            "a larger maxmemory, or CONFIG SET maxmemory-policy allkeys-lru for a cache",
        ),
        (max, policy) => {
            Finding::good(format!("maxmemory: {} of {}, {policy}", human(used), human(max)))
        }
    });
    let evicted = info.integer("evicted_keys");
    if evicted > 0 {
        findings.push(Finding::note(
            format!("eviction: {evicted} keys went to make room"),
            "as it should be for a cache; else a larger maxmemory",
        ));
    }
    findings
}

fn persistence(client: &mut RespClient, info: &Info) -> Vec<Finding> {
    let mut findings = Vec::new();
    let saves = option(client, "save").is_some_and(|save| !save.is_empty());
    let appends = info.integer("aof_enabled") == 1;
    for (field, what) in [
        ("rdb_last_bgsave_status", "the last RDB save"),
        ("aof_last_write_status", "the last write to the AOF"),
        ("aof_last_bgrewrite_status", "the last AOF rewrite"),
    ] {
        if info.text(field).is_some_and(|status| status != "ok") {
            findings.push(Finding::bad(
                format!("persistence: {what} failed"),
                "the server's log says why; a full disk, most often",
            ));
        }
    }
    findings.push(match (saves, appends) {
        (false, false) => Finding::note(
            "persistence: none; what is in memory is gone with the server",
            "CONFIG SET appendonly yes, or save points, unless it is a cache",
        ),
        (true, false) => Finding::note(
            format!(
                "persistence: RDB; {} changes since the last save",
                info.integer("rdb_changes_since_last_save")
            ),
            "CONFIG SET appendonly yes, if these must not be lost",
        ),
        (_, true) => {
            let sync = option(client, "appendfsync").unwrap_or_default();
            Finding::good(format!("persistence: AOF, appendfsync {sync}"))
        }
    });
    let delayed = info.integer("aof_delayed_fsync");
    if delayed > 0 {
        findings.push(Finding::bad(
            format!("persistence: {delayed} times fsync was late, and writes waited"),
            "a faster disk, or one of its own; no-appendfsync-on-rewrite yes",
        ));
    }
    findings
}

/// The link of a replica to its primary.
fn replication(info: &Info) -> Option<Finding> {
    let (host, port) = (info.text("master_host")?, info.integer("master_port"));
    if info.text("master_link_status") == Some("up") {
        return Some(Finding::good(format!("replication: follows {host}:{port}")));
    }
    if info.integer("master_sync_in_progress") == 1 {
        return Some(Finding::note(
            format!("replication: gets a copy from {host}:{port}"),
            "INFO replication tells how far it is",
        ));
    }
    Some(Finding::bad(
        format!("replication: no link to {host}:{port}"),
        "the server's log says why; a wrong address or primaryauth, most often",
    ))
}

fn clients(info: &Info) -> Vec<Finding> {
    let (connected, max) = (info.integer("connected_clients"), info.integer("maxclients"));
    let mut findings = Vec::new();
    if max > 0 && connected > max / 10 * 8 {
        findings.push(Finding::bad(
            format!("clients: {connected} of at most {max}"),
            "CONFIG SET maxclients, and pools in the clients",
        ));
    } else {
        findings.push(Finding::good(format!("clients: {connected} of at most {max}")));
    }
    let rejected = info.integer("rejected_connections");
    if rejected > 0 {
        findings.push(Finding::bad(
            format!("clients: {rejected} were turned away since the start"),
            "CONFIG SET maxclients, and more open files for the server",
        ));
    }
    findings
}

fn keyspace(info: &Info) -> Option<Finding> {
    let (hits, misses) = (info.integer("keyspace_hits"), info.integer("keyspace_misses"));
    let total = hits + misses;
    if total < LOOKUPS_MIN {
        return None;
    }
    let percent = hits as f64 * 100.0 / total as f64;
    let found = format!("lookups: {percent:.1}% found their key");
    Some(if percent >= HIT_PERCENT_GOOD {
        Finding::good(found)
    } else {
        Finding::note(found, "for a cache: longer expiry, or more memory")
    })
}

/// The value of an option of the server's configuration, in either version of the protocol.
fn option(client: &mut RespClient, name: &str) -> Option<String> {
    let value = match server::ask(client, &["CONFIG", "GET", name]) {
        Value::Map(pairs) => pairs.into_iter().next()?.1,
        Value::Array(pair) => pair.into_iter().nth(1)?,
        _ => return None,
    };
    value.as_bytes().map(|text| String::from_utf8_lossy(text).into_owned())
}

const WORDS_SHOWN: usize = 3;
const WORD_LEN_SHOWN: usize = 40;
/// Below that, the process itself is most of its memory.
const FRAGMENTATION_BYTES_MIN: i64 = 100 << 20;
const FRAGMENTATION_MAX: f64 = 1.5;
const FRAGMENTATION_MIN: f64 = 0.9;
const LOOKUPS_MIN: i64 = 1000;
const HIT_PERCENT_GOOD: f64 = 80.0;

#[cfg(test)]
mod tests {
    use super::{super::Level, *};

    fn info(text: &str) -> Info {
        Info::read(&Value::Bulk(text.into()))
    }

    #[test]
    fn memory_near_its_limit() {
        let findings =
            memory(&info("used_memory:95\nmaxmemory:100\nmaxmemory_policy:noeviction\n"));
        assert_eq!(findings.last().unwrap().level, Level::Bad);
        let findings =
            memory(&info("used_memory:95\nmaxmemory:100\nmaxmemory_policy:allkeys-lru\n"));
        assert_eq!(findings.last().unwrap().level, Level::Good);
        let findings = memory(&info("used_memory:95\nmaxmemory:0\nevicted_keys:3\n"));
        assert!(findings.iter().skip(1).all(|finding| finding.level == Level::Note));
    }

    #[test]
    fn a_replica_without_its_primary() {
        assert!(replication(&info("role:master\nconnected_slaves:1\n")).is_none());
        let of = |rest: &str| {
            let text = format!("role:slave\nmaster_host:db\nmaster_port:1\n{rest}");
            replication(&info(&text)).unwrap()
        };
        let down = of("master_link_status:down\nmaster_sync_in_progress:0\n");
        assert_eq!((down.level, &*down.found), (Level::Bad, "replication: no link to db:1"));
        let copied = of("master_link_status:down\nmaster_sync_in_progress:1\n");
        assert_eq!(copied.level, Level::Note);
        assert_eq!(of("master_link_status:up\n").level, Level::Good);
    }

    #[test]
    fn slow_entries() {
        let word = |text: &str| Value::Bulk(text.into());
        let entry = Value::Array(vec![
            Value::Integer(1),
            Value::Integer(2),
            Value::Integer(15_000),
            Value::Array(vec![word("KEYS"), word("*")]),
        ]);
        assert_eq!(slow_entry(&entry), Some((15_000, "KEYS *".to_owned())));
        assert_eq!(slow_entry(&Value::Null), None);
    }
}
