//! Active defragmentation: after many deletions memory comes together again, while clients write
//! and a snapshot is made, and every value stays what it was.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bobbin_testkit::{TestServer, until};

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn memory_comes_together_while_clients_write() {
    let server = TestServer::bobbin(&[
        "--io-threads",
        "2",
        "--enable-debug-command",
        "yes",
        "--active-defrag-ignore-bytes",
        "1mb",
        "--active-defrag-cycle-min",
        "50",
        "--active-defrag-cycle-max",
        "75",
    ]);
    let mut client = server.connect();
    for batch in 0..BATCHES {
        assert_eq!(client.call(&["EVAL", FILL, "0", &batch.to_string()]).unwrap().text(), "done");
    }
    assert_eq!(client.call(&["EVAL", THIN_OUT, "0"]).unwrap().text(), "done");
    let before = client.say("DEBUG DIGEST").text();
    // Freed blocks rest in the threads' caches until these are full, or some time has passed.
    until(|| figure(&server, "allocator_frag_bytes") > WASTE_MIN);
    let wasted = figure(&server, "allocator_frag_bytes");

    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..WRITERS {
            scope.spawn({
                let (server, is_over) = (&server, &is_over);
                move || write(server, number, is_over)
            });
        }
        let over = Over(&is_over);
        assert_eq!(client.say("CONFIG SET activedefrag yes").text(), "OK");
        until(|| figure(&server, "active_defrag_key_hits") > 1000);
        // As long as a snapshot is made nothing is moved.
        assert_eq!(client.say("CONFIG SET rdb-key-save-delay 100000").text(), "OK");
        assert_eq!(client.say("BGSAVE").text(), "Background saving started");
        let begun = figure(&server, "active_defrag_hits");
        until(|| {
            let before = figure(&server, "active_defrag_hits");
            std::thread::sleep(Duration::from_millis(200));
            figure(&server, "active_defrag_hits") == before
        });
        let moved = figure(&server, "active_defrag_hits") - begun;
        assert!(moved <= STEP_MAX, "{moved} blocks were moved beside a snapshot");
        assert_eq!(server.info("rdb_bgsave_in_progress"), "1");
        assert_eq!(client.say("CONFIG SET rdb-key-save-delay 0").text(), "OK");
        until(|| figure(&server, "allocator_frag_bytes") < wasted * 2 / 3);
        until(|| client.say("INFO persistence").text().contains("rdb_bgsave_in_progress:0"));
        drop(over);
    });
    // Some of each kind were among them.
    assert!(figure(&server, "active_defrag_hits") > figure(&server, "active_defrag_key_hits"));
    assert!(figure(&server, "active_defrag_misses") > 0);
    assert!(figure(&server, "total_active_defrag_time") > 0);
    for number in 0..WRITERS {
        client.say(&format!("DEL list:{number} hash:{number} count:{number}"));
    }
    assert_eq!(client.say("DEBUG DIGEST").text(), before);
    assert_eq!(client.say("DEBUG RELOAD").text(), "OK");
    assert_eq!(client.say("DEBUG DIGEST").text(), before);

    assert_eq!(client.say("CONFIG SET activedefrag no").text(), "OK");
    until(|| figure(&server, "active_defrag_running") == 0);
    assert_eq!(client.say("CONFIG RESETSTAT").text(), "OK");
    assert_eq!(figure(&server, "active_defrag_hits"), 0);
}

/// The sources of scripts lie among entries in blocks of the same size, which are then deleted.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn scripts_come_together() {
    let server = TestServer::bobbin(&[
        "--io-threads",
        "1",
        "--active-defrag-ignore-bytes",
        "100kb",
        "--active-defrag-threshold-lower",
        "5",
        "--active-defrag-cycle-min",
        "50",
        "--active-defrag-cycle-max",
        "75",
    ]);
    let mut client = server.connect();
    let source = |number: usize| format!("--{}\nreturn {number:06}", "x".repeat(900));
    let digests: Vec<_> = (0..SCRIPTS)
        .map(|number| {
            let source = source(number);
            client.call(&["SET", &number.to_string(), &source]).expect("it answers");
            client.call(&["SCRIPT", "LOAD", &source]).expect("it answers").text()
        })
        .collect();
    assert_eq!(client.say("FLUSHALL SYNC").text(), "OK");
    until(|| figure(&server, "allocator_frag_bytes") > SCRIPTS as u64 * 400);
    let wasted = figure(&server, "allocator_frag_bytes");
    assert_eq!(client.say("CONFIG SET activedefrag yes").text(), "OK");
    until(|| figure(&server, "allocator_frag_bytes") < wasted / 2);
    assert!(figure(&server, "active_defrag_hits") > SCRIPTS as u64 / 4);
    for (number, digest) in digests.iter().enumerate() {
        let found = client.say(&format!("EVALSHA {digest} 0"));
        assert_eq!(found.as_integer(), Some(number as i64));
    }
}

/// Ends the writers, also when something else fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Changes values of its own, and looks whether they are what they must be.
fn write(server: &TestServer, number: usize, is_over: &AtomicBool) {
    let mut client = server.connect();
    let mut round = 0;
    while !is_over.load(Ordering::Relaxed) {
        round += 1;
        assert_eq!(client.say(&format!("INCR count:{number}")).as_integer(), Some(round));
        let length = client.say(&format!("RPUSH list:{number} {round}")).as_integer();
        if length > Some(500) {
            let first = client.say(&format!("LPOP list:{number}")).text();
            assert_eq!(first, (round - 500).to_string());
        }
        let field = round % 1000;
        client.say(&format!("HSET hash:{number} {field} value-{round}"));
        let value = client.say(&format!("HGET hash:{number} {field}")).text();
        assert_eq!(value, format!("value-{round}"));
    }
    assert!(round > 0);
}

fn figure(server: &TestServer, field: &str) -> u64 {
    server.info(field).parse().expect("a number")
}

/// More than a thread keeps compiled.
const SCRIPTS: usize = 10_000;
const BATCHES: usize = 20;
const WRITERS: usize = 2;
/// Blocks that are moved in one step, and some.
const STEP_MAX: u64 = 1000;
/// Bytes that are free among others once most keys are gone.
const WASTE_MIN: u64 = 6_000_000;
/// Makes 4,000 strings, and adds to collections of each kind.
const FILL: &str = "
    local batch = tonumber(ARGV[1])
    for number = batch * 4000, batch * 4000 + 3999 do
        redis.call('SET', 'string:' .. number, string.rep('x', 20 + number % 180))
        if number % 4 == 0 then
            local text = string.rep('y', number % 50) .. number
            redis.call('RPUSH', 'l:' .. number % 400, text)
            redis.call('RPUSH', 'l:long', text)
            redis.call('SADD', 's:' .. number % 400, text)
            redis.call('SADD', 's:large', text)
            redis.call('HSET', 'h:' .. number % 400, text, text)
            redis.call('HSET', 'h:large', text, text)
            redis.call('ZADD', 'z:' .. number % 400, number, text)
            redis.call('ZADD', 'z:large', number, text)
            redis.call('XADD', 'x:' .. number % 400, number + 1 .. '-0', 'field', text)
            redis.call('XADD', 'x:long', number + 1 .. '-0', 'field', text)
        end
    end
    return 'done'";
/// Leaves a fifth of the strings, and of the small collections.
const THIN_OUT: &str = "
    for number = 0, 79999 do
        if number % 5 ~= 0 then
            redis.call('DEL', 'string:' .. number)
        end
    end
    for number = 0, 396, 4 do
        if number % 5 ~= 0 then
            for _, kind in ipairs({ 'l', 's', 'h', 'z', 'x' }) do
                redis.call('DEL', kind .. ':' .. number)
            end
        end
    end
    return 'done'";
