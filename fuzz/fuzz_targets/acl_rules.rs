//! ACL rules of any bytes: no panic, and what is described by a user's rules makes the same user.

#![no_main]

use std::sync::LazyLock;

use bobbin_server::engine::acl::rules::{RuleGrammar, join_selectors};
use bobbin_server::engine::acl::user::User;
use bobbin_server::engine::command::Registry;
use libfuzzer_sys::fuzz_target;

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    Registry::new(&bobbin_server::process::families(), &[]).expect("nothing is renamed")
});

fuzz_target!(|data: &[u8]| {
    let grammar = RuleGrammar { commands: REGISTRY.facts(), all_channels: false };
    let mut user = User::new(b"user", 1, REGISTRY.facts(), false);
    let words: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    let Ok(rules) = join_selectors(&words) else { return };
    for rule in rules {
        let before = user.clone();
        if user.apply(&rule, &grammar).is_err() {
            user = before;
        }
    }
    let described = user.describe();
    let words: Vec<&[u8]> = described.split(|byte| *byte == b' ').collect();
    let mut again = User::new(b"user", 1, REGISTRY.facts(), false);
    for rule in join_selectors(&words).expect("selectors are closed") {
        again.apply(&rule, &grammar).expect("a description is made of rules");
    }
    assert_eq!(again.describe(), described);
    assert!(again.selectors().eq(user.selectors()));
});
