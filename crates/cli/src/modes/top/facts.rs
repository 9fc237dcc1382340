//! What matters of a server in a few lines each: its load, its memory, and so on.

use super::{change::Change, text};

/// Lines about one subject.
pub struct FactGroup {
    pub title: &'static str,
    pub facts: Vec<Fact>,
}

pub struct Fact {
    pub label: &'static str,
    pub value: String,
    pub level: Severity,
}

/// Whether somebody should look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Calm,
    Warning,
    Alarm,
}

impl FactGroup {
    fn new(title: &'static str) -> Self {
        Self { title, facts: Vec::new() }
    }

    fn add(&mut self, label: &'static str, value: impl Into<String>) {
        self.mark(label, value, Severity::Calm);
    }

    fn mark(&mut self, label: &'static str, value: impl Into<String>, level: Severity) {
        self.facts.push(Fact { label, value: value.into(), level });
    }
}

/// All groups, in the order in which they are shown.
pub fn groups(change: &Change) -> Vec<FactGroup> {
    vec![
        load(change),
        memory(change),
        clients(change),
        keys(change),
        persistence(change),
        replication(change),
    ]
}

/// Where the server is and what it is, in a line.
pub fn heading(change: &Change, address: &str) -> String {
    let info = &change.now.info;
    let mut parts = vec![
        text::safe(info.program().as_bytes(), VALUE_LEN_MAX),
        text::safe(address.as_bytes(), VALUE_LEN_MAX),
    ];
    if let Some(role) = shown(change, "role") {
        parts.push(match role.as_str() {
            "master" => "primary".into(),
            "slave" => "replica".into(),
            _ => role,
        });
    }
    if info.text("redis_mode").is_some_and(|mode| mode != "standalone") {
        parts.extend(shown(change, "redis_mode"));
    }
    if let Some(seconds) = info.number("uptime_in_seconds").filter(|seconds| *seconds >= 0.0) {
        parts.push(format!("up {}", text::duration(seconds as u64)));
    }
    parts.join("  ")
}

pub fn load(change: &Change) -> FactGroup {
    let mut group = FactGroup::new("Load");
    group.add("commands/s", rate(change, "total_commands_processed", text::count));
    let mean = change.mean_us().map_or_else(unknown, text::micros);
    group.add("time of a command", mean);
    group.add("round trip", text::micros(change.now.round_trip.as_secs_f64() * 1e6));
    group.add("received/s", rate(change, "total_net_input_bytes", text::bytes));
    group.add("sent/s", rate(change, "total_net_output_bytes", text::bytes));
    let errors = change.rate("total_error_replies");
    let level =
        if errors.is_some_and(|rate| rate > 0.0) { Severity::Warning } else { Severity::Calm };
    group.mark("errors/s", errors.map_or_else(unknown, text::count), level);
    group
}

/// The part of the allowed memory that is used. `None` without a limit.
pub fn memory_share(change: &Change) -> Option<f64> {
    let limit = change.now.info.number("maxmemory").filter(|limit| *limit > 0.0)?;
    Some((change.now.info.number("used_memory")?.max(0.0) / limit).min(1.0))
}

pub fn memory(change: &Change) -> FactGroup {
    let info = &change.now.info;
    let size = |name| info.number(name).map_or_else(unknown, text::bytes);
    let mut group = FactGroup::new("Memory");
    match memory_share(change) {
        None => group.add("used", format!("{}, no limit", size("used_memory"))),
        Some(share) => {
            // A cache is full as a rule: it evicts.
            let refuses = info.text("maxmemory_policy") == Some("noeviction");
            let is_near = refuses && share >= MEMORY_SHARE_WARNING;
            let level = if is_near { Severity::Warning } else { Severity::Calm };
            let limit = size("maxmemory");
            let used = format!("{} of {limit}, {}", size("used_memory"), text::percent(share));
            group.mark("used", used, level);
        }
    }
    group.add("peak", size("used_memory_peak"));
    group.add("resident", size("used_memory_rss"));
    group.add("data", size("used_memory_dataset"));
    group.add("policy", shown(change, "maxmemory_policy").unwrap_or_else(unknown));
    group.add("evicted/s", rate(change, "evicted_keys", text::count));
    group
}

pub fn clients(change: &Change) -> FactGroup {
    let info = &change.now.info;
    let whole = |name| info.number(name).map_or_else(unknown, text::count);
    let mut group = FactGroup::new("Clients");
    let (connected, most) = (info.number("connected_clients"), info.number("maxclients"));
    let is_near = connected.zip(most).is_some_and(|(now, most)| most > 0.0 && now >= most * 0.9);
    let level = if is_near { Severity::Warning } else { Severity::Calm };
    let limit = most.map_or_else(String::new, |most| format!(" of {}", text::count(most)));
    group.mark("connected", format!("{}{limit}", whole("connected_clients")), level);
    group.add("blocked", whole("blocked_clients"));
    group.add("new/s", rate(change, "total_connections_received", text::count));
    let rejected = change.rate("rejected_connections");
    let level =
        if rejected.is_some_and(|rate| rate > 0.0) { Severity::Alarm } else { Severity::Calm };
    group.mark("rejected/s", rejected.map_or_else(unknown, text::count), level);
    group.add("tracking", whole("tracking_clients"));
    let buffers = info.number("mem_clients_normal");
    group.add("buffers", buffers.map_or_else(unknown, text::bytes));
    group
}

pub fn keys(change: &Change) -> FactGroup {
    let databases = &change.now.databases;
    let total = |of: fn(&super::sample::DatabaseSample) -> u64| {
        // A sum of nothing is -0.
        text::count(databases.iter().fold(0.0, |sum, database| sum + of(database) as f64))
    };
    let mut group = FactGroup::new("Keys");
    group.add("keys", total(|database| database.keys));
    group.add("with expiry", total(|database| database.expiring));
    group.add("hits", change.hit_share().map_or_else(unknown, text::percent));
    group.add("expired/s", rate(change, "expired_keys", text::count));
    let channels = change.now.info.number("pubsub_channels");
    group.add("channels", channels.map_or_else(unknown, text::count));
    group
}

pub fn persistence(change: &Change) -> FactGroup {
    let info = &change.now.info;
    let mut group = FactGroup::new("Persistence");
    if info.is_on("loading") {
        let share = info.number("loading_loaded_perc").unwrap_or(0.0);
        group.mark("loading", text::percent(share / 100.0), Severity::Warning);
    }
    let status = shown(change, "rdb_last_bgsave_status").unwrap_or_else(unknown);
    let level = if status == "err" { Severity::Alarm } else { Severity::Calm };
    let saved = info.number("rdb_last_save_time").filter(|time| *time > 0.0);
    let ago = saved
        .zip(change.now.unix_seconds())
        .map(|(saved, now)| format!(", {} ago", text::duration(now.saturating_sub(saved as u64))));
    let running = info.is_on("rdb_bgsave_in_progress");
    let is_none = info.number("rdb_saves") == Some(0.0) && status == "ok";
    let snapshot = match running {
        true => "being made".to_owned(),
        false if is_none => "none yet".to_owned(),
        false => status + &ago.unwrap_or_default(),
    };
    group.mark("snapshot", snapshot, level);
    let unsaved = info.number("rdb_changes_since_last_save");
    group.add("changes since", unsaved.map_or_else(unknown, text::count));
    if !info.is_on("aof_enabled") {
        group.add("log", "off");
        return group;
    }
    let size = info.number("aof_current_size").map_or_else(unknown, text::bytes);
    let rewriting = if info.is_on("aof_rewrite_in_progress") { ", rewriting" } else { "" };
    let status = |name| info.text(name).is_some_and(|status| status == "err");
    let is_bad = status("aof_last_write_status") || status("aof_last_bgrewrite_status");
    let (failed, level) = if is_bad { (", failed", Severity::Alarm) } else { ("", Severity::Calm) };
    group.mark("log", format!("{size}{rewriting}{failed}"), level);
    let delayed = info.number("aof_delayed_fsync");
    group.add("late syncs", delayed.map_or_else(unknown, text::count));
    group
}

pub fn replication(change: &Change) -> FactGroup {
    let info = &change.now.info;
    let mut group = FactGroup::new("Replication");
    if info.text("role") != Some("slave") {
        group.add("role", "primary");
        let replicas = info.number("connected_slaves");
        group.add("replicas", replicas.map_or_else(unknown, text::count));
        for (name, value) in info.named("slave").take(REPLICAS_SHOWN) {
            if !name.bytes().all(|byte| byte.is_ascii_digit()) {
                continue;
            }
            let (words, level) = replica(change, value);
            group.mark("replica", words, level);
        }
        group.add("stream/s", rate(change, "master_repl_offset", text::bytes));
        return group;
    }
    group.add("role", "replica");
    let host = shown(change, "master_host").unwrap_or_else(unknown);
    let port = shown(change, "master_port").unwrap_or_else(unknown);
    group.add("primary", format!("{host}:{port}"));
    let link = shown(change, "master_link_status").unwrap_or_else(unknown);
    let level = if link == "up" { Severity::Calm } else { Severity::Alarm };
    group.mark("link", link, level);
    if info.is_on("master_sync_in_progress") {
        group.mark("copy", "under way", Severity::Warning);
    }
    group.add("stream/s", rate(change, "slave_repl_offset", text::bytes));
    group
}

/// `10.0.0.2:6379 online, 12B behind`
fn replica(change: &Change, value: &str) -> (String, Severity) {
    use crate::modes::info::part;
    let shown = |name| text::safe(part(value, name).unwrap_or("?").as_bytes(), VALUE_LEN_MAX);
    let state = shown("state");
    let level = if state == "online" { Severity::Calm } else { Severity::Warning };
    let offset = part(value, "offset").and_then(|offset| offset.parse::<f64>().ok());
    let behind = change.now.info.number("master_repl_offset").zip(offset);
    let behind =
        behind.map(|(end, offset)| format!(", {} behind", text::bytes((end - offset).max(0.0))));
    let behind = behind.unwrap_or_default();
    (format!("{}:{} {state}{behind}", shown("ip"), shown("port")), level)
}

fn rate(change: &Change, field: &str, show: fn(f64) -> String) -> String {
    change.rate(field).map_or_else(unknown, show)
}

fn shown(change: &Change, field: &str) -> Option<String> {
    let value = change.now.info.text(field)?;
    Some(text::safe(value.as_bytes(), VALUE_LEN_MAX))
}

/// What a server does not tell, or not yet.
fn unknown() -> String {
    "-".to_owned()
}

const VALUE_LEN_MAX: usize = 100;
const MEMORY_SHARE_WARNING: f64 = 0.9;
const REPLICAS_SHOWN: usize = 8;

#[cfg(test)]
mod tests {
    use super::super::sample::tests::of_info;
    use super::*;

    fn find(groups: &[FactGroup], title: &str, label: &str) -> Option<(String, Severity)> {
        let group = groups.iter().find(|group| group.title == title)?;
        let fact = group.facts.iter().find(|fact| fact.label == label)?;
        Some((fact.value.clone(), fact.level))
    }

    #[test]
    fn a_server_that_tells_nothing() {
        let sample = of_info(0, "");
        let change = Change::new(&sample, None);
        let groups = groups(&change);
        assert_eq!(groups.len(), 6);
        assert_eq!(find(&groups, "Load", "commands/s"), Some(("-".into(), Severity::Calm)));
        assert_eq!(find(&groups, "Persistence", "log"), Some(("off".into(), Severity::Calm)));
        assert_eq!(find(&groups, "Keys", "keys"), Some(("0".into(), Severity::Calm)));
        assert_eq!(heading(&change, "h:1"), "a server  h:1");
    }

    #[test]
    fn what_somebody_should_look_at() {
        let text = "run_id:a\nused_memory:950\nmaxmemory:1000\nmaxmemory_policy:noeviction\n\
                    rdb_last_bgsave_status:err\n\
                    role:slave\nmaster_host:10.0.0.1\nmaster_port:6379\nmaster_link_status:down\n\
                    connected_clients:95\nmaxclients:100\nrejected_connections:";
        let (before, now) = (of_info(0, &format!("{text}0")), of_info(1, &format!("{text}4")));
        let groups = groups(&Change::new(&now, Some(&before)));
        let found = |title, label| find(&groups, title, label).unwrap();
        assert_eq!(heading(&Change::new(&now, None), "h:1"), "a server  h:1  replica");
        assert_eq!(found("Memory", "used"), ("950B of 1000B, 95.0%".into(), Severity::Warning));
        assert_eq!(found("Persistence", "snapshot").1, Severity::Alarm);
        assert_eq!(found("Replication", "link"), ("down".into(), Severity::Alarm));
        assert_eq!(found("Clients", "connected"), ("95 of 100".into(), Severity::Warning));
        assert_eq!(found("Clients", "rejected/s"), ("4".into(), Severity::Alarm));
    }

    #[test]
    fn a_primary_and_its_replicas() {
        let sample = of_info(
            0,
            "role:master\nconnected_slaves:1\nmaster_repl_offset:100\n\
             slave0:ip=10.0.0.2,port=6380,state=wait_bgsave,offset=88,lag=0\n\
             slave_expires_tracked_keys:0\nuptime_in_seconds:61\nredis_version:7.0.0\n",
        );
        let change = Change::new(&sample, None);
        let (words, level) = find(&groups(&change), "Replication", "replica").unwrap();
        assert_eq!(words, "10.0.0.2:6380 wait_bgsave, 12B behind");
        assert_eq!(level, Severity::Warning);
        assert_eq!(heading(&change, "h:1"), "redis 7.0.0  h:1  primary  up 1m 1s");
    }
}
