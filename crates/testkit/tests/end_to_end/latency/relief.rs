//! Clients that ask for something leave a worker that has a long command, with all that they have,
//! and are shared out again later.

use std::time::{Duration, Instant};

use bobbin_testkit::{TestConnection, TestServer};

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn who_is_active_leaves_a_laden_worker() {
    for driver in ["epoll", "io_uring"] {
        let server = TestServer::bobbin(&["--io-driver", driver, "--io-threads", "2"]);
        fill(&server);
        let mut clients: Vec<TestConnection> = (0..CLIENTS).map(|_| server.connect()).collect();
        let mut silent: Vec<TestConnection> = (0..CLIENTS).map(|_| server.connect()).collect();
        let (mut transaction, mut listener) = (server.connect(), server.connect());
        assert_eq!(transaction.say("WATCH watched").text(), "OK");
        assert_eq!(transaction.say("MULTI").text(), "OK");
        listener.say("SUBSCRIBE news");
        let mut heavy = server.connect();
        let work = b"SORT list LIMIT 0 1\r\n".repeat(SORTS);
        heavy.send_raw(&work).expect("is sent");

        let deadline = Instant::now() + LIMIT;
        let (mut round, mut most) = (0, 0);
        // The silent ones stay, half of them beside the long command.
        while most < CLIENTS + CLIENTS / 2 + 2 {
            assert!(
                Instant::now() < deadline,
                "{driver}: nobody leaves; {:?}",
                connections(&server)
            );
            round += 1;
            for (number, client) in clients.iter_mut().enumerate() {
                let count = client.say(&format!("INCR counter:{number}")).as_integer();
                assert_eq!(count, Some(round), "{driver}");
            }
            assert_eq!(transaction.say("INCR queued").text(), "QUEUED");
            most = connections(&server).into_iter().max().expect("there are workers");
        }
        assert_eq!(clients[0].say("PUBLISH news now").as_integer(), Some(1));
        let news: Vec<_> =
            listener.receive().expect("it comes").items().iter().map(|item| item.text()).collect();
        assert_eq!(news, ["message", "news", "now"]);
        assert_eq!(transaction.say("EXEC").items().len(), round as usize);
        for _ in 0..SORTS {
            assert_eq!(heavy.receive().expect("it ends").items().len(), 1);
        }

        let deadline = Instant::now() + LIMIT;
        loop {
            let counts = connections(&server);
            if counts[0].abs_diff(counts[1]) <= 2 {
                break;
            }
            assert!(Instant::now() < deadline, "{driver}: they do not come back: {counts:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        for client in silent.iter_mut().chain(&mut clients) {
            assert_eq!(client.say("PING").text(), "PONG");
        }
    }
}

fn fill(server: &TestServer) {
    let mut client = server.connect();
    let mut command = vec!["RPUSH".to_owned(), "list".to_owned()];
    command.extend((0..10_000).map(|number| (number * 7919 % 10_007).to_string()));
    for _ in 0..LEN / 10_000 {
        client.call(&command).expect("is filled");
    }
}

/// How many each worker has.
fn connections(server: &TestServer) -> Vec<usize> {
    let info = server.connect().say("INFO threads").text();
    let counts = info.split("connections=").skip(1).map(|rest| rest.split(',').next());
    counts.map(|count| count.and_then(|digits| digits.parse().ok()).expect("a number")).collect()
}

const CLIENTS: usize = 8;
const LEN: usize = 300_000;
const SORTS: usize = 30;
const LIMIT: Duration = Duration::from_secs(60);
