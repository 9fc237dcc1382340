//! Users with names, patterns and passwords of any bytes: a line of the configuration and a line of
//! `aclfile` make the same user again, and each stays one line.

#![no_main]

use std::sync::LazyLock;

use bobbin_server::config::split;
use bobbin_server::engine::acl::file;
use bobbin_server::engine::acl::rules::{RuleGrammar, has_spaces, join_selectors};
use bobbin_server::engine::acl::user::User;
use bobbin_server::engine::command::Registry;
use libfuzzer_sys::fuzz_target;

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    Registry::new(&bobbin_server::process::families(), &[]).expect("nothing is renamed")
});

// A name and rules, with a byte between them that seldom means anything.
fuzz_target!(|data: &[u8]| {
    const END: u8 = 0xfe;
    let grammar = RuleGrammar { commands: REGISTRY.facts(), all_channels: false };
    let words: Vec<&[u8]> = data.split(|byte| *byte == END).collect();
    let Some((name, rules)) = words.split_first().filter(|(name, _)| !has_spaces(name)) else {
        return;
    };
    let mut user = User::new(name, 1, REGISTRY.facts(), false);
    let Ok(rules) = join_selectors(rules) else { return };
    for rule in rules {
        let before = user.clone();
        if user.apply(&rule, &grammar).is_err() {
            user = before;
        }
    }
    let line = file::configuration_line(&user);
    assert!(!line.contains(&b'\n'));
    let words = split(&line).expect("its quotes are closed");
    let words: Vec<&[u8]> = words.iter().skip(1).map(Vec::as_slice).collect();
    let again = file::read_user(&words, 1, &grammar).expect("it is a user");
    assert_eq!(again.line(), user.line());

    let lines = [user.line(), b"\n".to_vec()].concat();
    let users = file::parse(&lines, "FILE", &grammar, &mut |_| 1).expect("it is a file of users");
    let users: Vec<_> = users.values().map(|user| user.line()).collect();
    assert_eq!(users, [user.line()]);
});
