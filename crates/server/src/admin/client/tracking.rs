//! CLIENT TRACKING and related subcommands, for clients that cache keys.

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::engine::command::{Call, Failure, Outcome};
use crate::engine::tracking::{self, ConnectionTracking, Mode};

/// The options of CLIENT TRACKING.
#[derive(Default)]
struct TrackingOptions<'a> {
    mode: Mode,
    /// The client that gets the invalidations; 0: the client itself.
    redirect: u64,
    prefixes: Vec<&'a [u8]>,
}

pub(super) fn tracking(call: &mut Call<'_>) -> Outcome {
    let options = TrackingOptions::parse(call)?;
    if call.word_is(2, "off") {
        tracking::disable(call.server, call.client);
        call.reply.ok();
        return Ok(());
    }
    if !call.word_is(2, "on") {
        return Err(Failure::SYNTAX);
    }
    options.check(call.client.tracking.as_deref())?;
    let TrackingOptions { mut prefixes, mode, redirect } = options;
    let broadcasts = mode.has(Mode::BROADCAST);
    if broadcasts && prefixes.is_empty() {
        prefixes.push(b"");
    }
    let target = if redirect == 0 {
        None
    } else {
        Some(call.server.clients.find(redirect).ok_or(NO_SUCH_CLIENT)?)
    };
    if broadcasts && !call.in_transaction {
        // With the gate held: from now on every worker notes its changes.
        call.data.hold_gate_anyway();
    }
    let prefixes = prefixes.into_iter().map(Box::from).collect();
    tracking::enable(call.server, call.client, mode, target, prefixes);
    call.reply.ok();
    Ok(())
}

/// Whether the subcommand takes the gate.
pub(super) fn broadcasts(args: &[&[u8]]) -> bool {
    args[2..].iter().any(|arg| arg.eq_ignore_ascii_case(b"bcast"))
}

impl<'a> TrackingOptions<'a> {
    fn parse(call: &Call<'a>) -> Result<Self, Failure> {
        let mut options = Self::default();
        let mut at = 3;
        while at < call.args.len() {
            let word = |name: &&(Mode, &str)| call.word_is(at, name.1);
            if let Some((mode, _)) = Mode::NAMES.iter().find(word) {
                options.mode = options.mode.with(*mode);
                at += 1;
                continue;
            }
            let takes_value = call.word_is(at, "redirect") || call.word_is(at, "prefix");
            if !takes_value || at + 1 == call.args.len() {
                return Err(Failure::SYNTAX);
            }
            if call.word_is(at, "prefix") {
                options.prefixes.push(call.args[at + 1]);
            } else if options.redirect != 0 {
                return Err("ERR A client can only redirect to a single other client".into());
            } else {
                let id = call.integer(at + 1)?;
                options.redirect = u64::try_from(id).map_err(|_| NO_SUCH_CLIENT)?;
                if options.redirect == 0 || call.server.clients.find(options.redirect).is_none() {
                    return Err(NO_SUCH_CLIENT);
                }
            }
            at += 2;
        }
        Ok(options)
    }

    /// Checks that the options fit each other and the client's current tracking.
    fn check(&self, before: Option<&ConnectionTracking>) -> Outcome {
        let broadcasts = self.mode.has(Mode::BROADCAST);
        if !broadcasts && !self.prefixes.is_empty() {
            return Err("ERR PREFIX option requires BCAST mode to be enabled".into());
        }
        if before.is_some_and(|tracked| tracked.mode.has(Mode::BROADCAST) != broadcasts) {
            return Err(
                "ERR You can't switch BCAST mode on/off before disabling tracking for this \
                        client, and then re-enabling it with a different mode."
                    .into(),
            );
        }
        let opts = Mode::OPT_IN.with(Mode::OPT_OUT);
        if broadcasts && self.mode.has(opts) {
            return Err("ERR OPTIN and OPTOUT are not compatible with BCAST".into());
        }
        if self.mode.has(Mode::OPT_IN) && self.mode.has(Mode::OPT_OUT) {
            return Err("ERR You can't specify both OPTIN mode and OPTOUT mode".into());
        }
        let had = |mode: Mode| before.is_some_and(|tracked| tracked.mode.has(mode));
        if self.mode.has(Mode::OPT_IN) && had(Mode::OPT_OUT)
            || self.mode.has(Mode::OPT_OUT) && had(Mode::OPT_IN)
        {
            return Err(
                "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this \
                        client, and then re-enabling it with a different mode."
                    .into(),
            );
        }
        let none = BTreeSet::new();
        self.check_prefixes(before.map_or(&none, |tracked| &tracked.prefixes))
    }

    /// Checks that no key may begin with two of a client's prefixes. The error names the first one
    /// that overlaps. There may be a million prefixes.
    fn check_prefixes(&self, existing: &BTreeSet<Box<[u8]>>) -> Outcome {
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let known = |prefix: &[u8]| overlapping(existing, prefix);
        let first_known = self.prefixes.iter().position(|prefix| known(prefix).is_some());
        let first_other = first_overlapping(&self.prefixes);
        let Some(first) = first_known.into_iter().chain(first_other).min() else { return Ok(()) };
        let prefix = self.prefixes[first];
        if let Some(known) = known(prefix) {
            return Err(Failure::format(format!(
                "ERR Prefix '{}' overlaps with an existing prefix '{}'. Prefixes for a single \
                 client must not overlap.",
                shown(prefix),
                shown(known)
            )));
        }
        let overlap = |other: &&&[u8]| other.starts_with(prefix) || prefix.starts_with(other);
        let other = self.prefixes[first + 1..].iter().find(overlap);
        Err(Failure::format(format!(
            "ERR Prefix '{}' overlaps with another provided prefix '{}'. Prefixes for a \
             single client must not overlap.",
            shown(prefix),
            shown(other.copied().unwrap_or_default())
        )))
    }
}

/// An existing prefix that overlaps with this one. The existing ones do not overlap each other. In
/// sorted order, prefixes that begin with a word come right behind it.
fn overlapping<'a>(existing: &'a BTreeSet<Box<[u8]>>, prefix: &[u8]) -> Option<&'a [u8]> {
    let range = |from, to| existing.range::<[u8], _>((from, to));
    let before = range(Bound::Unbounded, Bound::Included(prefix)).next_back();
    let after = range(Bound::Included(prefix), Bound::Unbounded).next();
    let before = before.filter(|known| prefix.starts_with(known));
    before.or_else(|| after.filter(|known| known.starts_with(prefix))).map(|known| &**known)
}

/// The index of the first prefix that overlaps with another one.
fn first_overlapping(prefixes: &[&[u8]]) -> Option<usize> {
    let mut order: Vec<usize> = (0..prefixes.len()).collect();
    order.sort_by_key(|&at| prefixes[at]);
    // The prefixes of the current prefix.
    let mut outer: Vec<usize> = Vec::new();
    let mut first = None;
    for at in order {
        while outer.pop_if(|outer| !prefixes[at].starts_with(prefixes[*outer])).is_some() {}
        if let Some(&other) = outer.last() {
            first = first.into_iter().chain([at, other]).min();
        }
        outer.push(at);
    }
    first
}

pub(super) fn caching(call: &mut Call<'_>) -> Outcome {
    let Some(tracked) = &call.client.tracking else {
        return Err("ERR CLIENT CACHING can be called only when the client is in tracking mode \
                    with OPTIN or OPTOUT mode enabled"
            .into());
    };
    let mode = tracked.mode;
    let (yes, no) = (call.word_is(2, "yes"), call.word_is(2, "no"));
    if !yes && !no {
        return Err(Failure::SYNTAX);
    }
    if yes && !mode.has(Mode::OPT_IN) {
        return Err(
            "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.".into()
        );
    }
    if no && !mode.has(Mode::OPT_OUT) {
        return Err(
            "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.".into()
        );
    }
    if let Some(tracked) = &mut call.client.tracking {
        tracked.caching = true;
    }
    call.reply.ok();
    Ok(())
}

/// Which client gets the client's invalidations: another one, itself (0), or none (-1).
pub(super) fn getredir(call: &mut Call<'_>) -> Outcome {
    let redirect = call.client.tracking.as_ref().map_or(-1, |tracked| tracked.redirect as i64);
    call.reply.integer(redirect);
    Ok(())
}

pub(super) fn trackinginfo(call: &mut Call<'_>) -> Outcome {
    let tracked = call.client.tracking.as_deref();
    let mut flags = vec![if tracked.is_some() { "on" } else { "off" }];
    if let Some(tracked) = tracked {
        flags.extend(tracked.mode.names());
        if tracked.caching {
            let yes = tracked.mode.has(Mode::OPT_IN);
            let at = flags.iter().position(|flag| flag.starts_with("opt")).map_or(1, |at| at + 1);
            flags.insert(at, if yes { "caching-yes" } else { "caching-no" });
        }
        if call.client.info.redirect_broken.load(std::sync::atomic::Ordering::Relaxed) {
            flags.push("broken_redirect");
        }
    }
    call.reply.map(3);
    call.reply.bulk(b"flags");
    call.reply.set(flags.len());
    flags.iter().for_each(|flag| call.reply.bulk(flag.as_bytes()));
    call.reply.bulk(b"redirect");
    call.reply.integer(tracked.map_or(-1, |tracked| tracked.redirect as i64));
    call.reply.bulk(b"prefixes");
    let prefixes = tracked.map_or(0, |tracked| tracked.prefixes.len());
    call.reply.array(prefixes);
    for prefix in tracked.iter().flat_map(|tracked| &tracked.prefixes) {
        call.reply.bulk(prefix);
    }
    Ok(())
}

const NO_SUCH_CLIENT: Failure =
    Failure::new(&"ERR The client ID you want redirect to does not exist");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_prefix_that_overlaps_is_found_as_by_comparing_all() {
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..5000 {
            let count = random(6) as usize;
            let words: Vec<Vec<u8>> = (0..count)
                .map(|_| (0..random(5)).map(|_| b"ab"[random(2) as usize]).collect())
                .collect();
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let overlap = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
            let expected = (0..count).find(|&at| {
                (0..count).any(|other| other != at && overlap(words[at], words[other]))
            });
            assert_eq!(first_overlapping(&words), expected, "{words:?}");
            let mut existing = BTreeSet::new();
            for word in &words {
                if overlapping(&existing, word).is_none() {
                    existing.insert(Box::from(*word));
                }
            }
            let probe: Vec<u8> = (0..random(5)).map(|_| b"ab"[random(2) as usize]).collect();
            let expected = existing.iter().find(|known| overlap(known, &probe)).map(|k| &**k);
            assert_eq!(overlapping(&existing, &probe), expected, "{existing:?} {probe:?}");
        }
    }
}
