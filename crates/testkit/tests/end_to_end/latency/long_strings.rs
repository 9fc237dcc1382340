//! Strings of many chunks: whatever changes them, each reader gets the bytes of one moment.

use bobbin_testkit::connection::encode_command;
use bobbin_testkit::random::TestRandom;
use bobbin_testkit::{TestConnection, TestServer, until};

const LEN: usize = 3_000_000;
const CHANGES: usize = 150;

fn value(client: &mut TestConnection, key: &str) -> Vec<u8> {
    let reply = client.call(&["GET", key]).expect("it answers");
    reply.bytes().expect("a string").to_vec()
}

/// What the server holds for the model, read in every way.
fn check(client: &mut TestConnection, key: &str, model: &[u8]) {
    for by_reference in ["16384", "0"] {
        client.say(&format!("CONFIG SET min-string-size-avoid-copy-reply {by_reference}"));
        assert!(value(client, key) == model, "{key} has other bytes");
    }
    let ones: u32 = model.iter().map(|byte| byte.count_ones()).sum();
    assert_eq!(client.say(&format!("BITCOUNT {key}")).text(), ones.to_string());
    let digest = client.say(&format!("DEBUG DIGEST-VALUE {key}")).text();
    client.call(&[&b"SET"[..], b"whole", model]).expect("it answers");
    assert_eq!(client.say("DEBUG DIGEST-VALUE whole").text(), digest);
    assert_eq!(client.call(&[&b"DELIFEQ"[..], key.as_bytes(), &model[1..]]).unwrap().text(), "0");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn changes_reach_no_reader_of_before() {
    let options =
        ["--enable-debug-command", "yes", "--appendonly", "yes", "--aof-use-rdb-preamble", "no"];
    let server = TestServer::bobbin(&options);
    let mut client = server.connect();
    let mut random = TestRandom::new(17);
    let start = random.bytes(LEN);
    client.call(&[&b"SET"[..], b"k", &start]).expect("it answers");
    let mut model = start.clone();
    let mut copies = vec![("first".to_owned(), start)];
    assert_eq!(client.say("COPY k first").text(), "1");
    for number in 0..CHANGES {
        let at = random.below(model.len());
        let count = [1, 100, 70_000][random.below(3)];
        let part = random.bytes(count);
        // The reply to the first GET is on its way, by reference, when the string changes.
        let mut commands = Vec::new();
        encode_command(&["GET", "k"], &mut commands);
        let before = model.clone();
        match random.below(4) {
            0 => {
                let offset = (at * 8 + 3).to_string();
                encode_command(&["SETBIT", "k", &offset, "1"], &mut commands);
                model[at] |= 1 << 4;
            }
            1 => {
                encode_command(&[&b"APPEND"[..], b"k", &part], &mut commands);
                model.extend(&part);
            }
            2 => {
                let end = model.len() + random.below(200_000);
                let offset = end.to_string();
                encode_command(&[b"SETRANGE", &b"k"[..], offset.as_bytes(), &part], &mut commands);
                model.resize(end, 0);
                model.extend(&part);
            }
            _ => {
                let offset = at.to_string();
                encode_command(&[b"SETRANGE", &b"k"[..], offset.as_bytes(), &part], &mut commands);
                model.resize(model.len().max(at + part.len()), 0);
                model[at..at + part.len()].copy_from_slice(&part);
            }
        }
        encode_command(&["STRLEN", "k"], &mut commands);
        let is_read = number % 10 == 0;
        if is_read {
            client.send_raw(&commands).expect("it is connected");
            assert!(client.receive().unwrap().bytes() == Some(&before[..]), "{number}: before");
        } else {
            let mut read = Vec::new();
            encode_command(&["GET", "k"], &mut read);
            client.send_raw(&commands[read.len()..]).expect("it is connected");
        }
        client.receive().expect("the change's reply");
        assert_eq!(client.receive().unwrap().text(), model.len().to_string());
        if number % 50 == 25 {
            let copy = format!("copy:{number}");
            assert_eq!(client.say(&format!("COPY k {copy}")).text(), "1");
            copies.push((copy, model.clone()));
        }
    }
    copies.push(("k".to_owned(), model));
    copies.iter().for_each(|(key, model)| check(&mut client, key, model));
    let digest = client.say("DEBUG DIGEST").text();
    for reload in ["DEBUG RELOAD", "BGREWRITEAOF", "DEBUG LOADAOF"] {
        client.say(reload);
        until(|| client.say("INFO persistence").text().contains("aof_rewrite_in_progress:0"));
        assert_eq!(client.say("DEBUG DIGEST").text(), digest, "after {reload}");
    }
}
