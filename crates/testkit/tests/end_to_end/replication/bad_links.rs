//! A replica behind a link that is cut, reset, half open, slow, or passes on tiny pieces, while its
//! primary has load of all kinds. In the end both have the same keys, and breaks were mended by
//! what was missed, not by copies. Bobbin follows and leads, with a real Valkey at the other end.

use std::time::Duration;

use bobbin_testkit::load::disturb;
use bobbin_testkit::random::TestRandom;
use bobbin_testkit::server::link::{Proxy, ProxyPace};
use bobbin_testkit::{ReplyFrame, TestServer, until};

const ARGUMENTS: [&str; 6] = [
    "--repl-diskless-sync-delay",
    "0",
    "--enable-debug-command",
    "yes",
    "--repl-ping-replica-period",
    "1",
];

/// A replica that follows through a link.
struct Follower<'a> {
    primary: &'a TestServer,
    replica: &'a TestServer,
    link: Proxy,
    random: TestRandom,
}

impl Follower<'_> {
    /// Does something to the link while the primary has load of all kinds, and some large values.
    fn under_load(&mut self, spoil: impl FnOnce(&Self)) {
        let seed = self.random.number();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut client = self.primary.connect();
                for round in 0..5 {
                    disturb(&mut client, seed.wrapping_add(round), 60);
                    let (key, value) = (format!("large:{round}"), seed.to_string().repeat(1000));
                    client.call(&["SET", &key, &value]).expect("it answers");
                }
            });
            spoil(self);
        });
    }

    /// Waits until the replica has what the primary has now.
    fn catch_up(&self) {
        let end = offset(self.primary);
        until(|| self.replica.info("master_link_status") == "up" && offset(self.replica) >= end);
    }

    /// Has the link break under load, and waits until the replica is back.
    fn mend(&mut self, break_it: fn(&Proxy)) {
        let connections = self.link.connections();
        self.under_load(|it| break_it(&it.link));
        until(|| self.link.connections() > connections);
        self.catch_up();
    }

    fn pass(&mut self, pace: ProxyPace) {
        self.link.set_pace(pace);
        self.under_load(|_| {});
        self.catch_up();
    }
}

fn offset(server: &TestServer) -> u64 {
    server.info("master_repl_offset").parse().expect("it is a number")
}

fn follow_through_a_bad_link(primary: &TestServer, replica: &TestServer, seed: u64) {
    let link = Proxy::to(primary.address(), seed);
    let mut follower = Follower { primary, replica, link, random: TestRandom::new(seed) };
    follower.under_load(|_| {});
    // The first copy breaks in its midst.
    follower.link.set_pace(ProxyPace::Throttled { bytes_per_s: 20_000 });
    replica.follow(follower.link.port());
    follower.under_load(|it| {
        until(|| it.replica.info("master_sync_in_progress") == "1");
        it.link.reset();
    });
    follower.pass(ProxyPace::Pieces { len_max: 700 });
    // Silence is noticed soon from here on. A copy may take longer than that.
    for server in [primary, replica] {
        assert_eq!(server.connect().say("CONFIG SET repl-timeout 2"), ReplyFrame::simple("OK"));
    }
    follower.mend(Proxy::cut);
    follower.pass(ProxyPace::Delayed(Duration::from_millis(10)));
    follower.mend(Proxy::reset);
    follower.pass(ProxyPace::Throttled { bytes_per_s: 300_000 });
    follower.mend(Proxy::swallow);
    follower.pass(ProxyPace::Pieces { len_max: 5 });
    follower.mend(Proxy::reset);
    follower.mend(Proxy::cut);
    follower.link.set_pace(ProxyPace::Free);
    primary.settle(&[replica]);
    // What has a deadline dies at the primary, which tells the replica.
    until(|| primary.digest() == replica.digest());
    let count = |field: &str| primary.info(field).parse::<usize>().expect("it is a number");
    let (partial, full) = (count("sync_partial_ok"), count("sync_full"));
    assert!(partial >= BREAKS && full <= COPIES, "{partial} partial, {full} full");
}

const BREAKS: usize = 5;
/// The first one breaks.
const COPIES: usize = 2;

/// All at the same time: mostly they wait.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn replicas_behind_bad_links_have_what_the_primary_has() {
    let start = || TestServer::bobbin(&ARGUMENTS);
    let valkey = || TestServer::valkey(&ARGUMENTS);
    let pairs = [(start(), start()), (valkey(), start()), (start(), valkey())];
    std::thread::scope(|scope| {
        for ((primary, replica), seed) in pairs.iter().zip(1..) {
            scope.spawn(move || follow_through_a_bad_link(primary, replica, seed));
        }
    });
}
