//! CLIENT TRACKING and what belongs to it: how a client keeps copies of keys.

use std::collections::BTreeSet;

use crate::command::{Call, Failure, Outcome};
use crate::tracking::{self, Mode, Tracked};

/// The options of CLIENT TRACKING.
#[derive(Default)]
struct Options<'a> {
    mode: Mode,
    /// 0: none.
    redirect: u64,
    prefixes: Vec<&'a [u8]>,
}

pub(super) fn tracking(call: &mut Call<'_>) -> Outcome {
    let options = Options::parse(call)?;
    if call.word_is(2, "off") {
        tracking::disable(call.server, call.client);
        call.reply.ok();
        return Ok(());
    }
    if !call.word_is(2, "on") {
        return Err(Failure::SYNTAX);
    }
    options.check(call.client.tracking.as_deref())?;
    let Options { mut prefixes, mode, redirect } = options;
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
        // From here on every worker notes what it changes.
        call.data.hold_gate_anyway();
    }
    let prefixes = prefixes.into_iter().map(Box::from).collect();
    tracking::enable(call.server, call.client, mode, target, prefixes);
    call.reply.ok();
    Ok(())
}

/// Whether it takes the gate.
pub(super) fn broadcasts(args: &[&[u8]]) -> bool {
    args[2..].iter().any(|arg| arg.eq_ignore_ascii_case(b"bcast"))
}

impl<'a> Options<'a> {
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

    /// Whether the options go together, and with what the client does already.
    fn check(&self, before: Option<&Tracked>) -> Outcome {
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

    /// No key may begin with two of a client's prefixes.
    fn check_prefixes(&self, existing: &BTreeSet<Box<[u8]>>) -> Outcome {
        let overlap = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        for (at, prefix) in self.prefixes.iter().enumerate() {
            let known = existing.iter().find(|known| overlap(known, prefix));
            if let Some(known) = known {
                return Err(Failure::format(format!(
                    "ERR Prefix '{}' overlaps with an existing prefix '{}'. Prefixes for a single \
                     client must not overlap.",
                    shown(prefix),
                    shown(known)
                )));
            }
            if let Some(other) = self.prefixes[at + 1..].iter().find(|other| overlap(other, prefix))
            {
                return Err(Failure::format(format!(
                    "ERR Prefix '{}' overlaps with another provided prefix '{}'. Prefixes for a \
                     single client must not overlap.",
                    shown(prefix),
                    shown(other)
                )));
            }
        }
        Ok(())
    }
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

/// Who gets the client's invalidations: another client, itself (0), or nobody (-1).
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
    Failure::new("ERR The client ID you want redirect to does not exist");
