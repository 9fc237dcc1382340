//! ZADD and ZINCRBY.

use bobbin_resp::parse_f64;
use bobbin_store::value::SortedSet;

use super::{check_member, limits};
use crate::engine::command::{Call, Classes, Failure, KeyUse, Outcome};

/// The options of ZADD.
#[derive(Default, Clone, Copy)]
struct AddOptions {
    /// NX: only new members.
    new_only: bool,
    /// XX: only existing members.
    old_only: bool,
    /// GT, LT: only if the score becomes greater, or less.
    greater_only: bool,
    less_only: bool,
    /// CH: count changed scores too.
    count_changes: bool,
    /// INCR: add to the score, and reply with it.
    increment: bool,
}

pub(super) fn zadd(call: &mut Call<'_>) -> Outcome {
    let mut options = AddOptions::default();
    let mut at = 2;
    while at < call.args.len() {
        let Some(option) = options.named(call.args[at]) else { break };
        *option = true;
        at += 1;
    }
    let pairs = call.args.len() - at;
    if pairs == 0 || !pairs.is_multiple_of(2) {
        return Err(Failure::SYNTAX);
    }
    options.check(pairs / 2)?;
    add(call, options, at)
}

/// The key is read with INCR, whose reply is a score, and with GT and LT, whose effect tells how
/// the score compares to another.
pub(super) fn find_key(args: &[&[u8]], found: &mut dyn FnMut(usize, KeyUse)) {
    const READING: [&[u8]; 3] = [b"incr", b"gt", b"lt"];
    const OTHERS: [&[u8]; 3] = [b"nx", b"xx", b"ch"];
    let is_one_of = |words: &[&[u8]], arg: &[u8]| words.iter().any(|w| arg.eq_ignore_ascii_case(w));
    let mut options = args.iter().skip(2).skip_while(|arg| is_one_of(&OTHERS, arg));
    let reads = options.next().is_some_and(|arg| is_one_of(&READING, arg));
    let usage = KeyUse::READ_WRITE.with(KeyUse::UPDATE);
    found(1, if reads { usage.with(KeyUse::ACCESS) } else { usage });
}

pub(super) fn zincrby(call: &mut Call<'_>) -> Outcome {
    // Valkey parses ZADD's options here too, and then misses the member.
    if AddOptions::default().named(call.args[2]).is_some() {
        return Err(Failure::SYNTAX);
    }
    add(call, AddOptions { increment: true, ..AddOptions::default() }, 2)
}

/// Adds the pairs of score and member from an argument on.
fn add(call: &mut Call<'_>, options: AddOptions, first: usize) -> Outcome {
    let pairs = &call.args[first..];
    // One pair, the usual case, needs no memory for the scores.
    let (mut one, mut many) = ([0.0], Vec::new());
    let scores: &mut [f64] = if pairs.len() == 2 {
        &mut one
    } else {
        many.resize(pairs.len() / 2, 0.0);
        &mut many
    };
    for (score, pair) in scores.iter_mut().zip(pairs.chunks_exact(2)) {
        *score = parse_f64(pair[0]).ok_or(Failure::NOT_A_FLOAT)?;
        check_member(pair[1])?;
    }
    let (key, limits, hasher) = (call.key(1)?, limits(call.server), call.data.keyspace().hasher());
    let set = if options.old_only {
        call.data.write_as::<SortedSet>(key)?
    } else {
        Some(call.data.write_or_create::<SortedSet>(key)?)
    };
    let (mut added, mut changed, mut answer) = (0, 0, None);
    if let Some(set) = set {
        let members = pairs.chunks_exact(2).map(|pair| pair[1]);
        set.update_all(members, limits, hasher, |index, old_score| {
            answer = options.new_score(old_score, scores[index]);
            match (old_score, answer) {
                (None, Some(_)) => added += 1,
                (Some(old_score), Some(score)) if old_score != score => changed += 1,
                _ => {}
            }
            answer.filter(|score| !score.is_nan())
        });
        if answer.is_some_and(f64::is_nan) {
            // This is the only pair, and the member existed, so nothing has changed.
            return Err(NAN);
        }
    }
    if added + changed > 0 {
        call.data.changed_by(key, (added + changed) as usize);
        let event = if options.increment { "zincr" } else { "zadd" };
        call.data.event(Classes::SORTED_SET, event, key);
    }
    match answer {
        Some(score) if options.increment => call.reply.double(score),
        None if options.increment => call.reply.null(),
        _ if options.count_changes => call.reply.integer(added + changed),
        _ => call.reply.integer(added),
    }
    Ok(())
}

impl AddOptions {
    /// The option with this name.
    fn named(&mut self, word: &[u8]) -> Option<&mut bool> {
        let options = [
            ("nx", &mut self.new_only),
            ("xx", &mut self.old_only),
            ("ch", &mut self.count_changes),
            ("incr", &mut self.increment),
            ("gt", &mut self.greater_only),
            ("lt", &mut self.less_only),
        ];
        let found =
            options.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|(_, option)| option)
    }

    fn check(self, pairs: usize) -> Outcome {
        if self.new_only && self.old_only {
            return Err("ERR XX and NX options at the same time are not compatible".into());
        }
        let comparisons = [self.greater_only, self.less_only, self.new_only];
        if comparisons.iter().filter(|&&given| given).count() > 1 {
            return Err("ERR GT, LT, and/or NX options at the same time are not compatible".into());
        }
        if self.increment && pairs > 1 {
            return Err("ERR INCR option supports a single increment-element pair".into());
        }
        Ok(())
    }

    /// The new score of a member. `None`: none, or no new one. The caller must refuse NaN.
    #[inline]
    fn new_score(self, old_score: Option<f64>, score: f64) -> Option<f64> {
        let Some(old_score) = old_score else { return (!self.old_only).then_some(score) };
        if self.new_only {
            return None;
        }
        let score = if self.increment { old_score + score } else { score };
        let refused =
            self.less_only && score >= old_score || self.greater_only && score <= old_score;
        (!refused).then_some(score)
    }
}

const NAN: Failure = Failure::new(&"ERR resulting score is not a number (NaN)");
