//! Draws commands: few keys, few members, so that clients get into each other's way.

use super::linearizability::{Command, Key, Member};
use crate::random::Random;

/// What the keys of a group hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Strings,
    Sets,
    SortedSets,
    Hashes,
}

/// The draws of one client.
pub(super) struct Draw {
    pub random: Random,
    client: usize,
    /// Values are never written twice, so that a read tells which write it saw.
    values: u64,
}

impl Draw {
    pub fn new(client: usize, seed: u64) -> Self {
        let random = Random::new(seed ^ (client as u64 + 1).wrapping_mul(0x9e37_79b9));
        Self { random, client, values: 0 }
    }

    /// A command on the keys of a group.
    pub fn command(&mut self, kind: Kind, group: usize) -> Command {
        // Every kind of group has these: keys are deleted, and values are cloned.
        match self.random.below(24) {
            0 => return Command::Del(self.keys(group)),
            1 => {
                let keys = self.keys(group);
                if let [from, to, ..] = keys[..] {
                    return Command::Copy(from, to);
                }
            }
            _ => {}
        }
        match kind {
            Kind::Strings => self.string(group),
            Kind::Sets => self.set(group),
            Kind::SortedSets => self.sorted_set(group),
            Kind::Hashes => self.hash(group),
        }
    }

    fn string(&mut self, group: usize) -> Command {
        let key = self.key(group);
        match self.random.below(19) {
            0..=4 => Command::Get(key),
            5..=7 => Command::Set(key, self.value()),
            8 => Command::Set(key, self.random.below(1000).to_string().into_bytes()),
            9 => Command::SetNx(key, self.value()),
            10..=12 => Command::Incr(key),
            13 => Command::Append(key, self.value()),
            14 => Command::GetDel(key),
            15..=16 => Command::MGet(self.keys(group)),
            _ => {
                let keys = self.keys(group);
                Command::MSet(keys.into_iter().map(|key| (key, self.value())).collect())
            }
        }
    }

    fn set(&mut self, group: usize) -> Command {
        let key = self.key(group);
        match self.random.below(20) {
            0..=4 => Command::SAdd(key, self.members()),
            5..=6 => Command::SRem(key, self.members()),
            7..=8 => Command::SIsMember(key, self.member()),
            9 => Command::SCard(key),
            10..=11 => Command::SMembers(key),
            12..=13 => Command::SPop(key),
            14..=15 => Command::SMove(key, self.key(group), self.member()),
            16 => Command::SInter(self.keys(group)),
            17 => Command::SInterStore(key, self.keys(group)),
            _ => Command::SUnionStore(key, self.keys(group)),
        }
    }

    fn sorted_set(&mut self, group: usize) -> Command {
        let key = self.key(group);
        match self.random.below(20) {
            0..=4 => {
                let members = self.members();
                Command::ZAdd(
                    key,
                    members.into_iter().map(|member| (member, self.score())).collect(),
                )
            }
            5..=7 => Command::ZIncrBy(key, self.score() % 7, self.member()),
            8 => Command::ZRem(key, self.members()),
            9 => Command::ZScore(key, self.member()),
            10..=11 => Command::ZRank(key, self.member()),
            12..=14 => Command::ZRange(key),
            15..=16 => Command::ZPopMin(key),
            17..=18 => Command::ZRangeStore(key, self.key(group)),
            // Of one source: sums of sums would soon be too large to be exact.
            _ => Command::ZUnionStore(key, vec![self.key(group)]),
        }
    }

    fn hash(&mut self, group: usize) -> Command {
        let key = self.key(group);
        match self.random.below(20) {
            0..=4 => {
                let fields = self.members();
                Command::HSet(key, fields.into_iter().map(|field| (field, self.value())).collect())
            }
            5..=6 => {
                let number = self.random.below(1000).to_string().into_bytes();
                Command::HSet(key, vec![(self.member(), number)])
            }
            7..=9 => Command::HIncrBy(key, self.member(), self.random.below(7) as i64 - 3),
            10..=11 => Command::HDel(key, self.members()),
            12..=13 => Command::HGet(key, self.member()),
            14 => Command::HLen(key),
            _ => Command::HGetAll(key),
        }
    }

    pub fn key(&mut self, group: usize) -> Key {
        (group * GROUP_KEYS + self.random.below(GROUP_KEYS)) as Key
    }

    /// One to three keys of a group, each once, in any order.
    fn keys(&mut self, group: usize) -> Vec<Key> {
        let mut keys = Vec::new();
        for _ in 0..=self.random.below(GROUP_KEYS) {
            let key = self.key(group);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    fn member(&mut self) -> Member {
        self.random.below(MEMBERS) as Member
    }

    /// One to four members, each once.
    fn members(&mut self) -> Vec<Member> {
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
