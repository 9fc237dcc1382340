//! The dashboard's data as one JSON document: INFO's fields, and lists of commands, clients, slow
//! commands, delays and lines of the log.
//!
//! Like the metrics, it is made from atomics, and from mutexes that are held only for moments. The
//! lists have limits, and `left_out` says how many items of each are beyond them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bobbin_store::value::ValueType;

use super::figures::Gatherer;
use super::json::Json;
use super::keys::KeySample;
use super::site::Trust;
use crate::admin::info::{self, SECTIONS, Snapshot};
use crate::engine::acl::DEFAULT_USER;
use crate::engine::client::{self, describe};
use crate::engine::clients::ClientInfo;
use crate::engine::server::Server;
use crate::engine::telemetry::histogram;
use crate::engine::telemetry::slowlog::SlowlogClass;
use crate::system::logging;

/// The document for a peer with this trust.
pub(super) fn write(server: &'static Server, gatherer: &Gatherer, trust: Trust) -> String {
    let figures = gatherer.figures_with_keys(KEYS_AGE_MAX);
    let keys_age_s = figures.at.map_or(f64::NAN, |at| at.elapsed().as_secs_f64());
    let snapshot = Snapshot::gathered(server, figures.keyspace, figures.tracked);
    let details = shows_details(server, trust);
    let mut json = Json::with_capacity(TEXT_USUAL_BYTES);
    json.object(|json| {
        json.key("time_ms").number(crate::base::clock::system_ms());
        json.key("keys_age_s").decimal(keys_age_s);
        json.key("details").boolean(details);
        json.key("signed_in").boolean(trust == Trust::SignedIn);
        json.key("latency_tracking").boolean(server.config.latency_tracking());
        json.key("slow_us").number(server.config.commandlog_execution_slower_than());
        fields(&snapshot, json.key("info"));
        let commands_left = commands(server, json.key("commands"));
        let slow_left = slow_commands(server, details, json.key("slow"));
        let clients_left = clients(server, details, json.key("clients"));
        sampled_keys(&figures.keys, details, json.key("keys"));
        hot_keys(server, details, json.key("hot_keys"));
        delays(server, json.key("delays"));
        log_lines(details, json.key("log"));
        json.key("left_out").object(|json| {
            json.key("commands").number(commands_left as u64);
            json.key("slow").number(slow_left as u64);
            json.key("clients").number(clients_left as u64);
        });
    });
    json.into_text()
}

/// The part of the document that the page brings with it: its first figures, nothing of clients.
pub(super) fn overview(server: &'static Server, gatherer: &Gatherer) -> String {
    let figures = gatherer.figures(KEYS_AGE_MAX);
    let snapshot = Snapshot::gathered(server, figures.keyspace, figures.tracked);
    let mut json = Json::with_capacity(TEXT_USUAL_BYTES);
    json.object(|json| {
        json.key("time_ms").number(crate::base::clock::system_ms());
        fields(&snapshot, json.key("info"));
    });
    json.into_text()
}

/// Whether clients' data and the log are shown: to peers that have signed in, and to others only if
/// they could get it on a client's port without a password and with all rights.
fn shows_details(server: &Server, trust: Trust) -> bool {
    let user = server.acl.default_user();
    let is_reachable = trust == Trust::Local || !server.config.protected_mode();
    let is_open = user.needs_no_password() && user.is_unlimited() && is_reachable;
    trust == Trust::SignedIn || is_open
}

/// INFO's fields as texts.
fn fields(snapshot: &Snapshot<'_>, json: &mut Json) {
    let of_server = SECTIONS.iter().filter(|section| section.name == "server");
    let of_server = of_server.flat_map(|section| section.lines.fields());
    json.object(|json| {
        for field in of_server.filter(|field| SERVER_FIELDS.contains(&field.name)) {
            json.key(field.name).text(&(field.value)(snapshot).into_text());
        }
        let text = info::write(snapshot, &INFO_SECTIONS);
        for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
            json.key(name).text(value);
        }
    });
}

/// The commands that took most time since the start. Returns how many are left out.
fn commands(server: &Server, json: &mut Json) -> usize {
    let all = server.registry.all().iter();
    let all = all.map(|command| (&*command.full_name, server.workers.command_totals(command.id)));
    let mut used: Vec<_> = all
        .filter(|(_, stats)| stats.calls.get() + stats.rejected.get() + stats.failed.get() > 0)
        .collect();
    used.sort_by_key(|(_, stats)| std::cmp::Reverse(stats.ticks.get()));
    let left = used.len().saturating_sub(COMMANDS_MAX);
    json.array(|json| {
        for (name, stats) in used.iter().take(COMMANDS_MAX) {
            let steps =
                stats.histogram().map(|counts| histogram::powers_of_two(&server.clock, counts));
            json.object(|json| {
                json.key("name").text(name);
                json.key("calls").number(stats.calls.get());
                json.key("us").number(server.clock.us(stats.ticks.get()) as u64);
                json.key("failed").number(stats.failed.get());
                json.key("rejected").number(stats.rejected.get());
                // Microseconds, and the number of calls that took no longer.
                json.key("buckets").array(|json| {
                    for (us, calls) in steps.unwrap_or_default() {
                        json.array(|json| {
                            json.number(us);
                            json.number(calls);
                        });
                    }
                });
            });
        }
    });
    left
}

/// The newest slow commands. Returns how many are left out. Without details only the commands'
/// names are shown.
fn slow_commands(server: &Server, details: bool, json: &mut Json) -> usize {
    let log = &server.services.command_log;
    let entries = log.entries(SlowlogClass::Slow, SLOW_MAX);
    json.array(|json| {
        for entry in &entries {
            let shown = if details { entry.words.len() } else { 1 };
            json.object(|json| {
                json.key("time_s").number(entry.time_s);
                json.key("us").number(entry.value);
                json.key("words").array(|json| {
                    entry.words.iter().take(shown).for_each(|word| json.bytes(word));
                });
                if details {
                    json.key("peer").text(&entry.peer);
                    json.key("name").bytes(&entry.name);
                }
            });
        }
    });
    log.len(SlowlogClass::Slow).saturating_sub(entries.len())
}

/// The most interesting clients. Returns how many are left out. Without details there are none.
fn clients(server: &Server, details: bool, json: &mut Json) -> usize {
    let now_ms = server.clock.now_ms();
    let (shown, left) = match details {
        true => chosen(server.clients.all(), now_ms),
        false => (Vec::new(), server.clients.len()),
    };
    json.array(|json| shown.iter().for_each(|info| client(server, info, now_ms, json)));
    left
}

/// The clients with most memory, and those with most commands for their age. Also returns how many
/// are left out.
fn chosen(mut all: Vec<Arc<ClientInfo>>, now_ms: i64) -> (Vec<Arc<ClientInfo>>, usize) {
    let left = all.len().saturating_sub(CLIENTS_MAX);
    if left > 0 {
        all.sort_by_cached_key(|info| std::cmp::Reverse(client::memory(info)));
        let age_ms = |info: &ClientInfo| (now_ms - info.created_ms).max(1000) as u64;
        let pace = |info: &Arc<ClientInfo>| info.commands.get().saturating_mul(1000) / age_ms(info);
        all[LARGE_CLIENTS..].sort_by_cached_key(|info| std::cmp::Reverse(pace(info)));
        all.truncate(CLIENTS_MAX);
    }
    (all, left)
}

fn client(server: &Server, info: &ClientInfo, now_ms: i64, json: &mut Json) {
    let names = info.names().clone();
    let command = server.registry.all().get(info.command.load(Relaxed));
    let seconds_since = |then_ms: i64| (now_ms - then_ms).max(0) / 1000;
    json.object(|json| {
        json.key("id").number(info.id);
        json.key("address").text(&info.peer);
        json.key("name").bytes(&names.name);
        json.key("user").bytes(names.user.as_ref().map_or(DEFAULT_USER, |user| &user.name));
        json.key("library").bytes(&names.library);
        json.key("command").text(command.map_or("", |command| &command.full_name));
        json.key("commands").number(info.commands.get());
        json.key("memory").number(client::memory(info) as u64);
        json.key("unsent").number(info.output_bytes.load(Relaxed) as u64);
        json.key("idle_s").number(seconds_since(info.last_ms.load(Relaxed)));
        json.key("age_s").number(seconds_since(info.created_ms));
        json.key("database").number(info.database.load(Relaxed));
        json.key("thread").number(info.worker.load(Relaxed) as u64);
        json.key("flags").text(&describe::flags(info));
    });
}

/// The types of some keys, and the largest of these keys. Names are shown only with details.
fn sampled_keys(sample: &KeySample, details: bool, json: &mut Json) {
    json.object(|json| {
        json.key("kinds").array(|json| {
            for (kind, figures) in ValueType::ALL.into_iter().zip(sample.kinds) {
                if figures.keys > 0 {
                    json.object(|json| {
                        json.key("type").text(kind.name());
                        json.key("keys").number(figures.keys);
                        json.key("bytes").number(figures.bytes);
                    });
                }
            }
        });
        json.key("largest").array(|json| {
            for large in sample.largest.iter().filter(|_| details) {
                json.object(|json| {
                    json.key("key").bytes(&large.key);
                    json.key("database").number(large.database);
                    json.key("type").text(large.kind.name());
                    json.key("bytes").number(large.bytes as u64);
                    json.key("seen_s").number(large.seen.elapsed().as_secs());
                });
            }
        });
    });
}

/// The result of HOTKEYS, if it was used. Keys are shown only with details.
fn hot_keys(server: &Server, details: bool, json: &mut Json) {
    let report = server.services.hot_keys.report();
    let list = |keys: &[(Box<[u8]>, u64)], json: &mut Json| {
        json.array(|json| {
            for (key, sum) in keys.iter().take(HOT_KEYS_MAX).filter(|_| details) {
                json.array(|json| {
                    json.bytes(key);
                    json.number(*sum);
                });
            }
        });
    };
    json.object(|json| {
        json.key("known").boolean(report.is_some());
        let Some((_, _, report)) = report else { return };
        json.key("active").boolean(report.is_active);
        json.key("duration_ms").number(report.duration_ms);
        json.key("us").number(report.us);
        json.key("bytes").number(report.bytes);
        list(&report.by_us, json.key("by_us"));
        list(&report.by_bytes, json.key("by_bytes"));
    });
}

/// The samples of the latency monitor, by event.
fn delays(server: &Server, json: &mut Json) {
    json.array(|json| {
        for (event, series) in server.services.latency.all() {
            let Some(last) = series.samples.back() else { continue };
            json.object(|json| {
                json.key("event").text(event);
                json.key("time_s").number(last.time_s);
                json.key("last_ms").number(last.latency_ms);
                json.key("longest_ms").number(series.max_ms);
                json.key("times").number(series.count);
            });
        }
    });
}

/// The last lines of the log. Without details there are none.
fn log_lines(details: bool, json: &mut Json) {
    json.array(|json| {
        for event in if details { logging::recent() } else { Vec::new() } {
            json.object(|json| {
                json.key("time_ms").number(event.time_ms);
                json.key("level").text(event.level);
                json.key("text").text(&event.text);
            });
        }
    });
}

/// How old the counts of keys may be, so that the shards are not read for every answer.
const KEYS_AGE_MAX: Duration = Duration::from_secs(5);
const COMMANDS_MAX: usize = 64;
const SLOW_MAX: usize = 32;
const HOT_KEYS_MAX: usize = 10;
const CLIENTS_MAX: usize = 100;
/// How many of them are chosen for their memory.
const LARGE_CLIENTS: usize = 20;
/// The shown fields of the section `server`, which also names files.
const SERVER_FIELDS: [&str; 6] =
    ["bobbin_version", "io_driver", "run_id", "tcp_port", "uptime_in_seconds", "io_threads_active"];
const INFO_SECTIONS: [&[u8]; 9] = [
    b"clients",
    b"memory",
    b"persistence",
    b"stats",
    b"replication",
    b"cpu",
    b"errorstats",
    b"threads",
    b"keyspace",
];
/// The usual length of the document in bytes.
const TEXT_USUAL_BYTES: usize = 32 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn info(id: u64, commands: u64, memory: usize) -> Arc<ClientInfo> {
        let info = ClientInfo::new(id, 0, "peer".into(), "local".into(), false, 0);
        info.commands.add(commands);
        info.output_bytes.store(memory, Relaxed);
        Arc::new(info)
    }

    #[test]
    fn large_and_busy_clients_are_chosen() {
        let few = (1..=3).map(|id| info(id, 0, 0)).collect();
        assert_eq!(chosen(few, 5000).1, 0);
        let many = (1..=1000).map(|id| match id {
            500 => info(id, 0, 1 << 20),
            700 => info(id, 1_000_000, 0),
            id => info(id, id % 7, 0),
        });
        let (shown, left) = chosen(many.collect(), 5000);
        assert_eq!((shown.len(), left), (CLIENTS_MAX, 900));
        assert_eq!(shown[0].id, 500);
        assert_eq!(shown[LARGE_CLIENTS].id, 700);
    }

    #[test]
    fn what_the_page_shows_of_the_server_is_there() {
        let section = SECTIONS.iter().find(|section| section.name == "server").unwrap();
        let fields = section.lines.fields();
        for name in SERVER_FIELDS {
            assert!(fields.iter().any(|field| field.name == name), "{name}");
        }
        for name in INFO_SECTIONS {
            assert!(SECTIONS.iter().any(|section| section.name.as_bytes() == name));
        }
    }
}
