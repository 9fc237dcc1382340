//! Replicas on which several threads carry out the stream: they come to have what their primary
//! has, in memory and on disk, and their clients hear of each change.

use bobbin_testkit::random::{TestRandom, seed};
use bobbin_testkit::{TestConnection, TestServer, encode_command, until};

/// Commands that the primary gets at once, and so, mostly, the replica.
const PIPELINE: usize = 400;
/// Keys of each type. They lie in different shards.
const KEYS: usize = 60;
const ARGUMENTS: [&str; 6] =
    ["--io-threads", "2", "--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"];

/// A command that changes keys, of any type. Most are for one key.
fn command(random: &mut TestRandom) -> Vec<String> {
    let [key, other] = [0; 2].map(|_| random.below(KEYS));
    let [member, number] = [0; 2].map(|_| random.below(200));
    let fields: String = (0..40).map(|at| format!(" {} {number}", member + at)).collect();
    let line = match random.below(36) {
        0..=3 => format!("SET string:{key} {number}"),
        4 => format!("SET string:{key} {}", "x".repeat(number * 40)),
        5 => format!("APPEND string:{key} {number}"),
        6 => format!("SETEX string:{key} 1000 {number}"),
        7 => format!("PEXPIRE string:{key} 100000000"),
        8 => format!("GETEX string:{key} PERSIST"),
        9 => format!("INCRBY number:{key} {number}"),
        10 => format!("SETBIT number:{key} {number} 1"),
        11..=13 => format!("HSET hash:{key}{fields}"),
        14 => format!("HDEL hash:{key} {member} {number}"),
        15 => format!("HINCRBY hash:{key} {member} {number}"),
        16..=17 => format!("RPUSH list:{key} {member} {number}"),
        18 => format!("LPOP list:{key}"),
        19 => format!("LPOP list:{key} 3"),
        20 => format!("LTRIM list:{key} 1 100"),
        21..=22 => format!("SADD set:{key} {member} {number}"),
        23 => format!("SPOP set:{key}"),
        24..=25 => format!("ZADD sorted:{key} {number} {member}"),
        26 => format!("ZPOPMIN sorted:{key}"),
        27..=28 => format!("XADD stream:{key} MAXLEN ~ 100 * field {number}"),
        29 => format!("PFADD count:{key} {member}"),
        30 => format!("DEL list:{key}"),
        31 => format!("UNLINK set:{key}"),
        32 => format!("MSET string:{key} {number} string:{other} {member}"),
        33 => format!("SMOVE set:{key} set:{other} {member}"),
        34 => format!(
            "EVAL redis.call('INCR',KEYS[1]);redis.call('INCR',KEYS[2]) \
             2 number:{key} number:{other}"
        ),
        // It fails, and so must not come.
        _ => format!("LPUSH string:{key} {number}"),
    };
    line.split(' ').map(str::to_owned).collect()
}

/// Has the primary carry out commands that it gets at once.
fn pipeline(client: &mut TestConnection, commands: &[Vec<String>]) {
    let mut bytes = Vec::new();
    commands.iter().for_each(|words| encode_command(words, &mut bytes));
    client.send_raw(&bytes).expect("it is sent");
    commands.iter().for_each(|_| drop(client.receive().expect("the primary answers")));
}

/// How many commands threads that help the link's have carried out.
fn helped(replica: &TestServer) -> u64 {
    replica.info("replica_helped_commands").parse().expect("it is a number")
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_replica_has_what_its_primary_has() {
    let [primary, second] = [0; 2].map(|_| TestServer::bobbin(&ARGUMENTS));
    let mut first = TestServer::bobbin(&[&ARGUMENTS[..], &["--appendonly", "yes"]].concat());
    first.follow(primary.address().port());
    primary.settle(&[&first]);
    second.follow(first.address().port());
    primary.settle(&[&first, &second]);
    let (seed, mut client, mut rounds) = (seed(), primary.connect(), 0);
    let mut random = TestRandom::new(seed);
    until(|| {
        let commands: Vec<_> = (0..PIPELINE).map(|_| command(&mut random)).collect();
        pipeline(&mut client, &commands);
        rounds += 1;
        rounds > 50 && helped(&first) > 0 && helped(&second) > 0
    });
    primary.settle(&[&first, &second]);
    let digest = primary.digest();
    assert_eq!(first.digest(), digest, "seed {seed}");
    assert_eq!(second.digest(), digest, "seed {seed}");
    for server in [&first, &second] {
        assert!(!server.log().contains("== CRITICAL =="), "seed {seed}");
    }
    let folder = first.folder().to_str().expect("a name").to_owned();
    first.signal("TERM");
    assert!(first.wait(std::time::Duration::from_secs(60)).expect("it ends").success());
    let again = ["--appendonly", "yes", "--dir", &folder];
    let again = TestServer::bobbin(&[&ARGUMENTS[..], &again].concat());
    assert_eq!(again.digest(), digest, "seed {seed}");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn clients_of_a_replica_hear_of_each_change() {
    let [primary, replica] = [0; 2].map(|_| TestServer::bobbin(&ARGUMENTS));
    replica.follow(primary.address().port());
    primary.settle(&[&replica]);
    let [mut keeper, mut waiter, mut watcher] = [0; 3].map(|_| replica.connect());
    let mut client = primary.connect();
    keeper.say("HELLO 3");
    keeper.say("CLIENT TRACKING ON");
    let keys: Vec<_> = (0..PIPELINE).map(|at| format!("key:{at}")).collect();
    let mut rounds = 0;
    until(|| {
        rounds += 1;
        let text = rounds.to_string();
        let get = [&["MGET".to_owned()], &keys[..]].concat();
        assert_eq!(keeper.call(&get).expect("it answers").items().len(), PIPELINE);
        watcher.say("WATCH key:7");
        waiter.send(&["XREAD", "BLOCK", "0", "STREAMS", "stream", "$"]).expect("it is sent");
        until(|| replica.info("blocked_clients") == "1");
        let fields = (0..40).flat_map(|at| [at.to_string(), text.clone()]);
        let fields: Vec<_> = fields.collect();
        let mut commands: Vec<_> = keys
            .iter()
            .map(|key| [&["HSET".to_owned(), key.clone()], &fields[..]].concat())
            .collect();
        let id = format!("{rounds}-1");
        let add = ["XADD", "stream", &id, "field", &text].map(str::to_owned);
        commands.insert(PIPELINE / 2, add.to_vec());
        commands.insert(PIPELINE / 2 + 1, ["DEL", "stream"].map(str::to_owned).to_vec());
        pipeline(&mut client, &commands);
        let read = waiter.receive().expect("it is served");
        assert_eq!(read.items()[0].items()[1].items()[0].items()[0].text(), id);
        primary.settle(&[&replica]);
        watcher.say("MULTI");
        watcher.say("PING");
        assert!(watcher.say("EXEC").is_null(), "what it watched has changed");
        let mut gone: Vec<_> = (0..PIPELINE).map(|_| revoked(&mut keeper)).collect();
        gone.sort_unstable();
        let mut wanted = keys.clone();
        wanted.sort_unstable();
        assert_eq!(gone, wanted);
        primary.connect().call(&[&["UNLINK".to_owned()], &keys[..]].concat()).expect("it answers");
        primary.settle(&[&replica]);
        helped(&replica) > 0
    });
}

/// The key that a push of client-side caching is about.
fn revoked(client: &mut TestConnection) -> String {
    let push = client.receive().expect("it is told");
    assert_eq!(push.items()[0].text(), "invalidate");
    push.items()[1].items()[0].text()
}
