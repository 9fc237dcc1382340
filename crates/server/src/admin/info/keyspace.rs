//! The section of databases.

use bobbin_store::ByDatabase;

use super::{Lines, Section, SectionShown, Snapshot, line};
use crate::engine::command::Data;

pub(super) const KEYSPACE: Section = Section {
    name: "keyspace",
    title: "Keyspace",
    shown: SectionShown::Default,
    lines: Lines::Written(write),
};

/// The figures of all shards.
#[derive(Default, Clone, Debug)]
pub struct KeyspaceFigures {
    pub databases: ByDatabase<DatabaseFigures>,
    /// The bytes of tables and indexes.
    pub overhead_bytes: usize,
}

/// The figures of one database.
#[derive(Default, Clone, Copy, Debug)]
pub struct DatabaseFigures {
    pub keys: usize,
    /// How many keys expire.
    pub volatile: usize,
    /// How many hashes have fields that expire.
    pub with_volatile_items: usize,
    /// The bytes of its tables' buckets.
    pub table_bytes: usize,
    pub expiry_bytes: usize,
    /// The remaining milliseconds of the sampled keys in total, and how many keys those are.
    ttl_sum_ms: i64,
    ttl_count: i64,
}

impl DatabaseFigures {
    /// The average remaining milliseconds of keys, estimated from a sample.
    pub const fn average_ttl_ms(&self) -> i64 {
        if self.ttl_count == 0 { 0 } else { self.ttl_sum_ms / self.ttl_count }
    }
}

impl KeyspaceFigures {
    /// Walks over the shards, and locks one at a time.
    pub fn of(data: &mut Data) -> Self {
        let mut sum = KeyspaceSum::default();
        data.each_used(|data, index| sum.add(data, index));
        sum.into_figures()
    }
}

/// The figures of those shards that were looked at so far.
#[derive(Default)]
pub struct KeyspaceSum {
    figures: KeyspaceFigures,
    /// Of shards that only have keys of database 0 which never expire.
    first: DatabaseFigures,
}

impl KeyspaceSum {
    /// Adds a shard, which is locked meanwhile if it has more than the plain figures tell.
    pub fn add(&mut self, data: &mut Data, index: usize) {
        let now_ms = data.conditions.now_ms;
        if let Some((keys, table_bytes)) = data.plain_figures(index) {
            self.first.keys += keys;
            self.first.table_bytes += table_bytes;
            return;
        }
        let random = data.random.next_u32();
        let figures = &mut self.figures;
        data.visit(index, |shard| {
            figures.overhead_bytes += shard.overhead();
            for (number, database) in shard.used().filter(|(_, database)| !database.is_empty()) {
                let sum = figures.databases.of(number);
                sum.keys += database.len();
                sum.volatile += database.volatile();
                sum.with_volatile_items += database.with_expiring_fields();
                sum.table_bytes += database.table().memory();
                sum.expiry_bytes += database.overhead() - database.table().memory();
                if database.volatile() > 0 && sum.ttl_count < TTL_SAMPLES_MAX {
                    for expire_ms in database.table().sample(random).filter_map(|e| e.expire_ms()) {
                        sum.ttl_sum_ms += (expire_ms - now_ms).max(0);
                        sum.ttl_count += 1;
                    }
                }
            }
        });
    }

    pub fn into_figures(self) -> KeyspaceFigures {
        let Self { mut figures, first } = self;
        figures.overhead_bytes += first.table_bytes;
        if first.keys > 0 {
            let sum = figures.databases.of(0);
            sum.keys += first.keys;
            sum.table_bytes += first.table_bytes;
        }
        figures
    }
}

fn write(snapshot: &Snapshot<'_>, text: &mut String) {
    for (number, database) in snapshot.keyspace().databases.as_slice() {
        if database.keys > 0 {
            let (keys, volatile) = (database.keys, database.volatile);
            let ttl_ms = database.average_ttl_ms();
            let hashes = database.with_volatile_items;
            line(
                text,
                format_args!(
                    "db{number}:keys={keys},expires={volatile},avg_ttl={ttl_ms},\
                     keys_with_volatile_items={hashes}"
                ),
            );
        }
    }
}

/// How many keys per database are sampled for their expiry, approximately.
const TTL_SAMPLES_MAX: i64 = 1000;
