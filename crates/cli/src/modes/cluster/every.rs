//! `call` and `set-timeout`: a command on every node.

use super::{
    load,
    say::{self, ClusterResult},
};
use crate::{
    format::{ReplyForm, Style},
    options::Options,
    session::explain,
};

pub fn call(options: &Options, words: &[Vec<u8>]) -> ClusterResult {
    let mut cluster = load(options, &words[..1])?;
    let words = &words[1..];
    let shown: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
    say::step(&format!("Calling {}", shown.join(" ")));
    let mut style = Style::new(ReplyForm::Raw);
    style.reply_delimiter = b"\n".to_vec();
    for member in &mut cluster.members {
        let is_replica = member.node.is_replica();
        if options.manager.only_primaries && is_replica
            || options.manager.only_replicas && !is_replica
        {
            continue;
        }
        let address = member.node.address();
        match member.client().command(words) {
            Ok(reply) => {
                let mut line = format!("{address}: ").into_bytes();
                line.extend(style.reply(&reply, false));
                crate::terminal::write(&line);
            }
            Err(error) => out!("{address}: Failed! {}\n", explain(&error)),
        }
    }
    Ok(())
}

pub fn set_timeout(options: &Options, words: &[Vec<u8>]) -> ClusterResult {
    let timeout = String::from_utf8_lossy(&words[1]).into_owned();
    let is_sensible = timeout.parse().is_ok_and(|timeout: u64| timeout >= TIMEOUT_MIN_MS);
    if !is_sensible {
        complain!(
            "A node timeout is a number of milliseconds, and not less than {TIMEOUT_MIN_MS}."
        );
        return Err(say::Failed);
    }
    let mut cluster = load(options, &words[..1])?;
    say::step("Reconfiguring node timeout in every cluster node...");
    let (mut set, mut failed) = (0, 0);
    for member in &mut cluster.members {
        let address = member.node.address();
        let done = member
            .ask(&["CONFIG", "SET", "cluster-node-timeout", &timeout])
            .and_then(|_| member.ask(&["CONFIG", "REWRITE"]));
        match done {
            Ok(_) => {
                say::note(&format!("New timeout set for {address}"));
                set += 1;
            }
            Err(text) => {
                say::complain(&format!("ERR setting node-timeout for {address}: {text}"));
                failed += 1;
            }
        }
    }
    say::step(&format!("New node timeout set. {set} OK, {failed} ERR."));
    Ok(())
}

const TIMEOUT_MIN_MS: u64 = 100;
