//! Publish and subscribe among many clients: no message is lost, none comes twice or out of order,
//! whatever workers the clients are with, and while the number of workers changes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bobbin_testkit::{ReceiveOutcome, ReplyFrame, TestConnection, TestServer};

use crate::common::on_both;

const CHANNELS: usize = 4;
const PUBLISHERS: usize = 3;
const MESSAGES: usize = 6000;

/// What a message says: which client published it to which channel, and the how-many-eth of the
/// publisher's it is.
fn read_message(reply: &ReplyFrame) -> Option<(bool, usize, usize, usize)> {
    let items = reply.items();
    let by_pattern = match items.first()?.text().as_str() {
        "message" | "smessage" => false,
        "pmessage" => true,
        _ => return None,
    };
    let (channel, payload) = (items[items.len() - 2].text(), items[items.len() - 1].text());
    let mut numbers = payload.split(' ').map(|number| number.parse().expect("a number"));
    let (publisher, number) = (numbers.next()?, numbers.next()?);
    Some((by_pattern, channel.strip_prefix('c')?.parse().ok()?, publisher, number))
}

/// Every subscriber gets every publisher's messages in their order, and all subscribers of a
/// channel get those of all publishers in the same order.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn messages_come_once_and_in_order_while_workers_come_and_go() {
    on_both(&["--io-threads", "3"], |name, server| disturb(name, server));
    for driver in ["epoll", "io_uring"] {
        let server = TestServer::bobbin(&["--io-threads", "3", "--io-driver", driver]);
        disturb(driver, &server);
    }
}

fn disturb(name: &str, server: &TestServer) {
    let mut listeners: Vec<TestConnection> = (0..9).map(|_| server.connect()).collect();
    for (index, listener) in listeners.iter_mut().enumerate() {
        if index % 2 == 1 {
            listener.say("HELLO 3");
        }
        listener.say("SUBSCRIBE c0");
        for channel in 1..CHANNELS {
            listener.say(&format!("SUBSCRIBE c{channel}"));
        }
        if index % 3 == 0 {
            listener.say("PSUBSCRIBE c[02]");
        }
    }
    let done = AtomicBool::new(false);
    let orders: Vec<Vec<Vec<(usize, usize)>>> = std::thread::scope(|scope| {
        let publishers: Vec<_> = (0..PUBLISHERS)
            .map(|publisher| scope.spawn(move || publish(server, publisher)))
            .collect();
        let listening: Vec<_> = listeners
            .iter_mut()
            .enumerate()
            .map(|(index, listener)| scope.spawn(move || listen(name, index, listener)))
            .collect();
        let done = &done;
        let _end = Ends(done);
        let mover = scope.spawn(move || {
            let mut control = server.connect();
            for threads in [1, 4, 2, 3].iter().cycle() {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                assert_eq!(control.say(&format!("CONFIG SET io-threads {threads}")).text(), "OK");
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        publishers.into_iter().for_each(|publisher| publisher.join().expect("a publisher"));
        let orders = listening.into_iter().map(|l| l.join().expect("a listener")).collect();
        done.store(true, Ordering::Relaxed);
        mover.join().expect("the mover");
        orders
    });
    for order in &orders[1..] {
        assert!(*order == orders[0], "{name}: subscribers saw different orders");
    }
}

/// Has the mover end, whatever happened to the others.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Publishes to all channels in turn, pipelined in lots; every listener must be counted.
fn publish(server: &TestServer, publisher: usize) {
    let mut connection = server.connect();
    let mut number = 0;
    while number < MESSAGES {
        let lot = 1 + number % 20;
        for at in number..number + lot {
            let channel = format!("c{}", at % CHANNELS);
            let payload = format!("{publisher} {at} {}", "x".repeat(at % 300));
            connection.send(&["PUBLISH", &channel, &payload]).expect("sent");
        }
        for at in number..number + lot {
            let expected = if (at % CHANNELS).is_multiple_of(2) { 9 + 3 } else { 9 };
            let counted = connection.receive().expect("a reply").as_integer();
            assert_eq!(counted, Some(expected), "message {at} of {publisher}");
        }
        number += lot;
    }
    for channel in 0..CHANNELS {
        let (channel, payload) = (format!("c{channel}"), format!("{publisher} {END}"));
        connection.call(&["PUBLISH", &channel, &payload]).expect("a reply");
    }
}

/// Number of the message that ends a publisher's.
const END: usize = 1 << 30;

/// Reads until every publisher's end came; the order of messages by channel.
fn listen(name: &str, index: usize, listener: &mut TestConnection) -> Vec<Vec<(usize, usize)>> {
    let mut order = vec![Vec::new(); CHANNELS];
    let mut last: HashMap<(bool, usize, usize), usize> = HashMap::new();
    let patterns = if index.is_multiple_of(3) { CHANNELS / 2 } else { 0 };
    let mut ends = 0;
    while ends < PUBLISHERS * (CHANNELS + patterns) {
        let reply = listener.receive().unwrap_or_else(|error| panic!("{name}: {index}: {error}"));
        let message = read_message(&reply);
        let (by_pattern, channel, publisher, number) =
            message.unwrap_or_else(|| panic!("{name}: {index} got {reply:?}"));
        let before = last.insert((by_pattern, channel, publisher), number);
        if number == END {
            ends += 1;
            continue;
        }
        let expected = before.map_or(channel, |before| before + CHANNELS);
        assert_eq!(number, expected, "{name}: {index}: channel {channel} of {publisher}");
        if !by_pattern {
            order[channel].push((publisher, number));
        }
    }
    order
}

/// A client that gets an unsubscription confirmed got everything that was counted before, and gets
/// nothing after.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_was_counted_comes_before_the_end_of_a_subscription() {
    on_both(&["--io-threads", "2"], |name, server| {
        let mut listeners: Vec<TestConnection> = (0..4).map(|_| server.connect()).collect();
        let mut publisher = server.connect();
        for round in 0..300 {
            for listener in &mut listeners {
                listener.say("SUBSCRIBE c");
            }
            for _ in 0..round % 7 {
                publisher.send(&["PUBLISH", "c", "m"]).expect("sent");
            }
            for _ in 0..round % 7 {
                assert_eq!(publisher.receive().expect("a reply").as_integer(), Some(4));
            }
            for listener in &mut listeners {
                listener.send(&["UNSUBSCRIBE"]).expect("sent");
            }
            for (index, listener) in listeners.iter_mut().enumerate() {
                for number in 0..round % 7 {
                    let reply = listener.receive().expect("a message");
                    let word = reply.items()[0].text();
                    assert_eq!(word, "message", "{name}: {index}: round {round}, {number}");
                }
                let word = listener.receive().expect("a reply").items()[0].text();
                assert_eq!(word, "unsubscribe", "{name}: {index}: round {round}");
            }
            assert_eq!(publisher.say("PUBLISH c late").as_integer(), Some(0));
        }
    });
}

/// A subscriber that does not read is closed at its limit; the others get everything.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn slow_subscribers_are_closed() {
    let limit = ["--io-threads", "2", "--client-output-buffer-limit", "pubsub 1mb 0 0"];
    on_both(&limit, |name, server| {
        let (mut slow, mut quick) = (server.connect(), server.connect());
        for listener in [&mut slow, &mut quick] {
            listener.say("SUBSCRIBE c");
        }
        let mut publisher = server.connect();
        let payload = "x".repeat(20_000);
        let mut counts = Vec::new();
        for _ in 0..1000 {
            counts
                .extend(publisher.call(&["PUBLISH", "c", &payload]).expect("a reply").as_integer());
            let reply = quick.receive().expect("a message");
            assert_eq!(reply.items()[2].text().len(), payload.len(), "{name}");
        }
        assert_eq!((counts.first(), counts.last()), (Some(&2), Some(&1)), "{name}");
        let disconnections = publisher.say("INFO stats").text();
        assert!(
            disconnections.contains("client_output_buffer_limit_disconnections:1\r\n"),
            "{name}"
        );
        while let ReceiveOutcome::Reply(_) =
            slow.receive_within(Duration::from_secs(10)).expect("bytes")
        {}
    });
}

/// Events on one key come in the order of its changes, whichever client makes them.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn events_of_a_key_come_in_the_order_of_changes() {
    on_both(&["--io-threads", "3", "--notify-keyspace-events", "KEA"], |name, server| {
        let server = &*server;
        let mut listener = server.connect();
        listener.say("SUBSCRIBE __keyspace@0__:k");
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut client = server.connect();
                    for round in 0..500 {
                        let command = if round % 2 == 0 { "SETNX k v" } else { "DEL k" };
                        client.say(command);
                    }
                    client.say("DEL k");
                });
            }
        });
        assert_eq!(server.connect().say("SET k end EX 1000").text(), "OK");
        let (mut exists, mut seen) = (false, 0);
        loop {
            let event = listener.receive().expect("an event").items()[2].text();
            match event.as_str() {
                "expire" => break,
                "set" | "del" => assert_ne!(exists, event == "set", "{name}: {event} after {seen}"),
                other => panic!("{name}: {other}"),
            }
            exists = event == "set";
            seen += 1;
        }
        assert!(seen > 1, "{name}");
    });
}
