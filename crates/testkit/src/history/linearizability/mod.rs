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

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;
use std::rc::Rc;

pub use command::{HistoryCommand, KeyNumber, MemberNumber, key_name, member_name};
use state::{ModelState, ModelValue};

use crate::ReplyFrame;

/// What must take effect at one instant between its start and its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    Single(HistoryCommand),
    /// MULTI ... EXEC; the reply is EXEC's.
    Transaction(Vec<HistoryCommand>),
    /// WATCH, GET that answered `seen`, MULTI, SET, EXEC that ran. At the instant of EXEC the key
    /// still held `seen`. (The GET is a record of its own, and so is nothing when EXEC gave up.)
    CompareAndSet {
        key: KeyNumber,
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
pub struct OperationRecord {
    pub client: usize,
    /// Before it was sent.
    pub start_ns: u64,
    /// After its reply came.
    pub end_ns: u64,
    pub operation: Operation,
    pub reply: ReplyFrame,
}

/// Where the search ended when it found no order.
#[derive(Debug)]
pub struct Violation {
    /// The component's keys.
    pub keys: Vec<KeyNumber>,
    /// Operations in the longest order that was found.
    pub explained: usize,
    /// The operations of the component around the first one that fits nowhere, as text.
    pub around: String,
}

/// Whether there is an order of all operations, each between its start and its end, in which a
/// server that starts empty gives exactly these replies.
pub fn check(history: &[OperationRecord]) -> Result<(), Violation> {
    for component in components(history) {
        check_component(&component)?;
    }
    Ok(())
}

impl Operation {
    pub fn keys(&self) -> Vec<KeyNumber> {
        match self {
            Self::Single(command) => command.keys(),
            Self::Transaction(commands) => commands.iter().flat_map(HistoryCommand::keys).collect(),
            Self::CompareAndSet { key, .. } => vec![*key],
            Self::Flush | Self::Swap => vec![],
        }
    }

    /// Whether it changes nothing, whatever the state.
    fn is_read(&self) -> bool {
        match self {
            Self::Single(command) => command.is_read(),
            Self::Transaction(commands) => commands.iter().all(HistoryCommand::is_read),
            Self::CompareAndSet { .. } | Self::Flush | Self::Swap => false,
        }
    }

    /// The state after the operation, if the server could have given this reply.
    fn apply(&self, state: &ModelState, reply: &ReplyFrame) -> Option<ModelState> {
        let mut next = state.clone();
        let possible = match self {
            Self::Single(command) => next.apply(command, reply),
            Self::Transaction(commands) => {
                reply.items().len() == commands.len()
                    && commands.iter().zip(reply.items()).all(|(one, reply)| next.apply(one, reply))
            }
            Self::CompareAndSet { key, seen, value } => {
                let there = seen.clone().map(ModelValue::Text);
                let unchanged = next.value(*key) == there.as_ref();
                let set = HistoryCommand::Set(*key, value.clone());
                unchanged && reply.items().len() == 1 && next.apply(&set, &reply.items()[0])
            }
            Self::Flush => {
                next.clear();
                *reply == ReplyFrame::simple("OK")
            }
            Self::Swap => {
                next.swap();
                *reply == ReplyFrame::simple("OK")
            }
        };
        possible.then_some(next)
    }
}

/// Operations that share keys, directly or through others, in order of their start.
fn components(history: &[OperationRecord]) -> Vec<Vec<&OperationRecord>> {
    if history.iter().any(|record| record.operation.keys().is_empty()) {
        let mut all: Vec<_> = history.iter().collect();
        all.sort_by_key(|record| record.start_ns);
        return vec![all];
    }
    let mut parent: BTreeMap<KeyNumber, KeyNumber> = BTreeMap::new();
    for record in history {
        let keys = record.operation.keys();
        for key in &keys {
            parent.entry(*key).or_insert(*key);
            let (one, other) = (root(&parent, keys[0]), root(&parent, *key));
            parent.insert(other, one);
        }
    }
    let mut groups: BTreeMap<KeyNumber, Vec<&OperationRecord>> = BTreeMap::new();
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

fn root(parent: &BTreeMap<KeyNumber, KeyNumber>, mut key: KeyNumber) -> KeyNumber {
    while parent[&key] != key {
        key = parent[&key];
    }
    key
}

/// An operation that may come next, and the state after it.
struct Candidate {
    index: usize,
    after: Rc<ModelState>,
}

/// A way into the search: operation `index` was put next, from this state.
struct Choice {
    index: usize,
    before: Rc<ModelState>,
    /// What is still to be tried in its place.
    others: Vec<Candidate>,
}

/// Operations already ordered, as a set: all below `frontier`, and these beyond it.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct Ordered {
    frontier: usize,
    beyond: BTreeSet<usize>,
}

impl Ordered {
    fn count(&self) -> usize {
        self.frontier + self.beyond.len()
    }

    fn contains(&self, index: usize) -> bool {
        index < self.frontier || self.beyond.contains(&index)
    }

    fn insert(&mut self, index: usize) {
        self.beyond.insert(index);
        while self.beyond.remove(&self.frontier) {
            self.frontier += 1;
        }
    }

    fn remove(&mut self, index: usize) {
        self.beyond.extend(index..self.frontier);
        self.frontier = self.frontier.min(index);
        self.beyond.remove(&index);
    }
}

/// Depth first, with an explicit stack: at each depth any operation may come next that started
/// before the earliest end among those not yet ordered.
fn check_component(records: &[&OperationRecord]) -> Result<(), Violation> {
    let (mut ordered, mut state) = (Ordered::default(), Rc::new(ModelState::default()));
    let mut candidates = candidates(records, &ordered, &state);
    let mut choices: Vec<Choice> = Vec::new();
    let mut seen: HashSet<(Ordered, Rc<ModelState>)> = HashSet::new();
    let (mut best, mut stuck_at) = (0, 0);
    while ordered.count() < records.len() {
        if let Some(Candidate { index, after }) = candidates.pop() {
            ordered.insert(index);
            if !seen.insert((ordered.clone(), Rc::clone(&after))) {
                ordered.remove(index);
                continue;
            }
            if ordered.count() > best {
                (best, stuck_at) = (ordered.count(), ordered.frontier);
            }
            let others =
                std::mem::replace(&mut candidates, self::candidates(records, &ordered, &after));
            choices.push(Choice { index, before: std::mem::replace(&mut state, after), others });
        } else if let Some(choice) = choices.pop() {
            ordered.remove(choice.index);
            (state, candidates) = (choice.before, choice.others);
        } else {
            return Err(violation(records, best, stuck_at));
        }
    }
    Ok(())
}

/// The operations that may come next, in reverse order of their ends.
///
/// A read among them is safe: if there is an order in which it comes later, it could as well come
/// now. So nothing else is tried in its place. (A write that changes nothing now is not safe: later
/// it may change something.)
fn candidates(
    records: &[&OperationRecord],
    ordered: &Ordered,
    state: &ModelState,
) -> Vec<Candidate> {
    let mut deadline = u64::MAX;
    let mut window: Vec<usize> = Vec::new();
    for (index, record) in records.iter().enumerate().skip(ordered.frontier) {
        // Records are sorted by start: once one starts after the deadline, so do all others.
        if record.start_ns > deadline {
            break;
        }
        if !ordered.contains(index) {
            deadline = deadline.min(record.end_ns);
            // A connection's commands take effect in the order in which they were sent.
            if !window.iter().any(|earlier| records[*earlier].client == record.client) {
                window.push(index);
            }
        }
    }
    window.retain(|&index| records[index].start_ns <= deadline);
    window.sort_by_key(|&index| Reverse(records[index].end_ns));
    let mut candidates = Vec::new();
    for index in window {
        let OperationRecord { operation, reply, .. } = records[index];
        if let Some(after) = operation.apply(state, reply) {
            let candidate = Candidate { index, after: Rc::new(after) };
            if operation.is_read() {
                return vec![candidate];
            }
            candidates.push(candidate);
        }
    }
    candidates
}

fn violation(records: &[&OperationRecord], explained: usize, stuck_at: usize) -> Violation {
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
    use crate::random::TestRandom;

    fn record(
        client: usize,
        times: (u64, u64),
        command: HistoryCommand,
        reply: ReplyFrame,
    ) -> OperationRecord {
        let operation = Operation::Single(command);
        OperationRecord { client, start_ns: times.0, end_ns: times.1, operation, reply }
    }

    fn set(times: (u64, u64), value: &str) -> OperationRecord {
        record(0, times, HistoryCommand::Set(0, value.into()), ReplyFrame::simple("OK"))
    }

    fn get(times: (u64, u64), value: Option<&str>) -> OperationRecord {
        let reply = value.map_or(ReplyFrame::Null { kind: b'$' }, ReplyFrame::bulk);
        record(1, times, HistoryCommand::Get(0), reply)
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

    /// In all orders these would be tried for hours.
    #[test]
    fn overlapping_reads_are_tried_in_one_order() {
        let reads = (0..40)
            .map(|client| record(client, (10, 20), HistoryCommand::Get(0), ReplyFrame::bulk("a")));
        let mut history: Vec<_> = std::iter::once(set((0, 5), "a")).chain(reads).collect();
        assert!(check(&history).is_ok());
        history.push(get((30, 31), Some("b")));
        assert!(check(&history).is_err());
    }

    /// Whether some order of all operations explains them: every one is tried.
    fn is_explained(left: &[OperationRecord], state: &ModelState) -> bool {
        let may_come = |next: usize| {
            let is_before = |(at, other): (usize, &OperationRecord)| {
                other.end_ns < left[next].start_ns || other.client == left[next].client && at < next
            };
            !left.iter().enumerate().any(is_before)
        };
        let follows = |next: usize| {
            let after = left[next].operation.apply(state, &left[next].reply)?;
            let rest = [&left[..next], &left[next + 1..]].concat();
            Some(is_explained(&rest, &after))
        };
        left.is_empty() || (0..left.len()).any(|next| may_come(next) && follows(next) == Some(true))
    }

    #[test]
    fn the_search_finds_what_trying_all_orders_finds() {
        let mut random = TestRandom::new(20_261_129);
        let (mut explained, mut unexplained) = (0, 0);
        for _ in 0..4000 {
            let mut history: Vec<_> = (0..5)
                .map(|_| {
                    let start_ns = 1 + random.below(12) as u64;
                    let times = (start_ns, start_ns + random.below(8) as u64);
                    let text = |number: usize| number.to_string();
                    let key = random.below(2) as KeyNumber;
                    let (command, reply) = match random.below(4) {
                        0 => {
                            let value = text(random.below(2)).into_bytes();
                            (HistoryCommand::Set(key, value), ReplyFrame::simple("OK"))
                        }
                        1 => {
                            let number = random.below(3) as i64;
                            (HistoryCommand::Incr(key), ReplyFrame::integer(number))
                        }
                        2 => (
                            HistoryCommand::MGet(vec![0, 1]),
                            ReplyFrame::array(
                                [(); 2].map(|()| ReplyFrame::bulk(text(random.below(2)))).to_vec(),
                            ),
                        ),
                        _ => (HistoryCommand::Get(key), ReplyFrame::bulk(text(random.below(2)))),
                    };
                    record(random.below(4), times, command, reply)
                })
                .collect();
            let zeros = vec![(0, b"0".to_vec()), (1, b"0".to_vec())];
            history.push(record(0, (0, 0), HistoryCommand::MSet(zeros), ReplyFrame::simple("OK")));
            history.sort_by_key(|record| record.start_ns);
            let expected = is_explained(&history, &ModelState::default());
            assert_eq!(check(&history).is_ok(), expected, "{history:#?}");
            *(if expected { &mut explained } else { &mut unexplained }) += 1;
        }
        assert!(explained > 100 && unexplained > 100, "{explained} and {unexplained}");
    }

    #[test]
    fn a_lost_increment_is_a_violation() {
        let increment = |client, value| {
            record(client, (0, 10), HistoryCommand::Incr(3), ReplyFrame::integer(value))
        };
        assert!(check(&[increment(0, 2), increment(1, 1)]).is_ok());
        assert!(check(&[increment(0, 1), increment(1, 1)]).is_err());
    }

    #[test]
    fn a_pipeline_runs_in_order() {
        let increment = |client, value| {
            record(client, (0, 10), HistoryCommand::Incr(3), ReplyFrame::integer(value))
        };
        assert!(check(&[increment(0, 1), increment(0, 2)]).is_ok());
        assert!(check(&[increment(0, 2), increment(0, 1)]).is_err());
    }

    #[test]
    fn a_torn_mset_is_a_violation() {
        let pairs = vec![(0, b"x".to_vec()), (1, b"y".to_vec())];
        let write = record(0, (0, 100), HistoryCommand::MSet(pairs), ReplyFrame::simple("OK"));
        let read = |one: Option<&str>, other: Option<&str>| {
            let value = |value: Option<&str>| {
                value.map_or(ReplyFrame::Null { kind: b'$' }, ReplyFrame::bulk)
            };
            let reply = ReplyFrame::array(vec![value(one), value(other)]);
            record(1, (10, 20), HistoryCommand::MGet(vec![0, 1]), reply)
        };
        assert!(check(&[write.clone(), read(Some("x"), Some("y"))]).is_ok());
        assert!(check(&[write.clone(), read(None, None)]).is_ok());
        assert!(check(&[write, read(Some("x"), None)]).is_err());
    }

    #[test]
    fn a_transaction_is_one_instant() {
        let transaction = |client, times, before: Option<&str>, after: &str| OperationRecord {
            client,
            start_ns: times,
            end_ns: 100,
            operation: Operation::Transaction(vec![
                HistoryCommand::Get(0),
                HistoryCommand::Set(0, after.into()),
                HistoryCommand::Get(0),
            ]),
            reply: ReplyFrame::array(vec![
                before.map_or(ReplyFrame::Null { kind: b'$' }, ReplyFrame::bulk),
                ReplyFrame::simple("OK"),
                ReplyFrame::bulk(after),
            ]),
        };
        assert!(check(&[transaction(0, 0, None, "a"), transaction(1, 0, Some("a"), "b")]).is_ok());
        assert!(check(&[transaction(0, 0, None, "a"), transaction(1, 0, None, "b")]).is_err());
    }

    #[test]
    fn a_swap_on_a_value_that_has_changed_is_a_violation() {
        let swap = OperationRecord {
            client: 2,
            start_ns: 20,
            end_ns: 30,
            operation: Operation::CompareAndSet {
                key: 0,
                seen: Some(b"a".to_vec()),
                value: b"c".to_vec(),
            },
            reply: ReplyFrame::array(vec![ReplyFrame::simple("OK")]),
        };
        assert!(check(&[set((0, 1), "a"), swap.clone(), get((40, 41), Some("c"))]).is_ok());
        let changed = set((10, 11), "b");
        assert!(check(&[set((0, 1), "a"), changed, swap, get((40, 41), Some("c"))]).is_err());
    }

    #[test]
    fn what_concerns_all_keys_is_one_instant() {
        let whole = |operation, times: (u64, u64)| {
            let (start_ns, end_ns) = times;
            OperationRecord {
                client: 3,
                start_ns,
                end_ns,
                operation,
                reply: ReplyFrame::simple("OK"),
            }
        };
        let other = |times, value: Option<&str>| {
            let reply = value.map_or(ReplyFrame::Null { kind: b'$' }, ReplyFrame::bulk);
            record(2, times, HistoryCommand::Get(9), reply)
        };
        let swap = |times| whole(Operation::Swap, times);
        let flush = whole(Operation::Flush, (10, 40));
        let begin = [
            set((0, 1), "a"),
            record(0, (2, 3), HistoryCommand::Set(9, b"b".into()), ReplyFrame::simple("OK")),
        ];
        let seen = |records: &[OperationRecord]| check(&[&begin[..], records].concat()).is_ok();
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
        let other =
            record(0, (5, 6), HistoryCommand::Set(9, b"z".to_vec()), ReplyFrame::simple("OK"));
        let history = [set((0, 1), "a"), other, get((2, 3), None)];
        let violation = check(&history).expect_err("the read is stale");
        assert_eq!(violation.keys, [0]);
        assert_eq!(components(&history).len(), 2);
    }

    #[test]
    fn a_member_is_popped_once() {
        let add = record(0, (0, 1), HistoryCommand::SAdd(0, vec![1, 2]), ReplyFrame::integer(2));
        let pop = |client, member: &str| {
            record(client, (2, 10), HistoryCommand::SPop(0), ReplyFrame::bulk(member))
        };
        let all = |one, other| [add.clone(), pop(1, one), pop(2, other)];
        assert!(check(&all("m1", "m2")).is_ok());
        assert!(check(&all("m2", "m1")).is_ok());
        assert!(check(&all("m1", "m1")).is_err());
        assert!(check(&all("m1", "m3")).is_err());
    }

    #[test]
    fn a_member_that_moves_is_in_one_place() {
        let add = record(0, (0, 1), HistoryCommand::SAdd(0, vec![1]), ReplyFrame::integer(1));
        let moved = record(1, (2, 100), HistoryCommand::SMove(0, 1, 1), ReplyFrame::integer(1));
        let look = |times, key, is_there| {
            record(2, times, HistoryCommand::SIsMember(key, 1), ReplyFrame::integer(is_there))
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
        let text = |member: &str| ReplyFrame::array(vec![ReplyFrame::bulk(member)]);
        let history = |seen: ReplyFrame| {
            let add = |time, member| {
                let both = vec![
                    HistoryCommand::SAdd(0, vec![member]),
                    HistoryCommand::SAdd(1, vec![member]),
                ];
                let drop = vec![HistoryCommand::Del(vec![0, 1])];
                let replies = vec![ReplyFrame::integer(if time == 0 { 0 } else { 2 })];
                let replies =
                    [replies, vec![ReplyFrame::integer(1), ReplyFrame::integer(1)]].concat();
                OperationRecord {
                    client: 0,
                    start_ns: time,
                    end_ns: time + 50,
                    operation: Operation::Transaction([drop, both].concat()),
                    reply: ReplyFrame::array(replies),
                }
            };
            [add(0, 1), add(60, 2), record(1, (70, 80), HistoryCommand::SInter(vec![0, 1]), seen)]
        };
        assert!(check(&history(text("m1"))).is_ok());
        assert!(check(&history(text("m2"))).is_ok());
        assert!(check(&history(ReplyFrame::array(vec![]))).is_err());
    }

    #[test]
    fn scores_and_ranks_are_of_one_order() {
        let add = record(
            0,
            (0, 1),
            HistoryCommand::ZAdd(0, vec![(1, 5), (2, 3)]),
            ReplyFrame::integer(2),
        );
        let increment = |client, times, reply: &str| {
            record(client, times, HistoryCommand::ZIncrBy(0, 4, 2), ReplyFrame::bulk(reply))
        };
        let rank =
            |times, rank| record(3, times, HistoryCommand::ZRank(0, 2), ReplyFrame::integer(rank));
        let once = increment(1, (2, 10), "7");
        assert!(check(&[add.clone(), once.clone(), rank((3, 4), 0)]).is_ok());
        assert!(check(&[add.clone(), once.clone(), rank((3, 4), 1)]).is_ok());
        assert!(check(&[add.clone(), once.clone(), rank((11, 12), 0)]).is_err());
        assert!(check(&[add.clone(), once.clone(), increment(2, (2, 10), "11")]).is_ok());
        assert!(check(&[add.clone(), once.clone(), increment(2, (2, 10), "7")]).is_err());
        let pop = |reply: [&str; 2]| {
            let reply = ReplyFrame::array(reply.map(ReplyFrame::bulk).to_vec());
            record(3, (20, 21), HistoryCommand::ZPopMin(0), reply)
        };
        assert!(check(&[add.clone(), once.clone(), pop(["m1", "5"])]).is_ok());
        assert!(check(&[add, once, pop(["m2", "3"])]).is_err());
    }

    #[test]
    fn a_hash_is_read_as_a_whole() {
        let pairs = |one: &str, other: &str| vec![(1, one.into()), (2, other.into())];
        let write = |times, pairs, new| {
            record(0, times, HistoryCommand::HSet(0, pairs), ReplyFrame::integer(new))
        };
        let first = write((0, 1), pairs("a", "b"), 2);
        let second = write((2, 100), pairs("c", "d"), 0);
        let seen = |one: &str, other: &str| {
            let reply = ["m2", other, "m1", one].map(ReplyFrame::bulk).to_vec();
            let read = record(1, (10, 20), HistoryCommand::HGetAll(0), ReplyFrame::array(reply));
            check(&[first.clone(), second.clone(), read])
        };
        assert!(seen("a", "b").is_ok() && seen("c", "d").is_ok());
        assert!(seen("a", "d").is_err());
    }
}
