//! Files that were cut short, changed or put together wrongly: a clear message, what is sound is
//! loaded where that is asked for, and never a crash.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use bobbin_testkit::disk::Folder;
use bobbin_testkit::{TestConnection, TestServer, peers};

fn ask(connection: &mut TestConnection, words: &[&str]) -> String {
    connection.call(words).expect("answers").text()
}

fn start(folder: &Folder, arguments: &[&str]) -> TestServer {
    let own = ["--dir", folder.text(), "--enable-debug-command", "yes"];
    TestServer::bobbin(&[&own[..], arguments].concat())
}

/// The folder of a server that was killed after it wrote `keys` keys.
fn log_of(keys: usize) -> Folder {
    let folder = Folder::new();
    let mut server = start(&folder, &LOG);
    let mut client = server.connect();
    for number in 0..keys {
        client.say(&format!("SET key{number} value"));
    }
    assert!(server.kill());
    folder
}

const LOG: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];
const INCREMENT: &str = "appendonly.aof.1.incr.aof";

/// A log cut off at any byte loads up to its last whole command, or transaction.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn every_beginning_of_a_log_is_loaded() {
    let folder = Folder::new();
    let server = start(&folder, &[&LOG[..], &["--aof-timestamp-enabled", "yes"]].concat());
    let mut client = server.connect();
    let path = folder.log().join(INCREMENT);
    // How long the file is after each command, and what there is then.
    let mut states = vec![(0, digest(&mut client))];
    for line in [
        "SET s value",
        "RPUSH l a b c",
        "MULTI;INCR n;SADD m x y;SELECT 3;SET other 1;SELECT 0;EXEC",
        "HSET h f v",
        "HPEXPIRE h 1000000 FIELDS 1 f",
        "ZADD z 1.5 m",
        "XADD x 1-1 f v",
        "DEL s",
        "SET s 2 EX 1000",
    ] {
        for command in line.split(';') {
            client.say(command);
        }
        let len = fs::metadata(&path).expect("it is there").len();
        states.push((len, digest(&mut client)));
    }
    let whole = fs::read(&path).expect("it is there");
    assert!(whole.starts_with(b"#TS:"), "{}", whole.escape_ascii());
    for len in (0..=whole.len()).rev() {
        fs::write(&path, &whole[..len]).expect("is written");
        assert_eq!(ask(&mut client, &["DEBUG", "LOADAOF"]), "OK", "{len}");
        let (_, expected) = states
            .iter()
            .rev()
            .find(|(end, _)| *end <= len as u64)
            .expect("the first one is empty");
        assert_eq!(&digest(&mut client), expected, "cut off at {len}");
    }
    // It goes on behind what was cut off.
    client.say("SET after 1");
    assert_eq!(ask(&mut client, &["DEBUG", "LOADAOF"]), "OK");
    assert_eq!(client.say("GET after").text(), "1");
}

/// A byte of a snapshot that is another is found, by its checksum or before; without one the server
/// lives on.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn every_flipped_byte_of_a_snapshot_is_survived() {
    for checksum in ["yes", "no"] {
        let folder = Folder::new();
        let mut server = start(&folder, &["--rdbchecksum", checksum]);
        let mut client = server.connect();
        fill(&mut client);
        let before = digest(&mut client);
        assert_eq!(ask(&mut client, &["SAVE"]), "OK");
        let path = folder.path().join("dump.rdb");
        let whole = fs::read(&path).expect("it was saved");
        for at in 0..whole.len() {
            for bit in [0x01, 0x80] {
                let mut flipped = whole.clone();
                flipped[at] ^= bit;
                fs::write(&path, &flipped).expect("is written");
                let reply = ask(&mut client, &["DEBUG", "RELOAD", "NOSAVE"]);
                let sound = reply == "OK";
                assert!(sound || reply.starts_with("ERR Error trying to load"), "{at}: {reply}");
                // Whatever came of it can be looked at.
                let found = digest(&mut client);
                if sound && checksum == "yes" {
                    // The first versions had no checksum, and nothing else is different here.
                    assert!(VERSION.contains(&at), "{at}: a flipped bit was not found");
                    assert_eq!(found, before);
                }
            }
        }
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).expect("is written");
            let reply = ask(&mut client, &["DEBUG", "RELOAD", "NOSAVE"]);
            assert!(reply.starts_with("ERR Error trying to load"), "{len}: {reply}");
        }
        assert!(server.is_running());
        fs::write(&path, &whole).expect("is written");
        assert_eq!(ask(&mut client, &["DEBUG", "RELOAD", "NOSAVE"]), "OK");
    }
}

/// A base whose items are whole, but not what they say: the tool finds it, as loading does.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_base_that_cannot_be_loaded_is_found() {
    let folder = Folder::new();
    fs::create_dir(folder.log()).expect("a folder");
    let manifest = folder.log().join("appendonly.aof.manifest");
    fs::write(&manifest, "file appendonly.aof.1.base.rdb seq 1 type b\n").expect("is written");
    for (items, fault) in [
        (&b"\0\x01k\x01v\0\x01k\x01v"[..], "duplicated key 'k'"),
        // A listpack that is too short for what it says.
        (b"\x10\x01h\x07\x07\0\0\0\x05\0\xff", "at key 'h'"),
        (b"\xf5\x05wrong", "a function library cannot be loaded"),
    ] {
        let base = [b"REDIS0011", items, b"\xff\0\0\0\0\0\0\0\0"].concat();
        fs::write(folder.log().join("appendonly.aof.1.base.rdb"), base).expect("is written");
        let (status, said) = run("--check-aof", &[manifest.to_str().expect("UTF-8")]);
        assert!(status == Some(1) && said.contains(fault), "{said}");
        let refused = refusal(&folder);
        assert!(refused.contains("AOF loading aborted") && refused.contains(fault), "{refused}");
    }
}

/// Damage in the snapshot that a log begins with: the tool finds it, and the server does not start.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn every_flipped_byte_of_a_base_is_found() {
    let folder = Folder::new();
    let mut server = start(&folder, &LOG);
    let mut client = server.connect();
    fill(&mut client);
    client.say("BGREWRITEAOF");
    while !ask(&mut client, &["INFO", "persistence"]).contains("aof_rewrite_in_progress:0") {}
    assert!(server.kill());
    drop(server);
    let path = folder.log().join("appendonly.aof.2.base.rdb");
    let manifest = folder.log().join("appendonly.aof.manifest");
    let whole = fs::read(&path).expect("it is there");
    for at in (0..whole.len()).filter(|at| !VERSION.contains(at)) {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x01;
        fs::write(&path, &flipped).expect("is written");
        let (status, said) = run("--check-aof", &[manifest.to_str().expect("UTF-8")]);
        assert_eq!(status, Some(1), "{at}: {said}");
        if at % 32 == 9 {
            let refused = refusal(&folder);
            assert!(refused.contains("AOF loading aborted"), "{at}: {refused}");
        }
    }
    fs::write(&path, &whole).expect("is written");
    let server = start(&folder, &LOG);
    assert_eq!(server.connect().say("DBSIZE").as_integer(), Some(9));
}

/// A manifest with any byte changed, or cut short, is refused with a reason, or names what there
/// is.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn every_damaged_manifest_is_refused_or_sound() {
    let folder = log_of(1);
    let path = folder.log().join("appendonly.aof.manifest");
    let whole = fs::read(&path).expect("it is there");
    let mut damaged: Vec<Vec<u8>> = (0..whole.len()).map(|len| whole[..len].to_vec()).collect();
    damaged.extend((0..whole.len()).map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x20;
        bytes
    }));
    // The same part twice, in both kinds.
    let text = String::from_utf8(whole.clone()).expect("is text");
    damaged.extend(text.lines().map(|line| format!("{text}{line}\n").into_bytes()));
    for bytes in damaged {
        fs::write(&path, &bytes).expect("is written");
        let (status, said) = run("--check-aof", &[path.to_str().expect("UTF-8")]);
        assert!(matches!(status, Some(0 | 1)), "{}: {said}", bytes.escape_ascii());
        assert!(status == Some(0) || !said.is_empty());
        // Behind a whole line only the other part is missing, as far as a manifest can tell.
        let cut_at_a_line = whole.starts_with(&bytes) && bytes.ends_with(b"\n");
        let lower = bytes.to_ascii_lowercase();
        if status == Some(0) && !cut_at_a_line {
            assert!(lower == whole, "{} was taken: {said}", bytes.escape_ascii());
        }
    }
    fs::write(&path, &whole).expect("is written");
    let server = start(&folder, &LOG);
    assert_eq!(server.connect().say("GET key0").text(), "value");
}

/// A part that is missing, twice there or damaged in its middle keeps the server from starting, and
/// says so.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn logs_that_are_no_logs_any_more_are_refused() {
    let folder = log_of(5);
    let path = folder.log().join(INCREMENT);
    let whole = fs::read(&path).expect("it is there");
    let middle = whole.len() / 2;
    let mut flipped = whole.clone();
    // The length of an argument.
    let at = whole[middle..].iter().position(|&byte| byte == b'$').expect("there is one") + middle;
    flipped[at + 1] = b'9';
    let twice = [&whole[..middle], &whole].concat();
    let unknown = [&whole[..], b"*1\r\n$4\r\nNOPE\r\n"].concat();
    let too_short = [&whole[..], b"*1\r\n$3\r\nGET\r\n"].concat();
    for (bytes, reason) in [
        (&flipped, "Bad file format reading the append only file"),
        (&twice, "Bad file format reading the append only file"),
        (&unknown, "incr.aof, error: unknown command 'NOPE', with args beginning with: "),
        (&too_short, "incr.aof, error: wrong number of arguments for 'get' command"),
    ] {
        fs::write(&path, bytes).expect("is written");
        let refused = refusal(&folder);
        assert!(refused.contains(reason), "{refused}");
        assert_eq!(&fs::read(&path).expect("it is there"), bytes, "it is left as it is");
    }
    fs::remove_file(&path).expect("ours");
    let refused = refusal(&folder);
    assert!(refused.contains("for reading: No such file"), "{refused}");
    fs::write(&path, &whole).expect("is written");
    let server = start(&folder, &LOG);
    assert_eq!(server.connect().say("DBSIZE").as_integer(), Some(5));
}

/// What the tool mends can be loaded, and holds what was before the damage.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_the_tool_mends_can_be_loaded() {
    let folder = log_of(5);
    let path = folder.log().join(INCREMENT);
    let manifest = folder.log().join("appendonly.aof.manifest");
    let manifest = manifest.to_str().expect("UTF-8");
    let whole = fs::read(&path).expect("it is there");
    for damage in [
        &b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n"[..],
        b"*1\r\n$5\r\nMULTI\r\n*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n",
        b"*1\r\n$4\r\nEXEC\r\n",
        b"hello",
        b"*2\r\n$3\r\nDEL$1\r\nk\r\n",
    ] {
        fs::write(&path, [&whole[..], damage].concat()).expect("is written");
        let (status, said) = run("--check-aof", &[manifest]);
        assert_eq!(status, Some(1), "{said}");
        let (status, said) = run("--check-aof", &["--fix", manifest]);
        assert_eq!(status, Some(0), "{said}");
        assert_eq!(fs::read(&path).expect("it is there"), whole, "{said}");
    }
    let server = start(&folder, &LOG);
    assert_eq!(server.connect().say("DBSIZE").as_integer(), Some(5));
}

/// Where a snapshot's version is.
const VERSION: std::ops::Range<usize> = 5..9;

/// A bit of every kind of value.
fn fill(client: &mut TestConnection) {
    for line in [
        "SET s value",
        "SET i 12345 EX 10000",
        "RPUSH l a b c",
        "SADD m x y",
        "SADD n 1 2 3",
        "ZADD z 1.5 m",
        "HSET h f v",
        "XADD x 1-1 f v",
        "XGROUP CREATE x g 0",
        "XREADGROUP GROUP g me STREAMS x >",
        "PFADD p a",
    ] {
        assert!(!client.say(line).is_error(), "{line}");
    }
}

fn digest(client: &mut TestConnection) -> String {
    ask(client, &["DEBUG", "DIGEST"])
}

/// What a server that must not start says.
fn refusal(folder: &Folder) -> String {
    let arguments = [&LOG[..], &["--dir", folder.text()]].concat();
    TestServer::start(&peers::bobbin(), &arguments).expect_err("it must not start")
}

/// One of the server's tools; every question is answered by yes.
fn run(tool: &str, arguments: &[&str]) -> (Option<i32>, String) {
    use std::io::Write;
    let mut child = Command::new(peers::bobbin())
        .arg(tool)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    // It need not ask.
    let _ = child.stdin.take().expect("a pipe").write_all(b"y\n");
    let output = child.wait_with_output().expect("it ends");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Valkey's own files, where its checkout is at hand (`tools/tcl-suite` makes one): old snapshots
/// load, corrupt ones are refused.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn the_files_of_valkeys_own_tests() {
    let assets = peers::cache_folder().join("suites/valkey/tests/assets");
    if !assets.is_dir() {
        println!("{} is not there: not tested", assets.display());
        return;
    }
    for (name, keys) in [
        ("encodings.rdb", Some(13)),
        ("hash-ziplist.rdb", Some(1)),
        ("hash-zipmap.rdb", Some(1)),
        ("list-quicklist.rdb", Some(2)),
        ("zset-ziplist.rdb", Some(1)),
        ("corrupt_empty_keys.rdb", None),
        ("corrupt_ziplist.rdb", None),
    ] {
        let folder = Folder::new();
        fs::copy(assets.join(name), folder.path().join(name)).expect("a copy");
        let arguments =
            ["--dir", folder.text(), "--dbfilename", name, "--enable-debug-command", "yes"];
        let ours = TestServer::start(&peers::bobbin(), &arguments);
        let theirs = TestServer::start(&peers::peer("valkey-server"), &arguments);
        assert_eq!(ours.is_ok(), theirs.is_ok(), "{name}: {:?}", ours.err());
        let (Ok(ours), Ok(theirs)) = (ours, theirs) else { continue };
        let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
        assert_eq!(digest(&mut ours), digest(&mut theirs), "{name}");
        let found = ours.say("DBSIZE").as_integer();
        assert!(keys.is_none() || found == keys, "{name}: {found:?}");
    }
    let folder = Folder::new();
    fs::create_dir(folder.log()).expect("a folder");
    copy_as(&assets.join("rdb-preamble.aof"), &folder.log().join("appendonly.aof.1.base.rdb"));
    fs::write(
        folder.log().join("appendonly.aof.manifest"),
        "file appendonly.aof.1.base.rdb seq 1 type b\n",
    )
    .expect("is written");
    let server = start(&folder, &LOG);
    assert_eq!(server.connect().say("GET k1").text(), "v1");
}

fn copy_as(from: &Path, to: &Path) {
    fs::copy(from, to).expect("a copy");
}
