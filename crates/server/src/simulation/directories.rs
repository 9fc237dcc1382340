//! What becomes of work on the disk when the server goes to another directory.

use super::disk::{self, Disk};
use super::hands::Hands;
use super::process::SimulatedProcess;
use super::tasks;
use crate::base::random::Random;
use crate::persistence::{aof, load};

/// The names on a disk within a directory.
fn names_in(disk: &Disk, directory: &str) -> Vec<String> {
    let within = |(name, _): (String, usize)| name.strip_prefix(directory).map(str::to_owned);
    disk.list().into_iter().filter_map(within).collect()
}

/// CONFIG SET dir at any step of a thread that saves, or rewrites the log.
#[test]
fn a_thread_ends_its_work_where_the_server_worked_when_it_began() {
    let mut process = SimulatedProcess::new(1);
    let disk = Disk::default();
    Disk::put_in(Some(disk.clone()));
    let client = process.connect(0);
    for directory in ["before", "after"] {
        disk::create_dir(directory).expect("it can be made");
    }
    disk.enter("/before");
    process.ask(&client, "SET k v");
    assert_eq!(process.ask(&client, "CONFIG SET appendonly yes"), "+OK\r\n");
    aof::step_log(process.server);
    tasks::run_next();
    for request in ["BGSAVE", "BGREWRITEAOF"] {
        for steps in 0.. {
            disk.enter("/before");
            assert!(process.ask(&client, request).starts_with('+'));
            if steps == 0 {
                disk.enter("/after");
            }
            aof::step_log(process.server);
            let task = tasks::take_next().expect("there is a thread").run;
            let mut hands = Hands::new(Random::new(1), 1);
            let (mut is_done, mut at) = (hands.have(&disk, task).is_some(), 0);
            while !is_done {
                at += 1;
                if at == steps {
                    disk.enter("/after");
                }
                is_done = hands.go_on();
            }
            let told = process.ask(&client, "INFO persistence");
            assert!(told.contains("rdb_last_bgsave_status:ok"), "{request}, {steps}");
            assert!(told.contains("aof_last_bgrewrite_status:ok"), "{request}, {steps}");
            assert_eq!(names_in(&disk, "after/"), Vec::<String>::new(), "{request}, {steps}");
            let names = names_in(&disk, "before/");
            assert!(!names.iter().any(|name| name.contains("temp")), "{request}, {names:?}");
            if at < steps {
                break;
            }
        }
    }
    let left = disk.after_kill();
    left.enter("/before");
    let mut reader = SimulatedProcess::new(1);
    let peer = reader.connect(0);
    Disk::put_in(Some(left));
    load::load_at_start(reader.server).expect("it can be loaded");
    load::end_loading(reader.server);
    assert_eq!(reader.ask(&peer, "GET k"), "$1\r\nv\r\n");
    reader.ask(&peer, "FLUSHALL");
    aof::load_log(reader.server).expect("it can be loaded");
    assert_eq!(reader.ask(&peer, "GET k"), "$1\r\nv\r\n");
    Disk::put_in(None);
}
