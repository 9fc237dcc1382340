//! Consumer groups under several readers at once, each of which takes so much that the server makes
//! the answer in slices: every entry is delivered to one consumer, once, and stays with it until it
//! is acknowledged.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use bobbin_testkit::{ReplyFrame, TestConnection, TestServer};

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn every_entry_is_delivered_once() {
    let server = TestServer::bobbin(&["--io-threads", "3"]);
    let mut control = server.connect();
    let mut added = 0;
    for _ in 0..BATCHES / 2 {
        add_batch(&mut control, &mut added);
    }
    control.say("XGROUP CREATE x g 0");
    let done = AtomicBool::new(false);
    let read: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|number| {
                let (server, done) = (&server, &done);
                scope.spawn(move || read_all(&mut server.connect(), number, done))
            })
            .collect();
        for _ in 0..BATCHES / 2 {
            add_batch(&mut control, &mut added);
        }
        done.store(true, Ordering::SeqCst);
        readers.into_iter().map(|reader| reader.join().expect("reads to the end")).collect()
    });
    let mut all = BTreeSet::new();
    for (number, ids) in read.iter().enumerate() {
        assert!(ids.is_sorted(), "reader {number} got entries in another order");
        let repeated = ids.iter().find(|id| !all.insert(**id));
        assert_eq!(repeated, None, "reader {number} got an entry that another one has got");
        // What it has got is pending with it, and nothing else.
        let history = control.say(&format!("XREADGROUP GROUP g reader{number} STREAMS x 0"));
        assert_eq!(ids_of(&history), *ids, "reader {number}");
    }
    assert_eq!(all, (1..=added).collect());
    let pending = control.say("XPENDING x g");
    assert_eq!(pending.items()[0].as_integer(), Some(added as i64));
}

/// Reads until nothing is left and nothing will come; the entries' numbers.
fn read_all(connection: &mut TestConnection, number: usize, done: &AtomicBool) -> Vec<u64> {
    let mut ids = Vec::new();
    loop {
        let was_done = done.load(Ordering::SeqCst);
        // Some readers take whatever there is.
        let count = if number == 0 { String::new() } else { format!("COUNT {} ", 9000 * number) };
        let command = format!("XREADGROUP GROUP g reader{number} {count}STREAMS x >");
        let reply = connection.say(&command);
        assert!(!reply.is_error(), "{reply:?}");
        let new = ids_of(&reply);
        if new.is_empty() && was_done {
            return ids;
        }
        ids.extend(new);
    }
}

/// Of an answer that concerns one stream, or none.
fn ids_of(reply: &ReplyFrame) -> Vec<u64> {
    let Some(stream) = reply.items().first() else { return Vec::new() };
    let id = |entry: &ReplyFrame| {
        let id = entry.items()[0].text();
        let number = id.split('-').next().and_then(|number| number.parse().ok());
        number.unwrap_or_else(|| panic!("{id}"))
    };
    stream.items()[1].items().iter().map(id).collect()
}

fn add_batch(connection: &mut TestConnection, added: &mut u64) {
    let mut bytes = Vec::new();
    for _ in 0..BATCH {
        *added += 1;
        let id = format!("{added}-0");
        bobbin_testkit::connection::encode_command(&["XADD", "x", &id, "f", "v"], &mut bytes);
    }
    connection.send_raw(&bytes).expect("is sent");
    for _ in 0..BATCH {
        assert!(!connection.receive().expect("is answered").is_error());
    }
}

const READERS: usize = 4;
const BATCHES: usize = 60;
const BATCH: usize = 1000;
