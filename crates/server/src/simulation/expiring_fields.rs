//! INFO's count of the hashes that have fields which expire, after every command that gives a hash
//! such fields or takes them away.

use std::fmt::Write as _;

use bobbin_io::Peer;

use super::process::SimulatedProcess;

/// What INFO tells of both databases.
fn told(process: &mut SimulatedProcess, client: &Peer) -> [usize; 2] {
    let text = process.ask(client, "INFO keyspace");
    ["db0", "db1"].map(|name| {
        let line = text.lines().find(|line| line.starts_with(name));
        let count = line.and_then(|line| line.split_once("keys_with_volatile_items="));
        count.map_or(0, |(_, count)| count.parse().expect("a count"))
    })
}

#[test]
fn hashes_with_expiring_fields_are_counted_after_every_command() {
    let mut process = SimulatedProcess::new(1);
    let client = process.connect(0);
    for (line, counts) in [
        ("HSET h a 1 b 2", [0, 0]),
        ("HEXPIRE h 100 FIELDS 1 a", [1, 0]),
        ("HPEXPIRE h 5000 FIELDS 2 a b", [1, 0]),
        ("HPERSIST h FIELDS 1 a", [1, 0]),
        ("HPERSIST h FIELDS 1 b", [0, 0]),
        ("HGETEX h EX 100 FIELDS 1 a", [1, 0]),
        ("HGETEX h PERSIST FIELDS 1 a", [0, 0]),
        ("HSETEX h EX 100 FIELDS 1 a 1", [1, 0]),
        ("HSET h a 1", [0, 0]),
        ("HSETEX h EX 100 FIELDS 1 a 1", [1, 0]),
        ("HINCRBY h a 1", [1, 0]),
        ("HINCRBYFLOAT h a 1", [1, 0]),
        ("HDEL h a", [0, 0]),
        ("HSETEX h EX 100 FIELDS 1 a 1", [1, 0]),
        ("HGETDEL h FIELDS 1 a", [0, 0]),
        ("HSETEX h EX 100 FIELDS 1 a 1", [1, 0]),
        ("HEXPIREAT h 1 FIELDS 1 a", [0, 0]),
        ("HSETEX h EX 100 FIELDS 1 a 1", [1, 0]),
        ("HSETEX h EXAT 1 FIELDS 1 a 1", [0, 0]),
        ("HSETEX h EX 100 FIELDS 1 a 1", [1, 0]),
        ("EXPIRE h 100", [1, 0]),
        ("PERSIST h", [1, 0]),
        ("COPY h copy", [2, 0]),
        ("RENAME h copy", [1, 0]),
        ("COPY copy copy DB 1", [1, 1]),
        ("SET copy string", [0, 1]),
        ("SWAPDB 0 1", [1, 0]),
        ("RENAME copy moved", [1, 0]),
        ("MOVE moved 1", [0, 1]),
        ("SWAPDB 0 1", [1, 0]),
        ("HSETEX other EX 100 FIELDS 1 a 1", [2, 0]),
        ("UNLINK moved", [1, 0]),
        ("HSETEX moment PX 50 FIELDS 1 a 1", [2, 0]),
        ("FLUSHDB", [0, 0]),
        ("HSETEX other EX 100 FIELDS 1 a 1", [1, 0]),
        ("FLUSHALL", [0, 0]),
    ] {
        let answer = process.ask(&client, line);
        assert!(!answer.starts_with('-'), "{line}: {answer}");
        assert_eq!(told(&mut process, &client), counts, "{line}");
    }
    process.ask(&client, "HSETEX moment PX 50 FIELDS 1 a 1");
    assert_eq!(told(&mut process, &client), [1, 0]);
    process.pass(1000);
    process.turns(10);
    assert_eq!(told(&mut process, &client), [0, 0]);
}

#[test]
fn one_hash_among_many_keys_of_its_shard_is_counted() {
    let mut process = SimulatedProcess::new(1);
    let client = process.connect(0);
    let keyspace = &process.server.keyspace;
    let names = (0..).map(|number| format!("key:{number}"));
    let mut names = names.filter(|name| keyspace.hash(name.as_bytes()).shard() == 7);
    let hash = names.next().expect("there are many");
    let mut set = String::from("MSET");
    names.take(130).for_each(|name| write!(set, " {name} v").expect("a string takes it"));
    assert_eq!(process.ask(&client, &set), "+OK\r\n");
    assert_eq!(process.ask(&client, &format!("HSETEX {hash} EX 100 FIELDS 1 a 1")), ":1\r\n");
    assert_eq!(told(&mut process, &client), [1, 0]);
}
