//! Publish and subscribe: SUBSCRIBE and related commands, PUBLISH, PUBSUB.
//!
//! SUBSCRIBE and UNSUBSCRIBE answer by a push for each name. A push is not a reply, so CLIENT REPLY
//! OFF does not suppress it.

use std::sync::Arc;

use bobbin_resp::Reply;
use bobbin_store::NewValue;
use bobbin_store::entry::INLINE_MAX;

use crate::engine::client::{Client, ReplyMode};
use crate::engine::command::help::{container, help_row};
use crate::engine::command::{Call, Command, Failure, Flags, Outcome};
use crate::engine::pubsub::{ChannelKind, MessagePayload, Publication, Subscribers};
use crate::engine::row::keys::{ChannelArguments, KeySpec, KeyUse};
use crate::engine::tracking::Notice;

fn subscribe(call: &mut Call<'_>) -> Outcome {
    join(call, ChannelKind::Channel, "subscribe")
}

fn psubscribe(call: &mut Call<'_>) -> Outcome {
    join(call, ChannelKind::Pattern, "psubscribe")
}

fn ssubscribe(call: &mut Call<'_>) -> Outcome {
    if call.in_transaction {
        return Err("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client".into());
    }
    join(call, ChannelKind::Shard, "ssubscribe")
}

fn unsubscribe(call: &mut Call<'_>) -> Outcome {
    leave(call, ChannelKind::Channel, "unsubscribe")
}

fn punsubscribe(call: &mut Call<'_>) -> Outcome {
    leave(call, ChannelKind::Pattern, "punsubscribe")
}

fn sunsubscribe(call: &mut Call<'_>) -> Outcome {
    leave(call, ChannelKind::Shard, "sunsubscribe")
}

fn join(call: &mut Call<'_>, kind: ChannelKind, word: &str) -> Outcome {
    for name in &call.args[1..] {
        change(call, |subscribers, client| subscribers.subscribe(client, kind, name));
        confirm(call, kind, word, Some(name));
    }
    Ok(())
}

fn leave(call: &mut Call<'_>, kind: ChannelKind, word: &str) -> Outcome {
    if call.args.len() > 1 {
        for name in &call.args[1..] {
            change(call, |subscribers, client| subscribers.unsubscribe(client, kind, name));
            confirm(call, kind, word, Some(name));
        }
        return Ok(());
    }
    let names = names(call, kind);
    for name in &names {
        change(call, |subscribers, client| subscribers.unsubscribe(client, kind, name));
        confirm(call, kind, word, Some(name));
    }
    if names.is_empty() {
        confirm(call, kind, word, None);
    }
    Ok(())
}

/// Ends all subscriptions of the client without telling it.
pub(super) fn leave_all(call: &mut Call<'_>) {
    for kind in ChannelKind::ALL {
        for name in names(call, kind) {
            change(call, |subscribers, client| subscribers.unsubscribe(client, kind, &name));
        }
    }
    let silent = call.client.reply_mode != ReplyMode::On;
    if let Some(subscribers) = &mut call.data.audience.subscribers
        && !silent
    {
        call.reply.raw(subscribers.set_aside());
        subscribers.set_aside().clear();
    }
}

fn names(call: &Call<'_>, kind: ChannelKind) -> Vec<Arc<[u8]>> {
    call.client.subscriptions.as_ref().map(|s| s.names(kind)).unwrap_or_default()
}

/// Changes what the client listens to.
fn change(call: &mut Call<'_>, change: impl FnOnce(&mut Subscribers, &mut Client) -> bool) {
    if let Some(subscribers) = &mut call.data.audience.subscribers {
        // Messages that the transaction published before reach the client if it listened then.
        let unsettled = call.data.unit.work.notices.unsettled();
        if !unsettled.is_empty() {
            let subscriptions = call.client.subscriptions.as_ref();
            let patterns = subscriptions.map(|all| all.names(ChannelKind::Pattern));
            let patterns = patterns.unwrap_or_default();
            for notice in unsettled {
                if let Notice::Message(publication) = notice {
                    publication.settle(call.client, &patterns, subscribers.set_aside());
                }
            }
        }
        change(subscribers, call.client);
    }
}

/// Confirms a change to the client, behind the messages that it got before.
fn confirm(call: &mut Call<'_>, kind: ChannelKind, word: &str, name: Option<&[u8]>) {
    let count = call.client.subscriptions.as_ref().map_or(0, |subscriptions| match kind {
        ChannelKind::Shard => subscriptions.len(ChannelKind::Shard),
        ChannelKind::Channel | ChannelKind::Pattern => subscriptions.channels_and_patterns(),
    });
    let (silent, protocol) = (call.client.reply_mode != ReplyMode::On, call.client.protocol);
    if silent {
        // A client that has never listened must count as a listener. Otherwise messages that are
        // set aside go to another client.
        call.client.subscriptions.get_or_insert_default();
    }
    let Some(subscribers) = &mut call.data.audience.subscribers else { return };
    let own = subscribers.set_aside();
    // In a transaction, messages follow the whole reply.
    if !silent && !call.in_transaction {
        call.reply.raw(own);
        own.clear();
    }
    let mut reply = if silent { Reply::new(own, protocol) } else { call.reply.reborrow() };
    reply.push(3);
    reply.bulk(word.as_bytes());
    reply.bulk_or_null(name);
    reply.integer(count as i64);
}

fn publish(call: &mut Call<'_>) -> Outcome {
    post(call, ChannelKind::Channel)
}

fn spublish(call: &mut Call<'_>) -> Outcome {
    post(call, ChannelKind::Shard)
}

fn post(call: &mut Call<'_>, kind: ChannelKind) -> Outcome {
    let mut clients = 0;
    if !call.server.pubsub.is_silent(kind) {
        let channel = call.args[1];
        let value = if call.args[2].len() > INLINE_MAX { Some(call.value(2)) } else { None };
        let payload = match &value {
            Some(NewValue::Shared(shared)) => MessagePayload::Large(shared),
            _ => MessagePayload::Bytes(call.args[2]),
        };
        clients = match &mut call.data.audience.subscribers {
            Some(subscribers) if call.in_transaction => {
                // The reply says how many listen now. The message goes to those that listen when
                // the unit ends, as all that the unit does is seen then. So this looks twice.
                let clients = subscribers.count(kind, channel);
                if clients > 0 {
                    // The message may tell of a change that has no number yet.
                    let publication = Publication::new(kind, channel, payload);
                    call.data.unit.work.notices.push(Notice::Message(publication));
                }
                clients
            }
            Some(subscribers) => subscribers.publish(kind, channel, payload),
            None => 0,
        };
        call.wait_for_listeners();
    }
    if call.server.feed.takes_log() {
        call.data.propagate_to_replicas(call.args);
    }
    call.reply.integer(clients as i64);
    Ok(())
}

fn channels(call: &mut Call<'_>) -> Outcome {
    list(call, ChannelKind::Channel)
}

fn shardchannels(call: &mut Call<'_>) -> Outcome {
    list(call, ChannelKind::Shard)
}

fn list(call: &mut Call<'_>, kind: ChannelKind) -> Outcome {
    if call.args.len() > 3 {
        return Err(Failure::wrong_subcommand("PUBSUB", call.args[1]));
    }
    let found = call.server.pubsub.channels(kind, call.args.get(2).copied());
    call.reply.array(found.len());
    found.iter().for_each(|name| call.reply.bulk(name));
    Ok(())
}

fn numsub(call: &mut Call<'_>) -> Outcome {
    count(call, ChannelKind::Channel)
}

fn shardnumsub(call: &mut Call<'_>) -> Outcome {
    count(call, ChannelKind::Shard)
}

fn count(call: &mut Call<'_>, kind: ChannelKind) -> Outcome {
    let names = &call.args[2..];
    call.reply.array(names.len() * 2);
    for name in names {
        call.reply.bulk(name);
        call.reply.integer(call.server.pubsub.clients_of(kind, name) as i64);
    }
    Ok(())
}

fn numpat(call: &mut Call<'_>) -> Outcome {
    call.reply.integer(call.server.pubsub.len(ChannelKind::Pattern) as i64);
    Ok(())
}

const ANYTIME: Flags = Flags::PUBSUB.with(Flags::LOADING).with(Flags::STALE);
const LISTEN: Flags = ANYTIME.with(Flags::NOSCRIPT).with(Flags::LISTENERS);
const SHARD: KeyUse = KeyUse::NOT_KEY;
const PER_ACTIVE: &str = "O(N), N: channels that somebody listens to";

/// A row of this family.
const fn row(
    name: &'static str,
    arity: i32,
    handler: crate::engine::command::Handler,
    flags: Flags,
    since: &'static str,
    complexity: &'static str,
    summary: &'static str,
) -> Command {
    Command::new(name, arity, handler).flags(flags).doc("pubsub", since, complexity, summary)
}

pub(super) const COMMANDS: &[Command] = &[
    row(
        "subscribe",
        -2,
        subscribe,
        LISTEN,
        "2.0.0",
        "O(N), N: channels given",
        "Has the client get what is published to channels.",
    )
    .channels(ChannelArguments::All)
    .syntax("channel [channel ...]"),
    row(
        "unsubscribe",
        -1,
        unsubscribe,
        LISTEN,
        "2.0.0",
        "O(N), N: channels given",
        "Ends what SUBSCRIBE began, of some channels or all.",
    )
    .syntax("[channel [channel ...]]"),
    row(
        "psubscribe",
        -2,
        psubscribe,
        LISTEN,
        "2.0.0",
        "O(N), N: patterns given",
        "Has the client get what is published to channels whose names match.",
    )
    .channels(ChannelArguments::Patterns)
    .syntax("pattern [pattern ...]"),
    row(
        "punsubscribe",
        -1,
        punsubscribe,
        LISTEN,
        "2.0.0",
        "O(N), N: patterns given",
        "Ends what PSUBSCRIBE began, of some patterns or all.",
    )
    .syntax("[pattern [pattern ...]]"),
    row(
        "ssubscribe",
        -2,
        ssubscribe,
        LISTEN,
        "7.0.0",
        "O(N), N: shard channels given",
        "Has the client get what is published to shard channels.",
    )
    .keys(&[KeySpec::range(1, -1, 1, SHARD)])
    .channels(ChannelArguments::All)
    .syntax("shardchannel [shardchannel ...]"),
    row(
        "sunsubscribe",
        -1,
        sunsubscribe,
        LISTEN,
        "7.0.0",
        "O(N), N: shard channels given",
        "Ends what SSUBSCRIBE began, of some shard channels or all.",
    )
    .keys(&[KeySpec::range(1, -1, 1, SHARD)])
    .syntax("[shardchannel [shardchannel ...]]"),
    row(
        "publish",
        3,
        publish,
        ANYTIME.with(Flags::FAST).with(Flags::MAY_REPLICATE),
        "2.0.0",
        "O(N+M), N: clients that listen to the channel, M: patterns that somebody listens to",
        "Sends a message to all who listen to a channel.",
    )
    .values(2, 0)
    .channels(ChannelArguments::First)
    .syntax("channel message"),
    row(
        "spublish",
        3,
        spublish,
        ANYTIME.with(Flags::FAST).with(Flags::MAY_REPLICATE),
        "7.0.0",
        "O(N), N: clients that listen to the shard channel",
        "Sends a message to all who listen to a shard channel.",
    )
    .keys(&[KeySpec::at(1, SHARD)])
    .values(2, 0)
    .channels(ChannelArguments::First)
    .syntax("shardchannel message"),
    Command::new("pubsub", -2, container)
        .doc("pubsub", "2.8.0", "Depends on subcommand.", "Tells who listens to what.")
        .subcommands(&[
            row(
                "channels",
                -2,
                channels,
                ANYTIME,
                "2.8.0",
                PER_ACTIVE,
                "Lists the channels in use.",
            )
            .syntax("[pattern]"),
            help_row("pubsub", "6.2.0"),
            row("numpat", 2, numpat, ANYTIME, "2.8.0", "O(1)", "Counts the patterns in use."),
            row(
                "numsub",
                -2,
                numsub,
                ANYTIME,
                "2.8.0",
                "O(N), N: channels given",
                "Counts the clients that listen to channels.",
            )
            .syntax("[channel [channel ...]]"),
            row(
                "shardchannels",
                -2,
                shardchannels,
                ANYTIME,
                "7.0.0",
                PER_ACTIVE,
                "Lists the shard channels in use.",
            )
            .syntax("[pattern]"),
            row(
                "shardnumsub",
                -2,
                shardnumsub,
                ANYTIME,
                "7.0.0",
                "O(N), N: shard channels given",
                "Counts the clients that listen to shard channels.",
            )
            .syntax("[shardchannel [shardchannel ...]]"),
        ]),
];

#[cfg(test)]
mod tests {
    use super::Notice;
    use crate::config::{Config, OptionId};
    use crate::embedded::Embedded;
    use crate::engine::command::data::Then;
    use crate::engine::pubsub::notify::Classes;

    /// A message that a transaction publishes reaches the transaction's own client by its
    /// subscriptions at that moment, and each message is examined once for that.
    #[test]
    fn a_transaction_publishes_to_its_own_client_between_subscriptions() {
        let mut embedded = Embedded::new(Config::new(), 1).expect("it starts");
        let mut session = embedded.connect();
        embedded.feed(&mut session, b"HELLO 3\r\nPSUBSCRIBE a*\r\nMULTI\r\n");
        let queue = "PUBLISH a1 one\r\nPUBLISH b2 two\r\nSUBSCRIBE x y z\r\nPUBLISH a3 three\r\n\
                     SUBSCRIBE b2\r\nPUNSUBSCRIBE a*\r\nPUBLISH b2 four\r\nPUBLISH a1 five\r\n\
                     UNSUBSCRIBE\r\nEXEC\r\n";
        let heard = embedded.feed(&mut session, queue.as_bytes());
        let heard = String::from_utf8_lossy(heard).into_owned();
        let places = ["one", "three", "four"].map(|word| {
            let found: Vec<usize> = heard.match_indices(word).map(|(at, _)| at).collect();
            assert_eq!(found.len(), 1, "{word}: {heard}");
            found[0]
        });
        assert!(places.is_sorted(), "{heard}");
        assert!(!heard.contains("two") && !heard.contains("five"), "{heard}");
    }

    /// A script could fill the memory with them.
    #[test]
    fn what_nobody_waits_for_is_not_noted() {
        let mut embedded = Embedded::new(Config::new(), 1).expect("it starts");
        let mut session = embedded.connect();
        embedded.feed(&mut session, b"XADD k * f v\r\nSUBSCRIBE other\r\n");
        let data = embedded.data();
        data.audience.event_classes = Classes::parse(b"KEA").expect("they are classes");
        data.enter();
        let key = data.key(b"k");
        assert!(data.hold_one(key.hash.shard()));
        data.event(Classes::STREAM, "xadd", key);
        data.signal_ready(key);
        assert!(data.unit.work.notices.is_empty());
        assert!(data.unit.work.ready.is_empty());
        data.release();
        data.leave();
        embedded.feed(&mut session, b"SUBSCRIBE __keyspace@0__:k\r\n");
        let data = embedded.data();
        data.enter();
        assert!(data.hold_one(key.hash.shard()));
        data.event(Classes::STREAM, "xadd", key);
        assert_eq!(data.unit.work.notices.unsettled().len(), 1);
        data.release();
        data.leave();
    }

    #[test]
    fn what_a_script_publishes_counts_as_its_memory() {
        let config = Config::new();
        config.set_internally(OptionId::maxmemory_scripts, "16mb").expect("it is an option");
        let mut embedded = Embedded::new(config, 1).expect("it starts");
        embedded.server().follow_config();
        let mut listener = embedded.connect();
        embedded.feed(&mut listener, b"SUBSCRIBE c\r\n");
        let mut session = embedded.connect();
        for (channel, expected) in [("c", "the script needs more memory"), ("d", ":1\r\n")] {
            let script = "for i = 1, 4000 do redis.call('publish', KEYS[1], ARGV[1]) end return 1";
            let text = "x".repeat(10_000);
            let line = format!("EVAL \"{script}\" 1 {channel} {text}\r\n");
            let reply = String::from_utf8_lossy(embedded.feed(&mut session, line.as_bytes()));
            assert!(reply.contains(expected), "{channel}: {reply}");
        }
    }

    #[test]
    fn what_a_unit_publishes_is_settled_once() {
        let mut embedded = Embedded::new(Config::new(), 1).expect("it starts");
        let server = embedded.server();
        let data = embedded.data();
        data.unit.work.notices.extend([Notice::AllInvalid, Notice::AllInvalid]);
        assert_eq!(data.unit.work.notices.unsettled().len(), 2);
        data.unit.work.notices.push(Notice::AllInvalid);
        let suspended = data.suspend_unit(server);
        data.resume_unit(suspended, Then::Ended);
        assert_eq!(
            [data.unit.work.notices.unsettled().len(), data.unit.work.notices.unsettled().len()],
            [1, 0]
        );
        data.unit.leave_midst();
        data.publish_notices(None);
        data.unit.work.notices.push(Notice::AllInvalid);
        assert_eq!(data.unit.work.notices.unsettled().len(), 1);
        data.publish_notices(None);
    }
}
