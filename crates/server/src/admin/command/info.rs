//! The reply of COMMAND INFO for a command.

use bobbin_resp::Reply;

use crate::engine::command::Registered;
use crate::engine::row::keys::{Begin, Find, KeySpec};

/// Appends ten fields: name, arity, flags, the old style's first key, last key and step,
/// categories, tips, key specifications, and subcommands.
pub(super) fn describe(reply: &mut Reply<'_>, command: &Registered) {
    let row = command.row;
    reply.array(10);
    reply.bulk(command.full_name.as_bytes());
    reply.integer(i64::from(row.arity));
    names(reply, row.flags.names(), "");
    for number in old_style(row.keys) {
        reply.integer(number);
    }
    names(reply, row.categories.complete(row.flags).names(), "@");
    reply.set(row.tips.len());
    for tip in row.tips {
        reply.bulk(tip.as_bytes());
    }
    reply.set(row.keys.len());
    for spec in row.keys {
        key_spec(reply, spec);
    }
    reply.array(command.subcommands.len());
    for subcommand in &command.subcommands {
        describe(reply, subcommand);
    }
}

/// Appends a set of statuses.
pub(super) fn names<'a>(reply: &mut Reply<'_>, names: impl Iterator<Item = &'a str>, prefix: &str) {
    let names: Vec<_> = names.collect();
    reply.set(names.len());
    for name in names {
        reply.simple(format!("{prefix}{name}"));
    }
}

fn key_spec(reply: &mut Reply<'_>, spec: &KeySpec) {
    reply.map(if spec.notes.is_empty() { 3 } else { 4 });
    if !spec.notes.is_empty() {
        reply.bulk(b"notes");
        reply.bulk(spec.notes.as_bytes());
    }
    reply.bulk(b"flags");
    names(reply, spec.usage.names(), "");
    reply.bulk(b"begin_search");
    match spec.begin {
        Begin::Index(index) => typed(reply, "index", &[("index", index as i64)]),
        Begin::Keyword(word, from) => {
            heading(reply, "keyword", 2);
            reply.bulk(b"keyword");
            reply.bulk(word.to_ascii_uppercase().as_bytes());
            reply.bulk(b"startfrom");
            reply.integer(i64::from(from));
        }
        Begin::Unknown => typed(reply, "unknown", &[]),
    }
    reply.bulk(b"find_keys");
    match spec.find {
        Find::Range { last, step, limit } => {
            let last = i64::from(last);
            let facts = [("lastkey", last), ("keystep", step as i64), ("limit", limit as i64)];
            typed(reply, "range", &facts);
        }
        Find::Count { count_at, first, step } => {
            let (count_at, first) = (count_at as i64, first as i64);
            let facts = [("keynumidx", count_at), ("firstkey", first), ("keystep", step as i64)];
            typed(reply, "keynum", &facts);
        }
        Find::Unknown => typed(reply, "unknown", &[]),
    }
}

fn typed(reply: &mut Reply<'_>, kind: &str, facts: &[(&str, i64)]) {
    heading(reply, kind, facts.len());
    for (name, number) in facts {
        reply.bulk(name.as_bytes());
        reply.integer(*number);
    }
}

fn heading(reply: &mut Reply<'_>, kind: &str, facts: usize) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(facts);
}

/// The first key, the last key and the step, for clients that do not know key specifications. Of
/// several specifications, those count that are single keys or runs of keys next to each other.
fn old_style(specs: &[KeySpec]) -> [i64; 3] {
    let range = |spec: &KeySpec| match (spec.begin, spec.find) {
        (Begin::Index(first), Find::Range { last, step, .. }) => {
            let (first, last) = (first as i64, i64::from(last));
            Some([first, if last >= 0 { first + last } else { last }, step as i64])
        }
        _ => None,
    };
    if let [spec] = specs {
        return range(spec).unwrap_or_default();
    }
    let mut whole: Option<[i64; 3]> = None;
    for [first, last, _] in specs.iter().filter_map(range).filter(|range| range[2] == 1) {
        whole = match whole {
            None => Some([first, last, 1]),
            Some([start, end, _]) if end == first - 1 => Some([start, last, 1]),
            whole => whole,
        };
    }
    whole.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::command::KeyUse;

    #[test]
    fn old_style_of_several_specifications() {
        let at = |index| KeySpec::at(index, KeyUse::READ_ONLY);
        assert_eq!(old_style(&[]), [0, 0, 0]);
        assert_eq!(old_style(&[at(2)]), [2, 2, 1]);
        assert_eq!(old_style(&[KeySpec::range(1, -1, 2, KeyUse::OVERWRITE)]), [1, -1, 2]);
        // COPY, RENAME.
        assert_eq!(old_style(&[at(1), at(2)]), [1, 2, 1]);
        // BITOP.
        assert_eq!(old_style(&[at(2), KeySpec::range(3, -1, 1, KeyUse::READ_ONLY)]), [2, -1, 1]);
        // ZUNIONSTORE, GEORADIUS.
        assert_eq!(old_style(&[at(1), KeySpec::counted(2, KeyUse::READ_ONLY)]), [1, 1, 1]);
        assert_eq!(old_style(&[at(1), KeySpec::keyword("STORE", 6, KeyUse::OVERWRITE)]), [1, 1, 1]);
        assert_eq!(old_style(&[KeySpec::keyword("STREAMS", 1, KeyUse::READ_ONLY)]), [0, 0, 0]);
    }
}
