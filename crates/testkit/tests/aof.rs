//! The log on disk: what comes back after a crash, an end cut off, a rewrite, a change of mind, a full disk.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bobbin_testkit::peers;
use bobbin_testkit::random::{Random, seed};
use bobbin_testkit::{Connection, Reply, Server};

/// A server whose log lies in a folder that outlives it.
fn start(folder: &Folder, arguments: &[&str]) -> Server {
    let dir = folder.0.to_str().expect("a path of ours");
    let own = [
        "--dir",
        dir,
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
        "--enable-debug-command",
        "yes",
    ];
    Server::bobbin(&[&own, arguments].concat())
}

/// Every kind of value, deadlines, a transaction, another database: all there after a crash, and once more after
/// a rewrite.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn everything_comes_back() {
    let folder = Folder::new();
    let mut server = start(&folder, &[]);
    let mut client = server.connect();
    for line in [
        "SET string value EX 1000",
        "INCRBYFLOAT float 10.5",
        "RPUSH list a b c",
        "LPOP list",
        "SADD set a b c d",
        "SPOP set",
        "ZADD zset 1 a 2 b",
        "ZINCRBY zset 5 a",
        "HSET hash a 1 b 2",
        "HEXPIRE hash 1000 FIELDS 1 a",
        "XADD stream * field value",
        "XGROUP CREATE stream group 0",
        "XREADGROUP GROUP group me STREAMS stream >",
        "PFADD hll a b c",
        "SET gone 1 PX 1",
        "MULTI",
        "SELECT 3",
        "SET other 1",
        "SELECT 0",
        "INCR counter",
        "EXEC",
    ] {
        client.call(&line.split(' ').collect::<Vec<_>>()).expect("it answers");
    }
    // What is gone shall be gone in both.
    std::thread::sleep(Duration::from_millis(20));
    let before = digest(&mut client);
    kill(&mut server);
    let mut server = start(&folder, &[]);
    let mut client = server.connect();
    assert_eq!(digest(&mut client), before);
    client.call(&["BGREWRITEAOF"]).expect("it answers");
    wait_for_rewrite(&mut client);
    client.call(&["SET", "after", "1"]).expect("it answers");
    let before = digest(&mut client);
    kill(&mut server);
    let names = names(&folder.log());
    assert_eq!(names.len(), 3, "one base, one increment, the manifest: {names:?}");
    let server = start(&folder, &[]);
    assert_eq!(digest(&mut server.connect()), before);
}

/// Killed at any moment, under load from several clients: everything that was acknowledged is there.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_was_acknowledged_survives_being_killed() {
    let rounds = std::env::var("BOBBIN_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    let (folder, seed) = (Folder::new(), seed());
    let mut random = Random::new(seed);
    let mut acknowledged = [0u64; CLIENTS];
    for round in 0..rounds {
        let mut server = start(&folder, &["--io-threads", "3"]);
        let mut client = server.connect();
        for (number, &count) in acknowledged.iter().enumerate() {
            check_client(&mut client, number, count, round);
        }
        if round % 3 == 2 {
            client.call(&["BGREWRITEAOF"]).expect("it answers");
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let (client, stop) = (server.connect(), &stop);
                    let from = read_count(&mut server.connect(), number);
                    scope.spawn(move || write(client, number, from, stop))
                })
                .collect();
            std::thread::sleep(Duration::from_millis(20 + random.below(150) as u64));
            kill(&mut server);
            stop.store(true, Ordering::Relaxed);
            for (count, thread) in acknowledged.iter_mut().zip(threads) {
                *count = thread.join().expect("it ends");
            }
        });
    }
}

const CLIENTS: usize = 4;

/// Adds 1 to three keys in one transaction, again and again; returns how far it was told that it came.
fn write(mut client: Connection, number: usize, from: u64, stop: &AtomicBool) -> u64 {
    let mut done = from;
    while !stop.load(Ordering::Relaxed) {
        let next = (done + 1).to_string();
        let keys = ["a", "b", "c"].map(|name| format!("{name}{number}"));
        let answered = (|| {
            client.call(&["MULTI"]).ok()?;
            client.call(&["INCR", &keys[0]]).ok()?;
            client.call(&["SET", &keys[1], &next]).ok()?;
            client.call(&["RPUSH", &keys[2], &next]).ok()?;
            client.call(&["EXEC"]).ok()
        })();
        if answered.is_none() {
            break;
        }
        done += 1;
    }
    done
}

fn read_count(client: &mut Connection, number: usize) -> u64 {
    let reply = client.call(&["GET", &format!("a{number}")]).expect("it answers");
    text(&reply).parse().unwrap_or(0)
}

/// The transactions of a client are whole, and all that it was told of are there; one more may be.
fn check_client(client: &mut Connection, number: usize, acknowledged: u64, round: usize) {
    let count = read_count(client, number);
    let range = acknowledged..=acknowledged + 1;
    assert!(range.contains(&count), "round {round}: {count} are there, {acknowledged} were told");
    if count > 0 {
        let value = client.call(&["GET", &format!("b{number}")]).expect("it answers");
        let len = client.call(&["LLEN", &format!("c{number}")]).expect("it answers");
        let last = client.call(&["LINDEX", &format!("c{number}"), "-1"]).expect("it answers");
        let expected = count.to_string();
        assert_eq!(
            [text(&value), text(&len), text(&last)].map(|is| is == expected),
            [true; 3],
            "round {round}"
        );
    }
}

/// An end that was cut off is passed over, or refused, as the configuration says; `--fix` mends it.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn an_end_that_was_cut_off() {
    let folder = Folder::new();
    let mut server = start(&folder, &[]);
    let mut client = server.connect();
    for number in 0..10 {
        client.call(&["SET", &format!("key{number}"), "value"]).expect("it answers");
    }
    kill(&mut server);
    drop(server);
    let increment = folder.log().join("appendonly.aof.1.incr.aof");
    let len = fs::metadata(&increment).expect("it is there").len();
    cut(&increment, len - 3);
    let manifest = folder.log().join("appendonly.aof.manifest");
    assert!(!check_tool(&[manifest.to_str().expect("ours")], "").contains("are valid"));
    let kept = folder.0.join("kept");
    fs::copy(&increment, &kept).expect("a copy");
    let server = start(&folder, &[]);
    assert_eq!(text(&server.connect().call(&["DBSIZE"]).expect("it answers")), "9");
    drop(server);
    fs::copy(&kept, &increment).expect("a copy");
    let dir = folder.0.to_str().expect("ours");
    let refused = Server::start(
        &peers::bobbin(),
        &["--dir", dir, "--appendonly", "yes", "--aof-load-truncated", "no"],
    );
    let log = refused.expect_err("it must not start");
    assert!(log.contains("Unexpected end of file reading the append only file"), "{log}");
    let said = check_tool(&["--fix", manifest.to_str().expect("ours")], "y\n");
    assert!(said.contains("Successfully truncated AOF"), "{said}");
    assert!(check_tool(&[manifest.to_str().expect("ours")], "").contains("are valid"));
}

/// `appendonly` can be turned on and off while clients write.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn it_can_be_turned_on_and_off() {
    let folder = Folder::new();
    let dir = folder.0.to_str().expect("ours");
    let mut server = Server::bobbin(&["--dir", dir, "--enable-debug-command", "yes"]);
    let mut client = server.connect();
    client.call(&["SET", "before", "1"]).expect("it answers");
    for _ in 0..2 {
        let on = client.call(&["CONFIG", "SET", "appendonly", "yes"]).expect("it answers");
        assert_eq!(text(&on), "OK");
        client.call(&["INCR", "during"]).expect("it answers");
        wait_for_rewrite(&mut client);
        client.call(&["INCR", "during"]).expect("it answers");
        client.call(&["CONFIG", "SET", "appendonly", "no"]).expect("it answers");
        client.call(&["INCR", "after"]).expect("it answers");
    }
    client.call(&["CONFIG", "SET", "appendonly", "yes"]).expect("it answers");
    wait_for_rewrite(&mut client);
    client.call(&["INCR", "during"]).expect("it answers");
    let waited = client.call(&["WAITAOF", "1", "0", "0"]).expect("it answers");
    assert_eq!(waited.items()[0].as_integer(), Some(1));
    let before = digest(&mut client);
    kill(&mut server);
    let server = start(&folder, &[]);
    let mut client = server.connect();
    assert_eq!(digest(&mut client), before);
    assert_eq!(text(&client.call(&["GET", "during"]).expect("it answers")), "5");
}

/// On a full disk writes are refused, reads go on, and all is well once there is room.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_full_disk() {
    let folder = Folder::new();
    let disk = folder.0.join("disk");
    fs::create_dir(&disk).expect("a folder");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(&disk)
        .status()
        .is_ok_and(|status| status.success());
    if !mounted {
        println!("no right to mount a small disk: not tested");
        return;
    }
    let _unmount = Unmount(&disk);
    let dir = disk.to_str().expect("ours");
    let mut server = Server::bobbin(&["--dir", dir, "--appendonly", "yes"]);
    let mut client = server.connect();
    let value = "x".repeat(50_000);
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut acknowledged = 0;
    loop {
        let reply = client.call(&["SET", "key", &value]).expect("it answers");
        if text(&reply).contains("MISCONF") {
            break;
        }
        acknowledged += 1;
        assert!(Instant::now() < deadline, "{acknowledged} writes went to a full disk");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(acknowledged >= 10);
    assert_eq!(text(&client.call(&["GET", "key"]).expect("it answers")).len(), value.len());
    let bigger = Command::new("mount").args(["-o", "remount,size=64m"]).arg(&disk).status();
    assert!(bigger.is_ok_and(|status| status.success()));
    loop {
        let reply = client.call(&["SET", "last", "1"]).expect("it answers");
        if text(&reply) == "OK" {
            break;
        }
        assert!(Instant::now() < deadline, "no recovery");
        std::thread::sleep(Duration::from_millis(20));
    }
    client.call(&["WAITAOF", "1", "0", "0"]).expect("it answers");
    kill(&mut server);
    let server = Server::bobbin(&["--dir", dir, "--appendonly", "yes"]);
    let mut client = server.connect();
    assert_eq!(text(&client.call(&["GET", "last"]).expect("it answers")), "1");
    assert_eq!(text(&client.call(&["STRLEN", "key"]).expect("it answers")), "50000");
}

struct Unmount<'p>(&'p Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

// Help.

fn text(reply: &Reply) -> String {
    reply.text()
}

fn digest(client: &mut Connection) -> String {
    client.call(&["DEBUG", "DIGEST"]).expect("it answers").text()
}

fn wait_for_rewrite(client: &mut Connection) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let info = client.call(&["INFO", "persistence"]).expect("it answers");
        let info = info.text();
        if info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0") {
            return;
        }
        assert!(Instant::now() < deadline, "the rewrite does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// SIGKILL.
fn kill(server: &mut Server) {
    let killed = Command::new("kill").args(["-9", &server.id().to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    server.wait(Duration::from_secs(10)).expect("it is dead");
}

fn cut(path: &Path, len: u64) {
    OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|file| file.set_len(len))
        .expect("it is ours");
}

/// What `bobbin-server --check-aof` says.
fn check_tool(arguments: &[&str], input: &str) -> String {
    use std::io::Write;
    use std::process::Stdio;
    let mut child = Command::new(peers::bobbin())
        .arg("--check-aof")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("it is there");
    entries.map(|entry| entry.expect("ours").file_name().to_string_lossy().into_owned()).collect()
}

/// A folder that goes away.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        use std::sync::atomic::AtomicU32;
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("bobbin-aof-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    fn log(&self) -> PathBuf {
        self.0.join("appendonlydir")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
