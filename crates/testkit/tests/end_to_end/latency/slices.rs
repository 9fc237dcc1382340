//! Replies of large values, which Bobbin makes in slices while it serves others: they are the same
//! as replies that are made at once, they show one state of the value, and a client that leaves
//! midway leaves nothing behind.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bobbin_testkit::{ReplyFrame, TestConnection, TestServer};

/// Valkey makes every reply at once. Small values, values at the limit, and large ones; in and
/// outside of transactions, in both protocols.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn replies_in_slices_are_those_made_at_once() {
    let (valkey, bobbin) = (TestServer::valkey(&[]), TestServer::bobbin(&["--io-threads", "2"]));
    let (mut model, mut client) = (valkey.connect(), bobbin.connect());
    for protocol in ["2", "3"] {
        for elements in [10, SLICED_MIN, SLICED_MIN + 1, 3 * SLICED_MIN] {
            for connection in [&mut model, &mut client] {
                connection.call(&["HELLO", protocol]).expect("is understood");
                connection.say("FLUSHALL");
                fill(connection, elements);
            }
            for &(command, order) in READS {
                let expected = order.applied(model.say(command));
                assert!(!expected.is_error(), "{command}: {expected:?}");
                let reply = order.applied(client.say(command));
                let about = format!("{command} of {elements}, RESP{protocol}");
                assert_same(&about, &reply, &expected);
                let reply = order.applied(in_transaction(&mut client, command));
                assert_same(&format!("{about}, in MULTI"), &reply, &expected);
            }
            for &(source, command, shown, order) in CHANGES {
                let about = format!("{command} of {elements}, RESP{protocol}");
                let copy = format!("COPY {source} c REPLACE");
                model.say(&copy);
                let expected = order.applied(model.say(command));
                let left = order.applied(model.say(shown));
                for in_multi in [false, true] {
                    client.say(&copy);
                    let reply = if in_multi {
                        in_transaction(&mut client, command)
                    } else {
                        client.say(command)
                    };
                    let about = format!("{about}, in MULTI: {in_multi}");
                    assert_same(&about, &order.applied(reply), &expected);
                    assert_same(&about, &order.applied(client.say(shown)), &left);
                }
            }
            for &(command, shown, order) in WRITES {
                let about = format!("{command} of {elements}, RESP{protocol}");
                let expected = order.applied(model.say(command));
                assert_same(&about, &order.applied(client.say(command)), &expected);
                if !shown.is_empty() {
                    let expected = order.applied(model.say(shown));
                    assert_same(&about, &order.applied(client.say(shown)), &expected);
                    client.say("DEL to");
                    in_transaction(&mut client, command);
                    let reply = order.applied(client.say(shown));
                    assert_same(&format!("{about}, in MULTI"), &reply, &expected);
                }
            }
        }
    }
}

/// A writer takes a value from one version to the next, again and again. A reader sees some version
/// as a whole: one that was current between its question and its answer.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_reply_in_slices_is_one_state_of_the_value() {
    let server = TestServer::bobbin(&["--io-threads", "3"]);
    for subject in SUBJECTS {
        let mut control = server.connect();
        control.say("FLUSHALL");
        (subject.fill)(&mut control);
        let (begun, done, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut writer = server.connect();
                let mut version = 0;
                while !stop.load(Ordering::SeqCst) {
                    version += 1;
                    begun.store(version, Ordering::SeqCst);
                    let reply = transaction(&mut writer, &(subject.change)(version));
                    let failed = reply.items().iter().find(|reply| reply.is_error());
                    assert_eq!(failed, None, "{}", subject.reads[0]);
                    done.store(version, Ordering::SeqCst);
                }
            });
            let _stop = Stop(&stop);
            let (mut seen, deadline) = (BTreeSet::new(), Instant::now() + RUN_LIMIT);
            // On a busy machine the writer may get little time, and then there are few versions.
            let is_enough = |seen: &BTreeSet<u64>| seen.len() > ROUNDS / 2;
            for round in 0.. {
                if round >= ROUNDS && (is_enough(&seen) || Instant::now() >= deadline) {
                    break;
                }
                for (at, command) in subject.reads.iter().enumerate() {
                    let (protocol, earliest) = ([2, 3][round % 2], done.load(Ordering::SeqCst));
                    control.call(&["HELLO", &protocol.to_string()]).expect("is understood");
                    let reply = if round % 4 == 3 {
                        in_transaction(&mut control, command)
                    } else {
                        control.say(command)
                    };
                    let latest = begun.load(Ordering::SeqCst);
                    let version = (subject.version)(at, &words(&reply))
                        .unwrap_or_else(|error| panic!("{command}: a torn reply: {error}"));
                    assert!(
                        (earliest..=latest).contains(&version),
                        "{command}: version {version}, not of {earliest} to {latest}"
                    );
                    seen.insert(version);
                }
            }
            // Else no client wrote meanwhile.
            assert!(is_enough(&seen), "{}: only versions {seen:?}", subject.reads[0]);
        });
    }
}

/// What a client sends behind a long command waits for its reply, and what it is sent is not in the
/// middle of it.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn replies_come_in_the_order_of_the_commands() {
    let server = TestServer::bobbin(&["--io-threads", "2"]);
    let mut client = server.connect();
    fill(&mut client, 5 * SLICED_MIN);
    let questions = [
        "SMEMBERS s",
        "GET w_1",
        "HELLO 3",
        "SMEMBERS s",
        "DEL s",
        "SMEMBERS s",
        "HGETALL h",
        "CLIENT REPLY SKIP",
        "LRANGE l 0 -1",
        "HELLO 2",
        "SORT n LIMIT 0 5000",
        "SADD s x",
        "SUNIONSTORE to s s2",
        "SCARD to",
        "SUNION to s2",
        "CLIENT REPLY OFF",
        "ZRANGE z 0 -1",
        "CLIENT REPLY ON",
        "PING",
    ];
    let mut bytes = Vec::new();
    for question in questions {
        let words: Vec<_> = question.split(' ').collect();
        bobbin_testkit::connection::encode_command(&words, &mut bytes);
    }
    client.send_raw(&bytes).expect("is sent");
    let mut next = || client.receive().expect("is answered");
    let all = 5 * SLICED_MIN;
    assert_kind(&next(), b'*', all);
    assert_eq!(next().text(), "31");
    assert_kind(&next(), b'%', 14);
    assert_kind(&next(), b'~', all);
    assert_eq!(next().as_integer(), Some(1));
    assert_kind(&next(), b'~', 0);
    assert_kind(&next(), b'%', 2 * all);
    // LRANGE was not to be answered.
    assert_kind(&next(), b'*', 14);
    let sorted = next();
    assert_kind(&sorted, b'*', 5000);
    assert_eq!(sorted.items()[4999].text(), "4999");
    assert_eq!(next().as_integer(), Some(1));
    let second = all + 1;
    assert_eq!(next().as_integer(), Some(second as i64));
    assert_eq!(next().as_integer(), Some(second as i64));
    assert_kind(&next(), b'*', second);
    assert_eq!(next().text(), "OK");
    assert_eq!(next().text(), "PONG");

    // Messages to the client that asks: between replies, whole.
    let mut publisher = server.connect();
    client.say("HELLO 3");
    client.say("SUBSCRIBE news");
    for round in 0..20 {
        client.send(&["HGETALL", "h"]).expect("is sent");
        client.send(&["LRANGE", "l", "0", "-1"]).expect("is sent");
        for number in 0..10 {
            let reply = publisher.say(&format!("PUBLISH news {round}:{number}"));
            assert_eq!(reply.as_integer(), Some(1));
        }
        let (mut messages, mut replies) = (Vec::new(), Vec::new());
        while messages.len() < 10 || replies.len() < 2 {
            match client.receive().expect("more comes") {
                ReplyFrame::Aggregate { kind: b'>', items } => messages.push(items[2].text()),
                reply => replies.push(reply),
            }
        }
        let expected: Vec<_> = (0..10).map(|number| format!("{round}:{number}")).collect();
        assert_eq!(messages, expected);
        assert_kind(&replies[0], b'%', 2 * all);
        assert_kind(&replies[1], b'*', all);
    }
}

/// CLIENT LIST describes each client once, in the order of their ids, and the one that asks by the
/// command that it asks with; so it does in a transaction, which makes the whole reply at once.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn many_clients_are_listed_in_slices() {
    let server = TestServer::bobbin(&["--io-threads", "2"]);
    let mut clients: Vec<TestConnection> = (0..300).map(|_| server.connect()).collect();
    let mut ids: Vec<i64> = clients.iter_mut().map(client_id).collect();
    ids.sort_unstable();
    let mut control = clients.swap_remove(7);
    let own = client_id(&mut control);
    for in_multi in [false, true] {
        let reply = match in_multi {
            true => in_transaction(&mut control, "CLIENT LIST"),
            false => control.say("CLIENT LIST"),
        };
        let text = reply.text();
        let id = |line: &str| -> i64 {
            let rest = line.strip_prefix("id=").expect("an id comes first");
            rest[..rest.find(' ').expect("more follows")].parse().expect("a number")
        };
        let listed: Vec<i64> = text.lines().map(id).collect();
        assert_eq!(listed, ids);
        let asking = text.lines().filter(|line| line.contains(" cmd=client|list "));
        let flags = if in_multi { " flags=x " } else { " flags=N " };
        let asking: Vec<_> = asking.map(|line| (id(line), line.contains(flags))).collect();
        assert_eq!(asking, [(own, true)], "{text}");
    }
}

/// Clients that ask for much and go: before the first byte, in the middle of the reply, killed by
/// others.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn who_leaves_midway_leaves_nothing_behind() {
    for driver in ["auto", "epoll"] {
        let mut server = TestServer::bobbin(&["--io-threads", "2", "--io-driver", driver]);
        let mut control = server.connect();
        fill(&mut control, 5 * SLICED_MIN);
        // What many connections at once make the server keep for the next ones is there then. How
        // many there are at once differs with what else the machine does, so all of them come.
        let all: Vec<_> = (0..2 * READS.len()).map(|_| server.connect()).collect();
        drop(all);
        leave_midway(&server, &mut control);
        let before = memory_at_rest(&mut control);
        leave_midway(&server, &mut control);
        leave_midway(&server, &mut control);
        // Less than what the replies of a few clients take.
        wait_until(&mut control, "memory is given back", |control| {
            memory_at_rest(control) < before + 256 * 1024
        });
        assert!(server.is_running());
        assert_eq!(control.say("SCARD s").as_integer(), Some(5 * SLICED_MIN as i64));
    }
}

fn client_id(client: &mut TestConnection) -> i64 {
    client.say("CLIENT ID").as_integer().expect("a number")
}

/// Clients that do so in each way, one after the other; all are gone in the end.
fn leave_midway(server: &TestServer, control: &mut TestConnection) {
    for way in 0..4 {
        for &(command, _) in READS {
            let mut client = server.connect();
            let words: Vec<_> = command.split(' ').collect();
            client.send(&words).expect("is sent");
            match way {
                0 => {}
                1 => drop(std::io::Read::read(client.stream(), &mut [0; 100])),
                2 => {
                    client.send(&words).expect("is sent");
                    client.finish_sending().expect("is open");
                }
                _ => drop(control.say("CLIENT KILL TYPE normal SKIPME yes")),
            }
        }
        // Without this wait, more clients would be connected at once on a busy machine, and the
        // server would keep more for them.
        wait_until(control, "only one client is left", |control| {
            control.say("INFO clients").text().contains("connected_clients:1\r\n")
        });
    }
}

/// How the elements of a reply compare.
#[derive(Clone, Copy)]
enum Order {
    /// As they come.
    Given,
    /// In any order, at whatever depth.
    Any,
    /// Flat pairs in any order.
    Pairs,
}

impl Order {
    fn applied(self, reply: ReplyFrame) -> ReplyFrame {
        let ReplyFrame::Aggregate { kind, items } = reply else { return reply };
        let items = match self {
            Self::Given => items,
            // A cursor, and what lies behind it.
            _ if items.len() == 2
                && !items[1].items().is_empty()
                && items[0].items().is_empty() =>
            {
                let [cursor, found] = <[ReplyFrame; 2]>::try_from(items).expect("there are two");
                vec![cursor, self.applied(found)]
            }
            Self::Any => sorted(items),
            Self::Pairs => {
                let pairs = items.chunks(2).map(|pair| ReplyFrame::array(pair.to_vec())).collect();
                sorted(pairs)
            }
        };
        ReplyFrame::Aggregate { kind, items }
    }
}

fn sorted(mut items: Vec<ReplyFrame>) -> Vec<ReplyFrame> {
    items.sort();
    items
}

/// Values of `elements` each, of every type.
fn fill(connection: &mut TestConnection, elements: usize) {
    let all: Vec<usize> = (0..elements).collect();
    // A permutation: 7919 is a prime that divides none of the sizes.
    let mixed = |i: usize| i * 7919 % elements;
    for part in all.chunks(500) {
        let mut send = |head: &str, words: &dyn Fn(usize) -> Vec<String>| {
            let mut command: Vec<String> = head.split(' ').map(str::to_owned).collect();
            command.extend(part.iter().flat_map(|&i| words(i)));
            let reply = connection.call(&command).expect("is answered");
            assert!(!reply.is_error(), "{head}: {reply:?}");
        };
        send("SADD s", &|i| vec![format!("member {i}")]);
        send("SADD s2", &|i| vec![format!("member {}", i * 2)]);
        send("SADD i", &|i| vec![i.to_string()]);
        send("HSET h", &|i| vec![format!("field {i}"), format!("value {i}")]);
        send("RPUSH l", &|i| vec![format!("item {}", mixed(i))]);
        send("RPUSH n", &|i| vec![mixed(i).to_string()]);
        send("ZADD z", &|i| vec![format!("{}", (i % 997) as f64 / 2.0), format!("member {i}")]);
        send("ZADD z2", &|i| vec![i.to_string(), format!("member {}", i * 2)]);
        send("ZADD zl", &|i| vec!["0".to_owned(), format!("member {i}")]);
        send("MSET", &|i| vec![format!("w_{i}"), (i * 31 % 1009).to_string()]);
        send("PFADD p", &|i| vec![format!("member {i}")]);
        send("GEOADD g", &|i| {
            vec![format!("{}", i as f64 / elements as f64), "10".to_owned(), format!("m{i}")]
        });
    }
    add_entries(connection, elements, |i| format!("{}-1 field {i} other value", i + 1));
    for (key, spacing) in [("b", 100), ("b2", 77)] {
        for i in (0..elements).step_by(50) {
            connection.say(&format!("SETRANGE {key} {} {i}", i * spacing));
        }
    }
    // Groups that have read nothing, some entries, and everything.
    connection.say("XGROUP CREATE x all 0");
    connection.say("XGROUP CREATE x part 3-1 ENTRIESREAD 3");
    connection.say("XGROUP CREATE x mine 0");
    connection.say("XREADGROUP GROUP mine me STREAMS x >");
    connection.say("XACK x mine 1-1 7-1");
}

/// Adds entries to the stream `x`: what XADD says of each, by number from 0.
fn add_entries(connection: &mut TestConnection, entries: usize, words: fn(usize) -> String) {
    for entry in 0..entries {
        let line = format!("XADD x {}", words(entry));
        connection.send(&line.split(' ').collect::<Vec<_>>()).expect("is sent");
    }
    for _ in 0..entries {
        assert!(!connection.receive().expect("is answered").is_error());
    }
}

/// Consumers that want all that is there at the same time, and would wait: one gets it, and the
/// others what comes then.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn consumers_that_come_too_late_wait() {
    const CONSUMERS: usize = 4;
    for driver in ["epoll", "io_uring"] {
        let server = TestServer::bobbin(&["--io-threads", "4", "--io-driver", driver]);
        let mut control = server.connect();
        let mut entries = 20_000;
        add_entries(&mut control, entries, |i| format!("{}-1 field value", i + 1));
        control.say("XGROUP CREATE x all 0");
        let mut consumers: Vec<_> = (0..CONSUMERS).map(|_| server.connect()).collect();
        let count = |reply: &ReplyFrame| reply.items()[0].items()[1].items().len();
        for _ in 0..10 {
            control.say("XGROUP SETID x all 0");
            for (number, consumer) in consumers.iter_mut().enumerate() {
                let line = format!("XREADGROUP GROUP all c{number} BLOCK 0 NOACK STREAMS x >");
                consumer.send(&line.split(' ').collect::<Vec<_>>()).expect("is sent");
            }
            let waiting = format!("blocked_clients:{}\r", CONSUMERS - 1);
            while !control.say("INFO clients").text().contains(&waiting) {
                std::thread::sleep(Duration::from_millis(1));
            }
            for _ in 1..CONSUMERS {
                control.say("XADD x * field value");
            }
            let answers = consumers.iter_mut().map(|it| count(&it.receive().expect("is answered")));
            let mut answers: Vec<_> = answers.collect();
            answers.sort_unstable();
            assert_eq!(answers[..CONSUMERS - 1], [1; CONSUMERS - 1], "{driver}");
            assert_eq!(answers[CONSUMERS - 1], entries, "{driver}");
            entries += CONSUMERS - 1;
        }
        // A client that waits for a limited time is told when that is over, as is each that came
        // too late.
        control.say("XGROUP SETID x all 0");
        for (number, consumer) in consumers.iter_mut().enumerate() {
            let line = format!("XREADGROUP GROUP all c{number} BLOCK 300 NOACK STREAMS x >");
            consumer.send(&line.split(' ').collect::<Vec<_>>()).expect("is sent");
        }
        let answers = consumers.iter_mut().map(|consumer| consumer.receive().expect("is answered"));
        assert_eq!(answers.filter(ReplyFrame::is_null).count(), CONSUMERS - 1, "{driver}");
    }
}

/// What other clients change while a long change is worked out is not lost: it begins anew.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_change_in_slices_loses_no_other() {
    const ENTRIES: usize = 20_000;
    const CHANGES: usize = 400;
    let server = TestServer::bobbin(&["--io-threads", "3"]);
    let mut control = server.connect();
    add(&mut control, "RPUSH l", |i| vec![format!("item {i}")]);
    add_entries(&mut control, ENTRIES, |i| format!("{}-1 field value", i + 1));
    control.say("XGROUP CREATE x g 0");
    control.say("XREADGROUP GROUP g first STREAMS x >");
    control.say("RPUSH l pivot");
    let before = control.say("LLEN l").as_integer().expect("a number");
    let (is_over, mut inserted, mut claims) = (AtomicBool::new(false), 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _over = Stop(&is_over);
            let mut writer = server.connect();
            for change in 1..=CHANGES {
                let acknowledged = writer.say(&format!("XACK x g {}-1", change * 7));
                assert_eq!(acknowledged.as_integer(), Some(1));
                writer.say("LPUSH l new");
            }
        });
        while !is_over.load(Ordering::SeqCst) || claims < 10 {
            let consumer = ["first", "second"][claims % 2];
            let claimed =
                control.say(&format!("XAUTOCLAIM x g {consumer} 0 0 COUNT 100000 JUSTID"));
            assert!(claimed.items()[1].items().len() >= ENTRIES - CHANGES);
            assert!(control.say("LINSERT l BEFORE pivot inserted").as_integer() > Some(before));
            (inserted, claims) = (inserted + 1, claims + 1);
        }
    });
    let pending = control.say("XPENDING x g");
    assert_eq!(pending.items()[0].as_integer(), Some((ENTRIES - CHANGES) as i64));
    let expected = before + CHANGES as i64 + inserted;
    assert_eq!(control.say("LLEN l").as_integer(), Some(expected));
    let behind = control.say(&format!("LRANGE l {} -1", -inserted - 1));
    assert!(behind.items()[..inserted as usize].iter().all(|item| item.text() == "inserted"));
}

/// Reads of what `fill` makes.
const READS: &[(&str, Order)] = &[
    ("SMEMBERS s", Order::Any),
    ("SMEMBERS i", Order::Any),
    ("SINTER s s2", Order::Any),
    ("SINTER i i", Order::Any),
    ("SUNION s s2 i", Order::Any),
    ("SDIFF s s2", Order::Any),
    ("SINTERCARD 2 s s2", Order::Given),
    ("SINTER s s2 s s2 s", Order::Any),
    ("SUNION s s2 s i s2", Order::Any),
    ("SDIFF s s2 s2 i", Order::Any),
    ("SDIFF s s2 s", Order::Any),
    ("SINTERCARD 3 s s2 s", Order::Given),
    ("SRANDMEMBER s 1000000", Order::Any),
    ("SSCAN s 0 COUNT 1000000", Order::Any),
    ("SSCAN s 0 MATCH *7 COUNT 1000000", Order::Any),
    ("HGETALL h", Order::Pairs),
    ("HKEYS h", Order::Any),
    ("HVALS h", Order::Any),
    ("HRANDFIELD h 1000000", Order::Any),
    ("HSCAN h 0 COUNT 1000000", Order::Pairs),
    ("HSCAN h 0 COUNT 1000000 NOVALUES", Order::Any),
    ("LRANGE l 0 -1", Order::Given),
    ("LRANGE l 1 -2", Order::Given),
    ("LRANGE l -4100 -2", Order::Given),
    ("LPOS l none COUNT 0", Order::Given),
    ("LPOS l none", Order::Given),
    ("LPOS n 9", Order::Given),
    ("LPOS n 9 RANK -1 COUNT 2", Order::Given),
    ("LPOS n 9 COUNT 0 MAXLEN 4500", Order::Given),
    ("BITCOUNT b", Order::Given),
    ("BITCOUNT b 100 -100", Order::Given),
    ("BITCOUNT b 9 -9 BIT", Order::Given),
    ("BITPOS b 0 1", Order::Given),
    ("BITPOS b 1 -3 -1", Order::Given),
    ("ZRANGE z 0 -1", Order::Given),
    ("ZRANGE z 0 -1 WITHSCORES", Order::Given),
    ("ZRANGE z 3 -1 REV WITHSCORES", Order::Given),
    ("ZRANGE z (1 +inf BYSCORE WITHSCORES", Order::Given),
    ("ZRANGE z -inf +inf BYSCORE LIMIT 3 4500", Order::Given),
    ("ZRANGE zl - + BYLEX", Order::Given),
    ("ZRANGE zl + - BYLEX REV LIMIT 1 4500", Order::Given),
    ("ZREVRANGE z 0 -1 WITHSCORES", Order::Given),
    ("ZRANGEBYSCORE z -inf +inf WITHSCORES", Order::Given),
    ("ZREVRANGEBYSCORE z +inf -inf", Order::Given),
    ("ZRANGEBYLEX zl - +", Order::Given),
    ("ZREVRANGEBYLEX zl + -", Order::Given),
    ("ZUNION 2 z z2 WITHSCORES", Order::Given),
    ("ZUNION 3 z z2 s WEIGHTS 2 3 4 AGGREGATE MAX", Order::Given),
    ("ZINTER 2 z z2 WITHSCORES", Order::Given),
    ("ZDIFF 2 z z2 WITHSCORES", Order::Given),
    ("ZINTERCARD 2 z z2", Order::Given),
    ("ZUNION 4 z z2 z z WITHSCORES", Order::Given),
    ("ZINTER 3 z z2 z WITHSCORES", Order::Given),
    ("ZDIFF 3 z z2 z2 WITHSCORES", Order::Given),
    ("ZSCAN z 0 COUNT 1000000", Order::Pairs),
    ("ZRANDMEMBER z 1000000", Order::Any),
    ("ZRANDMEMBER z 1000000 WITHSCORES", Order::Any),
    ("XPENDING x mine IDLE 100000000 - + 1000000", Order::Given),
    ("XRANGE x - +", Order::Given),
    ("XRANGE x 3 + COUNT 4500", Order::Given),
    ("XREVRANGE x + -", Order::Given),
    ("XREAD COUNT 1000000 STREAMS x 0", Order::Given),
    ("XREAD STREAMS x none 7-0 0", Order::Given),
    ("XREAD COUNT 4500 STREAMS none x 0 7-0", Order::Given),
    ("XREAD STREAMS x none x 0 0 5", Order::Given),
    ("XREAD COUNT 4200 STREAMS x x 0 5000-1", Order::Given),
    ("XREAD STREAMS x x x x 0 5 0 +", Order::Given),
    ("XREAD BLOCK 0 STREAMS x none 0 0", Order::Given),
    ("XREAD COUNT 4500 BLOCK 1000 STREAMS none x 0 7-0", Order::Given),
    ("SORT n", Order::Given),
    ("SORT n DESC LIMIT 3 4500", Order::Given),
    ("SORT l ALPHA", Order::Given),
    ("SORT n BY w_* GET # GET w_*", Order::Given),
    ("SORT n BY nosort", Order::Given),
    ("SORT_RO i", Order::Given),
    ("SORT zl ALPHA DESC", Order::Given),
    ("SORT zl BY nosort", Order::Given),
    ("KEYS w_*", Order::Any),
    ("PFCOUNT p", Order::Given),
    ("GEOSEARCH g FROMLONLAT 0.5 10 BYRADIUS 30 km ASC", Order::Given),
    (
        "GEOSEARCH g FROMLONLAT 0.5 10 BYRADIUS 300 km DESC COUNT 4500 WITHDIST WITHHASH",
        Order::Given,
    ),
];

/// Changes, and what shows what came of them: nothing when the reply alone does.
const WRITES: &[(&str, &str, Order)] = &[
    ("SUNIONSTORE to s s2", "SMEMBERS to", Order::Any),
    ("SINTERSTORE to s s2", "SMEMBERS to", Order::Any),
    ("SDIFFSTORE to s s2", "SMEMBERS to", Order::Any),
    ("SUNIONSTORE to i", "SMEMBERS to", Order::Any),
    ("SDIFFSTORE to s s2 i s2", "SMEMBERS to", Order::Any),
    ("SDIFFSTORE to s s2 s", "EXISTS to", Order::Any),
    ("ZUNIONSTORE to 2 z z2", "ZRANGE to 0 -1 WITHSCORES", Order::Given),
    ("ZINTERSTORE to 2 z s WEIGHTS 2 3", "ZRANGE to 0 -1 WITHSCORES", Order::Given),
    ("ZDIFFSTORE to 2 z z2", "ZRANGE to 0 -1 WITHSCORES", Order::Given),
    ("ZRANGESTORE to z 1 -2", "ZRANGE to 0 -1 WITHSCORES", Order::Given),
    ("ZRANGESTORE to z (1 +inf BYSCORE", "ZRANGE to 0 -1 WITHSCORES", Order::Given),
    ("ZRANGESTORE to zl + - BYLEX REV LIMIT 1 4500", "ZRANGE to 0 -1 WITHSCORES", Order::Given),
    ("SORT n STORE to", "LRANGE to 0 -1", Order::Given),
    ("SORT l ALPHA DESC LIMIT 3 4500 STORE to", "LRANGE to 0 -1", Order::Given),
    ("SORT i STORE to", "LRANGE to 0 -1", Order::Given),
    ("COPY z to REPLACE", "ZRANGE to 0 -1 WITHSCORES", Order::Given),
    ("GEOSEARCHSTORE to g FROMLONLAT 0 10 BYRADIUS 60 km", "ZRANGE to 0 -1", Order::Given),
    (
        "GEOSEARCHSTORE to g FROMLONLAT 0 10 BYBOX 90 90 km STOREDIST",
        "ZRANGE to 0 -1",
        Order::Given,
    ),
    ("BITOP XOR to b b2", "GETRANGE to 0 -1", Order::Given),
    ("BITOP AND to b2 b b", "GETRANGE to 0 -1", Order::Given),
    ("BITOP OR to b none b2", "GETRANGE to 0 -1", Order::Given),
    ("BITOP NOT to b", "GETRANGE to 0 -1", Order::Given),
    ("SORT n BY w_* GET # STORE to", "LRANGE to 0 -1", Order::Given),
    ("LREM l 0 item", "LRANGE l 0 -1", Order::Given),
    ("SPOP s 1000000", "", Order::Any),
    ("ZPOPMIN z 5000", "", Order::Given),
    ("LPOP l 5000", "", Order::Given),
    ("ZREMRANGEBYRANK z2 1 -2", "", Order::Given),
    ("LTRIM n 1 1", "", Order::Given),
    ("DEL h", "", Order::Given),
];

/// Changes of a copy `c` of a value, and what shows what is left.
const CHANGES: &[(&str, &str, &str, Order)] = &[
    ("s", "SPOP c 1000000", "EXISTS c", Order::Any),
    ("n", "LREM c 0 9", "LRANGE c 0 -1", Order::Given),
    ("n", "LREM c -1 3", "LRANGE c 0 -1", Order::Given),
    ("n", "LREM c 5 none", "LLEN c", Order::Given),
    ("n", "LINSERT c BEFORE 9 new", "LRANGE c 0 -1", Order::Given),
    ("n", "LINSERT c AFTER 9 new", "LRANGE c 0 -1", Order::Given),
    ("n", "LINSERT c AFTER none new", "LLEN c", Order::Given),
    ("n", "LTRIM c 3 5", "LRANGE c 0 -1", Order::Given),
    ("l", "LTRIM c -4 -2", "LRANGE c 0 -1", Order::Given),
    ("l", "LTRIM c 1 0", "EXISTS c", Order::Given),
    ("n", "LTRIM c 5000 -1", "LRANGE c 0 -1", Order::Given),
    ("l", "LPOP c 1000000", "EXISTS c", Order::Given),
    ("l", "RPOP c 4500", "LRANGE c 0 -1", Order::Given),
    ("l", "LMPOP 2 nothing c RIGHT COUNT 4200", "LRANGE c 0 -1", Order::Given),
    ("z", "ZPOPMIN c 1000000", "EXISTS c", Order::Given),
    ("z", "ZPOPMAX c 4500", "ZRANGE c 0 -1 WITHSCORES", Order::Given),
    ("z", "ZMPOP 2 nothing c MAX COUNT 4200", "ZRANGE c 0 -1 WITHSCORES", Order::Given),
    ("z", "ZMPOP 1 c MIN COUNT 1000000", "EXISTS c", Order::Given),
    ("x", "XREADGROUP GROUP all me STREAMS c >", "XPENDING c all", Order::Given),
    ("x", "XREADGROUP GROUP all you COUNT 4500 STREAMS c >", "XINFO GROUPS c", Order::Given),
    ("x", "XREADGROUP GROUP part me STREAMS c >", "XINFO GROUPS c", Order::Given),
    ("x", "XREADGROUP GROUP all me NOACK STREAMS c >", "XPENDING c all", Order::Given),
    ("x", "XREADGROUP GROUP all me BLOCK 0 STREAMS c >", "XPENDING c all", Order::Given),
    ("x", "XREADGROUP GROUP mine me STREAMS c 0", "XPENDING c mine", Order::Given),
    ("x", "XREADGROUP GROUP mine me COUNT 4200 STREAMS c 5-0", "XPENDING c mine", Order::Given),
    ("x", "XREADGROUP GROUP all me STREAMS c c > >", "XPENDING c all", Order::Given),
    ("x", "XREADGROUP GROUP all me COUNT 4500 STREAMS c c c > 0 >", "XPENDING c all", Order::Given),
    ("x", "XREADGROUP GROUP mine me STREAMS c c c 0 > 5-0", "XPENDING c mine", Order::Given),
    ("x", "XAUTOCLAIM c mine you 0 0 COUNT 1000000", "XPENDING c mine", Order::Given),
    ("x", "XAUTOCLAIM c mine you 0 9-1 COUNT 4500 JUSTID", "XPENDING c mine", Order::Given),
    ("x", "XAUTOCLAIM c all you 0 0 COUNT 4500", "XPENDING c all", Order::Given),
    ("x", "XGROUP DELCONSUMER c mine me", "XPENDING c mine", Order::Given),
    ("x", "XGROUP DELCONSUMER c mine you", "XPENDING c mine", Order::Given),
    ("z", "ZREMRANGEBYRANK c 5 -3", "ZRANGE c 0 -1 WITHSCORES", Order::Given),
    ("z", "ZREMRANGEBYSCORE c 1 (400", "ZRANGE c 0 -1 WITHSCORES", Order::Given),
    ("zl", "ZREMRANGEBYLEX c - +", "EXISTS c", Order::Given),
];

/// A value with versions, and how to know the version from all words of a reply.
struct Subject {
    fill: fn(&mut TestConnection),
    change: fn(u64) -> Vec<String>,
    reads: &'static [&'static str],
    version: fn(usize, &[String]) -> Result<u64, String>,
}

/// Of each type one. What is changed lies apart, so that it is in different slices.
const SUBJECTS: &[Subject] = &[
    Subject {
        fill: |control| {
            add(control, "SADD s", |i| vec![format!("still {i}")]);
            add(control, "SADD s2", |i| vec![format!("still {i}")]);
            let tokens = tokens(0).join(" ");
            control.say(&format!("SADD s {tokens}"));
            control.say(&format!("SADD s2 {tokens}"));
        },
        change: |version| {
            let (old, new) = (tokens(version - 1).join(" "), tokens(version).join(" "));
            ["SREM s", "SREM s2"]
                .iter()
                .map(|head| format!("{head} {old}"))
                .chain(["SADD s", "SADD s2"].iter().map(|head| format!("{head} {new}")))
                .collect()
        },
        reads: &[
            "SMEMBERS s",
            "SINTER s s2",
            "SUNION s s2",
            "SRANDMEMBER s 1000000",
            "ZUNION 2 s s2",
            "SORT s2 ALPHA",
            "SORT s BY nosort GET #",
        ],
        version: |_, words| {
            one_version(words.iter().filter_map(|word| token_version(word)), TOKENS, words.len())
        },
    },
    Subject {
        fill: |control| {
            add(control, "HSET h", |i| vec![format!("field {i}"), "still".to_owned()]);
            control.say(&fields("HSET h", 0));
        },
        change: |version| vec![fields("HSET h", version)],
        reads: &["HGETALL h", "HVALS h", "HRANDFIELD h 1000000 WITHVALUES"],
        version: |at, words| {
            let versions = words.iter().filter_map(|word| word.strip_prefix('v')?.parse().ok());
            // HVALS has no names.
            one_version(versions, TOKENS, if at == 1 { words.len() } else { words.len() / 2 })
        },
    },
    Subject {
        fill: |control| add(control, "RPUSH l", |i| vec![i.to_string()]),
        change: |version| {
            vec![format!("RPUSH l {}", ELEMENTS as u64 + version - 1), "LPOP l".to_owned()]
        },
        reads: &["LRANGE l 0 -1", "SORT l BY nosort", "SORT l"],
        version: |_, words| window(words),
    },
    Subject {
        // Many keys, whose values change together.
        fill: |control| {
            add(control, "RPUSH l", |i| vec![format!("still{i}")]);
            add(control, "MSET", |i| vec![format!("w_still{i}"), "-1".to_owned()]);
            let moving: Vec<_> = (0..TOKENS).map(|i| format!("moving{i}")).collect();
            control.say(&format!("RPUSH l {}", moving.join(" ")));
            control.say(&weights(0));
        },
        change: |version| vec![weights(version)],
        reads: &["SORT l BY nosort GET w_*", "SORT l BY w_* GET w_*", "SORT l BY w_* DESC GET w_*"],
        version: |_, words| {
            let versions = words.iter().filter_map(|word| word.parse().ok());
            one_version(versions, TOKENS, words.len())
        },
    },
    Subject {
        fill: |control| {
            add(control, "ZADD z", |i| vec![format!("{}", i % 300), format!("still {i}")]);
            add(control, "ZADD z2", |i| vec!["0".to_owned(), format!("still {i}")]);
            control.say(&scores("ZADD z", 0));
            control.say(&scores("ZADD z2", 0));
        },
        change: |version| vec![scores("ZADD z", version), scores("ZADD z2", version)],
        reads: &[
            "ZRANGE z 0 -1 WITHSCORES",
            "ZRANGE z +inf -inf BYSCORE REV WITHSCORES",
            "ZINTER 2 z z2 AGGREGATE MIN WITHSCORES",
            "ZUNION 2 z z2 AGGREGATE MAX WITHSCORES",
            "ZRANDMEMBER z2 1000000 WITHSCORES",
        ],
        version: |_, words| {
            let versions = words
                .chunks(2)
                .filter(|pair| pair[0].starts_with("moving"))
                .map(|pair| pair[1].parse::<f64>().map_or(u64::MAX, |score| score as u64));
            one_version(versions, TOKENS, words.len() / 2)
        },
    },
    Subject {
        fill: |control| {
            add_entries(control, ELEMENTS, |i| format!("{}-0 at {i}", i + 1));
        },
        change: |version| {
            let next = ELEMENTS as u64 + version;
            vec![format!("XADD x MAXLEN = {ELEMENTS} {next}-0 at {}", next - 1)]
        },
        reads: &["XRANGE x - +", "XREAD COUNT 1000000 STREAMS x 0", "XREVRANGE x + -"],
        version: |at, words| {
            // Of XREAD the stream's name comes first.
            let entries = if at == 1 { &words[1..] } else { words };
            let mut numbers: Vec<_> =
                entries.chunks(3).map(|entry| entry[entry.len() - 1].clone()).collect();
            if at == 2 {
                numbers.reverse();
            }
            window(&numbers)
        },
    },
];

fn add(control: &mut TestConnection, head: &str, words: fn(usize) -> Vec<String>) {
    let all: Vec<usize> = (0..ELEMENTS).collect();
    for part in all.chunks(500) {
        let mut command: Vec<String> = head.split(' ').map(str::to_owned).collect();
        command.extend(part.iter().flat_map(|&i| words(i)));
        assert!(!control.call(&command).expect("is answered").is_error());
    }
}

fn tokens(version: u64) -> Vec<String> {
    (0..TOKENS).map(|i| format!("token:{i}:{version}")).collect()
}

fn token_version(word: &str) -> Option<u64> {
    word.strip_prefix("token:")?.split_once(':')?.1.parse().ok()
}

/// Fields among the others, all of one version.
fn fields(head: &str, version: u64) -> String {
    let fields: Vec<_> = (0..TOKENS).map(|i| format!("moving:{i} v{version}")).collect();
    format!("{head} {}", fields.join(" "))
}

fn weights(version: u64) -> String {
    let weights: Vec<_> = (0..TOKENS).map(|i| format!("w_moving{i} {version}")).collect();
    format!("MSET {}", weights.join(" "))
}

fn scores(head: &str, version: u64) -> String {
    let members: Vec<_> = (0..TOKENS).map(|i| format!("{version} moving:{i}")).collect();
    format!("{head} {}", members.join(" "))
}

/// The one version that all tokens have, if there are as many as there should be of all things.
fn one_version(
    versions: impl Iterator<Item = u64>,
    count: usize,
    elements: usize,
) -> Result<u64, String> {
    let versions: Vec<_> = versions.collect();
    let first = *versions.first().ok_or("no token")?;
    if versions.len() != count || versions.iter().any(|version| *version != first) {
        return Err(format!("tokens of the versions {versions:?}"));
    }
    if elements != ELEMENTS + TOKENS {
        return Err(format!("{elements} elements"));
    }
    Ok(first)
}

/// The first of numbers that follow each other without a gap.
fn window(words: &[String]) -> Result<u64, String> {
    let numbers: Vec<u64> = words
        .iter()
        .map(|word| word.parse().map_err(|_| format!("{word:?}")))
        .collect::<Result<_, _>>()?;
    if numbers.len() != ELEMENTS {
        return Err(format!("{} elements", numbers.len()));
    }
    match numbers.windows(2).find(|pair| pair[0] + 1 != pair[1]) {
        Some(pair) => Err(format!("{} and then {}", pair[0], pair[1])),
        None => Ok(numbers[0]),
    }
}

/// All that is text or number in a reply, from first to last.
fn words(reply: &ReplyFrame) -> Vec<String> {
    match reply {
        ReplyFrame::Aggregate { items, .. } => items.iter().flat_map(words).collect(),
        scalar => vec![scalar.text()],
    }
}

/// Ends the writer whatever comes of the reader.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn in_transaction(connection: &mut TestConnection, command: &str) -> ReplyFrame {
    let replies = transaction(connection, &[command.to_owned()]);
    replies.items().first().unwrap_or_else(|| panic!("{command}: {replies:?}")).clone()
}

/// MULTI, the commands, EXEC: its reply.
fn transaction(connection: &mut TestConnection, commands: &[String]) -> ReplyFrame {
    let mut bytes = Vec::new();
    for command in ["MULTI"].into_iter().chain(commands.iter().map(String::as_str)).chain(["EXEC"])
    {
        let words: Vec<_> = command.split(' ').collect();
        bobbin_testkit::connection::encode_command(&words, &mut bytes);
    }
    connection.send_raw(&bytes).expect("is sent");
    for _ in 0..=commands.len() {
        let reply = connection.receive().expect("is queued");
        assert!(!reply.is_error(), "{commands:?}: {reply:?}");
    }
    connection.receive().expect("is executed")
}

fn assert_same(about: &str, reply: &ReplyFrame, expected: &ReplyFrame) {
    if reply == expected {
        return;
    }
    let (found, wanted) = (reply.items(), expected.items());
    let first = found.iter().zip(wanted).position(|(one, other)| one != other);
    let at = first.unwrap_or_else(|| found.len().min(wanted.len()));
    panic!(
        "{about}: {} elements, expected {}; from {at} on {:?}, expected {:?}",
        found.len(),
        wanted.len(),
        found.get(at).unwrap_or(reply),
        wanted.get(at).unwrap_or(expected),
    );
}

fn assert_kind(reply: &ReplyFrame, kind: u8, count: usize) {
    let ReplyFrame::Aggregate { kind: found, items } = reply else { panic!("{reply:?}") };
    assert_eq!((char::from(*found), items.len()), (char::from(kind), count));
}

/// What a worker keeps for its next turns it gives back when nothing happens for a while.
fn memory_at_rest(control: &mut TestConnection) -> u64 {
    std::thread::sleep(Duration::from_millis(500));
    used_memory(control)
}

fn used_memory(control: &mut TestConnection) -> u64 {
    let memory = control.say("INFO memory").text();
    let used = memory.lines().find_map(|line| line.strip_prefix("used_memory:"));
    used.and_then(|used| used.trim().parse().ok()).expect("INFO has used_memory")
}

fn wait_until(
    control: &mut TestConnection,
    what: &str,
    done: impl Fn(&mut TestConnection) -> bool,
) {
    let deadline = Instant::now() + RUN_LIMIT;
    while !done(control) {
        assert!(Instant::now() < deadline, "{what}: that does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The server's own limit: replies of more elements are made in slices.
const SLICED_MIN: usize = 4096;
const ELEMENTS: usize = 20_000;
const TOKENS: usize = 20;
const ROUNDS: usize = 12;
const RUN_LIMIT: Duration = Duration::from_secs(60);
