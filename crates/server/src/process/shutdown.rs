//! The orderly end of the process.
//!
//! SHUTDOWN or a signal only wakes the main thread (`Server::wait_for_end`). The main thread saves
//! if that is wanted, stops accepting connections, lets the workers finish their turns and send
//! their output, removes the Unix socket and the pid file, and exits. So the end can be requested
//! anywhere, with any locks held.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bobbin_io::error_text;

use crate::base::clock::has_come;
use crate::engine::command::Data;
use crate::engine::script::GateWish;
use crate::engine::server::pause::PauseReason;
use crate::engine::server::{EndRequest, Meanwhile, Server, Switch};
use crate::persistence::aof::Aof;
use crate::persistence::position::CutPosition;
use crate::persistence::{Persistence, aof, save};
use crate::replication::Replication;
use crate::replication::replica::{Replica, ReplicaState};
use crate::system::host::Supervisor;

/// Sleeps until a client or a signal ends the server, and then ends it in order: no new
/// connections, and then the workers finish their turns and send their output.
pub fn wait_for_end(server: &'static Server, supervisor: &Supervisor) -> Result<ExitCode, String> {
    loop {
        let mut request = wait_until_end_is_wanted(server);
        // This may take long, and the supervisor's own time limit begins here.
        supervisor.stopping();
        if prepare_end(server, &mut request) {
            break;
        }
        supervisor.going_on();
    }
    *server.acceptor.lock() = None;
    let path = server.config.unixsocket();
    if !path.is_empty() {
        log::info!("Removing the unix socket file.");
        if let Err(error) = std::fs::remove_file(OsStr::from_bytes(&path)) {
            log::debug!("Can't remove the unix socket file: {}", error_text(&error));
        }
    }
    server.workers.stop();
    server.workers.wait_until_ended();
    Replication::end_link(server);
    aof::end_log(server);
    Ok(ExitCode::SUCCESS)
}

/// Sleeps until the server must end.
pub(crate) fn wait_until_end_is_wanted(server: &Server) -> EndRequest {
    let paused = || server.switches.has(Switch::CRON_PAUSED);
    server.end.wait(|request| !(request.by_signal && paused()))
}

/// Prepares the end. `true`: no client is served any more. `false`: the server goes on.
pub(crate) fn prepare_end(server: &'static Server, request: &mut EndRequest) -> bool {
    if let_replicas_catch_up(server, request) {
        tell_of_replicas(server);
        match save_and_stop(server, request) {
            Preparation::Ends => return true,
            Preparation::Cancelled => {}
            Preparation::Refused => log::warn!(
                "Errors trying to shut down the server. Check the logs for more information."
            ),
        }
    }
    Persistence::of(server).go_on();
    if server.is_paused_for(PauseReason::Shutdown) {
        let gate = server.gate.take();
        server.unpause_clients(PauseReason::Shutdown);
        drop(gate);
    }
    request.refuse(server);
    false
}

/// Pauses writes while replicas catch up, for as long as the configuration says. `false`: the
/// request was cancelled meanwhile.
fn let_replicas_catch_up(server: &'static Server, request: &mut EndRequest) -> bool {
    let replication = Replication::of(server);
    let timeout_ms = server.config.shutdown_timeout() * 1000;
    let have_all = || replication.all_have(server) == Some(true);
    if request.now || timeout_ms == 0 || replication.replicas().is_empty() {
        return true;
    }
    // Once no client writes, the log's thread soon knows the end of the stream.
    let deadline = Instant::now() + MERGE_LIMIT;
    while replication.settled_end(server).is_none() && Instant::now() < deadline {
        std::thread::sleep(MERGE_POLL);
    }
    if have_all() {
        return true;
    }
    let gate = server.gate.take();
    let now_ms = server.clock.advance();
    replication.ask_replicas(server, server.log.last());
    server.pause_clients(PauseReason::Shutdown, i64::MAX, false, now_ms);
    drop(gate);
    log::info!("Waiting for replicas before shutting down.");
    let until_ms = now_ms.saturating_add(timeout_ms);
    let is_over = || have_all() || has_come(server.clock.advance(), until_ms, timeout_ms);
    server.end.wait_for_replicas(request, until_ms, is_over)
}

/// Logs which replicas have everything.
fn tell_of_replicas(server: &'static Server) {
    let replication = Replication::of(server);
    let replicas = replication.replicas();
    let end = server.feed.end_offset();
    let is_behind = |replica: &&Arc<Replica>| replica.acked() != end;
    for replica in replicas.iter().filter(is_behind) {
        let state = replica.state();
        let lag_s = match state {
            ReplicaState::Online => (server.clock.now_ms() - replica.acked_ms()).max(0) / 1000,
            _ => 0,
        };
        log::info!(
            "Lagging replica {} reported offset {} behind master, lag={lag_s}, state={}.",
            replica.name(),
            end.saturating_sub(replica.acked()),
            state.name(),
        );
    }
    if !replicas.is_empty() {
        let lagging = replicas.iter().filter(is_behind).count();
        let (count, in_sync) = (replicas.len(), replicas.len() - lagging);
        log::info!("{in_sync} of {count} replicas are in sync when shutting down.");
    }
}

/// What came of the preparations for the end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Preparation {
    /// No client is served any more.
    Ends,
    Refused,
    Cancelled,
}

/// Ends files in progress, and saves if that is wanted.
fn save_and_stop(server: &'static Server, request: &mut EndRequest) -> Preparation {
    if !may_leave_log(server, request) {
        return Preparation::Refused;
    }
    end_files(server);
    // While a file is loaded, the data must not replace it.
    let is_loading = server.switches.has(Switch::LOADING | Switch::LOADING_ASIDE);
    if is_loading || !request.save.unwrap_or_else(|| server.has_save_points()) {
        return begin_end(server, request);
    }
    let Some(mut data) = Data::new(&server.keyspace, &server.gate, 0) else {
        log::warn!("Error trying to save the DB: there are too many threads");
        return if request.force { begin_end(server, request) } else { Preparation::Refused };
    };
    data.conditions.now_ms = server.clock.now_ms();
    data.enter();
    let prepared = match hold_gate_to_save(server, &mut data, request) {
        Hold::Gate => save_last(server, &mut data, request),
        Hold::Nothing(prepared) => prepared,
    };
    data.leave();
    prepared
}

/// The last look at whether the server may end. From here on the request cannot be cancelled.
fn begin_end(server: &Server, request: &EndRequest) -> Preparation {
    if !may_leave_log(server, request) {
        return Preparation::Refused;
    }
    if !server.end.begin() {
        return Preparation::Cancelled;
    }
    if waits_for_base(server) {
        log::warn!("Writing initial AOF. Exit anyway.");
    }
    Preparation::Ends
}

/// Writes the last snapshot. `data` holds the gate.
fn save_last(server: &'static Server, data: &mut Data, request: &EndRequest) -> Preparation {
    let prepared = begin_end(server, request);
    if prepared != Preparation::Ends {
        return prepared;
    }
    log::info!("Saving the final RDB snapshot before exiting.");
    if save::save_held(server, data, CutPosition::of(server, data)).is_err() {
        if !request.force {
            log::warn!("Error trying to save the DB, can't exit. {HOW_TO_END}");
            return Preparation::Refused;
        }
        log::warn!("Error trying to save the DB, but forced to exit.");
    }
    // Later changes would be in no file, so no client may make any.
    server.pause_clients(PauseReason::Shutdown, i64::MAX, true, data.conditions.now_ms);
    Preparation::Ends
}

/// What the main thread holds when it has tried to hold the gate.
enum Hold {
    Gate,
    /// No snapshot will be written.
    Nothing(Preparation),
}

/// Takes the gate, although a slow script may be running. A script that has not written is killed;
/// any other script is waited for, unless a later request wants no snapshot.
fn hold_gate_to_save(server: &'static Server, data: &mut Data, request: &mut EndRequest) -> Hold {
    let deadline = Instant::now() + SCRIPT_LIMIT;
    let _wish = GateWish::new(server);
    while !data.hold_gate() {
        match server.end.meanwhile() {
            Meanwhile::Nothing => {}
            Meanwhile::Cancelled => return Hold::Nothing(Preparation::Cancelled),
            Meanwhile::Asked(later) => request.add(later),
        }
        if request.nosave_later {
            return Hold::Nothing(begin_end(server, request));
        }
        if Instant::now() >= deadline {
            return Hold::Nothing(waited_in_vain(server, request));
        }
        data.leave();
        for function in [false, true] {
            // A script that cannot be killed may end by itself.
            drop(server.scripts.kill(function, &server.config));
        }
        std::thread::sleep(SCRIPT_POLL);
        data.enter();
    }
    Hold::Gate
}

/// What becomes of a request when a script goes on for too long.
fn waited_in_vain(server: &Server, request: &EndRequest) -> Preparation {
    log::warn!(
        "A script or transaction that has written is still running, and half of what it does must \
         not be saved. {HOW_TO_END}"
    );
    if request.force {
        return begin_end(server, request);
    }
    if request.by_signal {
        // Nobody hears that it was refused: it is seen to again, until the script has ended.
        server.end.end_again(request);
    }
    Preparation::Refused
}

/// Whether the server may end as far as the log is concerned: if it has no base yet, only by force.
fn may_leave_log(server: &Server, request: &EndRequest) -> bool {
    let may = request.force || !waits_for_base(server);
    if !may {
        log::warn!(
            "Writing initial AOF, can't exit. To end the server without it, say SHUTDOWN FORCE."
        );
    }
    may
}

/// Whether the log has no base, and one may still come.
fn waits_for_base(server: &Server) -> bool {
    let aof = Aof::of(server);
    let may_come = aof.rewrites.is_running() || !aof.rewrites.failed.load(Ordering::Relaxed);
    aof.is_on() && aof.is_waiting_for_base() && may_come
}

/// Ends the save and the rewrite of the log in progress. Until [`Persistence::go_on`], no others
/// begin. What was only scheduled still is.
fn end_files(server: &'static Server) {
    let (persistence, rewrites) = (Persistence::of(server), &Aof::of(server).rewrites);
    // A thread that begins one holds the gate.
    let gate = server.gate.take();
    persistence.pause();
    drop(gate);
    save::abort_save(server);
    rewrites.give_up();
    persistence.wait_until_idle();
    // The rewrite removes its unfinished file.
    let deadline = Instant::now() + REWRITE_LIMIT;
    while rewrites.is_running() && Instant::now() < deadline {
        std::thread::sleep(REWRITE_POLL);
    }
}

/// How an administrator ends a server that cannot save.
const HOW_TO_END: &str = "To end the server without what changed since the last snapshot, say \
    SHUTDOWN NOSAVE or SHUTDOWN FORCE, or set shutdown-on-sigterm to nosave and send SIGTERM again \
    (for SIGINT, which Ctrl-C sends, it is shutdown-on-sigint).";

/// How long to wait for a script that has written, before the log says so. In tests no script goes
/// on meanwhile.
const SCRIPT_LIMIT: Duration = Duration::from_secs(if cfg!(test) { 0 } else { 10 });
const SCRIPT_POLL: Duration = Duration::from_millis(2);

/// How long to wait for the log's thread before replicas are asked for their offsets.
const MERGE_LIMIT: Duration = Duration::from_millis(100);
const MERGE_POLL: Duration = Duration::from_millis(1);

/// How long to wait for a cancelled rewrite. The disk may hang.
const REWRITE_LIMIT: Duration = Duration::from_secs(2);
const REWRITE_POLL: Duration = Duration::from_millis(2);
