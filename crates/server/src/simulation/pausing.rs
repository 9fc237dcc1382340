//! Scripts and transactions that pause, and what waits for them.

use bobbin_io::Peer;

use super::process::Process;
use super::ticks;
use crate::base::random::Random;

/// A script that is known to pause, about each key.
const LONG: &str =
    "local n = 0 for i = 1, 200000 do n = n + i end return redis.call('INCR', KEYS[1])";

/// A process in which most looks at the counter find that much time has gone by.
fn process() -> Process {
    let process = Process::new(2);
    ticks::jump(Some((Random::new(7), 2, 300)));
    process
}

/// A client that sends a request again as soon as it is answered.
struct Repeater {
    peer: Peer,
    request: String,
    answers: usize,
}

impl Repeater {
    fn new(process: &Process, worker: usize, request: String) -> Self {
        let peer = process.connect(worker);
        peer.send(request.as_bytes());
        Self { peer, request, answers: 0 }
    }

    fn go_on(&mut self, process: &Process) {
        let heard = process.heard(&self.peer);
        if !heard.is_empty() {
            assert!(!heard.contains('-'), "{heard}");
            self.answers += 1;
            self.peer.send(self.request.as_bytes());
        }
    }
}

/// Takes turns until `peer` has heard something; how many answers the others got meanwhile.
fn wait(process: &mut Process, peer: &Peer, others: &mut [Repeater]) -> (String, usize) {
    let answers = |others: &[Repeater]| others.iter().map(|other| other.answers).sum::<usize>();
    let before = answers(others);
    loop {
        process.turns(1);
        others.iter_mut().for_each(|other| other.go_on(process));
        let heard = process.heard(peer);
        if !heard.is_empty() {
            return (heard, answers(others) - before);
        }
        assert!(answers(others) - before < 1000, "it is never served");
    }
}

#[test]
fn what_needs_every_shard_is_served_though_scripts_overlap() {
    let mut process = process();
    let admin = process.connect(0);
    let mut others: Vec<Repeater> = (0..6)
        .map(|at| Repeater::new(&process, at % 2, format!("EVAL \"{LONG}\" 1 key:{at}\r\n")))
        .collect();
    for _ in 0..20 {
        others.iter_mut().for_each(|other| other.go_on(&process));
        process.turns(7);
    }
    assert!(process.server.gate.is_reserved(), "they overlap");
    for line in ["CONFIG SET maxmemory-samples 6", "DBSIZE", "FLUSHALL"] {
        admin.send(format!("{line}\r\n").as_bytes());
        let (heard, answers) = wait(&mut process, &admin, &mut others);
        assert!(!heard.starts_with('-'), "{line}: {heard}");
        // Those at work when it came, and perhaps one that was let in before it.
        assert!(answers <= 2 * others.len(), "{line} came behind {answers} scripts");
        process.turns(50);
    }
    // A client that goes while it waits holds nobody up.
    admin.send(b"CONFIG SET maxmemory-samples 7\r\n");
    process.turns(1);
    drop(admin);
    let client = process.connect(1);
    client.send(format!("EVAL \"{LONG}\" 1 another\r\n").as_bytes());
    let (heard, _) = wait(&mut process, &client, &mut others);
    assert_eq!(heard, ":1\r\n");
}

/// What waits for a key of a script comes before what the script's client sends next.
#[test]
fn a_pipeline_of_scripts_lets_others_in_between() {
    let mut process = process();
    let (client, reader, walker) = (process.connect(0), process.connect(0), process.connect(0));
    let request = format!("EVAL \"{LONG}\" 1 key\r\n");
    client.send(request.repeat(100).as_bytes());
    while process.server.scripts.running().is_none() {
        process.turns(1);
    }
    for (peer, line) in [(&reader, "GET key\r\n"), (&walker, "KEYS *\r\n")] {
        process.heard(&client);
        peer.send(line.as_bytes());
        let mut scripts = 0;
        while process.heard(peer).is_empty() {
            process.turns(1);
            scripts += process.heard(&client).matches(':').count();
            assert!(scripts <= 3, "{line} came behind {scripts} scripts");
        }
    }
}
