//! Where the server's threads run (`server-cpulist` and similar options).

use std::time::{Duration, Instant};

use bobbin_testkit::{TestServer, peers};

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn threads_run_where_they_are_told_to() {
    let [first, .., last] = &own_cores()[..] else { return };
    let (first, last) = (first.to_string(), last.to_string());
    let lists = ["--server-cpulist", &first, "--bio-cpulist", &last, "--bgsave-cpulist", &last];
    let more = ["--appendonly", "yes", "--aof-rewrite-cpulist", &last, "--save", ""];
    let server = TestServer::bobbin(&[&lists[..], &more].concat());
    let mut client = server.connect();
    // One core is no place for two workers.
    assert_eq!(client.say("CONFIG GET io-threads").items()[1].text(), "1");
    assert!(cores_of(&server, "bobbin-1").is_none());
    for (thread, core) in [("bobbin-0", &first), ("bobbin-accept", &first), ("bobbin-log", &last)] {
        assert_eq!(cores_of(&server, thread).as_ref(), Some(core), "{thread}");
    }
    client.say("SET k v");
    client.say("CONFIG SET rdb-key-save-delay 10000000");
    for (command, thread) in [("BGSAVE", "bobbin-save"), ("BGREWRITEAOF", "bobbin-rewrite")] {
        client.say(command);
        let deadline = Instant::now() + Duration::from_secs(10);
        while cores_of(&server, thread).as_ref() != Some(&last) {
            assert!(Instant::now() < deadline, "{thread}: {:?}", cores_of(&server, thread));
        }
        client.say("CONFIG SET rdb-key-save-delay 0");
        while client.say("INFO persistence").text().contains("_in_progress:1") {}
        client.say("CONFIG SET rdb-key-save-delay 10000000");
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_list_that_is_none_is_refused() {
    let started = TestServer::start(&peers::bobbin(), &["--bio-cpulist", "0-x"]);
    let Err(reason) = started else { panic!("it started") };
    assert!(reason.contains("numbers of cores"), "{reason}");
}

/// Of the threads of a name, the cores of the first: as /proc shows them.
fn cores_of(server: &TestServer, name: &str) -> Option<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.id())).expect("it runs");
    // One may end meanwhile.
    let read = |task: &std::path::Path, file| std::fs::read_to_string(task.join(file)).ok();
    tasks.flatten().map(|task| task.path()).find_map(|task| {
        read(&task, "comm").filter(|comm| comm.trim() == name)?;
        allowed(&read(&task, "status")?)
    })
}

fn allowed(status: &str) -> Option<String> {
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(line.trim().to_owned())
}

/// The first and the last core that this process may use, if there are two.
fn own_cores() -> Vec<usize> {
    let status = std::fs::read_to_string("/proc/self/status").expect("it is there");
    let list = allowed(&status).expect("it says so");
    let numbers = list.split([',', '-']).map(|number| number.parse().expect("a number"));
    numbers.collect()
}
