//! Removing entries: XTRIM, XADD's trimming options, and XDEL.

use bobbin_store::value::stream::{StreamLog, StreamTrim};
use bobbin_store::value::{Stream, StreamId};

use super::id;
use crate::engine::command::{Call, Classes, Failure, Key, Outcome};

/// The trimming options as they were given.
#[derive(Clone, Copy, Default)]
pub(super) struct TrimOptions {
    until: Option<StreamTrim>,
    /// `~`: only whole nodes.
    whole: bool,
    limit: Option<usize>,
}

/// What to trim from a stream.
#[derive(Clone, Copy)]
pub(super) struct Trimmer {
    until: StreamTrim,
    whole: bool,
    limit: usize,
}

impl TrimOptions {
    pub(super) fn is_option(word: &[u8]) -> bool {
        [&b"maxlen"[..], b"minid", b"limit"].iter().any(|option| word.eq_ignore_ascii_case(option))
    }

    /// Parses the option at `at`, behind which there is at least one argument. Returns where the
    /// next option is.
    pub(super) fn parse_option(
        call: &Call<'_>,
        options: &mut Option<Self>,
        mut at: usize,
    ) -> Result<usize, Failure> {
        let options = options.get_or_insert_default();
        if call.word_is(at, "limit") {
            let limit = usize::try_from(call.integer(at + 1)?);
            // A command from a log or a primary was limited before it was written.
            options.limit = Some(limit.map_err(|_| "ERR The LIMIT argument must be >= 0.")?);
            return Ok(at + 2);
        }
        if options.until.is_some() {
            return Err(
                "ERR syntax error, MAXLEN and MINID options at the same time are not compatible"
                    .into(),
            );
        }
        let by_len = call.word_is(at, "maxlen");
        options.whole = false;
        if at + 2 < call.args.len() && matches!(call.args[at + 1], b"~" | b"=") {
            options.whole = call.args[at + 1] == b"~";
            at += 1;
        }
        options.until = Some(if by_len {
            let len = usize::try_from(call.integer(at + 1)?);
            StreamTrim::Len(len.map_err(|_| "ERR The MAXLEN argument must be >= 0.")?)
        } else {
            StreamTrim::Id(id::parse(call.args[at + 1], 0)?)
        });
        Ok(at + 2)
    }

    /// Combines the options once all are parsed. `None`: nothing is trimmed.
    pub(super) fn finish(
        options: Option<Self>,
        call: &Call<'_>,
    ) -> Result<Option<Trimmer>, Failure> {
        let Some(options) = options else { return Ok(None) };
        if options.limit.is_some_and(|limit| limit > 0) && options.until.is_none() {
            return Err(
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"
                    .into(),
            );
        }
        if options.limit.is_some() && !options.whole && !call.data.conditions.loading {
            if options.until.is_none() && call.command.row.name == "xtrim" {
                return Ok(None);
            }
            return Err(
                "ERR syntax error, LIMIT cannot be used without the special ~ option".into()
            );
        }
        let limit = match options.limit {
            Some(_) if call.data.conditions.loading => 0,
            Some(limit) => limit,
            None if options.whole => {
                let entries = 100i64.saturating_mul(call.server.config.stream_node_max_entries());
                if entries <= 0 { LIMIT_DEFAULT } else { (entries as usize).min(LIMIT_MAX) }
            }
            None => 0,
        };
        Ok(options.until.map(|until| Trimmer { until, whole: options.whole, limit }))
    }
}

impl Trimmer {
    /// Trims the log. Returns how many entries were removed.
    pub(super) fn run(self, log: &mut StreamLog) -> usize {
        log.trim(self.until, self.whole, self.limit)
    }
}

/// Replaces the trimming options of a command by exact ones with the same result as `~`, because
/// nodes on another server may end elsewhere. Options lie before `end`.
pub(super) fn make_exact<'a>(
    args: &mut [&'a [u8]],
    end: usize,
    ends: LogEnds,
    text: &'a mut Vec<u8>,
) {
    let is = |at: usize, word: &[u8]| args[at].eq_ignore_ascii_case(word);
    let option = (2..end).find(|&at| is(at, b"maxlen") || is(at, b"minid"));
    let Some(at) = option.filter(|&at| at + 2 < args.len() && args[at + 1] == b"~") else { return };
    let by_len = is(at, b"maxlen");
    args[at + 1] = b"=";
    *text = match by_len {
        true => ends.len.to_string().into_bytes(),
        false => id::text(ends.first_id),
    };
    args[at + 2] = text;
}

/// The length of a stream, and the first ID that was not trimmed.
#[derive(Clone, Copy)]
pub(super) struct LogEnds {
    len: usize,
    first_id: StreamId,
}

impl LogEnds {
    pub(super) fn of(log: &StreamLog) -> Self {
        // In an empty stream everything was trimmed.
        let first_id = if log.is_empty() { StreamId::MAX } else { log.first_id() };
        Self { len: log.len(), first_id }
    }
}

pub(super) fn xtrim(call: &mut Call<'_>) -> Outcome {
    let mut options = None;
    let mut at = 2;
    while at < call.args.len() {
        if at + 1 == call.args.len() || !TrimOptions::is_option(call.args[at]) {
            return Err(Failure::SYNTAX);
        }
        at = TrimOptions::parse_option(call, &mut options, at)?;
    }
    let Some(trimmer) = TrimOptions::finish(options, call)? else {
        return Err("ERR syntax error, XTRIM must be called with a trimming strategy".into());
    };
    let key = call.key(1)?;
    let mut ends = None;
    let trimmed = match call.data.write_as::<Stream>(key)? {
        Some(stream) => {
            let trimmed = trimmer.run(stream.log_mut());
            if trimmed > 0 && trimmer.whole {
                ends = Some(LogEnds::of(stream.log()));
            }
            trimmed
        }
        None => 0,
    };
    if let Some(ends) = ends {
        let (mut args, mut text) = (call.args.to_vec(), Vec::new());
        make_exact(&mut args, call.args.len(), ends, &mut text);
        call.data.propagate(&args);
    }
    taken_out(call, key, trimmed, "xtrim");
    Ok(())
}

pub(super) fn xdel(call: &mut Call<'_>) -> Outcome {
    let key = call.key(1)?;
    let args = call.args;
    let Some(stream) = call.data.write_as::<Stream>(key)? else {
        call.reply.integer(0);
        return Ok(());
    };
    for arg in &args[2..] {
        id::parse(arg, 0)?;
    }
    let log = stream.log_mut();
    let deleted = args[2..].iter().filter(|arg| id::parse(arg, 0).is_ok_and(|id| log.delete(id)));
    let deleted = deleted.count();
    taken_out(call, key, deleted, "xdel");
    Ok(())
}

/// Replies with the number of removed entries, and reports the change.
fn taken_out(call: &mut Call<'_>, key: Key<'_>, count: usize, event: &'static str) {
    if count > 0 {
        call.data.changed_by(key, count);
        call.data.event(Classes::STREAM, event, key);
    }
    call.reply.integer(count as i64);
}

/// How many entries one command trims by `~` without a LIMIT, if nodes have no limit; and the most.
const LIMIT_DEFAULT: usize = 10_000;
const LIMIT_MAX: usize = 1_000_000;
