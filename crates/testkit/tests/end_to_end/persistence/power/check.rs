//! Starts servers on what may be left, and looks at what is there.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use bobbin_testkit::disk::Folder;
use bobbin_testkit::power::disk::{FileTree, Luck};
use bobbin_testkit::power::plant;
use bobbin_testkit::random::TestRandom;
use bobbin_testkit::{TestConnection, TestServer, peers};

use super::work::{CLIENTS, Count, ReplyCounts, Work};

/// How much was tried.
#[derive(Debug)]
pub(crate) struct Tried {
    moments: usize,
    folders: usize,
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} folders tried, of {} moments", self.folders, self.moments)
    }
}

/// A way in which the power may go.
#[derive(Debug, Clone, Copy)]
struct Cut {
    moment: usize,
    names: Luck,
    contents: Luck,
    seed: u64,
}

const CORNERS: [(Luck, Luck); 6] = [
    (Luck::Least, Luck::Least),
    (Luck::Most, Luck::Most),
    (Luck::Most, Luck::Least),
    (Luck::Least, Luck::Most),
    (Luck::Some, Luck::Some),
    (Luck::Some, Luck::Zeros),
];

/// Tries at most `folders` folders; returns what went wrong.
pub(crate) fn check(work: &Work, folders: usize, random: &mut TestRandom) -> Result<Tried, String> {
    let disk = &work.recording.disk;
    let moments = disk.moments();
    let cuts = choose(&disk.moments_of_names(), moments, folders, random);
    // Of those that leave the same the last one: most was promised then.
    let mut last: HashMap<u64, Cut> = HashMap::new();
    for cut in cuts {
        let mut hasher = DefaultHasher::new();
        left(work, cut).hash(&mut hasher);
        let known = last.entry(hasher.finish()).or_insert(cut);
        if known.moment < cut.moment {
            *known = cut;
        }
    }
    let mut cuts: Vec<_> = last.into_values().collect();
    cuts.sort_by_key(|cut| (cut.moment, cut.seed));
    while cuts.len() > folders {
        cuts.swap_remove(random.below(cuts.len()));
    }
    for &cut in &cuts {
        try_cut(work, cut).map_err(|error| describe(work, cut, &error))?;
    }
    Ok(Tried { moments: moments.len(), folders: cuts.len() })
}

/// Ways to cut, half of them while names change.
fn choose(of_names: &[usize], all: &[usize], folders: usize, random: &mut TestRandom) -> Vec<Cut> {
    let mut cuts = Vec::new();
    for moments in [of_names, all] {
        let mut moments = moments.to_vec();
        while moments.len() > folders.div_ceil(CORNERS.len() / 2) {
            moments.swap_remove(random.below(moments.len()));
        }
        for moment in moments {
            cuts.extend(CORNERS.map(|(names, contents)| Cut {
                moment,
                names,
                contents,
                seed: random.number(),
            }));
        }
    }
    cuts
}

fn left(work: &Work, cut: Cut) -> FileTree {
    work.recording.disk.after(cut.moment, cut.names, cut.contents, &mut TestRandom::new(cut.seed))
}

/// Starts a server on what is left, and once more after it was killed.
fn try_cut(work: &Work, cut: Cut) -> Result<(), String> {
    let folder = Folder::new();
    plant(&left(work, cut), folder.path()).map_err(|error| error.to_string())?;
    let arguments = [&["--dir", folder.text(), "--io-threads", "1"], work.restart].concat();
    let promised = work.promised(cut.moment);
    let mut server = TestServer::start(&peers::bobbin(), &arguments)?;
    let there = look(&mut server.connect(), &promised)?;
    if !work.restart.contains(&"always") || !cut.seed.is_multiple_of(AGAIN) {
        return Ok(());
    }
    let added = server.connect().say("SET added 1").text();
    server.kill();
    let server = TestServer::start(&peers::bobbin(), &arguments)?;
    let mut client = server.connect();
    let again = look(&mut client, &there).map_err(|error| format!("once more: {error}"))?;
    if again != there || added != "OK" || client.say("GET added").text() != "1" {
        return Err(format!("there was {there:?} and one key more ({added}), then {again:?}"));
    }
    Ok(())
}

/// What is there, if it is whole and no less than was promised.
fn look(client: &mut TestConnection, promised: &ReplyCounts) -> Result<ReplyCounts, String> {
    let mut counts = ReplyCounts::default();
    for (number, count) in counts.iter_mut().enumerate() {
        let mut ask = |line: String| {
            let reply = client.say(&line);
            if reply.is_null() { String::new() } else { reply.text() }
        };
        let number_in = |text: String| match text.as_str() {
            "" => Ok(0),
            text => text.parse().map_err(|_| format!("client {number} has {text:.40}")),
        };
        let plain = number_in(ask(format!("GET plain:{number}")))?;
        let grouped = number_in(ask(format!("GET counter:{number}")))?;
        let length: u64 = number_in(ask(format!("LLEN list:{number}")))?;
        let last = ask(format!("LINDEX list:{number} -1"));
        let large = ask(format!("GET large:{number}"));
        let is_whole = length == grouped
            && (grouped == 0 || last == grouped.to_string())
            && (grouped == 0) == large.is_empty()
            && large.split_terminator(',').all(|word| word == last);
        if !is_whole {
            return Err(format!(
                "client {number} has {grouped} units of {length}, the last is {last}, and {large:.40}"
            ));
        }
        *count = Count { plain, grouped };
        let least = promised[number];
        if plain < least.plain || grouped < least.grouped {
            return Err(format!("client {number} was promised {least:?}, and has {count:?}"));
        }
    }
    assert_eq!(counts.len(), CLIENTS);
    Ok(counts)
}

fn describe(work: &Work, cut: Cut, error: &str) -> String {
    let files = left(work, cut).into_iter().map(|(path, bytes)| {
        let bytes = bytes.map_or_else(|| "folder".to_owned(), |bytes| bytes.len().to_string());
        format!("  {} {bytes}\n", path.display())
    });
    let near = |call: &&bobbin_testkit::power::trace::SystemCall| {
        call.began < cut.moment && call.ended.saturating_add(NEAR) > cut.moment
    };
    let calls = work.recording.calls.iter().filter(near).map(|call| {
        let strings: Vec<_> = call
            .strings
            .iter()
            .map(|bytes| String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned())
            .collect();
        let on = call.stands_for.clone().unwrap_or_default();
        format!(
            "  {}..{} {} {} {strings:?}\n",
            call.began,
            call.ended as i64,
            call.name,
            on.display()
        )
    });
    format!(
        "{error}\n{cut:?} leaves\n{}behind\n{}",
        files.collect::<String>(),
        calls.collect::<String>()
    )
}

/// One folder in this many is started twice.
const AGAIN: u64 = 4;
/// A report of a failure shows the calls of this many lines before it.
const NEAR: usize = 12;
