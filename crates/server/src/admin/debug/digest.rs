//! DEBUG DIGEST and DIGEST-VALUE: one number for the contents of the databases, independent of the
//! order in which they were written.
//!
//! The construction is Redis's, so two servers with the same data agree. It has two operations.
//! Parts in an order are mixed (the digest of the digest and the part). Parts without an order are
//! combined by exclusive or.

use bobbin_resp::format_f64_as_digits;
use bobbin_store::value::integer::IntegerText;
use bobbin_store::value::{CollectionRef, StreamId};
use bobbin_store::{ByDatabase, EntryRef, SHARDS, ValueRef};
use sha1::{Digest as _, Sha1};

use super::any_key;
use crate::engine::command::{Call, Data, Outcome};

/// A SHA-1, or several that were combined.
#[derive(Clone, Copy, Default)]
struct Digest([u8; 20]);

pub(super) fn all(call: &mut Call<'_>) -> Outcome {
    let over_ms = call.data.conditions.over_ms();
    let mut by_database: ByDatabase<(Digest, bool)> = ByDatabase::default();
    for index in 0..SHARDS {
        call.data.visit(index, |shard| {
            for (number, database) in shard.used() {
                let (sum, used) = by_database.of(number);
                let live = |entry: &EntryRef<'_>| entry.expire_ms().is_none_or(|ms| ms > over_ms);
                for entry in database.table().iter().filter(live) {
                    let mut digest = Digest::default();
                    digest.mix(entry.key());
                    digest.mix_value(entry, over_ms);
                    sum.xor(&sha1(&digest.0));
                    *used = true;
                }
            }
        });
    }
    let mut digest = Digest::default();
    for (number, (sum, _)) in by_database.as_slice().iter().filter(|(_, (_, used))| *used) {
        digest.mix(&number.to_be_bytes());
        digest.xor(&sum.0);
    }
    call.reply.simple(digest.text());
    Ok(())
}

/// A digest of all data, including expired keys that were not removed, and the times of expiry. So
/// it changes only if the data changes.
pub fn whole(data: &mut Data) -> [u8; 20] {
    let mut sum = Digest::default();
    for index in 0..SHARDS {
        data.visit(index, |shard| {
            for (number, database) in shard.used() {
                for entry in database.table().iter() {
                    let mut digest = Digest::default();
                    digest.mix(&number.to_be_bytes());
                    digest.mix(entry.key());
                    digest.mix_value(entry, i64::MIN);
                    digest.mix(&entry.expire_ms().unwrap_or_default().to_be_bytes());
                    if let ValueRef::Collection(CollectionRef::Hash(hash)) = entry.value() {
                        let fields = hash.iter().filter_map(|field| field.expire_ms);
                        digest.mix(&fields.sum::<i64>().to_be_bytes());
                    }
                    sum.xor(&sha1(&digest.0));
                }
            }
        });
    }
    sum.0
}

pub(super) fn values(call: &mut Call<'_>) -> Outcome {
    let over_ms = call.data.conditions.over_ms();
    call.reply.array(call.args.len() - 2);
    for index in 2..call.args.len() {
        let key = any_key(call, index);
        let mut digest = Digest::default();
        if let Some(entry) = call.data.peek(key) {
            digest.mix_value(entry, over_ms);
        }
        call.reply.simple(digest.text());
    }
    Ok(())
}

impl Digest {
    /// Adds a part that has a place in an order.
    fn mix(&mut self, part: &[u8]) {
        self.xor(&sha1(part));
        self.0 = sha1(&self.0);
    }

    /// Adds a value, and whether it expires.
    fn mix_value(&mut self, entry: EntryRef<'_>, over_ms: i64) {
        self.mix(&(entry.value_type() as u32).to_be_bytes());
        match entry.value() {
            ValueRef::Collection(collection) => self.mix_collection(collection, over_ms),
            _ => self.mix(&entry.string().joined()),
        }
        if entry.expire_ms().is_some() {
            self.xor(&sha1(b"!!expire!!"));
        }
    }

    fn mix_collection(&mut self, collection: CollectionRef<'_>, over_ms: i64) {
        let mut room = IntegerText::new(0);
        match collection {
            CollectionRef::Set(set) => {
                set.iter().for_each(|member| self.xor(&sha1(member.text(&mut room))));
            }
            CollectionRef::Hash(hash) => {
                for field in hash.live(over_ms) {
                    let mut digest = Self::default();
                    digest.mix(field.name.text(&mut room));
                    digest.mix(field.value.item().text(&mut room));
                    self.xor(&sha1(&digest.0));
                }
            }
            CollectionRef::Stream(stream) => {
                for entry in stream.log().range(StreamId::ZERO, StreamId::MAX) {
                    // With a dot, only here.
                    self.mix(format!("{}.{}", entry.id.ms, entry.id.seq).as_bytes());
                    for (field, value) in &entry {
                        self.mix(field.text(&mut room));
                        self.mix(value.text(&mut room));
                    }
                }
            }
            CollectionRef::List(list) => {
                list.iter().for_each(|item| self.mix(item.text(&mut room)));
            }
            CollectionRef::SortedSet(set) => {
                for (member, score) in set.iter() {
                    let mut digest = Self::default();
                    digest.mix(member.text(&mut room));
                    digest.mix(&format_f64_as_digits(score));
                    self.xor(&sha1(&digest.0));
                }
            }
        }
    }

    fn xor(&mut self, other: &[u8; 20]) {
        self.0.iter_mut().zip(other).for_each(|(mine, theirs)| *mine ^= theirs);
    }

    fn text(&self) -> String {
        bobbin_text::hex(&self.0)
    }
}

fn sha1(bytes: &[u8]) -> [u8; 20] {
    Sha1::digest(bytes).into()
}

#[cfg(test)]
mod tests {
    use bobbin_store::{NewValue, OwnedEntry};

    use super::*;

    /// Values from DEBUG DIGEST-VALUE of valkey-server 9.1.2.
    #[test]
    fn values_have_redis_digests() {
        let text = |value: &[u8], expire_ms| {
            let entry = OwnedEntry::new(b"key", NewValue::Inline(value), expire_ms, 0);
            let mut digest = Digest::default();
            digest.mix_value(entry.as_ref(), 0);
            digest.text()
        };
        assert_eq!(text(b"1", None), "b4fc66738120fba0b5aa500ab5c2bf89cea1c5da");
        assert_eq!(text(b"xyz", Some(9)), "56c84b94eec67961205b4c8ad864248193bb824c");
    }
}
