//! RANDOMKEY.

use bobbin_store::SHARDS;

use crate::base::random::likely_max;
use crate::engine::command::{Call, Categories, Command, Data, Flags, Outcome};

fn randomkey(call: &mut Call<'_>) -> Outcome {
    for _ in 0..RANDOM_TRIES_MAX {
        let Some(picked) = pick(call) else { break };
        if picked {
            return Ok(());
        }
    }
    call.reply.null();
    Ok(())
}

/// Replies with a random key, each with the same probability, if it has not expired. Otherwise
/// removes the key. `None`: there is no key.
fn pick(call: &mut Call<'_>) -> Option<bool> {
    let database = call.client.database;
    let total = call.data.total(database);
    if total == 0 {
        return None;
    }
    // If keys are removed meanwhile, the walk may end without a result. Then there is another try.
    let index = guess_shard(call.data, database, total);
    let index = index.or_else(|| find_shard(call.data, database, total));
    let Some(index) = index else { return Some(false) };
    let alone = !call.data.holds(index);
    if alone && !call.data.hold_one(index) {
        return Some(false);
    }
    let (now_ms, reply) = (call.data.dead_ms(), &mut call.reply);
    let mut random = crate::base::random::Random::new(call.data.random.next_u64());
    let dead = call.data.visit(index, |shard| {
        let table = shard.database(database)?.table();
        let entry = table.pick(|bound| random.below(bound))?;
        if entry.expire_ms().is_some_and(|ms| ms <= now_ms) {
            return Some(Some(Box::from(entry.key())));
        }
        reply.bulk(entry.key());
        Some(None)
    });
    if let Some(Some(key)) = &dead {
        call.data.expire_keys(index, database, std::slice::from_ref(key));
    }
    if alone {
        call.data.release();
    }
    Some(matches!(dead, Some(None)))
}

/// A shard, each with a probability proportional to its keys. Draws a random shard, and accepts it
/// if it has more keys than a random number. `None`: that would take too long.
fn guess_shard(data: &mut Data, database: u32, total: usize) -> Option<usize> {
    if total < GUESSED_MIN {
        return None;
    }
    // A shard with more keys would be chosen slightly too rarely.
    let bound = likely_max(total as f32 / SHARDS as f32) as u32;
    (0..GUESSES_MAX).find_map(|_| {
        let index = data.random.below(SHARDS as u32) as usize;
        let at = data.random.below(bound) as usize;
        (at < data.len(index, database)).then_some(index)
    })
}

/// Does the same as `guess_shard` by a walk to a random key. `None`: keys were removed meanwhile.
fn find_shard(data: &mut Data, database: u32, total: usize) -> Option<usize> {
    let mut rest = (data.random.next_u64() % total as u64) as usize;
    data.find_used(|data, index| {
        let len = data.len(index, database);
        let here = rest < len;
        rest = rest.saturating_sub(len);
        here
    })
}

/// How many shards RANDOMKEY guesses before it walks over all of them, and from how many keys on
/// guessing usually succeeds.
const GUESSES_MAX: usize = 256;
const GUESSED_MIN: usize = 256;
/// How many expired keys RANDOMKEY finds before it says that there is none.
const RANDOM_TRIES_MAX: usize = 100;

pub(super) const COMMANDS: &[Command] = &[Command::new("randomkey", 1, randomkey)
    .flags(Flags::READONLY.with(Flags::WALKS))
    .categories(Categories::KEYSPACE)
    .doc("generic", "1.0.0", "O(1)", "Answers the name of a random key.")
    .tips(&["request_policy:all_shards", "response_policy:special", "nondeterministic_output"])];

#[cfg(test)]
mod tests {
    use bobbin_store::shard::Expire;
    use bobbin_store::{Gate, Keyspace, NewValue};

    use super::*;

    /// Both ways choose the keys of all shards with the same probability.
    #[test]
    fn shards_are_chosen_by_how_many_keys_they_have() {
        let keyspace: &'static Keyspace = Box::leak(Box::new(Keyspace::new(7)));
        let gate: &'static Gate = Box::leak(Box::default());
        let mut data = Data::new(keyspace, gate, 1).expect("few threads");
        data.enter();
        for i in 0..3 * SHARDS {
            let name = format!("key {i}");
            let key = data.key(name.as_bytes());
            assert!(data.hold_one(key.hash.shard()));
            data.set(key, NewValue::string(b"v"), Expire::Clear);
            data.release();
        }
        let total = data.total(0);
        assert_eq!(total, 3 * SHARDS);
        let is_guessed = (0..100).filter(|_| guess_shard(&mut data, 0, total).is_some()).count();
        assert_eq!(is_guessed, 100);
        type Choose = fn(&mut Data, u32, usize) -> Option<usize>;
        let ways: [(Choose, usize); 2] = [(guess_shard, 100_000), (find_shard, 5000)];
        for (choose, choices) in ways {
            // By the number of keys: how many times shards were chosen, and how many shards there
            // are.
            let (mut chosen, mut shards) = ([0; 32], [0; 32]);
            for _ in 0..choices {
                let index = choose(&mut data, 0, total).expect("there are keys");
                chosen[data.len(index, 0)] += 1;
            }
            (0..SHARDS).for_each(|index| shards[data.len(index, 0)] += 1);
            for (keys, (&chosen, &shards)) in chosen.iter().zip(&shards).enumerate() {
                let expected = (choices * keys * shards) as f64 / total as f64;
                let error = (f64::from(chosen as u32) - expected).abs();
                assert!(
                    error <= 5.0 * expected.sqrt() + 1.0,
                    "{keys} keys: {chosen}, not {expected}"
                );
            }
        }
        data.leave();
    }
}
