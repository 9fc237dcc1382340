//! More replies than a worker sends in one turn: they come whole, in order, and every command sent
//! is executed.

use std::io::Read;
use std::time::{Duration, Instant};

use bobbin_testkit::{TestConnection, TestServer};

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn long_replies_to_many_clients_come_in_order() {
    on_all(|server| {
        fill(server);
        let mut clients: Vec<TestConnection> = (0..CLIENTS).map(|_| server.connect()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            for round in 0..ROUNDS {
                client.send(&["LRANGE", "list", "0", "-1"]).expect("is sent");
                client.send(&["ECHO", &format!("{number} {round}")]).expect("is sent");
            }
        }
        for (number, client) in clients.iter_mut().enumerate() {
            for round in 0..ROUNDS {
                let list = client.receive().expect("the list comes");
                let texts: Vec<String> = list.items().iter().map(|item| item.text()).collect();
                assert!(texts.iter().map(String::as_str).eq(items().iter().map(String::as_str)));
                let echo = client.receive().expect("the echo comes");
                assert_eq!(echo.text(), format!("{number} {round}"));
            }
        }
    });
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn who_closes_after_sending_has_all_executed() {
    on_all(|server| {
        fill(server);
        // Kept to the end: closed with replies unread, the kernel would throw away what was sent.
        let mut clients: Vec<TestConnection> = (0..CLIENTS).map(|_| server.connect()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            for _ in 0..ROUNDS {
                client.send(&["LRANGE", "list", "0", "-1"]).expect("is sent");
            }
            client.send(&["SADD", "done", &number.to_string()]).expect("is sent");
            client.finish_sending().expect("is told");
        }
        let mut control = server.connect();
        let deadline = Instant::now() + Duration::from_secs(20);
        while control.say("SCARD done").as_integer() != Some(CLIENTS as i64) {
            assert!(Instant::now() < deadline, "{:?}", control.say("SCARD done"));
        }
    });
}

/// A reply of many sends comes in one go though nothing else happens that could wake the worker:
/// one send a tick of its clock would take more than a minute.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn nobody_sleeps_before_a_long_reply_is_sent() {
    const BYTES: usize = 400 << 20;
    on_all(|server| {
        let mut client = server.connect();
        client.say(&format!("SETRANGE value {} x", BYTES - 1));
        client.send(&["GET", "value"]).expect("is sent");
        let deadline = Instant::now() + Duration::from_secs(30);
        let (mut chunk, mut read) = (vec![0; 1 << 20], 0);
        while read < BYTES {
            read += client.stream().read(&mut chunk).expect("it comes");
            assert!(Instant::now() < deadline, "{read} bytes have come");
        }
    });
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn who_is_put_off_where_another_one_left_is_served_once() {
    on_all(|server| {
        let mut admin = server.connect();
        admin.call(&["CLIENT", "PAUSE", "60000", "WRITE"]).expect("it answers");
        let put_off = || {
            let mut client = server.connect();
            client.send_raw(b"PING\r\nINCR n\r\n").expect("is sent");
            assert_eq!(client.receive().expect("it answers").text(), "PONG");
            client
        };
        drop(put_off());
        let deadline = Instant::now() + Duration::from_secs(10);
        while admin.call(&["CLIENT", "LIST"]).expect("it answers").text().lines().count() > 1 {
            assert!(Instant::now() < deadline, "the first one stays");
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut second = put_off();
        admin.call(&["CLIENT", "UNPAUSE"]).expect("it answers");
        assert_eq!(second.receive().expect("it is served").text(), "1");
        assert_eq!(admin.call(&["GET", "n"]).expect("it answers").text(), "1");
    });
}

fn on_all(test: impl Fn(&TestServer)) {
    test(&TestServer::valkey(&[]));
    for driver in ["epoll", "io_uring"] {
        test(&TestServer::bobbin(&["--io-driver", driver, "--io-threads", "2"]));
    }
}

fn items() -> Vec<String> {
    (0..LEN).map(|number| format!("{number:0100}")).collect()
}

fn fill(server: &TestServer) {
    let mut command = vec!["RPUSH".to_owned(), "list".to_owned()];
    command.extend(items());
    assert_eq!(server.connect().call(&command).expect("is filled").as_integer(), Some(LEN as i64));
}

const CLIENTS: usize = 30;
/// Of commands that each client sends at once.
const ROUNDS: usize = 20;
/// Of the list: its reply has 50 KB, so few fit a turn, and is not made in slices.
const LEN: usize = 500;
