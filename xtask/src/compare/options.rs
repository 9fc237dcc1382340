//! What CONFIG SET answers to odd values of each option, and what CONFIG GET shows then.

use std::collections::BTreeMap;

use bobbin_testkit::ReplyFrame;

use super::{Difference, Pair, Wanted, shown, text};

/// Sets each option that both have to each value.
pub(super) fn compare(pair: &mut Pair, wanted: &Wanted) -> Result<Vec<Difference>, String> {
    let [valkey, bobbin] = pair.say("CONFIG GET *")?;
    let former = [&valkey, &bobbin].map(values);
    let mut found = Vec::new();
    for name in former[0].keys().filter(|name| former[1].contains_key(*name)) {
        if !wanted.has(name) || DISTURBING.contains(&name.as_str()) {
            continue;
        }
        for value in VALUES {
            let set = ["CONFIG", "SET", name, value].map(|word| word.as_bytes().to_vec());
            let get = ["CONFIG", "GET", name].map(|word| word.as_bytes().to_vec());
            let answers = pair.call(&set)?;
            let are_set = answers.each_ref().map(|answer| !answer.is_error());
            let read = pair.call(&get)?;
            let [valkey, bobbin] = [0, 1].map(|side| {
                let now = values(&read[side]).remove(name).unwrap_or_default();
                // The former values may differ.
                let now = if are_set[side] { format!(", now {now:?}") } else { String::new() };
                format!("{}{now}", text(&answers[side]))
            });
            if valkey != bobbin {
                let what = format!("set {name} {value}");
                found.push(Difference { what, how: shown(&set), valkey, bobbin });
            }
            if are_set.contains(&true) {
                restore(pair, name, &former)?;
            }
        }
    }
    Ok(found)
}

fn restore(
    pair: &mut Pair,
    name: &str,
    former: &[BTreeMap<String, String>; 2],
) -> Result<(), String> {
    let sides = [&mut pair.valkey, &mut pair.bobbin];
    for (side, former) in sides.into_iter().zip(former) {
        let value = former.get(name).map_or("", String::as_str);
        let answer = side.client.call(&["CONFIG", "SET", name, value]);
        answer.map_err(|error| format!("CONFIG SET {name} {value}: {error}"))?;
    }
    Ok(())
}

fn values(reply: &ReplyFrame) -> BTreeMap<String, String> {
    let pairs = reply.items().chunks_exact(2);
    pairs.map(|pair| (pair[0].text(), pair[1].text())).collect()
}

const VALUES: [&str; 31] = [
    "",
    "0",
    "1",
    "-1",
    "2",
    "7",
    "100",
    "101",
    "65536",
    "1.5",
    "yes",
    "no",
    "YES",
    "x",
    "x y",
    "1k",
    "1kb",
    "10mb",
    "-5",
    "1gb",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    "10%",
    "-10%",
    "0x10",
    "everysec",
    "verbose",
    "3 4",
    "a b c d",
];
/// What they make of a value makes the conversation end, or needs files.
const DISTURBING: [&str; 12] = [
    "port",
    "tls-port",
    "bind",
    "maxclients",
    "requirepass",
    "replicaof",
    "slaveof",
    "dir",
    "appendonly",
    "io-threads",
    "maxmemory-clients",
    "client-query-buffer-limit",
];
