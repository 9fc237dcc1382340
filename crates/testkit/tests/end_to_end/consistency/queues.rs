//! Lists as queues between many clients: nothing is lost, nothing comes twice, the client that
//! waited first is served first.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bobbin_testkit::random::{TestRandom, seed};
use bobbin_testkit::{ReplyFrame, TestConnection, TestServer};

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn valkey_loses_nothing() {
    exchange(&TestServer::valkey(&[]), |_| {});
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn bobbin_loses_nothing_with_more_threads_than_cores() {
    for driver in DRIVERS {
        exchange(&TestServer::bobbin(&["--io-driver", driver, "--io-threads", "4"]), |_| {});
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn bobbin_loses_nothing_while_its_threads_change() {
    for driver in DRIVERS {
        let server = TestServer::bobbin(&["--io-driver", driver, "--io-threads", "2"]);
        let mut control = server.connect();
        let mut round = 0;
        exchange(&server, |_| {
            round += 1;
            let reply = control.say(&format!("CONFIG SET io-threads {}", 1 + round % 4));
            assert_eq!(reply.text(), "OK");
        });
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn who_waits_first_is_served_first_whatever_its_thread() {
    for server in [TestServer::valkey(&[]), TestServer::bobbin(&["--io-threads", "4"])] {
        let mut control = server.connect();
        let mut waiting: Vec<TestConnection> = Vec::new();
        for number in 0..WAITING {
            let mut client = server.connect();
            // Of two keys the one that gets something counts.
            client.send(&["BLPOP", "other", "queue", "0"]).expect("is sent");
            wait_for_blocked(&mut control, number + 1);
            waiting.push(client);
        }
        for number in 0..WAITING {
            control.say(&format!("RPUSH queue {number}"));
        }
        for (number, client) in waiting.iter_mut().enumerate() {
            let reply = client.receive().expect("is served");
            assert_eq!(reply, pair("queue", &number.to_string()), "client {number}");
        }
        wait_for_blocked(&mut control, 0);
        assert_eq!(control.say("EXISTS queue").as_integer(), Some(0));
    }
}

/// A chain: what one client moves on is what the next waits for.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn moves_serve_each_other() {
    for server in [TestServer::valkey(&[]), TestServer::bobbin(&["--io-threads", "4"])] {
        let mut control = server.connect();
        let mut movers: Vec<TestConnection> = Vec::new();
        for number in (0..WAITING).rev() {
            let mut client = server.connect();
            let (from, to) = (format!("stage{number}"), format!("stage{}", number + 1));
            client.send(&["BLMOVE", &from, &to, "LEFT", "RIGHT", "0"]).expect("is sent");
            wait_for_blocked(&mut control, WAITING - number);
            movers.push(client);
        }
        control.say("RPUSH stage0 x");
        for client in &mut movers {
            assert_eq!(client.receive().expect("is served").text(), "x");
        }
        assert_eq!(control.say(&format!("LPOP stage{WAITING}")).text(), "x");
    }
}

/// The other ends of a wait: its time, CLIENT UNBLOCK, also from a transaction that holds the key.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn waiting_ends_in_time_or_when_somebody_says_so() {
    for server in [TestServer::valkey(&[]), TestServer::bobbin(&["--io-threads", "4"])] {
        let (mut control, mut client) = (server.connect(), server.connect());
        let id = client.say("CLIENT ID").as_integer().expect("an id");
        assert!(client.say("BLPOP queue 0.01").is_null());
        assert_eq!(client.say("WAIT 1 10").as_integer(), Some(0));
        for (reason, expected) in [("TIMEOUT", None), ("ERROR", Some("UNBLOCKED"))] {
            client.send(&["BLMOVE", "queue", "other", "LEFT", "RIGHT", "0"]).expect("is sent");
            wait_for_blocked(&mut control, 1);
            control.say("MULTI");
            control.say("LLEN queue");
            control.say(&format!("CLIENT UNBLOCK {id} {reason}"));
            control.say("RPUSH queue late");
            let replies = control.say("EXEC");
            assert_eq!(replies.items()[1].as_integer(), Some(1));
            let reply = client.receive().expect("is answered");
            assert!(match expected {
                Some(code) => reply.text().starts_with(code),
                None => reply.is_null(),
            });
            assert_eq!(control.say(&format!("CLIENT UNBLOCK {id}")).as_integer(), Some(0));
            assert_eq!(control.say("LPOP queue").text(), "late");
        }
        // What a transaction pushed has expired by the time that it is over.
        client.send(&["BLPOP", "queue", "0"]).expect("is sent");
        wait_for_blocked(&mut control, 1);
        control.say("MULTI");
        control.say("RPUSH queue a");
        control.say("PEXPIREAT queue 1");
        control.say("EXEC");
        wait_for_blocked(&mut control, 1);
        control.say("RPUSH queue b");
        assert_eq!(client.receive().expect("is served"), pair("queue", "b"));
    }
}

/// What a blocked command counts as when it is served, is told to end, or fails, and what a refused
/// call of the same client counts as after that.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn blocked_commands_are_counted_by_how_they_end() {
    for server in [TestServer::valkey(&[]), TestServer::bobbin(&["--io-threads", "4"])] {
        let (mut control, mut client) = (server.connect(), server.connect());
        let id = client.say("CLIENT ID").as_integer().expect("an id");
        // While it started it may have refused a call.
        control.say("CONFIG RESETSTAT");
        let mut blmove = |control: &mut TestConnection, line: &str| {
            client.send(&["BLMOVE", "queue", "other", "LEFT", "RIGHT", "0"]).expect("is sent");
            wait_for_blocked(control, 1);
            control.say(line);
            let reply = client.receive().expect("is answered");
            // It counts as rejected, whatever became of the one before.
            assert!(client.say("BLMOVE queue").is_error());
            reply
        };
        assert_eq!(blmove(&mut control, "RPUSH queue a").text(), "a");
        assert!(blmove(&mut control, &format!("CLIENT UNBLOCK {id}")).is_null());
        let unblock = format!("CLIENT UNBLOCK {id} ERROR");
        assert!(blmove(&mut control, &unblock).text().starts_with("UNBLOCKED"));
        assert!(blmove(&mut control, &unblock).text().starts_with("UNBLOCKED"));
        control.say("DEL other");
        control.say("SET other x");
        assert!(blmove(&mut control, "RPUSH queue b").text().starts_with("WRONGTYPE"));
        let info = control.say("INFO everything").text();
        let line = |name: &str| {
            let line = info.lines().find(|line| line.starts_with(&format!("{name}:")));
            // Without the times.
            let fields = line.unwrap_or_default().split([':', ',']).skip(1);
            let counts: Vec<_> = fields.filter(|field| !field.starts_with("usec")).collect();
            counts.join(" ")
        };
        // One that is told to end with an error counts as rejected, in Valkey as well.
        assert_eq!(line("cmdstat_blmove"), "calls=5 rejected_calls=7 failed_calls=1");
        assert_eq!(line("errorstat_UNBLOCKED"), "count=2");
        assert_eq!(line("errorstat_WRONGTYPE"), "count=1");
        assert_eq!(line("errorstat_ERR"), "count=5");
        assert_eq!(line("total_error_replies"), "8");
    }
}

/// Producers push numbered items to a few queues; consumers take them by every blocking command
/// there is.
fn exchange(server: &TestServer, mut meanwhile: impl FnMut(usize)) {
    let seed = seed();
    let done = AtomicBool::new(false);
    let consumed: Vec<Vec<Item>> = std::thread::scope(|scope| {
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|number| scope.spawn(move || produce(server, number, seed)))
            .collect();
        let consumers: Vec<_> = (0..CONSUMERS)
            .map(|number| {
                scope.spawn({
                    let done = &done;
                    move || consume(server, number, seed, done)
                })
            })
            .collect();
        let deadline = Instant::now() + RUN_LIMIT;
        let mut rounds = 0;
        while !producers.iter().all(|producer| producer.is_finished()) && Instant::now() < deadline
        {
            meanwhile(rounds);
            rounds += 1;
            std::thread::sleep(Duration::from_millis(3));
        }
        producers.into_iter().for_each(|producer| producer.join().expect("all is pushed"));
        done.store(true, Ordering::Relaxed);
        consumers.into_iter().map(|consumer| consumer.join().expect("pops are answered")).collect()
    });
    let mut seen: HashMap<(usize, usize), usize> = HashMap::new();
    for item in consumed.iter().flatten() {
        *seen.entry((item.producer, item.number)).or_default() += 1;
    }
    let twice: Vec<_> = seen.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "seed {seed}: came more than once: {twice:?}");
    let missing: Vec<_> = (0..PRODUCERS)
        .flat_map(|producer| (0..ITEMS).map(move |number| (producer, number)))
        .filter(|item| !seen.contains_key(item))
        .collect();
    assert!(missing.is_empty(), "seed {seed}: lost {missing:?}");
    // What one client pushes to a queue and one client pops from its other end stays in order.
    for items in &consumed {
        let mut last: HashMap<(usize, &str), usize> = HashMap::new();
        for item in items.iter().filter(|item| item.from.starts_with("queue")) {
            let before = last.insert((item.producer, &item.from), item.number);
            assert!(
                before < Some(item.number) || before.is_none(),
                "seed {seed}: {item:?} after {before:?}"
            );
        }
    }
}

#[derive(Debug)]
struct Item {
    from: String,
    producer: usize,
    number: usize,
}

fn produce(server: &TestServer, producer: usize, seed: u64) {
    let mut random = TestRandom::new(seed ^ producer as u64);
    let mut client = server.connect();
    let mut number = 0;
    while number < ITEMS {
        let count = (1 + random.below(3)).min(ITEMS - number);
        let item = |number: usize| format!("{producer}:{number}");
        let queue = |random: &mut TestRandom| format!("queue{}", random.below(QUEUES));
        if count == 3 {
            // Two queues become ready at once.
            client.say("MULTI");
            client.say(&format!(
                "RPUSH {} {} {}",
                queue(&mut random),
                item(number),
                item(number + 1)
            ));
            client.say(&format!("RPUSH {} {}", queue(&mut random), item(number + 2)));
            assert_eq!(client.say("EXEC").items().len(), 2);
        } else {
            let items: Vec<_> = (number..number + count).map(item).collect();
            let reply = client.say(&format!("RPUSH {} {}", queue(&mut random), items.join(" ")));
            assert!(reply.as_integer() >= Some(count as i64));
        }
        number += count;
    }
}

fn consume(server: &TestServer, consumer: usize, seed: u64, done: &AtomicBool) -> Vec<Item> {
    let mut random = TestRandom::new(seed ^ (consumer as u64 + 100));
    let mut client = server.connect();
    let mut items = Vec::new();
    loop {
        // Before the look: what was pushed before is there to be popped.
        let last_round = done.load(Ordering::Relaxed);
        let first = random.below(QUEUES);
        let queues: Vec<_> =
            (0..QUEUES).map(|at| format!("queue{}", (first + at) % QUEUES)).collect();
        let all = queues.join(" ");
        let command = match random.below(6) {
            0 | 1 => format!("BLPOP {all} moved 0.02"),
            2 => format!("BLMPOP 0.02 {} {all} moved LEFT COUNT 2", QUEUES + 1),
            // To be popped from there by some client.
            3 => format!("BLMOVE {} moved LEFT RIGHT 0.005", queues[0]),
            4 => "BRPOPLPUSH moved moved 0.005".into(),
            _ => format!("BLPOP moved {all} 0.02"),
        };
        let reply = client.say(&command);
        note(&reply, &mut items);
        if last_round && reply.is_null() {
            break;
        }
    }
    // The client that moved something is still here to take it.
    loop {
        let reply = client.say("BLPOP queue0 queue1 queue2 moved 0.5");
        if reply.is_null() {
            return items;
        }
        note(&reply, &mut items);
    }
}

/// Notes the items of a reply: of BLPOP (queue, item) or BLMPOP (queue, items).
fn note(reply: &ReplyFrame, items: &mut Vec<Item>) {
    let [from, popped] = reply.items() else { return };
    let from = from.text();
    let popped =
        if popped.items().is_empty() { std::slice::from_ref(popped) } else { popped.items() };
    for item in popped {
        let text = item.text();
        let (producer, number) = text.split_once(':').expect("an item of ours");
        let parse = |text: &str| text.parse().expect("a number of ours");
        items.push(Item { from: from.clone(), producer: parse(producer), number: parse(number) });
    }
}

fn wait_for_blocked(control: &mut TestConnection, count: usize) {
    let deadline = Instant::now() + RUN_LIMIT;
    let wanted = format!("blocked_clients:{count}\r\n");
    while !control.say("INFO clients").text().contains(&wanted) {
        assert!(Instant::now() < deadline, "there are never {count} blocked clients");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn pair(first: &str, second: &str) -> ReplyFrame {
    ReplyFrame::array(vec![ReplyFrame::bulk(first), ReplyFrame::bulk(second)])
}

const DRIVERS: [&str; 2] = ["auto", "epoll"];
const PRODUCERS: usize = 4;
const CONSUMERS: usize = 12;
const QUEUES: usize = 3;
const ITEMS: usize = 3000;
const WAITING: usize = 6;
const RUN_LIMIT: Duration = Duration::from_secs(120);
