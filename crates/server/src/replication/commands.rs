//! Commands of replicas and about replication: PSYNC, REPLCONF, ROLE, WAIT and others.

use std::any::Any;
use std::fmt::Display;
use std::sync::atomic::Ordering;

use bobbin_resp::Reply;

use super::failover::{FailoverPhase, FailoverRequest, FailoverTarget};
use super::link::LinkState;
use super::replica::{Capability, Replica, ReplicaFeeder};
use super::wish::{CopyParts, Wish};
use super::{Replication, WaitGoal};
use crate::engine::blocking::{self, Wait};
use crate::engine::client::Client;
use crate::engine::clients::ClientFlag;
use crate::engine::command::{Call, Categories, Command, Failure, Flags, Outcome};
use crate::engine::execution::admission::{admit_again, wait_for_reserved};
use crate::engine::log::history::{HISTORY_ID_BYTES, HistoryId};
use crate::engine::server::Server;
use crate::persistence::aof::{Aof, NO_LOG};

fn role(call: &mut Call<'_>) -> Outcome {
    if let Some(link) = Replication::of(call.server).link() {
        call.reply.array(5);
        call.reply.bulk(b"slave");
        call.reply.bulk(link.host.as_bytes());
        call.reply.integer(i64::from(link.port));
        call.reply.bulk(match link.state() {
            LinkState::Connect => b"connect",
            LinkState::Connecting => b"connecting",
            LinkState::Handshake => b"handshake",
            LinkState::Sync => b"sync",
            LinkState::Connected => b"connected",
        });
        let is_connected = link.state() == LinkState::Connected;
        let offset = call.server.feed.published() as i64;
        call.reply.integer(if is_connected { offset } else { -1 });
        return Ok(());
    }
    let replicas = Replication::of(call.server).replicas();
    let online: Vec<_> = replicas.iter().filter(|replica| replica.state().is_online()).collect();
    call.reply.array(3);
    call.reply.bulk(b"master");
    call.reply.integer(Replication::settled_offset(call.server) as i64);
    call.reply.array(online.len());
    for replica in online {
        call.reply.array(3);
        call.reply.bulk(replica.host().as_bytes());
        call.reply.bulk_i64(i64::from(replica.port()));
        call.reply.bulk_i64(replica.acked() as i64);
    }
    Ok(())
}

/// The client's feeder. It is made when the client first sends a replica's command.
fn feeder<'a>(
    client: &'a mut Client,
    server: &'static Server,
    now_ms: i64,
) -> &'a mut ReplicaFeeder {
    let info = &client.info;
    let feeder =
        client.feeder.get_or_insert_with(|| Box::new(ReplicaFeeder::new(server, info, now_ms)));
    let feeder: &mut dyn Any = &mut **feeder;
    feeder.downcast_mut().expect("only replicas are fed")
}

/// PSYNC id offset [FAILOVER]: a replica asks for the stream from a byte on, or for a copy of
/// everything. FAILOVER: the sender is our primary and asks us to take over at that offset.
fn psync(call: &mut Call<'_>) -> Outcome {
    if is_taken(call) {
        return Ok(());
    }
    if call.args.len() > 3 && call.word_is(3, "failover") {
        take_over(call)?;
    }
    may_sync(call)?;
    let (server, now_ms) = (call.server, call.data.conditions.now_ms);
    let replication = Replication::of(server);
    let Some(first_byte) = bobbin_resp::parse_i64(call.args[2]) else {
        let peer = &call.client.info.peer;
        log::warn!("Replica {peer} asks for synchronization but with a wrong offset");
        return Err(Failure::NOT_AN_INTEGER);
    };
    let feeder = feeder(call.client, server, now_ms);
    let name = feeder.replica.name();
    let level = replication.level_of(&feeder.replica, now_ms);
    log::log!(level, "Replica {name} asks for synchronization");
    let asks_for_all = call.args[1].starts_with(b"?");
    if !asks_for_all {
        // All that clients have had replies for counts, however far the log's thread is.
        Replication::settled_offset(server);
    }
    let offset = first_byte.checked_sub(1).and_then(|offset| u64::try_from(offset).ok());
    let stream = offset
        .filter(|_| !asks_for_all)
        .and_then(|offset| feeder.stream_from(call.args[1], offset));
    if let Some(stream) = stream {
        log::info!("Partial resynchronization request from {name} accepted.");
        replication.figures.partial_syncs.fetch_add(1, Ordering::Relaxed);
        let knows_id = feeder.replica.has(Capability::PSYNC2);
        let answer =
            if knows_id { format!("CONTINUE {}", server.feed.id()) } else { "CONTINUE".to_owned() };
        feeder.go_on(stream, now_ms);
        call.reply.simple(&answer);
        return Ok(());
    }
    if asks_for_all {
        log::log!(level, "Full resync requested by replica {name}");
    } else {
        replication.figures.refused_partial_syncs.fetch_add(1, Ordering::Relaxed);
        log_refusal(server, &name, call.args[1], first_byte, level);
    }
    let is_channel = feeder.replica.is_copy_channel();
    if feeder.replica.has(Capability::DUAL_CHANNEL) {
        log::info!(
            "Dual channel replication: Replica {name} is capable of dual channel synchronization, and \
             partial sync isn't possible. Full sync will continue with dedicated RDB channel."
        );
        call.reply.simple("DUALCHANNELSYNC");
        return Ok(());
    }
    if feeder.replica.has(Capability::REDIS_CHANNEL) && !is_channel && offers_dual_channel(server) {
        log::info!(
            "Replica {name} is capable of rdb channel synchronization, and partial sync isn't \
             possible. Full sync will continue with dedicated rdb channel."
        );
        feeder.wait_for_channel(now_ms);
        let answer = format!("RDBCHANNELSYNC {}", call.client.info.id);
        call.reply.simple(&answer);
        return Ok(());
    }
    full_sync(call, false)
}

/// A replication ID as the server's log shows it. A longer one than there can be is cut.
fn shown(id: &[u8]) -> impl Display {
    id[..id.len().min(HISTORY_ID_BYTES)].escape_ascii()
}

/// Takes over from our primary, with its history up to here.
fn take_over(call: &mut Call<'_>) -> Outcome {
    let id = call.args[1];
    log::info!("Failover request received for replid {}.", shown(id));
    if !call.data.hold_gate() {
        return Err(wait_for_reserved(call.server, call.data, call.client));
    }
    admit_again(call)?;
    let replication = Replication::of(call.server);
    if replication.link().is_none() {
        return Err("ERR PSYNC FAILOVER can't be sent to a master.".into());
    }
    if !id.eq_ignore_ascii_case(call.server.feed.id().as_str().as_bytes()) {
        return Err("ERR PSYNC FAILOVER replid must match my replid.".into());
    }
    replication.lead(call.server);
    call.data.recorder.refresh();
    call.data.conditions.may_expire = call.server.may_expire(call.data.conditions.now_ms);
    log::info!("PRIMARY MODE enabled (failover request from '{}')", call.client.info.peer);
    Ok(())
}

/// SYNC: a replica of an old version asks for everything.
fn sync(call: &mut Call<'_>) -> Outcome {
    if is_taken(call) {
        return Ok(());
    }
    may_sync(call)?;
    let feeder = feeder(call.client, call.server, call.data.conditions.now_ms);
    log::info!("Replica {} asks for synchronization", feeder.replica.name());
    full_sync(call, true)
}

/// A replica can give a copy only while it is connected to its primary. What comes behind the
/// command is from a replica already.
fn may_sync(call: &mut Call<'_>) -> Outcome {
    let replication = Replication::of(call.server);
    if replication.failover_phase() != FailoverPhase::None {
        return Err("NOMASTERLINK Can't SYNC while failing over".into());
    }
    let link = replication.link();
    if link.is_some_and(|link| link.state() != LinkState::Connected) {
        return Err("NOMASTERLINK Can't SYNC while not connected with my master".into());
    }
    call.client.rights.watch();
    call.client.parse_anew();
    Ok(())
}

/// Logs why a replica cannot continue where it was.
fn log_refusal(server: &Server, name: &str, id: &[u8], first_byte: i64, level: log::Level) {
    let (ours, earlier) = (server.feed.id().to_string(), server.feed.history().earlier);
    let (earlier, end) = match earlier {
        Some((id, end)) => (id.to_string(), end as i64 + 1),
        None => ("0".repeat(40), -1),
    };
    let is_earlier = id.eq_ignore_ascii_case(earlier.as_bytes());
    let is_ours = id.eq_ignore_ascii_case(ours.as_bytes());
    if is_ours || is_earlier && first_byte <= end {
        log::log!(
            level,
            "Unable to partial resync with replica {name} for lack of backlog (Replica request \
             was: {first_byte})."
        );
        if first_byte > server.feed.published() as i64 {
            log::warn!(
                "Warning: replica {name} tried to PSYNC with an offset that is greater than the \
                 primary replication offset."
            );
        }
    } else if is_earlier {
        log::log!(
            level,
            "Partial resynchronization not accepted: Requested offset for second ID was \
             {first_byte}, but I can reply up to {end}"
        );
    } else {
        let id = shown(id);
        log::log!(
            level,
            "Partial resynchronization not accepted: Replication ID mismatch (Replica asked for \
             '{id}', my replication IDs are '{ours}' and '{earlier}')"
        );
    }
}

/// Whether the connection is a replica's or a monitor's already.
fn is_taken(call: &Call<'_>) -> bool {
    call.client.info.has(ClientFlag::REPLICA | ClientFlag::MONITOR)
}

fn full_sync(call: &mut Call<'_>, is_plain: bool) -> Outcome {
    let (server, now_ms) = (call.server, call.data.conditions.now_ms);
    let feeder = feeder(call.client, server, now_ms);
    if feeder.replica.wish().parts.is_filtered() && !feeder.replica.has(Capability::EOF) {
        return Err("ERR Filtered replica requires EOF capability".into());
    }
    let replica = &feeder.replica;
    let replication = Replication::of(server);
    if let Some(dialect) = replication.dialect(replica, now_ms) {
        replica.set_wish(Wish { dialect, ..replica.wish() });
    } else {
        let reason = "the replica has taken copies and gone without a word: does its version hold \
                      all that is here?";
        replication.refuse(server, replica, reason, now_ms);
    }
    feeder.wait_for_copy(now_ms, is_plain);
    Ok(())
}

/// REPLCONF option value [option value ...]: a replica describes itself.
fn replconf(call: &mut Call<'_>) -> Outcome {
    if call.args.len().is_multiple_of(2) {
        return Err(Failure::SYNTAX);
    }
    let (server, now_ms) = (call.server, call.data.conditions.now_ms);
    let (args, is_replica) = (call.args, call.client.info.has(ClientFlag::REPLICA));
    for pair in args[1..].chunks_exact(2) {
        let (option, value) = (pair[0].to_ascii_lowercase(), pair[1]);
        let replica = &feeder(call.client, server, now_ms).replica;
        let number = || bobbin_resp::parse_i64(value).ok_or(Failure::NOT_AN_INTEGER);
        match &*option {
            b"listening-port" => replica.port.store(number()? as u32, Ordering::Relaxed),
            b"ip-address" => *replica.address.lock() = address(value)?,
            b"capa" => {
                let capability = match &*value.to_ascii_lowercase() {
                    b"eof" => Capability::EOF,
                    b"psync2" => Capability::PSYNC2,
                    b"rdb-channel-repl" => Capability::REDIS_CHANNEL,
                    b"dual-channel" if offers_dual_channel(server) => Capability::DUAL_CHANNEL,
                    // Unknown capabilities are ignored: we do not use them.
                    _ => 0,
                };
                replica.capabilities.fetch_or(capability, Ordering::Relaxed);
            }
            b"version" => {
                let version = parse_version(value).ok_or_else(|| {
                    let value = String::from_utf8_lossy(value);
                    Failure::format(format!("ERR Unrecognized version format: {value}"))
                })?;
                replica.version.store(version, Ordering::Relaxed);
            }
            b"rdb-only" => replica.copy_only.store(zero_or_one(number()?)?, Ordering::Relaxed),
            b"rdb-channel" => {
                let is_channel = zero_or_one(number()?)?;
                // The kind of connection is fixed once the replica has begun.
                if !is_replica {
                    replica.is_copy_channel.store(is_channel, Ordering::Relaxed);
                }
            }
            b"main-ch-client-id" => {
                let id = number()?;
                let client = u64::try_from(id).unwrap_or(0);
                if !Replication::of(server).opens_channel(client) {
                    let text = format!("ERR Unrecognized RDB client id: {id}");
                    return Err(Failure::format(text));
                }
                replica.main_client.store(client, Ordering::Relaxed);
                // Only Redis sends this option.
                replica.capabilities.fetch_or(Capability::REDIS_CHANNEL, Ordering::Relaxed);
            }
            b"set-rdb-client-id" => {
                let id = number()?;
                let client = u64::try_from(id).unwrap_or(0);
                if !Replication::of(server).awaited.has(client) {
                    return Err(Failure::format(format!("ERR Unrecognized RDB client id {id}")));
                }
                replica.copy_client.store(client, Ordering::Relaxed);
            }
            b"rdb-filter-only" => {
                let parts = CopyParts::parse(value)
                    .map_err(|error| Failure::format(format!("ERR {error}")))?;
                // The wish is fixed once the replica has asked for a copy.
                if !is_replica {
                    replica.set_wish(Wish { parts, ..replica.wish() });
                }
            }
            b"ack" => {
                // REPLCONF ACK has no reply.
                if is_replica {
                    acknowledged(server, replica, value, args, now_ms);
                }
                return Ok(());
            }
            b"getack" => return Ok(()),
            _ => {
                let option = String::from_utf8_lossy(pair[0]);
                return Err(Failure::format(format!("ERR Unrecognized REPLCONF option: {option}")));
            }
        }
    }
    call.reply.ok();
    Ok(())
}

/// The address that a replica wants to be known by. `None`: the one that it connects from.
fn address(value: &[u8]) -> Result<Option<Box<str>>, Failure> {
    if value.len() > ADDRESS_MAX {
        let text = format!(
            "ERR REPLCONF ip-address provided by replica instance is too long: {} bytes",
            value.len()
        );
        return Err(Failure::format(text));
    }
    Ok((!value.is_empty()).then(|| String::from_utf8_lossy(value).into()))
}

/// REPLCONF ACK `acked` [FACK offset]: a replica reports how much of the stream it has executed,
/// and how much it has on disk. What it says beyond the stream's end counts as the end: WAIT would
/// count the replica for ever. `args` are all words of the command.
fn acknowledged(
    server: &'static Server,
    replica: &Replica,
    acked: &[u8],
    args: &[&[u8]],
    now_ms: i64,
) {
    let end = server.feed.end_offset();
    let offset = |text| bobbin_resp::parse_i64(text).map(|offset| (offset.max(0) as u64).min(end));
    let on_disk = match args {
        [_, _, _, fack, on_disk] if fack.eq_ignore_ascii_case(b"fack") => offset(on_disk),
        _ => None,
    };
    replica.ack(offset(acked).unwrap_or(0), on_disk, now_ms);
    let replication = Replication::of(server);
    replication.answer_waits(server);
    if replication.failover_phase() == FailoverPhase::WaitingForSync {
        replication.look_soon();
    }
}

/// Whether we offer replicas a connection of its own for their copy.
fn offers_dual_channel(server: &Server) -> bool {
    server.config.dual_channel_replication_enabled() && server.config.repl_diskless_sync()
}

fn zero_or_one(number: i64) -> Result<bool, Failure> {
    match number {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err("ERR value is out of range, value must between 0 and 1".into()),
    }
}

/// Reads a version of three numbers into one: `0x00MMmmpp`.
fn parse_version(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?;
    let mut numbers = text.split('.').map(|number| number.parse::<u8>().ok());
    let version = u32::from_be_bytes([0, numbers.next()??, numbers.next()??, numbers.next()??]);
    numbers.next().is_none().then_some(version)
}

/// WAIT numreplicas timeout.
fn wait(call: &mut Call<'_>) -> Outcome {
    if Replication::of(call.server).link().is_some() {
        return Err(
            "ERR WAIT cannot be used with replica instances. Please also note that if a replica is \
             configured to be writable (which is not the default) writes to replicas are just local \
             and are not propagated."
                .into(),
        );
    }
    let replicas = call.integer(1)?;
    let deadline_ms = blocking::deadline_of_ms(call, 2)?;
    let (server, number) = (call.server, last_record(call));
    let wanted = WaitGoal::new(number, usize::try_from(replicas).unwrap_or(0), None);
    wait_for(call, server, wanted, deadline_ms);
    Ok(())
}

/// WAITAOF numlocal numreplicas timeout.
fn waitaof(call: &mut Call<'_>) -> Outcome {
    if Replication::of(call.server).link().is_some() {
        return Err(
            "ERR WAITAOF cannot be used with replica instances. Please also note that writes to \
                    replicas are just local and are not propagated."
                .into(),
        );
    }
    let local = call.integer(1)?;
    if !(0..=1).contains(&local) {
        return Err("ERR value is out of range, value must between 0 and 1".into());
    }
    let replicas = bobbin_resp::parse_i64(call.args[2]).and_then(|it| usize::try_from(it).ok());
    let replicas = replicas.ok_or(Failure::new(&"ERR value is out of range, must be positive"))?;
    let deadline_ms = blocking::deadline_of_ms(call, 3)?;
    let (server, number) = (call.server, last_record(call));
    if local > 0 && !server.config.appendonly() {
        return Err(NO_LOG);
    }
    wait_for(call, server, WaitGoal::new(number, replicas, Some(local > 0)), deadline_ms);
    Ok(())
}

/// The record that a client waits for: its last one, or a later one if that is unknown.
fn last_record(call: &Call<'_>) -> u64 {
    call.client.last_record.min(call.server.log.last())
}

/// Answers at once if the wish is met, or blocks the client.
fn wait_for(
    call: &mut Call<'_>,
    server: &'static Server,
    wanted: WaitGoal,
    deadline_ms: Option<i64>,
) {
    let found = wanted.look(server);
    if !call.may_block() || wanted.is_met_by(found) {
        wanted.answer(found, &mut call.reply);
        return;
    }
    let wait = WaitForReplicas { server, wanted: wanted.clone() };
    let waiter = blocking::block(call, wait, &[], deadline_ms);
    if wanted.replicas == 0 {
        Aof::of(server).await_record(server, wanted.number, waiter);
    } else {
        Replication::of(server).await_replicas(server, waiter, wanted);
    }
}

/// The wait of a client for replicas, or the disk, to have its changes.
struct WaitForReplicas {
    server: &'static Server,
    wanted: WaitGoal,
}

impl Wait for WaitForReplicas {
    fn timed_out(&self, reply: &mut Reply<'_>) {
        self.wanted.answer(self.wanted.look(self.server), reply);
    }
}

/// The longest address in bytes, as in Redis.
const ADDRESS_MAX: usize = 255;

fn replicaof(call: &mut Call<'_>) -> Outcome {
    if Replication::of(call.server).failover_phase() != FailoverPhase::None {
        return Err("ERR REPLICAOF not allowed while failing over.".into());
    }
    if call.word_is(1, "no") && call.word_is(2, "one") {
        if Replication::of(call.server).link().is_some() {
            Replication::of(call.server).lead(call.server);
            log::info!("PRIMARY MODE enabled (user request)");
        }
        call.data.recorder.refresh();
        call.reply.ok();
        return Ok(());
    }
    let port = bobbin_resp::parse_i64(call.args[2]).and_then(|port| u16::try_from(port).ok());
    let port = port.ok_or("ERR Invalid master port")?;
    let host = String::from_utf8_lossy(call.args[1]).into_owned();
    if host.is_empty() || host.contains(char::is_whitespace) {
        return Err("ERR Invalid master host".into());
    }
    let replication = Replication::of(call.server);
    if replication.link().is_some_and(|link| link.host == host && link.port == port) {
        call.reply.simple("OK Already connected to specified master");
        return Ok(());
    }
    let named = format!("{host}:{port}");
    replication
        .follow(call.server, host, port)
        .map_err(|error| Failure::format(format!("ERR {error}")))?;
    log::info!("REPLICAOF {named} enabled (user request)");
    if call.data.conditions.transaction_writes {
        // The transaction's changes, before and after this command, are in no stream, so the
        // history needs a new name. Sentinel's transactions change nothing: their servers continue.
        call.server.feed.change_history(|history| history.take(HistoryId::new()));
    }
    call.data.recorder.refresh();
    call.reply.ok();
    Ok(())
}

/// FAILOVER [TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds].
fn failover(call: &mut Call<'_>) -> Outcome {
    let (server, replication) = (call.server, Replication::of(call.server));
    if call.args.len() == 2 && call.word_is(1, "abort") {
        replication.abort_failover(server, call.data)?;
    } else {
        let request = failover_request(call)?;
        replication.begin_failover(server, call.data, request)?;
    }
    call.reply.ok();
    Ok(())
}

fn failover_request(call: &Call<'_>) -> Result<FailoverRequest, Failure> {
    let mut request = FailoverRequest::default();
    let mut at = 1;
    while at < call.args.len() {
        let behind = call.args.len() - at - 1;
        if request.timeout_ms.is_none() && behind >= 1 && call.word_is(at, "timeout") {
            let timeout_ms = call.integer(at + 1)?;
            if timeout_ms <= 0 {
                return Err("ERR FAILOVER timeout must be greater than 0".into());
            }
            request.timeout_ms = Some(timeout_ms);
            at += 2;
        } else if request.target.is_none() && behind >= 2 && call.word_is(at, "to") {
            // 0 matches no replica's port.
            let port = u16::try_from(call.integer(at + 2)?).unwrap_or(0);
            let host = String::from_utf8_lossy(call.args[at + 1]).into_owned();
            request.target = Some(FailoverTarget { host, port });
            at += 3;
        } else if !request.is_forced && call.word_is(at, "force") {
            request.is_forced = true;
            at += 1;
        } else {
            return Err(Failure::SYNTAX);
        }
    }
    Ok(request)
}

const ADMIN: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::STALE);
const SYNC: Flags =
    Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING).with(Flags::NO_MULTI);

pub const COMMANDS: &[Command] = &[
    Command::new("role", 1, role)
        .flags(Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::FAST))
        .categories(Categories::ADMIN.with(Categories::DANGEROUS))
        .doc("server", "2.8.12", "O(1)", "Answers what part the server has in replication."),
    Command::new("replicaof", 3, replicaof)
        .flags(ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::GATE))
        .doc("server", "5.0.0", "O(1)", "Makes the server a replica, or a primary.")
        .syntax("<<host port:int> :host-port | <NO ONE> :no-one> :args"),
    Command::new("slaveof", 3, replicaof)
        .flags(ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::GATE))
        .doc("server", "1.0.0", "O(1)", "Makes the server a replica, or a primary.")
        .syntax("<<host port:int> :host-port | <NO ONE> :no-one> :args")
        .deprecated("5.0.0", "`REPLICAOF`"),
    Command::new("failover", -1, failover)
        .flags(ADMIN.with(Flags::GATE))
        .doc("server", "6.2.0", "O(1)", "Hands the part of the primary to a replica.")
        .syntax("[TO <host port:int [FORCE]> :target] [ABORT] [TIMEOUT milliseconds:int]"),
    Command::new("sync", 1, sync).flags(SYNC).doc("server", "1.0.0", "", "Asks for all data."),
    Command::new("psync", -3, psync)
        .flags(SYNC)
        .doc("server", "2.8.0", "", "A replica asks for what it has missed.")
        .syntax("replicationid offset:int"),
    Command::new("replconf", -1, replconf)
        .flags(ADMIN.with(Flags::LOADING).with(Flags::ALLOW_BUSY))
        .doc("server", "3.0.0", "O(1)", "A replica tells of itself."),
    Command::new("wait", 3, wait)
        .flags(Flags::BLOCKING)
        .categories(Categories::CONNECTION)
        .doc("generic", "3.0.0", "O(1)", "Waits until replicas have the writes before it.")
        .syntax("numreplicas:int timeout:int")
        .tips(&["request_policy:all_shards", "response_policy:agg_min"]),
    Command::new("waitaof", 4, waitaof)
        .flags(Flags::BLOCKING)
        .categories(Categories::CONNECTION)
        .doc("generic", "7.2.0", "O(1)", "Waits until the writes before it are on disk.")
        .syntax("numlocal:int numreplicas:int timeout:int")
        .tips(&["request_policy:all_shards", "response_policy:agg_min"]),
];
