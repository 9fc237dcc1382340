//! Decides whether a concurrent history could have happened on a server that does one operation
//! at a time.
//!
//! The search is Wing and Gong's ("Testing and verifying concurrent objects", 1993) with Lowe's
//! memory of configurations seen ("Testing for linearizability", 2017). A history is first split
//! into components: keys that some operation uses together. Linearizability is local, so each
//! component may be judged alone, which keeps the search short. Operations of one client are taken
//! in the order in which the history holds them, for a server runs a pipeline in order.

mod command;
mod state;

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

pub use command::{Command, Key, Member, key_name, member_name};
use state::{State, Value};

use crate::Reply;

/// What must take effect at one instant between its start and its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    Single(Command),
    /// MULTI ... EXEC; the reply is EXEC's.
    Transaction(Vec<Command>),
    /// WATCH, GET that answered `seen`, MULTI, SET, EXEC that ran. At the instant of EXEC the key
    /// still held `seen`. (The GET is a record of its own, and so is nothing when EXEC gave up.)
    CompareAndSet {
        key: Key,
        seen: Option<Vec<u8>>,
        value: Vec<u8>,
    },
    /// FLUSHALL. It concerns all keys, and so does the next.
    Flush,
    /// SWAPDB of the clients' database and another one.
    Swap,
}

/// An operation of one client, with the times between which it took effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub client: usize,
    /// Before it was sent.
    pub start_ns: u64,
    /// After its reply came.
    pub end_ns: u64,
    pub operation: Operation,
    pub reply: Reply,
}

/// Where the search ended when it found no order.
#[derive(Debug)]
pub struct Violation {
    /// The component's keys.
    pub keys: Vec<Key>,
    /// Operations in the longest order that was found.
    pub explained: usize,
    /// The operations of the component around the first one that fits nowhere, as text.
    pub around: String,
}

/// Whether there is an order of all operations, each between its start and its end, in which a
/// server that starts empty gives exactly these replies.
pub fn check(history: &[Record]) -> Result<(), Violation> {
    for component in components(history) {
        check_component(&component)?;
    }
    Ok(())
}

impl Operation {
    pub fn keys(&self) -> Vec<Key> {
        match self {
            Self::Single(command) => command.keys(),
            Self::Transaction(commands) => commands.iter().flat_map(Command::keys).collect(),
            Self::CompareAndSet { key, .. } => vec![*key],
            Self::Flush | Self::Swap => vec![],
        }
    }

    /// The state after the operation, if the server could have given this reply.
    fn apply(&self, state: &State, reply: &Reply) -> Option<State> {
        let mut next = state.clone();
        let possible = match self {
            Self::Single(command) => next.apply(command, reply),
            Self::Transaction(commands) => {
                reply.items().len() == commands.len()
                    && commands.iter().zip(reply.items()).all(|(one, reply)| next.apply(one, reply))
            }
            Self::CompareAndSet { key, seen, value } => {
                let there = seen.clone().map(Value::Text);
                let unchanged = next.value(*key) == there.as_ref();
                let set = Command::Set(*key, value.clone());
                unchanged && reply.items().len() == 1 && next.apply(&set, &reply.items()[0])
            }
            Self::Flush => {
                next.clear();
                *reply == Reply::simple("OK")
            }
            Self::Swap => {
                next.swap();
                *reply == Reply::simple("OK")
            }
        };
        possible.then_some(next)
    }
}

/// Operations that share keys, directly or through others, in order of their start.
fn components(history: &[Record]) -> Vec<Vec<&Record>> {
    if history.iter().any(|record| record.operation.keys().is_empty()) {
        let mut all: Vec<_> = history.iter().collect();
        all.sort_by_key(|record| record.start_ns);
        return vec![all];
    }
    let mut parent: BTreeMap<Key, Key> = BTreeMap::new();
    for record in history {
        let keys = record.operation.keys();
        for key in &keys {
            parent.entry(*key).or_insert(*key);
            let (one, other) = (root(&parent, keys[0]), root(&parent, *key));
            parent.insert(other, one);
        }
    }
    let mut groups: BTreeMap<Key, Vec<&Record>> = BTreeMap::new();
    for record in history {
        if let Some(key) = record.operation.keys().first() {
            groups.entry(root(&parent, *key)).or_default().push(record);
        }
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    for group in &mut groups {
        group.sort_by_key(|record| record.start_ns);
    }
    groups
}

fn root(parent: &BTreeMap<Key, Key>, mut key: Key) -> Key {
    while parent[&key] != key {
        key = parent[&key];
    }
    key
}

/// A way into the search: operation `index` was put next, from this state.
struct Choice {
    index: usize,
    before: State,
}

/// Operations already ordered, as a set: all below `frontier`, and `beyond` it these.
#[derive(Default)]
struct Ordered {
    taken: Vec<bool>,
    frontier: usize,
    count: usize,
}

impl Ordered {
    fn insert(&mut self, index: usize) {
        self.taken[index] = true;
        self.count += 1;
        while self.taken.get(self.frontier) == Some(&true) {
            self.frontier += 1;
        }
    }

    fn remove(&mut self, index: usize) {
        self.taken[index] = false;
        self.count -= 1;
        self.frontier = self.frontier.min(index);
    }

    /// A short name for the set. `limit` is above every member.
    fn name(&self, limit: usize) -> (usize, Vec<usize>) {
        let beyond = (self.frontier..limit).filter(|index| self.taken[*index]).collect();
        (self.frontier, beyond)
    }
}

/// Depth first, with an explicit stack: at each depth any operation may come next that started
/// before the earliest end among those not yet ordered.
fn check_component(records: &[&Record]) -> Result<(), Violation> {
    let mut ordered = Ordered { taken: vec![false; records.len()], ..Ordered::default() };
    let mut state = State::default();
    let mut choices: Vec<Choice> = Vec::new();
    let mut seen = HashSet::new();
    let mut try_from = 0;
    let (mut best, mut stuck_at) = (0, 0);
    while ordered.count < records.len() {
        let next = next_choice(records, &ordered, &state, try_from, &mut seen);
        if let Some((index, after)) = next {
            ordered.insert(index);
            choices.push(Choice { index, before: std::mem::replace(&mut state, after) });
            try_from = ordered.frontier;
            if ordered.count > best {
                (best, stuck_at) = (ordered.count, ordered.frontier);
            }
            continue;
        }
        let Some(choice) = choices.pop() else {
            return Err(violation(records, best, stuck_at));
        };
        ordered.remove(choice.index);
        state = choice.before;
        try_from = choice.index + 1;
    }
    Ok(())
}

type Seen = HashSet<((usize, Vec<usize>), State)>;

/// The first operation from `try_from` on that may come next and leads to a configuration that
/// was not seen before.
fn next_choice(
    records: &[&Record],
    ordered: &Ordered,
    state: &State,
    try_from: usize,
    seen: &mut Seen,
) -> Option<(usize, State)> {
    let mut deadline = u64::MAX;
    let mut index = ordered.frontier;
    let mut window: Vec<usize> = Vec::new();
    // Records are sorted by start: once one starts after the deadline, so do all others.
    while let Some(record) = records.get(index).filter(|record| record.start_ns <= deadline) {
        if !ordered.taken[index] {
            deadline = deadline.min(record.end_ns);
            // A connection's commands take effect in the order in which they were sent.
            if !window.iter().any(|earlier| records[*earlier].client == record.client) {
                window.push(index);
            }
        }
        index += 1;
    }
    // Members of the set beyond the window's end would have to start after a deadline.
    let limit = index;
    for candidate in window.into_iter().filter(|candidate| *candidate >= try_from) {
        let record = records[candidate];
        if record.start_ns > deadline {
            continue;
        }
        let Some(after) = record.operation.apply(state, &record.reply) else { continue };
        let mut name = ordered.name(limit.max(candidate + 1));
        // The set with the candidate in it, named as `name` would then name it.
        match name.1.binary_search(&candidate) {
            Ok(_) => continue,
            Err(position) => name.1.insert(position, candidate),
        }
        while name.1.first() == Some(&name.0) {
            name.1.remove(0);
            name.0 += 1;
        }
        if seen.insert((name, after.clone())) {
            return Some((candidate, after));
        }
    }
    None
}

fn violation(records: &[&Record], explained: usize, stuck_at: usize) -> Violation {
    let mut keys: Vec<_> = records.iter().flat_map(|record| record.operation.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let from = stuck_at.saturating_sub(SHOWN_BEFORE);
    let to = (stuck_at + SHOWN_AFTER).min(records.len());
    let mut around = String::new();
    for (index, record) in records.iter().enumerate().take(to).skip(from) {
        let mark = if index == stuck_at { ">" } else { " " };
        let reply = crate::transcript::render(&record.reply).join(" ");
        let _ = writeln!(
            around,
            "{mark} [{:>12} {:>12}] client {:2} {:?} -> {reply}",
            record.start_ns, record.end_ns, record.client, record.operation
        );
    }
    Violation { keys, explained, around }
}

const SHOWN_BEFORE: usize = 12;
const SHOWN_AFTER: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn record(client: usize, times: (u64, u64), command: Command, reply: Reply) -> Record {
        let operation = Operation::Single(command);
        Record { client, start_ns: times.0, end_ns: times.1, operation, reply }
    }

    fn set(times: (u64, u64), value: &str) -> Record {
        record(0, times, Command::Set(0, value.into()), Reply::simple("OK"))
    }

    fn get(times: (u64, u64), value: Option<&str>) -> Record {
        let reply = value.map_or(Reply::Null { kind: b'$' }, Reply::bulk);
        record(1, times, Command::Get(0), reply)
    }

    #[test]
    fn a_read_may_see_either_side_of_an_overlapping_write() {
        assert!(check(&[set((0, 10), "a"), get((5, 6), None)]).is_ok());
        assert!(check(&[set((0, 10), "a"), get((5, 6), Some("a"))]).is_ok());
    }

    #[test]
    fn a_stale_read_is_a_violation() {
        assert!(check(&[set((0, 1), "a"), set((2, 3), "b"), get((4, 5), Some("a"))]).is_err());
        assert!(check(&[set((0, 1), "a"), get((2, 3), None)]).is_err());
        assert!(check(&[get((0, 1), Some("a")), set((2, 3), "a")]).is_err());
    }

    #[test]
    fn values_do_not_flip_back() {
        let write = set((0, 100), "a");
        let reads = |first, second| [write.clone(), get((10, 20), first), get((30, 40), second)];
        assert!(check(&reads(None, Some("a"))).is_ok());
        assert!(check(&reads(Some("a"), None)).is_err());
    }

    #[test]
    fn a_lost_increment_is_a_violation() {
        let increment =
            |client, value| record(client, (0, 10), Command::Incr(3), Reply::integer(value));
        assert!(check(&[increment(0, 2), increment(1, 1)]).is_ok());
        assert!(check(&[increment(0, 1), increment(1, 1)]).is_err());
    }

    #[test]
    fn a_pipeline_runs_in_order() {
        let increment =
            |client, value| record(client, (0, 10), Command::Incr(3), Reply::integer(value));
        assert!(check(&[increment(0, 1), increment(0, 2)]).is_ok());
        assert!(check(&[increment(0, 2), increment(0, 1)]).is_err());
    }

    #[test]
    fn a_torn_mset_is_a_violation() {
        let pairs = vec![(0, b"x".to_vec()), (1, b"y".to_vec())];
        let write = record(0, (0, 100), Command::MSet(pairs), Reply::simple("OK"));
        let read = |one: Option<&str>, other: Option<&str>| {
            let value = |value: Option<&str>| value.map_or(Reply::Null { kind: b'$' }, Reply::bulk);
            let reply = Reply::array(vec![value(one), value(other)]);
            record(1, (10, 20), Command::MGet(vec![0, 1]), reply)
        };
        assert!(check(&[write.clone(), read(Some("x"), Some("y"))]).is_ok());
        assert!(check(&[write.clone(), read(None, None)]).is_ok());
        assert!(check(&[write, read(Some("x"), None)]).is_err());
    }

    #[test]
    fn a_transaction_is_one_instant() {
        let transaction = |client, times, before: Option<&str>, after: &str| Record {
            client,
            start_ns: times,
            end_ns: 100,
            operation: Operation::Transaction(vec![
                Command::Get(0),
                Command::Set(0, after.into()),
                Command::Get(0),
            ]),
            reply: Reply::array(vec![
                before.map_or(Reply::Null { kind: b'$' }, Reply::bulk),
                Reply::simple("OK"),
                Reply::bulk(after),
            ]),
        };
        assert!(check(&[transaction(0, 0, None, "a"), transaction(1, 0, Some("a"), "b")]).is_ok());
        assert!(check(&[transaction(0, 0, None, "a"), transaction(1, 0, None, "b")]).is_err());
    }

    #[test]
    fn a_swap_on_a_value_that_has_changed_is_a_violation() {
        let swap = Record {
            client: 2,
            start_ns: 20,
            end_ns: 30,
            operation: Operation::CompareAndSet {
                key: 0,
                seen: Some(b"a".to_vec()),
                value: b"c".to_vec(),
            },
            reply: Reply::array(vec![Reply::simple("OK")]),
        };
        assert!(check(&[set((0, 1), "a"), swap.clone(), get((40, 41), Some("c"))]).is_ok());
        let changed = set((10, 11), "b");
        assert!(check(&[set((0, 1), "a"), changed, swap, get((40, 41), Some("c"))]).is_err());
    }

    #[test]
    fn what_concerns_all_keys_is_one_instant() {
        let whole = |operation, times: (u64, u64)| {
            let (start_ns, end_ns) = times;
            Record { client: 3, start_ns, end_ns, operation, reply: Reply::simple("OK") }
        };
        let other = |times, value: Option<&str>| {
            let reply = value.map_or(Reply::Null { kind: b'$' }, Reply::bulk);
            record(2, times, Command::Get(9), reply)
        };
        let swap = |times| whole(Operation::Swap, times);
        let flush = whole(Operation::Flush, (10, 40));
        let begin = [
            set((0, 1), "a"),
            record(0, (2, 3), Command::Set(9, b"b".into()), Reply::simple("OK")),
        ];
        let seen = |records: &[Record]| check(&[&begin[..], records].concat()).is_ok();
        assert!(seen(&[swap((10, 40)), get((15, 16), None), other((20, 21), None)]));
        assert!(!seen(&[swap((10, 40)), get((15, 16), None), other((20, 21), Some("b"))]));
        assert!(seen(&[
            swap((10, 40)),
            swap((10, 50)),
            get((15, 16), None),
            get((60, 61), Some("a"))
        ]));
        assert!(!seen(&[flush.clone(), get((15, 16), None), other((20, 21), Some("b"))]));
        assert!(!seen(&[swap((4, 5)), flush, swap((50, 51)), get((60, 61), Some("a"))]));
    }

    #[test]
    fn components_are_judged_apart() {
        let other = record(0, (5, 6), Command::Set(9, b"z".to_vec()), Reply::simple("OK"));
        let history = [set((0, 1), "a"), other, get((2, 3), None)];
        let violation = check(&history).expect_err("the read is stale");
        assert_eq!(violation.keys, [0]);
        assert_eq!(components(&history).len(), 2);
    }

    #[test]
    fn a_member_is_popped_once() {
        let add = record(0, (0, 1), Command::SAdd(0, vec![1, 2]), Reply::integer(2));
        let pop =
            |client, member: &str| record(client, (2, 10), Command::SPop(0), Reply::bulk(member));
        let all = |one, other| [add.clone(), pop(1, one), pop(2, other)];
        assert!(check(&all("m1", "m2")).is_ok());
        assert!(check(&all("m2", "m1")).is_ok());
        assert!(check(&all("m1", "m1")).is_err());
        assert!(check(&all("m1", "m3")).is_err());
    }

    #[test]
    fn a_member_that_moves_is_in_one_place() {
        let add = record(0, (0, 1), Command::SAdd(0, vec![1]), Reply::integer(1));
        let moved = record(1, (2, 100), Command::SMove(0, 1, 1), Reply::integer(1));
        let look = |times, key, is_there| {
            record(2, times, Command::SIsMember(key, 1), Reply::integer(is_there))
        };
        let seen = |source, target| {
            check(&[
                add.clone(),
                moved.clone(),
                look((10, 11), 0, source),
                look((20, 21), 1, target),
            ])
        };
        assert!(seen(1, 0).is_ok() && seen(0, 1).is_ok() && seen(1, 1).is_ok());
        assert!(seen(0, 0).is_err());
    }

    #[test]
    fn an_intersection_is_of_one_instant() {
        let text = |member: &str| Reply::array(vec![Reply::bulk(member)]);
        let history = |seen: Reply| {
            let add = |time, member| {
                let both = vec![Command::SAdd(0, vec![member]), Command::SAdd(1, vec![member])];
                let drop = vec![Command::Del(vec![0, 1])];
                let replies = vec![Reply::integer(if time == 0 { 0 } else { 2 })];
                let replies = [replies, vec![Reply::integer(1), Reply::integer(1)]].concat();
                Record {
                    client: 0,
                    start_ns: time,
                    end_ns: time + 50,
                    operation: Operation::Transaction([drop, both].concat()),
                    reply: Reply::array(replies),
                }
            };
            [add(0, 1), add(60, 2), record(1, (70, 80), Command::SInter(vec![0, 1]), seen)]
        };
        assert!(check(&history(text("m1"))).is_ok());
        assert!(check(&history(text("m2"))).is_ok());
        assert!(check(&history(Reply::array(vec![]))).is_err());
    }

    #[test]
    fn scores_and_ranks_are_of_one_order() {
        let add = record(0, (0, 1), Command::ZAdd(0, vec![(1, 5), (2, 3)]), Reply::integer(2));
        let increment = |client, times, reply: &str| {
            record(client, times, Command::ZIncrBy(0, 4, 2), Reply::bulk(reply))
        };
        let rank = |times, rank| record(3, times, Command::ZRank(0, 2), Reply::integer(rank));
        let once = increment(1, (2, 10), "7");
        assert!(check(&[add.clone(), once.clone(), rank((3, 4), 0)]).is_ok());
        assert!(check(&[add.clone(), once.clone(), rank((3, 4), 1)]).is_ok());
        assert!(check(&[add.clone(), once.clone(), rank((11, 12), 0)]).is_err());
        assert!(check(&[add.clone(), once.clone(), increment(2, (2, 10), "11")]).is_ok());
        assert!(check(&[add.clone(), once.clone(), increment(2, (2, 10), "7")]).is_err());
        let pop = |reply: [&str; 2]| {
            let reply = Reply::array(reply.map(Reply::bulk).to_vec());
            record(3, (20, 21), Command::ZPopMin(0), reply)
        };
        assert!(check(&[add.clone(), once.clone(), pop(["m1", "5"])]).is_ok());
        assert!(check(&[add, once, pop(["m2", "3"])]).is_err());
    }

    #[test]
    fn a_hash_is_read_as_a_whole() {
        let pairs = |one: &str, other: &str| vec![(1, one.into()), (2, other.into())];
        let write =
            |times, pairs, new| record(0, times, Command::HSet(0, pairs), Reply::integer(new));
        let first = write((0, 1), pairs("a", "b"), 2);
        let second = write((2, 100), pairs("c", "d"), 0);
        let seen = |one: &str, other: &str| {
            let reply = ["m2", other, "m1", one].map(Reply::bulk).to_vec();
            let read = record(1, (10, 20), Command::HGetAll(0), Reply::array(reply));
            check(&[first.clone(), second.clone(), read])
        };
        assert!(seen("a", "b").is_ok() && seen("c", "d").is_ok());
        assert!(seen("a", "d").is_err());
    }
}
