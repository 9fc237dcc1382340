//! `--cluster` on clusters of real Valkeys, beside valkey-cli on the same cluster.

use std::{fs, process::Command, thread, time::Duration};

use crate::{
    common::{Ran, eventually, finish, program},
    shell::Terminal,
};
use bobbin_testkit::{
    TestServer, peers,
    server::cluster::{TestCluster, nodes},
};

fn address(server: &TestServer) -> String {
    server.address().to_string()
}

fn id(server: &TestServer) -> String {
    server.connect().say("CLUSTER MYID").text()
}

fn say(server: &TestServer, line: &str) -> String {
    server.connect().say(line).text()
}

/// Runs the manager, with an answer on the standard input.
fn manage_with(arguments: &[&str], input: &str) -> Ran {
    let mut command = program();
    command.arg("--cluster").args(arguments).env("TERM", "dumb");
    finish(command, input.as_bytes())
}

fn manage(arguments: &[&str]) -> Ran {
    manage_with(arguments, "")
}

/// Runs valkey-cli's manager.
fn manage_by_valkey(arguments: &[&str]) -> Ran {
    let mut command = Command::new(peers::peer("valkey-cli"));
    // Its colours depend on the terminal's name alone; what stays of them is taken out.
    command.arg("--cluster").args(arguments).env("TERM", "dumb");
    let mut ran = finish(command, b"");
    for code in ["\x1b[0m", "\x1b[29;1m", "\x1b[31;1m", "\x1b[32;1m", "\x1b[33;1m"] {
        ran.output = ran.output.replace(code, "");
    }
    ran
}

fn settled(cluster: &TestCluster) {
    cluster.wait_until_ok();
    let first = address(&cluster.nodes[0]);
    eventually("the nodes agree", || {
        manage(&["check", &first]).output.contains("[OK] All nodes agree")
    });
}

/// Waits until replicas have what their primaries have, and are known as such everywhere.
fn replicated(servers: &[TestServer]) {
    eventually("replicas are in step", || {
        servers.iter().all(|server| {
            let role = say(server, "INFO replication");
            role.contains("role:master") || role.contains("master_link_status:up")
        })
    });
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_cluster_is_made_and_looked_at() {
    let servers = nodes(6, &["--repl-diskless-sync-delay", "0"]);
    let addresses: Vec<String> = servers.iter().map(address).collect();
    let mut words = vec!["create"];
    words.extend(addresses.iter().map(String::as_str));
    words.extend(["--cluster-replicas", "1"]);
    // Nobody agreed: nothing is done, and that is no failure.
    let asked = manage(&words).ok();
    assert!(asked.contains("Primary[1] -> Slots 5461 - 10922\n"), "{asked}");
    assert!(asked.ends_with("(type 'yes' to accept): "), "{asked}");
    assert!(say(&servers[0], "CLUSTER INFO").contains("cluster_known_nodes:1"));
    let theirs = manage_by_valkey(&words);
    let (plan, _) = theirs.output.split_once(">>> Trying").unwrap();
    assert!(asked.starts_with(plan), "{asked}\n{plan}");

    let made = manage_with(&words, "yes\n").ok();
    assert!(made.contains("[OK] All 16384 slots covered.\n"), "{made}");
    replicated(&servers);
    let cluster = TestCluster { nodes: servers };
    settled(&cluster);
    let again = manage(&words);
    assert!(again.output.contains("is not empty"), "{again:?}");
    assert_eq!(again.status, Some(1));

    let first = addresses[0].as_str();
    let (host, port) = first.split_once(':').unwrap();
    for key in 0..100 {
        let key = key.to_string();
        let mut set = program();
        set.args(["-c", "-p", port, "SET", &key, "value"]);
        assert_eq!(finish(set, b"").ok(), "OK\n");
    }
    let own = id(&cluster.nodes[0]);
    for arguments in [
        &["info", first][..],
        &["info", host, port],
        &["check", first],
        &["check", first, "--cluster-search-multiple-owners"],
        &["call", first, "config", "get", "maxmemory"],
        &["call", first, "nonsense"],
        &["call", first, "ping", "--cluster-only-primaries"],
        &["call", first, "ping", "--cluster-only-masters"],
        &["call", first, "ping", "--cluster-only-replicas"],
        &["rebalance", first],
        &["rebalance", first, "--cluster-threshold", "0.001", "--cluster-simulate"],
        &[
            "rebalance",
            first,
            "--cluster-weight",
            &format!("{}=3", &own[..6]),
            "--cluster-simulate",
        ],
        &["set-timeout", first, "7000"],
    ] {
        let (ours, theirs) = (manage(arguments), manage_by_valkey(arguments));
        assert_eq!(ours.output, theirs.output, "{arguments:?}");
        assert_eq!(ours.status, theirs.status, "{arguments:?}");
    }
    let set = cluster.nodes[5].connect().say("CONFIG GET cluster-node-timeout");
    assert_eq!(set.items()[1].text(), "7000");
    backups(&cluster, first);
}

fn backups(cluster: &TestCluster, first: &str) {
    let folders = ["ours", "theirs"].map(|name| cluster.nodes[0].folder().join(name));
    let run = |folder: &std::path::Path, by: fn(&[&str]) -> Ran| {
        fs::create_dir(folder).unwrap();
        by(&["backup", first, folder.to_str().unwrap()]).ok()
    };
    let ours = run(&folders[0], manage);
    run(&folders[1], manage_by_valkey);
    assert!(ours.contains("[OK] Backup created into: "), "{ours}");
    let names = |folder: &std::path::Path| {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&folders[0]), names(&folders[1]));
    let json = folders.map(|folder| fs::read_to_string(folder.join("nodes.json")).unwrap());
    assert_eq!(json[0], json[1]);
    let folder = cluster.nodes[0].folder().join("ours");
    for name in names(&folder).into_iter().filter(|name| name != "nodes.json") {
        let mut check = Command::new(peers::peer("valkey-check-rdb"));
        check.arg(folder.join(name));
        assert!(finish(check, b"").ok().contains("\\o/ RDB looks OK"));
    }
    let missing = manage(&["backup", first, "/nonexistent/folder"]);
    assert_eq!(missing.status, Some(1));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn nodes_come_and_go() {
    let mut cluster = TestCluster::valkey(3);
    let first = address(&cluster.nodes[0]);
    let library = "#!lua name=l\nserver.register_function('f', function() return 7 end)";
    cluster.nodes[0].connect().call(&["FUNCTION", "LOAD", library]).expect("it answers");
    let new = nodes(2, &["--repl-diskless-sync-delay", "0"]);
    let (primary, replica) = (address(&new[0]), address(&new[1]));
    let added = manage(&["add-node", &primary, &first]).ok();
    assert!(added.ends_with("[OK] New node added correctly.\n"), "{added}");
    assert_eq!(say(&new[0], "FCALL f 0"), "7");
    assert_eq!(manage(&["add-node", &primary, &first]).status, Some(1));
    cluster.nodes.extend(new);
    // The last one is not in it yet.
    let last = cluster.nodes.pop().unwrap();
    settled(&cluster);
    let target = id(&cluster.nodes[3]);
    let words =
        ["add-node", &replica, &first, "--cluster-replica", "--cluster-primary-id", &target];
    manage(&words).ok();
    assert!(say(&last, "CLUSTER NODES").contains(&format!("slave {target}")));
    cluster.nodes.push(last);
    replicated(&cluster.nodes);
    settled(&cluster);

    // Slots come by rebalance, and go by reshard.
    for key in 0..300 {
        let port = cluster.nodes[0].address().port().to_string();
        let mut set = program();
        set.args(["-c", "-p", &port, "SET", &key.to_string(), "value"]);
        assert_eq!(finish(set, b"").ok(), "OK\n");
    }
    let none = manage(&["rebalance", &first]).ok();
    assert!(none.contains("*** No rebalancing needed!"), "{none}");
    // Few of them: each makes all nodes force their configuration to disk, several times.
    let words = ["rebalance", &first, "--cluster-use-empty-primaries", "--cluster-weight"];
    let weight = format!("{target}=0.125");
    let moved = manage(&[&words[..], &[&weight]].concat()).ok();
    assert!(moved.contains(">>> Rebalancing across 4 nodes. Total weight = 3.1"), "{moved}");
    assert_eq!(moved.matches('#').count(), 658, "{moved}");
    settled(&cluster);
    let info = manage(&["info", &first]).ok();
    assert_eq!(info.matches(" 658 slots |").count(), 1, "{info}");
    assert_eq!(info.matches(" 5242 slots |").count(), 3, "{info}");
    assert!(info.contains("[OK] 300 keys in 4 primaries."), "{info}");

    let words = |count| {
        let to = id(&cluster.nodes[0]);
        let from = format!("{target},{}", id(&cluster.nodes[1]));
        ["reshard", &first, "--cluster-from", &from, "--cluster-to", &to, "--cluster-slots", count]
            .map(str::to_owned)
    };
    let run = |by: fn(&[&str]) -> Ran, words: &[String]| {
        by(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let plan = |ran: Ran| {
        let output = ran.output;
        output[output.find("Ready to move").unwrap()..output.find("Do you want").unwrap()]
            .to_owned()
    };
    for count in ["1", "7", "100"] {
        let (ours, theirs) = (run(manage, &words(count)), run(manage_by_valkey, &words(count)));
        assert_eq!((ours.status, theirs.status), (Some(1), Some(1)));
        assert_eq!(plan(ours), plan(theirs));
    }
    // Now with answers typed on the standard input, and by ranges that Valkey 9 moves itself.
    let answers = format!("50\n{}\nall\nyes\n", id(&cluster.nodes[0]));
    let moved = manage_with(&["reshard", &first, "--cluster-pipeline", "3"], &answers).ok();
    assert_eq!(moved.matches("Moving slot ").count(), 50 + moved.matches("slot range").count());
    settled(&cluster);
    let target_slots = |count: &str| {
        let from = ["--cluster-from", target.as_str(), "--cluster-slots", count, "--cluster-yes"];
        let to = id(&cluster.nodes[1]);
        [&["reshard", first.as_str(), "--cluster-to", &to][..], &from].concat().join(" ")
    };
    let run_line = |line: String| manage(&line.split(' ').collect::<Vec<_>>());
    let atomic = run_line(target_slots("100") + " --cluster-use-atomic-slot-migration").ok();
    assert!(atomic.contains(" via atomic slot migration"), "{atomic}");
    settled(&cluster);
    let full = manage(&["del-node", &first, &target]);
    assert!(full.output.contains("is not empty"), "{full:?}");
    assert_eq!(full.status, Some(1));
    run_line(target_slots("16384")).ok();
    settled(&cluster);
    let info = manage(&["info", &first]).ok();
    assert!(info.contains(" 0 slots | 1 replicas.") && info.contains("[OK] 300 keys"), "{info}");

    // Its replica goes to another primary.
    let deleted = manage(&["del-node", &first, &target]).ok();
    assert!(deleted.contains(" as replica of "), "{deleted}");
    // It is alone now, and serves nothing.
    let gone = cluster.nodes.remove(3);
    assert!(say(&gone, "CLUSTER INFO").contains("cluster_known_nodes:1"));
    settled(&cluster);
    let info = manage(&["info", &first]).ok();
    assert!(info.contains("[OK] 300 keys in 3 primaries."), "{info}");
    assert!(info.contains("| 1 replicas."), "{info}");
    assert_eq!(manage(&["del-node", &first, "nobody"]).status, Some(1));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn slots_are_mended() {
    let cluster = TestCluster::valkey(3);
    let [a, b, c] = [0, 1, 2].map(|index| &cluster.nodes[index]);
    let first = address(a);
    let (id_a, id_c) = (id(a), id(c));
    let fix = |answer: &str| manage_with(&["fix", &first], answer);
    // foo lies in slot 12182, which is c's.
    assert_eq!(say(c, "SET foo 1"), "OK");

    // Half way from c to a, with a key on either side.
    say(c, &format!("CLUSTER SETSLOT 12182 MIGRATING {id_a}"));
    say(a, &format!("CLUSTER SETSLOT 12182 IMPORTING {id_c}"));
    let mut importing = a.connect();
    importing.say("ASKING");
    importing.say("SET {foo}2 2");
    let (ours, theirs) = (manage(&["check", &first]), manage_by_valkey(&["check", &first]));
    assert_eq!((ours.output, ours.status), (theirs.output, Some(1)));
    for refused in ["reshard", "rebalance"] {
        let refused = manage(&[refused, &first, "--cluster-yes"]);
        assert_eq!(refused.status, Some(1), "{refused:?}");
        assert!(
            (refused.output + &refused.errors).contains("*** Please fix your cluster problems")
        );
    }
    let mended = fix("").ok();
    assert!(mended.contains("Set as migrating in: "), "{mended}");
    settled(&cluster);
    assert_eq!([say(a, "GET foo"), say(a, "GET {foo}2")], ["1", "2"]);

    // Open at one end only.
    say(b, &format!("CLUSTER SETSLOT 12182 IMPORTING {id_a}"));
    say(a, &format!("CLUSTER SETSLOT 1000 MIGRATING {id_c}"));
    assert!(fix("").ok().contains("Fixing open slot 1000"));
    settled(&cluster);
    assert_eq!(say(a, "GET foo"), "1");

    // No node's: without keys, with keys on one node, with keys on two.
    let drop_slots = |slots: &str| {
        for node in &cluster.nodes {
            say(node, &format!("CLUSTER DELSLOTS {slots}"));
        }
    };
    // A node without the slot takes keys in it while it is importing.
    say(b, &format!("CLUSTER SETSLOT 12182 IMPORTING {id_a}"));
    let mut importing = b.connect();
    importing.say("ASKING");
    assert_eq!(importing.say("SET {foo}3 3").text(), "OK");
    say(b, "CLUSTER SETSLOT 12182 STABLE");
    // bar lies in 5061, which is a's.
    assert_eq!(say(a, "SET bar 1"), "OK");
    drop_slots("15 17 5061 12182");
    let check = manage(&["check", &first]);
    assert!(check.output.contains("[ERR] Not all 16384 slots are covered by nodes."));
    assert_eq!(check.status, Some(1));
    let refused = fix("no\n");
    assert!(refused.output.contains("\n[15],[17]\n"), "{refused:?}");
    assert_eq!(refused.status, Some(1));
    let mended = fix("yes\nyes\nyes\n").ok();
    for line in ["\n[15],[17]\n", "\n[5061]\n", "\n[12182]\n", "Covering slot 5061 with"] {
        assert!(mended.contains(line), "{line:?} in {mended}");
    }
    settled(&cluster);
    assert_eq!([say(a, "GET bar"), say(a, "GET foo"), say(a, "GET {foo}3")], ["1", "1", "3"]);

    // Keys on a node that does not own the slot.
    say(b, &format!("CLUSTER SETSLOT 12182 IMPORTING {id_a}"));
    let mut importing = b.connect();
    importing.say("ASKING");
    assert_eq!(importing.say("SET {foo}4 4").text(), "OK");
    say(b, "CLUSTER SETSLOT 12182 STABLE");
    let search = ["check", &first, "--cluster-search-multiple-owners"];
    let (ours, theirs) = (manage(&search), manage_by_valkey(&search));
    assert_eq!((ours.output, ours.status), (theirs.output, Some(1)));
    let mended = manage(&["fix", &first, "--cluster-search-multiple-owners"]).ok();
    assert!(mended.contains(">>> Moving all the 12182 slot keys to its owner "), "{mended}");
    settled(&cluster);
    assert_eq!(say(a, "GET {foo}4"), "4");
    assert!(manage(&search).ok().contains("[OK] No multiple owners found."));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_primary_that_is_gone() {
    let mut cluster = TestCluster::valkey(3);
    let first = address(&cluster.nodes[0]);
    for node in &cluster.nodes {
        say(node, "CONFIG SET cluster-node-timeout 500");
    }
    let lost = cluster.nodes.pop().unwrap();
    drop(lost);
    eventually("its failure is seen", || say(&cluster.nodes[0], "CLUSTER NODES").contains("fail "));
    // A view that the two left agree about.
    thread::sleep(Duration::from_millis(300));
    let refused = manage_with(&["fix", &first], "yes\n");
    assert!(refused.output.contains("--cluster-fix-with-unreachable-primaries"), "{refused:?}");
    assert_eq!(refused.status, Some(1));
    let words = ["fix", &first, "--cluster-fix-with-unreachable-primaries"];
    let mended = manage_with(&words, "yes\n").ok();
    assert!(mended.contains(">>> Covering slot 16383 with "), "{mended}");
    cluster.wait_until_ok();
    let info = manage(&["info", &first]).ok();
    assert!(info.contains("keys in 2 primaries") && info.contains(" 8192 slots |"), "{info}");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn keys_are_imported() {
    let cluster = TestCluster::valkey(3);
    let first = address(&cluster.nodes[0]);
    let source = TestServer::valkey(&["--requirepass", "secret", "--enable-debug-command", "yes"]);
    let mut connection = source.connect();
    connection.say("AUTH secret");
    connection.say("DEBUG POPULATE 2500 key 10");
    connection.say("RPUSH list a b");
    let from = address(&source);
    let import = |more: &[&str]| {
        manage(&[&["import", first.as_str(), "--cluster-from", from.as_str()], more].concat())
    };
    assert_eq!(manage(&["import", &first]).status, Some(1));
    let refused = import(&[]);
    assert!(refused.output.contains("NOAUTH"), "{refused:?}");
    assert_eq!(refused.status, Some(1));
    let copied = import(&["--cluster-from-pass", "secret", "--cluster-copy"]).ok();
    assert!(copied.contains("*** Importing 2501 keys from DB 0\n"), "{copied}");
    assert!(copied.contains("\nMigrating list to "), "{copied}");
    let info = manage(&["info", &first]).ok();
    assert!(info.contains("[OK] 2501 keys in 3 primaries."), "{info}");
    assert_eq!(connection.say("DBSIZE").text(), "2501");
    let busy = import(&["--cluster-from-pass", "secret"]);
    assert!(busy.output.contains("BUSYKEY"), "{busy:?}");
    assert_eq!(busy.status, Some(1));
    let user = ["--cluster-from-user", "default", "--cluster-from-askpass", "--cluster-replace"];
    let words = [&["import", first.as_str(), "--cluster-from", from.as_str()][..], &user].concat();
    manage_with(&words, "secret\n").ok();
    assert_eq!(connection.say("DBSIZE").text(), "0");
    let of_a_cluster = manage(&["import", &first, "--cluster-from", &first]);
    assert_eq!(of_a_cluster.status, Some(1));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_bar_on_a_terminal() {
    let cluster = TestCluster::valkey(3);
    let first = address(&cluster.nodes[0]);
    let to = id(&cluster.nodes[1]);
    let words = ["--cluster", "reshard", &first, "--cluster-from", "all", "--cluster-to", &to];
    let more = ["--cluster-slots", "300", "--cluster-yes"];
    let mut terminal = Terminal::open(&cluster.nodes[0], &[&words[..], &more].concat(), None);
    terminal.sees("\x1b[32;1m[OK] All 16384 slots covered.");
    terminal.sees("of 300 slots");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn mistakes_of_the_manager() {
    let plain = TestServer::valkey(&[]);
    let address = address(&plain);
    for (arguments, text) in [
        (&["nonsense"][..], "Unknown --cluster subcommand"),
        (&["info"], "Wrong number of arguments"),
        (&["del-node", "h:1"], "Wrong number of arguments"),
        (&["info", "127.0.0.1"], "[ERR] Invalid arguments"),
        (&["info", "127.0.0.1:1"], "Could not connect to 127.0.0.1:1: Connection refused"),
        (&["info", &address], "is not configured as a cluster node."),
        (&["create", &address, "--cluster-yes"], "is not configured as a cluster node."),
        (&["set-timeout", &address, "5"], "not less than 100"),
    ] {
        let ran = manage(arguments);
        assert_eq!(ran.status, Some(1), "{ran:?}");
        assert!((ran.output + &ran.errors).contains(text), "{arguments:?} {text}");
        assert_eq!(manage_by_valkey(arguments).status, Some(1), "{arguments:?}");
    }
    let help = manage(&["help"]).output;
    let theirs = manage_by_valkey(&["help"]).output;
    let commands = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let names = lines.filter_map(|line| line.split_whitespace().next());
        names.filter(|name| !name.starts_with("--")).map(str::to_owned).collect()
    };
    assert_eq!(commands(&help), commands(&theirs));
}
