use std::collections::BTreeSet;

use super::super::find;
use super::super::foreign::OBSOLETE;
use super::*;

/// The answers of valkey-server 9.1.2: name, whether CONFIG SET accepts the option and CONFIG GET *
/// shows it, default.
const VALKEY: &str = include_str!("../testdata/valkey-9.1.2.txt");

#[test]
fn knows_every_option_of_valkey_with_its_default() {
    let config = Config::new();
    let mut known = BTreeSet::new();
    for line in VALKEY.lines() {
        let mut parts = line.splitn(3, ' ');
        let (name, flags) = (parts.next().unwrap(), parts.next().unwrap());
        let default = parts.next().unwrap_or_default();
        let (row, found) = find(name.as_bytes()).unwrap_or_else(|| panic!("{name} is not known"));
        assert_eq!(found, name);
        known.insert(name);
        assert_eq!(row.is_immutable(), flags.contains("immutable"), "{name}");
        assert_eq!(row.flags.contains(Flags::PROTECTED), flags.contains("protected"), "{name}");
        assert_eq!(row.flags.contains(Flags::HIDDEN), flags.contains("hidden"), "{name}");
        let ours = String::from_utf8(config.shown(row)).unwrap();
        match name {
            "dir" => {}
            "io-threads" => assert_eq!(ours, config.worker_count().to_string()),
            "syslog-ident" => assert_eq!(ours, "bobbin"),
            _ => assert_eq!(ours, default, "{name}"),
        }
    }
    let names = OPTIONS.iter().flat_map(|row| row.aliases.iter().chain([&row.name]));
    let own: Vec<_> = names.filter(|name| !known.contains(**name)).collect();
    assert_eq!(
        own,
        [
            &"connections-per-io-thread",
            &"io-driver",
            &"io-threads-do-reads",
            &"unsupported-directives",
            &"redis-version",
            &"hello-server",
            &"dynamic-hz",
            &"maxmemory-scripts",
            &"metrics-port",
            &"metrics-bind",
            &"metrics-hosts"
        ]
    );
}

#[test]
fn no_name_means_two_options_and_each_says_what_it_is() {
    let mut names = BTreeSet::new();
    for row in OPTIONS {
        for name in row.aliases.iter().chain([&row.name]) {
            assert!(names.insert(*name), "{name}");
            assert!(!OBSOLETE.contains(name), "{name}");
        }
        assert!(
            row.doc.iter().all(|line| line.starts_with(' ') && line.len() <= 120),
            "{}",
            row.name
        );
        assert!(row.doc.last().is_some_and(|line| line.ends_with('.')), "{}", row.name);
        assert!(std::ptr::eq(super::super::row(row.id), row), "{}", row.name);
    }
}

#[test]
fn readers_are_typed() {
    let config = Config::new();
    assert_eq!(config.maxmemory(), 0);
    assert_eq!(config.maxmemory_policy(), MaxmemoryPolicy::Noeviction);
    assert_eq!(config.tcp_keepalive(), 300);
    assert!(config.protected_mode() && !config.daemonize());
    assert_eq!(&*config.dbfilename(), b"dump.rdb");
    assert!(!config.shutdown_on_sigterm().nosave());
}
