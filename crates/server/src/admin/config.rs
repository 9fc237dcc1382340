//! The commands CONFIG, and the effects of changed options.

use std::sync::atomic::Ordering;

use bobbin_resp::Reply;

use crate::base::memory;
use crate::config::{self, Barred, Config, ConfigError, Effect, OptionId, Selection};
use crate::engine::client::protected::is_allowed;
use crate::engine::command::data::Counters;
use crate::engine::command::{Call, Command, Failure, Flags, Outcome};
use crate::engine::defrag::{self, Defrag};
use crate::engine::execution::slices::reply_in_slices;
use crate::engine::server::{Server, Switch};
use crate::system::host::{self, OpenFiles};
use crate::system::{logging, title, tls};

use crate::commands::repeats::MANY;
use crate::engine::command::help::{container, help_row};
use crate::persistence::aof::{Aof, rewrite};
use crate::persistence::{Persistence, aof};
use crate::replication::Replication;
use crate::worker::{listen, pool, watchdog};

fn get(call: &mut Call<'_>) -> Outcome {
    let patterns = &call.args[2..];
    if patterns.len() > MANY {
        // Each pattern is compared with all names.
        let patterns: Vec<Box<[u8]>> = patterns.iter().map(|&pattern| pattern.into()).collect();
        let (mut patterns, mut selection) = (patterns.into_iter(), Selection::default());
        let server = call.server;
        reply_in_slices(call, move |reply| {
            let next = patterns.next();
            match &next {
                Some(pattern) => selection.add(pattern),
                None => answer(std::mem::take(&mut selection), server, reply),
            }
            next.is_some()
        });
        return Ok(());
    }
    let mut selection = Selection::default();
    patterns.iter().for_each(|pattern| selection.add(pattern));
    answer(selection, call.server, &mut call.reply);
    Ok(())
}

fn answer(selection: Selection, server: &Server, reply: &mut Reply<'_>) {
    let found = selection.shown(&server.config);
    reply.map(found.len());
    for (name, value) in &found {
        reply.bulk(name);
        reply.bulk(value);
    }
}

fn set(call: &mut Call<'_>) -> Outcome {
    if !call.args.len().is_multiple_of(2) {
        return Err(Failure::SYNTAX);
    }
    let pairs: Vec<_> = call.args[2..].chunks(2).map(|pair| (pair[0], pair[1])).collect();
    let server = call.server;
    let is_loading = server.switches.has(Switch::LOADING | Switch::LOADING_ASIDE);
    let loading = Failure::loading(&server.config);
    let barred = Barred {
        protected: !is_allowed(server.config.enable_protected_configs(), call.client),
        loading: is_loading.then_some(loading.text()),
    };
    let (data, in_transaction) = (&mut *call.data, call.in_transaction);
    let mut apply = |option: OptionId, config: &Config| match config::row(option).effect {
        Effect::Log => aof::switch_log(server, data, in_transaction),
        effect => follow(server, effect, config),
    };
    server.config.set(&pairs, barred, &mut apply).map_err(failure)?;
    call.data.audience.event_classes = server.event_classes();
    // Commands behind this one are measured and limited by the new values.
    call.client.parse_anew();
    call.reply.ok();
    Ok(())
}

fn rewrite(call: &mut Call<'_>) -> Outcome {
    call.server.config.rewrite(&call.server.user_lines()).map_err(failure)?;
    log::info!("CONFIG REWRITE executed with success.");
    call.reply.ok();
    Ok(())
}

fn reset_statistics(call: &mut Call<'_>) -> Outcome {
    let server = call.server;
    Persistence::of(server).forget_counts(server.workers.totals().dirty.get());
    Persistence::of(server).saves.store(0, Ordering::Relaxed);
    Aof::of(server).rewrites.count.store(0, Ordering::Relaxed);
    Aof::of(server).figures.delayed_fsync.store(0, Ordering::Relaxed);
    Replication::of(server).figures.reset();
    server.reset_cuts();
    server.workers.reset();
    server.errors.reset();
    server.services.reset_statistics(server.clients.last_id());
    server.clients.reset_rejected();
    server.scripts.reset_statistics();
    server.tls.reset_statistics();
    memory::reset_peak();
    crate::engine::lazyfree::reset_freed_objects();
    Defrag::of(server).reset_statistics();
    // Keep `dirty`, which says whether this command changed data.
    call.data.counters = Counters { dirty: call.data.counters.dirty, ..Counters::default() };
    call.reply.ok();
    Ok(())
}

/// Applies the effect of an option's new value. The caller holds the gate.
fn follow(server: &'static Server, effect: Effect, config: &Config) -> Result<(), String> {
    match effect {
        Effect::Backlog => server.trim_feed(),
        Effect::CommandLog => server.services.follow(config, &server.clock),
        Effect::Keepalive => {
            if let Some(acceptor) = &*server.acceptor.lock() {
                acceptor.change_keepalive(config.tcp_keepalive() as u32);
            }
        }
        Effect::Listen => {
            listen::listen_again(server, false)?;
            listen::listen_again(server, true)?;
            title::show(config);
        }
        Effect::ListenTcp => {
            listen_on(server, config.port(), false)?;
            title::show(config);
        }
        Effect::ListenTls => {
            follow_tls(server, config)?;
            listen_on(server, config.tls_port(), true)?;
            title::show(config);
        }
        Effect::LogHistory => rewrite::follow_log_history(server),
        Effect::LogSync => aof::follow_log_config(server),
        Effect::Logging => logging::follow(config),
        Effect::Maxmemory => {
            server.follow_config();
            let (maxmemory, used) = (config.maxmemory(), memory::used() as u64);
            if maxmemory > 0 && used > maxmemory {
                log::warn!(
                    "maxmemory is now {maxmemory} bytes, less than the {used} bytes in use: keys \
                     will be evicted or writes refused, as maxmemory-policy says."
                );
            }
        }
        Effect::MinReplicas => Replication::of(server).follow_count(server),
        Effect::OomScore => {
            let is_replica = server.switches.has(Switch::REPLICA);
            server.services.oom_score.lock().apply(config, is_replica)?;
        }
        Effect::OpenFiles => {
            let only = raise_open_files(config, server.workers.all().len());
            only.map_err(|clients| {
                format!(
                    "The operating system is not able to handle the specified number of clients, \
                     try with {clients}"
                )
            })?;
        }
        Effect::Password => server.follow_requirepass(),
        Effect::Switches => server.follow_config(),
        Effect::Title => title::show(config),
        Effect::Tls => follow_tls(server, config)?,
        Effect::TlsReload => server.tls.reloader.follow(&server.tls, &server.config)?,
        Effect::Defrag => defrag::follow_config(server)?,
        Effect::Watchdog => watchdog::follow_watchdog(server)?,
        Effect::Workers => {
            let count = config.worker_count();
            let only = raise_open_files(config, count.max(server.workers.all().len()));
            only.map_err(|clients| too_many_threads(count, config.maxclients(), clients))?;
            server.choose_log_numbers();
            pool::set_worker_count(server, count)?;
        }
        // The caller turns the log on and off, because that needs the keys.
        Effect::Log | Effect::None => {}
    }
    Ok(())
}

/// Listens on a port that was changed.
fn listen_on(server: &'static Server, port: i64, is_tls: bool) -> Result<(), String> {
    listen::listen_again(server, is_tls).map_err(|reason| {
        log::warn!("Unable to listen on port {port}: {reason}");
        "Unable to listen on this port. Check server logs.".to_owned()
    })
}

/// Lets new connections use the changed options of TLS.
fn follow_tls(server: &Server, config: &Config) -> Result<(), String> {
    let followed = if config.tls_replication() { tls::outgoing(config).map(drop) } else { Ok(()) };
    let followed = followed.and_then(|()| match config.tls_port() {
        0 => Ok(()),
        _ => server.tls.follow(config),
    });
    followed.map_err(|reason| {
        log::warn!("Failed to configure TLS: {reason}");
        "Unable to update TLS configuration. Check server logs.".to_owned()
    })
}

/// Makes sure that the system allows `maxclients` connections beside these workers. The error is
/// how many it allows.
fn raise_open_files(config: &Config, workers: usize) -> Result<(), u64> {
    match host::raise_open_files(config.maxclients() as u64, workers) {
        OpenFiles::Enough => Ok(()),
        OpenFiles::Only { clients, .. } => Err(clients),
    }
}

/// The error if the limit on open files has room for `possible` clients beside this number of
/// workers, and not for `maxclients`.
fn too_many_threads(workers: usize, maxclients: i64, possible: u64) -> String {
    let also = match possible {
        0 => "increase 'ulimit -n'".to_owned(),
        _ => format!(
            "increase 'ulimit -n', or set maxclients in the same command, to {possible} or less"
        ),
    };
    format!("'ulimit -n' has no room for {workers} threads and {maxclients} clients: {also}")
}

fn failure(error: ConfigError) -> Failure {
    Failure::format(error.text)
}

const ADMIN: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE);
const ALL_NODES: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];

pub(super) const COMMANDS: &[Command] = &[Command::new("config", -2, container)
    .doc("server", "2.0.0", "Depends on subcommand.", "Holds the commands of the configuration.")
    .subcommands(&[
        Command::new("get", -3, get)
            .flags(ADMIN)
            .doc("server", "2.0.0", "O(N), N: parameters given", "Answers the values of options.")
            .syntax("parameter [parameter ...]")
            .history(&[("7.0.0", "Takes several patterns.")]),
        help_row("server", "5.0.0"),
        Command::new("resetstat", 2, reset_statistics)
            .flags(ADMIN.with(Flags::GATE))
            .doc("server", "2.0.0", "O(1)", "Starts the server's statistics over.")
            .tips(ALL_NODES),
        Command::new("rewrite", 2, rewrite)
            .flags(ADMIN)
            .doc("server", "2.8.0", "O(1)", "Writes the values of now into the configuration file.")
            .tips(ALL_NODES),
        Command::new("set", -4, set)
            .flags(ADMIN.with(Flags::GATE))
            .doc(
                "server",
                "2.0.0",
                "O(N), N: parameters given",
                "Changes options while the server runs.",
            )
            .syntax("parameter value [parameter value ...]")
            .history(&[("7.0.0", "Takes several options.")])
            .tips(ALL_NODES),
    ])];
