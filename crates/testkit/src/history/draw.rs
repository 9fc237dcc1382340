//! Draws commands: few keys, few members, so that clients get into each other's way.

use super::linearizability::{HistoryCommand, KeyNumber, MemberNumber};
use crate::random::TestRandom;

/// What the keys of a group hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupType {
    Strings,
    Sets,
    SortedSets,
    Hashes,
}

/// The draws of one client.
pub(super) struct Draw {
    pub random: TestRandom,
    client: usize,
    /// Values are never written twice, so that a read tells which write it saw.
    values: u64,
}

impl Draw {
    pub fn new(client: usize, seed: u64) -> Self {
        let random = TestRandom::new(seed ^ (client as u64 + 1).wrapping_mul(0x9e37_79b9));
        Self { random, client, values: 0 }
    }

    /// A command on the keys of a group.
    pub fn command(&mut self, kind: GroupType, group: usize) -> HistoryCommand {
        // Every kind of group has these: keys are deleted, and values are cloned.
        match self.random.below(24) {
            0 => return HistoryCommand::Del(self.keys(group)),
            1 => {
                let keys = self.keys(group);
                if let [from, to, ..] = keys[..] {
                    return HistoryCommand::Copy(from, to);
                }
            }
            _ => {}
        }
        match kind {
            GroupType::Strings => self.string(group),
            GroupType::Sets => self.set(group),
            GroupType::SortedSets => self.sorted_set(group),
            GroupType::Hashes => self.hash(group),
        }
    }

    fn string(&mut self, group: usize) -> HistoryCommand {
        let key = self.key(group);
        match self.random.below(19) {
            0..=4 => HistoryCommand::Get(key),
            5..=7 => HistoryCommand::Set(key, self.value()),
            8 => HistoryCommand::Set(key, self.random.below(1000).to_string().into_bytes()),
            9 => HistoryCommand::SetNx(key, self.value()),
            10..=12 => HistoryCommand::Incr(key),
            13 => HistoryCommand::Append(key, self.value()),
            14 => HistoryCommand::GetDel(key),
            15..=16 => HistoryCommand::MGet(self.keys(group)),
            _ => {
                let keys = self.keys(group);
                HistoryCommand::MSet(keys.into_iter().map(|key| (key, self.value())).collect())
            }
        }
    }

    fn set(&mut self, group: usize) -> HistoryCommand {
        let key = self.key(group);
        match self.random.below(20) {
            0..=4 => HistoryCommand::SAdd(key, self.members()),
            5..=6 => HistoryCommand::SRem(key, self.members()),
            7..=8 => HistoryCommand::SIsMember(key, self.member()),
            9 => HistoryCommand::SCard(key),
            10..=11 => HistoryCommand::SMembers(key),
            12..=13 => HistoryCommand::SPop(key),
            14..=15 => HistoryCommand::SMove(key, self.key(group), self.member()),
            16 => HistoryCommand::SInter(self.keys(group)),
            17 => HistoryCommand::SInterStore(key, self.keys(group)),
            _ => HistoryCommand::SUnionStore(key, self.keys(group)),
        }
    }

    fn sorted_set(&mut self, group: usize) -> HistoryCommand {
        let key = self.key(group);
        match self.random.below(20) {
            0..=4 => {
                let members = self.members();
                HistoryCommand::ZAdd(
                    key,
                    members.into_iter().map(|member| (member, self.score())).collect(),
                )
            }
            5..=7 => HistoryCommand::ZIncrBy(key, self.score() % 7, self.member()),
            8 => HistoryCommand::ZRem(key, self.members()),
            9 => HistoryCommand::ZScore(key, self.member()),
            10..=11 => HistoryCommand::ZRank(key, self.member()),
            12..=14 => HistoryCommand::ZRange(key),
            15..=16 => HistoryCommand::ZPopMin(key),
            17..=18 => HistoryCommand::ZRangeStore(key, self.key(group)),
            // Of one source: sums of sums would soon be too large to be exact.
            _ => HistoryCommand::ZUnionStore(key, vec![self.key(group)]),
        }
    }

    fn hash(&mut self, group: usize) -> HistoryCommand {
        let key = self.key(group);
        match self.random.below(20) {
            0..=4 => {
                let fields = self.members();
                HistoryCommand::HSet(
                    key,
                    fields.into_iter().map(|field| (field, self.value())).collect(),
                )
            }
            5..=6 => {
                let number = self.random.below(1000).to_string().into_bytes();
                HistoryCommand::HSet(key, vec![(self.member(), number)])
            }
            7..=9 => HistoryCommand::HIncrBy(key, self.member(), self.random.below(7) as i64 - 3),
            10..=11 => HistoryCommand::HDel(key, self.members()),
            12..=13 => HistoryCommand::HGet(key, self.member()),
            14 => HistoryCommand::HLen(key),
            _ => HistoryCommand::HGetAll(key),
        }
    }

    pub fn key(&mut self, group: usize) -> KeyNumber {
        (group * GROUP_KEYS + self.random.below(GROUP_KEYS)) as KeyNumber
    }

    /// One to three keys of a group, each once, in any order.
    fn keys(&mut self, group: usize) -> Vec<KeyNumber> {
        let mut keys = Vec::new();
        for _ in 0..=self.random.below(GROUP_KEYS) {
            let key = self.key(group);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    fn member(&mut self) -> MemberNumber {
        self.random.below(MEMBERS) as MemberNumber
    }

    /// One to four members, each once.
    fn members(&mut self) -> Vec<MemberNumber> {
        let mut members = Vec::new();
        for _ in 0..=self.random.below(4) {
            let member = self.member();
            if !members.contains(&member) {
                members.push(member);
            }
        }
        members
    }

    /// Not the same as any other client's or earlier one.
    fn score(&mut self) -> i64 {
        self.values += 1;
        self.values as i64 * CLIENTS_MAX + self.client as i64
    }

    /// Now and then a value that does not fit beside its key.
    pub fn value(&mut self) -> Vec<u8> {
        self.values += 1;
        let mut value = format!("{}.{}", self.client, self.values).into_bytes();
        if self.random.below(16) == 0 {
            value.resize(200 + self.random.below(400), b'.');
        }
        value
    }
}

/// Keys that operations on several keys may combine.
pub const GROUP_KEYS: usize = 3;
/// With one digit: see `linearizability`.
const MEMBERS: usize = 8;
const CLIENTS_MAX: i64 = 100;
