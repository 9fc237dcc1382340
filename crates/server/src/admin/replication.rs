//! What there is of replication: that there is none. The server is a primary without replicas, and
//! answers as such.

use crate::engine::command::{Call, Categories, Command, Failure, Flags, Outcome};

fn role(call: &mut Call<'_>) -> Outcome {
    call.reply.array(3);
    call.reply.bulk(b"master");
    call.reply.integer(0);
    call.reply.empty_array();
    Ok(())
}

fn replicaof(call: &mut Call<'_>) -> Outcome {
    if call.word_is(1, "no") && call.word_is(2, "one") {
        call.reply.ok();
        return Ok(());
    }
    let port = bobbin_resp::parse_i64(call.args[2]);
    if !port.is_some_and(|port| (0..=65535).contains(&port)) {
        return Err("ERR Invalid master port".into());
    }
    absent(call)
}

/// FAILOVER [TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]: there is nobody who could take
/// over.
fn failover(call: &mut Call<'_>) -> Outcome {
    if call.args.len() == 2 && call.word_is(1, "abort") {
        return Err("ERR No failover in progress.".into());
    }
    let (mut has_target, mut has_timeout, mut is_forced) = (false, false, false);
    let mut at = 1;
    while at < call.args.len() {
        let behind = call.args.len() - at - 1;
        if !has_timeout && behind >= 1 && call.word_is(at, "timeout") {
            if call.integer(at + 1)? <= 0 {
                return Err("ERR FAILOVER timeout must be greater than 0".into());
            }
            has_timeout = true;
            at += 2;
        } else if !has_target && behind >= 2 && call.word_is(at, "to") {
            call.integer(at + 2)?;
            has_target = true;
            at += 3;
        } else if !is_forced && call.word_is(at, "force") {
            is_forced = true;
            at += 1;
        } else {
            return Err(Failure::SYNTAX);
        }
    }
    Err("ERR FAILOVER requires connected replicas.".into())
}

/// What a replica says to its primary.
fn absent(_: &mut Call<'_>) -> Outcome {
    Err("ERR replication is not supported by this version of Bobbin".into())
}

const ADMIN: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::STALE);
const SYNC: Flags =
    Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING).with(Flags::NO_MULTI);

pub(super) const COMMANDS: &[Command] = &[
    Command::new("role", 1, role)
        .flags(Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::FAST))
        .categories(Categories::ADMIN.with(Categories::DANGEROUS))
        .doc("server", "2.8.12", "O(1)", "Answers what part the server has in replication."),
    Command::new("replicaof", 3, replicaof)
        .flags(ADMIN.with(Flags::NO_ASYNC_LOADING))
        .doc("server", "5.0.0", "O(1)", "Makes the server a replica, or a primary.")
        .syntax("<<host port:int> :host-port | <NO ONE> :no-one> :args"),
    Command::new("slaveof", 3, replicaof)
        .flags(ADMIN.with(Flags::NO_ASYNC_LOADING))
        .doc("server", "1.0.0", "O(1)", "Makes the server a replica, or a primary.")
        .syntax("<<host port:int> :host-port | <NO ONE> :no-one> :args")
        .deprecated("5.0.0", "`REPLICAOF`"),
    Command::new("failover", -1, failover)
        .flags(ADMIN)
        .doc("server", "6.2.0", "O(1)", "Hands the part of the primary to a replica.")
        .syntax("[TO <host port:int [FORCE]> :target] [ABORT] [TIMEOUT milliseconds:int]"),
    Command::new("sync", 1, absent)
        .flags(SYNC)
        .doc("server", "1.0.0", "", "A replica asks for all data.")
        .absent(),
    Command::new("psync", -3, absent)
        .flags(SYNC)
        .doc("server", "2.8.0", "", "A replica asks for what it has missed.")
        .syntax("replicationid offset:int")
        .absent(),
    Command::new("replconf", -1, absent)
        .flags(ADMIN.with(Flags::LOADING).with(Flags::ALLOW_BUSY))
        .doc("server", "3.0.0", "O(1)", "A replica tells of itself.")
        .absent(),
];
