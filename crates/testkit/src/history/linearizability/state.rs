//! What keys hold, and what the commands do to it: a server that does one after the other.

use std::collections::{BTreeMap, BTreeSet};

use super::command::{HistoryCommand, KeyNumber, MemberNumber, member_name};
use crate::ReplyFrame;

/// The values of one component's keys. As on a server, there is no empty collection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ModelState {
    values: BTreeMap<KeyNumber, ModelValue>,
    /// What the other database holds.
    others: BTreeMap<KeyNumber, ModelValue>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ModelValue {
    Text(Vec<u8>),
    Set(Set),
    SortedSet(SortedSet),
    Hash(Hash),
}

type Set = BTreeSet<MemberNumber>;
type SortedSet = BTreeMap<MemberNumber, i64>;
type Hash = BTreeMap<MemberNumber, Vec<u8>>;

impl ModelState {
    /// Does what a server does; whether it could have answered this.
    pub fn apply(&mut self, command: &HistoryCommand, reply: &ReplyFrame) -> bool {
        let expected = match command {
            // Which member is popped, the reply alone tells.
            HistoryCommand::SPop(key) => return self.pop(*key, reply),
            HistoryCommand::SMembers(key) => return is_set(reply, &self.set(*key)),
            HistoryCommand::SInter(keys) => return is_set(reply, &self.intersection(keys)),
            HistoryCommand::HGetAll(key) => return is_hash(reply, &self.hash(*key)),
            HistoryCommand::Del(keys) => {
                let removed = keys.iter().filter(|key| self.values.remove(key).is_some()).count();
                integer(removed)
            }
            HistoryCommand::Copy(from, to) => {
                let there = self.values.get(from).cloned();
                let copied = usize::from(there.is_some());
                self.values.extend(there.map(|value| (*to, value)));
                integer(copied)
            }
            HistoryCommand::SAdd(key, members) => self.change(*key, |set: &mut Set| {
                integer(members.iter().filter(|member| set.insert(**member)).count())
            }),
            HistoryCommand::SRem(key, members) => self.change(*key, |set: &mut Set| {
                integer(members.iter().filter(|member| set.remove(member)).count())
            }),
            HistoryCommand::SIsMember(key, member) => {
                integer(self.set(*key).contains(member).into())
            }
            HistoryCommand::SCard(key) => integer(self.set(*key).len()),
            HistoryCommand::SMove(from, to, member) => {
                let there = self.change(*from, |set: &mut Set| set.remove(member));
                if there {
                    self.change(*to, |set: &mut Set| set.insert(*member));
                }
                integer(there.into())
            }
            HistoryCommand::SInterStore(to, keys) => {
                let result = self.intersection(keys);
                self.change(*to, |set: &mut Set| *set = result);
                integer(self.set(*to).len())
            }
            HistoryCommand::SUnionStore(to, keys) => {
                let result = keys.iter().flat_map(|key| self.set(*key)).collect();
                self.change(*to, |set: &mut Set| *set = result);
                integer(self.set(*to).len())
            }
            _ => self.apply_to_sorted_set(command),
        };
        expected == *reply
    }

    /// FLUSHALL.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// SWAPDB.
    pub fn swap(&mut self) {
        std::mem::swap(&mut self.values, &mut self.others);
    }

    pub fn value(&self, key: KeyNumber) -> Option<&ModelValue> {
        self.values.get(&key)
    }

    fn apply_to_sorted_set(&mut self, command: &HistoryCommand) -> ReplyFrame {
        match command {
            HistoryCommand::ZAdd(key, pairs) => self.change(*key, |set: &mut SortedSet| {
                let new =
                    pairs.iter().filter(|(member, score)| set.insert(*member, *score).is_none());
                integer(new.count())
            }),
            HistoryCommand::ZIncrBy(key, by, member) => self.change(*key, |set: &mut SortedSet| {
                let score = set.entry(*member).or_default();
                *score += by;
                number(*score)
            }),
            HistoryCommand::ZRem(key, members) => self.change(*key, |set: &mut SortedSet| {
                integer(members.iter().filter(|member| set.remove(member).is_some()).count())
            }),
            HistoryCommand::ZScore(key, member) => {
                self.sorted_set(*key).get(member).map_or(NULL, |score| number(*score))
            }
            HistoryCommand::ZRank(key, member) => {
                let set = in_order(&self.sorted_set(*key));
                let rank = set.iter().position(|(_, other)| other == member);
                rank.map_or(NULL, integer)
            }
            HistoryCommand::ZRange(key) => scored(&in_order(&self.sorted_set(*key))),
            HistoryCommand::ZPopMin(key) => {
                let first = in_order(&self.sorted_set(*key)).into_iter().next();
                if let Some((_, member)) = first {
                    self.change(*key, |set: &mut SortedSet| set.remove(&member));
                }
                scored(first.as_slice())
            }
            HistoryCommand::ZRangeStore(to, from) => {
                let source = self.sorted_set(*from);
                self.change(*to, |set: &mut SortedSet| *set = source);
                integer(self.sorted_set(*to).len())
            }
            HistoryCommand::ZUnionStore(to, keys) => {
                let mut sum = SortedSet::new();
                for (member, score) in keys.iter().flat_map(|key| self.sorted_set(*key)) {
                    *sum.entry(member).or_default() += score;
                }
                self.change(*to, |set: &mut SortedSet| *set = sum);
                integer(self.sorted_set(*to).len())
            }
            _ => self.apply_to_hash(command),
        }
    }

    fn apply_to_hash(&mut self, command: &HistoryCommand) -> ReplyFrame {
        match command {
            HistoryCommand::HSet(key, pairs) => self.change(*key, |hash: &mut Hash| {
                let set =
                    |(field, value): &(MemberNumber, Vec<u8>)| hash.insert(*field, value.clone());
                integer(pairs.iter().map(set).filter(Option::is_none).count())
            }),
            HistoryCommand::HGet(key, field) => bulk(self.hash(*key).get(field)),
            HistoryCommand::HDel(key, fields) => self.change(*key, |hash: &mut Hash| {
                integer(fields.iter().filter(|field| hash.remove(field).is_some()).count())
            }),
            HistoryCommand::HIncrBy(key, field, by) => self.change(*key, |hash: &mut Hash| {
                let Some(sum) = increased(hash.get(field), *by) else {
                    return ReplyFrame::error("ERR hash value is not an integer");
                };
                hash.insert(*field, sum.to_string().into_bytes());
                ReplyFrame::integer(sum)
            }),
            HistoryCommand::HLen(key) => integer(self.hash(*key).len()),
            _ => self.apply_to_text(command),
        }
    }

    fn apply_to_text(&mut self, command: &HistoryCommand) -> ReplyFrame {
        match command {
            HistoryCommand::Get(key) => bulk(self.text(*key)),
            HistoryCommand::Set(key, value) => {
                self.values.insert(*key, ModelValue::Text(value.clone()));
                ReplyFrame::simple("OK")
            }
            HistoryCommand::SetNx(key, value) => {
                let absent = !self.values.contains_key(key);
                if absent {
                    self.values.insert(*key, ModelValue::Text(value.clone()));
                }
                integer(absent.into())
            }
            HistoryCommand::Incr(key) => {
                let Some(sum) = increased(self.text(*key), 1) else {
                    return ReplyFrame::error("ERR value is not an integer or out of range");
                };
                self.values.insert(*key, ModelValue::Text(sum.to_string().into_bytes()));
                ReplyFrame::integer(sum)
            }
            HistoryCommand::Append(key, value) => {
                let mut whole = self.text(*key).cloned().unwrap_or_default();
                whole.extend_from_slice(value);
                let len = whole.len();
                self.values.insert(*key, ModelValue::Text(whole));
                integer(len)
            }
            HistoryCommand::GetDel(key) => {
                let reply = bulk(self.text(*key));
                self.values.remove(key);
                reply
            }
            HistoryCommand::MSet(pairs) => {
                let text =
                    |(key, value): &(KeyNumber, Vec<u8>)| (*key, ModelValue::Text(value.clone()));
                self.values.extend(pairs.iter().map(text));
                ReplyFrame::simple("OK")
            }
            HistoryCommand::MGet(keys) => {
                ReplyFrame::array(keys.iter().map(|key| bulk(self.text(*key))).collect())
            }
            other => unreachable!("{other:?} is none of these"),
        }
    }

    fn pop(&mut self, key: KeyNumber, reply: &ReplyFrame) -> bool {
        let set = self.set(key);
        let popped = set.iter().find(|member| reply.bytes() == Some(&member_name(**member)[..]));
        match popped {
            Some(member) => self.change(key, |set: &mut Set| set.remove(member)),
            None => set.is_empty() && *reply == NULL,
        }
    }

    fn intersection(&self, keys: &[KeyNumber]) -> Set {
        let sets: Vec<Set> = keys.iter().map(|key| self.set(*key)).collect();
        let Some((first, others)) = sets.split_first() else { return Set::new() };
        first
            .iter()
            .copied()
            .filter(|member| others.iter().all(|set| set.contains(member)))
            .collect()
    }

    /// Changes a collection, which may not be there before, and is not there when nothing is left.
    fn change<C: Collection, R>(&mut self, key: KeyNumber, change: impl FnOnce(&mut C) -> R) -> R {
        let mut collection = self.collection(key);
        let result = change(&mut collection);
        if collection.is_empty() {
            self.values.remove(&key);
        } else {
            self.values.insert(key, collection.into_value());
        }
        result
    }

    fn set(&self, key: KeyNumber) -> Set {
        self.collection(key)
    }

    fn sorted_set(&self, key: KeyNumber) -> SortedSet {
        self.collection(key)
    }

    fn hash(&self, key: KeyNumber) -> Hash {
        self.collection(key)
    }

    fn collection<C: Collection>(&self, key: KeyNumber) -> C {
        self.values.get(&key).and_then(C::of).cloned().unwrap_or_default()
    }

    fn text(&self, key: KeyNumber) -> Option<&Vec<u8>> {
        match self.values.get(&key)? {
            ModelValue::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// What is not there while it is empty.
trait Collection: Clone + Default {
    fn of(value: &ModelValue) -> Option<&Self>;
    fn into_value(self) -> ModelValue;
    fn is_empty(&self) -> bool;
}

macro_rules! collection {
    ($type:ty, $variant:ident) => {
        impl Collection for $type {
            fn of(value: &ModelValue) -> Option<&Self> {
                match value {
                    ModelValue::$variant(collection) => Some(collection),
                    _ => None,
                }
            }

            fn into_value(self) -> ModelValue {
                ModelValue::$variant(self)
            }

            fn is_empty(&self) -> bool {
                <$type>::is_empty(self)
            }
        }
    };
}

collection!(Set, Set);
collection!(SortedSet, SortedSet);
collection!(Hash, Hash);

/// Scores and members as ZRANGE has them: of equal scores the lesser member first. (Names have one
/// digit.)
fn in_order(set: &SortedSet) -> Vec<(i64, MemberNumber)> {
    let mut pairs: Vec<_> = set.iter().map(|(member, score)| (*score, *member)).collect();
    pairs.sort_unstable();
    pairs
}

fn scored(pairs: &[(i64, MemberNumber)]) -> ReplyFrame {
    let pair = |(score, member): &(i64, MemberNumber)| {
        [ReplyFrame::bulk(member_name(*member)), number(*score)]
    };
    ReplyFrame::array(pairs.iter().flat_map(pair).collect())
}

/// In any order, each once.
fn is_set(reply: &ReplyFrame, set: &Set) -> bool {
    let mut members: Vec<_> = reply.items().iter().map(ReplyFrame::bytes).collect();
    members.sort_unstable();
    let names: Vec<_> = set.iter().map(|member| member_name(*member)).collect();
    members.iter().copied().eq(names.iter().map(|name| Some(&name[..])))
}

fn is_hash(reply: &ReplyFrame, hash: &Hash) -> bool {
    let mut pairs: Vec<_> = reply.items().chunks(2).map(|pair| pair.to_vec()).collect();
    pairs.sort_unstable();
    let expected = hash.iter().map(|(field, value)| {
        vec![ReplyFrame::bulk(member_name(*field)), ReplyFrame::bulk(value.clone())]
    });
    pairs.into_iter().eq(expected)
}

fn bulk(value: Option<&Vec<u8>>) -> ReplyFrame {
    value.map_or(NULL, |value| ReplyFrame::bulk(value.clone()))
}

fn number(number: i64) -> ReplyFrame {
    ReplyFrame::bulk(number.to_string())
}

fn integer(number: usize) -> ReplyFrame {
    ReplyFrame::integer(number as i64)
}

/// A value and so much more, if the value is a number as Redis writes numbers. What is not there is
/// 0.
fn increased(value: Option<&Vec<u8>>, by: i64) -> Option<i64> {
    let Some(value) = value else { return Some(by) };
    let text = std::str::from_utf8(value).ok()?;
    let number: i64 = text.parse().ok()?;
    // No leading zeros, no plus sign.
    if number.to_string() != text {
        return None;
    }
    number.checked_add(by)
}

const NULL: ReplyFrame = ReplyFrame::Null { kind: b'$' };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_judged_as_redis_does() {
        for (value, expected) in [("5", Some(6)), ("-1", Some(0)), ("05", None), ("+5", None)] {
            assert_eq!(increased(Some(&value.into()), 1), expected, "{value}");
        }
        assert_eq!(increased(Some(&i64::MAX.to_string().into_bytes()), 1), None);
    }

    #[test]
    fn what_is_empty_is_not_there() {
        let mut state = ModelState::default();
        assert!(state.apply(&HistoryCommand::SAdd(0, vec![1]), &ReplyFrame::integer(1)));
        assert!(state.apply(&HistoryCommand::SMove(0, 1, 1), &ReplyFrame::integer(1)));
        assert!(state.apply(&HistoryCommand::SInterStore(1, vec![0, 1]), &ReplyFrame::integer(0)));
        assert_eq!(state, ModelState::default());
    }
}
