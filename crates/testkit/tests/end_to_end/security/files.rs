//! The files that the server makes: what is in them, who may read them, and what stands in their
//! way.

use std::fs::Permissions;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use bobbin_testkit::disk::{Folder, make_pipe};
use bobbin_testkit::{TestConnection, TestServer, peers, until};

/// Words that end a line are written as words: none becomes a directive of the next start.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_is_set_does_not_become_a_directive() {
    const EVIL: &str = "enable-protected-configs\tyes\nuser\tevil\ton\tnopass\t~*\t+@all";
    let folder = Folder::new();
    let file = folder.path().join("bobbin.conf");
    std::fs::write(&file, "timeout 9\n").expect("written");
    let path = file.to_str().expect("a path");
    let server = TestServer::bobbin(&[path]);
    let mut client = server.connect();
    for (option, value) in [
        ("bind", format!("127.0.0.1 -x\n{EVIL}")),
        ("requirepass", format!("x\n{EVIL}\n\"' \\ \0\u{ff}")),
        ("metrics-hosts", format!("a\r{EVIL}")),
        ("availability-zone", format!("\n{EVIL}\n")),
        ("tls-ciphers", format!("'\n{EVIL}\n'")),
    ] {
        // Whatever is refused cannot do harm.
        let _ = client.call(&["CONFIG", "SET", option, &value]).expect("an answer");
    }
    let password = format!("x\n{EVIL}\n\"' \\ \0\u{ff}");
    // The name of nobody, which would have a line of its own.
    client.call(&["ACL", "SETUSER", "a\"b\\c'#", "on", "+@all", "~x\"y"]).expect("an answer");
    assert_eq!(client.say("CONFIG REWRITE").text(), "OK");
    let shown = client.say("CONFIG GET *");
    let users = client.say("ACL LIST");
    drop(client);
    drop(server);

    let text = std::fs::read_to_string(&file).expect("read");
    // The folder that the server worked in has gone with it.
    let lines = text.split_inclusive('\n').filter(|line| !line.starts_with("dir "));
    let text: String = lines.collect();
    std::fs::write(&file, &text).expect("written");
    for line in text.lines() {
        assert!(!line.starts_with("enable-protected-configs"), "{text}");
        assert!(!line.starts_with("user\t"), "{text}");
    }
    let server = TestServer::bobbin(&[path]);
    let mut client = server.connect();
    assert_eq!(client.call(&["AUTH", &password]).expect("an answer").text(), "OK", "{text}");
    assert_eq!(client.say("ACL LIST"), users);
    let mut differ = Vec::new();
    let again = client.say("CONFIG GET *");
    for (old, new) in shown.items().chunks(2).zip(again.items().chunks(2)) {
        // These are told to each start anew.
        if old != new && !["port", "bind", "dir"].contains(&old[0].text().as_str()) {
            differ.push((old[0].text(), old[1].text(), new[1].text()));
        }
    }
    assert!(differ.is_empty(), "{differ:?}\n{text}");
}

/// CONFIG REWRITE and ACL SAVE keep the permissions of their files, but never let other users read
/// passwords.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn secrets_stay_with_their_owner() {
    for (mode, password, kept) in
        [(0o600, "", 0o600), (0o644, "", 0o644), (0o644, "secret", 0o640), (0o600, "secret", 0o600)]
    {
        let folder = Folder::new();
        let (file, users) = (folder.path().join("bobbin.conf"), folder.path().join("users.acl"));
        std::fs::write(&file, "").expect("written");
        std::fs::write(&users, "user default on nopass ~* &* +@all\n").expect("written");
        set_mode(&file, mode);
        set_mode(&users, mode);
        let arguments =
            [file.to_str().expect("a path"), "--aclfile", users.to_str().expect("a path")];
        let server = TestServer::bobbin(&arguments);
        let mut client = server.connect();
        if !password.is_empty() {
            assert_eq!(
                client.call(&["CONFIG", "SET", "primaryauth", password]).expect("an answer").text(),
                "OK"
            );
        }
        assert_eq!(client.say("ACL SETUSER a on >password").text(), "OK");
        assert_eq!(client.say("CONFIG REWRITE").text(), "OK");
        assert_eq!(client.say("ACL SAVE").text(), "OK");
        assert_eq!(mode_of(&file), kept, "of {mode:o}, with the password {password:?}");
        assert_eq!(mode_of(&users), mode & 0o770, "of {mode:o}");
        let names = std::fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(names, 2, "no other file is left");
    }
}

/// Files of data are for those that the umask lets; what holds passwords is its owner's when it is
/// new.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn new_files_are_for_few() {
    for (umask, of_data) in [("022", 0o644), ("077", 0o600)] {
        let folder = Folder::new();
        let (file, users) = (folder.path().join("bobbin.conf"), folder.path().join("users.acl"));
        std::fs::write(&file, "").expect("written");
        std::fs::write(&users, "").expect("written");
        let begin = || {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("umask {umask}; exec \"$@\""), "sh"]).arg(peers::bobbin());
            shell
        };
        let text = |path: &Path| path.to_str().expect("a path").to_owned();
        let arguments = [&*text(&file), "--aclfile", &text(&users), "--appendonly", "yes"];
        let server = TestServer::start_by(begin, &arguments).expect("it starts");
        let mut client = server.connect();
        for command in ["SET k v", "SAVE", "ACL SETUSER a on >password"] {
            assert_eq!(client.say(command).text(), "OK");
        }
        rewrite_log(&mut client);
        let log = std::fs::read_dir(server.folder().join("appendonlydir")).expect("a log");
        let mut paths: Vec<_> = log.map(|entry| entry.expect("an entry").path()).collect();
        paths.push(server.folder().join("dump.rdb"));
        assert_eq!(paths.len(), 4, "a manifest, a base, an increment, a snapshot: {paths:?}");
        for path in paths {
            assert_eq!(mode_of(&path), of_data, "{}, umask {umask}", path.display());
        }
        std::fs::remove_file(&file).expect("removed");
        std::fs::remove_file(&users).expect("removed");
        assert_eq!(client.say("CONFIG REWRITE").text(), "OK");
        assert_eq!(client.say("ACL SAVE").text(), "OK");
        assert_eq!((mode_of(&file), mode_of(&users)), (0o600, 0o600), "umask {umask}");
    }
}

/// Links under the names that the server gives to what it has not finished, and under those of its
/// files, lead nothing of it elsewhere.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn links_lead_nothing_elsewhere() {
    let folder = Folder::new();
    let path = |name: &str| folder.path().join(name);
    let (file, users) = (path("bobbin.conf"), path("users.acl"));
    std::fs::write(&file, "").expect("written");
    std::fs::write(&users, "user default on nopass ~* &* +@all\n").expect("written");
    let (victim, pid_file) = (path("victim"), path("pid"));
    std::fs::write(&victim, "theirs").expect("written");
    symlink(&victim, &pid_file).expect("linked");
    let text = |path: &Path| path.to_str().expect("a path").to_owned();
    let arguments = [
        &text(&file),
        "--aclfile",
        &text(&users),
        "--pidfile",
        &text(&pid_file),
        "--appendonly",
        "yes",
    ];
    let server = TestServer::bobbin(&arguments);
    let process = server.id();
    assert_eq!(std::fs::read_to_string(&pid_file).expect("read").trim(), process.to_string());
    for name in [format!("bobbin.conf.{process}.tmp"), format!("users.acl.{process}.tmp")] {
        symlink(&victim, path(&name)).expect("linked");
    }
    let data = server.folder();
    for name in [
        format!("temp-{process}-0.rdb"),
        format!("temp-rewriteaof-bg-{process}.aof"),
        "appendonlydir/temp-appendonly.aof.manifest".to_owned(),
        "appendonlydir/appendonly.aof.2.incr.aof".to_owned(),
        "dump.rdb".to_owned(),
    ] {
        symlink(&victim, data.join(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let mut client = server.connect();
    client.say("SET k v");
    assert_eq!(client.say("CONFIG REWRITE").text(), "OK");
    assert_eq!(client.say("ACL SAVE").text(), "OK");
    assert_eq!(client.say("SAVE").text(), "OK");
    rewrite_log(&mut client);
    for name in ["dump.rdb", "appendonlydir/appendonly.aof.2.incr.aof"] {
        let kind = std::fs::symlink_metadata(data.join(name)).expect("it is there").file_type();
        assert!(kind.is_file(), "{name}");
    }
    assert_eq!(std::fs::read_to_string(&victim).expect("read"), "theirs");
    assert!(std::fs::symlink_metadata(&file).expect("it is there").is_file());
}

/// A configuration file that is a link becomes a file, as with Valkey; what it led to stays.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_linked_configuration_becomes_a_file() {
    for (name, start) in [
        ("valkey", TestServer::valkey as fn(&[&str]) -> TestServer),
        ("bobbin", TestServer::bobbin),
    ] {
        let folder = Folder::new();
        let (real, link) = (folder.path().join("real.conf"), folder.path().join("link.conf"));
        std::fs::write(&real, "timeout 9\n").expect("written");
        symlink(&real, &link).expect("linked");
        let server = start(&[link.to_str().expect("a path")]);
        assert_eq!(server.connect().say("CONFIG REWRITE").text(), "OK", "{name}");
        assert!(std::fs::symlink_metadata(&link).expect("it is there").is_file(), "{name}");
        assert_eq!(std::fs::read_to_string(&real).expect("read"), "timeout 9\n", "{name}");
    }
}

/// What is no file is no place for one: a pipe or a socket is neither written nor replaced.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_is_no_file_is_left_alone() {
    let folder = Folder::new();
    let (socket, users) = (folder.path().join("socket"), folder.path().join("users.acl"));
    let _listener = UnixListener::bind(&socket).expect("bound");
    std::fs::write(&users, "user default on nopass ~* &* +@all\n").expect("written");
    let path = |path: &Path| path.to_str().expect("a path").to_owned();
    let server = TestServer::bobbin(&["--aclfile", &path(&users), "--pidfile", &path(&socket)]);
    assert!(std::fs::metadata(&socket).expect("it is there").file_type().is_socket());
    std::fs::remove_file(&users).expect("removed");
    make_pipe(&users).expect("made");
    let reply = server.connect().say("ACL SAVE");
    assert!(reply.is_error(), "{}", reply.text());
    assert!(std::fs::metadata(&users).expect("it is there").file_type().is_fifo());
}

fn rewrite_log(client: &mut TestConnection) {
    // Refused while the one at the start is going on.
    client.say("BGREWRITEAOF");
    until(|| {
        let info = client.say("INFO persistence").text();
        let is_over = |name: &str| info.contains(&format!("{name}:0\r\n"));
        assert!(info.contains("aof_last_bgrewrite_status:ok\r\n"), "{info}");
        is_over("aof_rewrite_in_progress") && is_over("aof_rewrite_scheduled")
    });
}

fn mode_of(path: &Path) -> u32 {
    std::fs::metadata(path).expect("it is there").mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("its owner may");
}

/// A folder within one that the server's user may not search: no absolute name leads there.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_folder_that_has_no_way_to_it_is_as_good_as_any() {
    const AS_NOBODY: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let folder = Folder::new();
    let (closed, working) = (folder.path().join("closed"), folder.path().join("closed/working"));
    std::fs::create_dir_all(&working).expect("it can be made");
    std::fs::set_permissions(&closed, Permissions::from_mode(0o700)).expect("it is ours");
    std::fs::set_permissions(&working, Permissions::from_mode(0o777)).expect("it is ours");
    // Of the arguments that follow, the first two are the port's. The server stays in its working
    // folder, so `--dir` is left out.
    let begin = || {
        let rest = "\"$0\" \"$1\" \"$2\" --bind 127.0.0.1 --save '' --appendonly yes";
        let script = format!("exec setpriv {} {rest}", AS_NOBODY.join(" "));
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(peers::bobbin()).current_dir(&working);
        command
    };
    let mut trial = Command::new("setpriv");
    trial.args(AS_NOBODY).arg(peers::bobbin()).arg("--version").current_dir(&working);
    if !trial.output().is_ok_and(|output| output.status.success()) {
        println!("not tested: only root can give up its rights");
        return;
    }
    let server = TestServer::start_by(begin, &[]);
    let server = server.unwrap_or_else(|error| panic!("{error}"));
    let mut client = server.connect();
    assert_eq!(client.say("SET k v").text(), "OK");
    assert_eq!(client.say("SAVE").text(), "OK");
    assert!(client.say("BGREWRITEAOF").text().contains("started"));
    until(|| working.join("appendonlydir/appendonly.aof.2.base.rdb").exists());
    assert!(working.join("dump.rdb").exists());
    let is_unfinished = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.expect("it can be read").file_name().to_string_lossy().starts_with("temp-")
    };
    assert!(!std::fs::read_dir(&working).expect("it is there").any(is_unfinished));
}
