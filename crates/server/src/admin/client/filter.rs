//! The conditions that select clients for CLIENT LIST and CLIENT KILL.

use std::sync::atomic::Ordering;

use crate::config::ClientClass;
use crate::engine::client::describe;
use crate::engine::clients::{ClientFlag, ClientInfo};
use crate::engine::command::{Call, Failure};

/// A client must fulfil all conditions.
#[derive(Debug, Default)]
pub(super) struct Filter {
    conditions: Vec<FilterCondition>,
    skip_me: bool,
}

#[derive(Debug)]
struct FilterCondition {
    field: FilterField,
    /// Written as `NOT-...`: the condition must not hold.
    negated: bool,
}

/// The field that is compared, and the wanted value.
#[derive(Debug)]
enum FilterField {
    /// Sorted once all are read. There may be as many as a command has words, and every client is
    /// looked up among them.
    Id(Vec<u64>),
    /// `None`: the connection to the primary.
    Type(Option<ClientClass>),
    Address(Box<[u8]>),
    LocalAddress(Box<[u8]>),
    User(Box<[u8]>),
    Flags(String),
    Name(Box<[u8]>),
    LibraryName(Box<[u8]>),
    LibraryVersion(Box<[u8]>),
    Database(u32),
    Capabilities(String),
    Ip(Box<[u8]>),
    IdleSeconds(i64),
    AgeSeconds(i64),
}

impl Filter {
    /// Parses the conditions from this argument on. A later condition on the same field replaces an
    /// earlier one, but IDs accumulate.
    pub(super) fn parse(call: &Call<'_>, from: usize, skip_me: bool) -> Result<Self, Failure> {
        let mut filter = Self { conditions: Vec::new(), skip_me };
        let mut rest = &call.args[from..];
        while let [option, words @ ..] = rest {
            let option = option.to_ascii_lowercase();
            let [value, after @ ..] = words else { return Err(Failure::SYNTAX) };
            rest = after;
            if option == b"skipme" {
                filter.skip_me = yes_or_no(value)?;
                continue;
            }
            let negated = option.starts_with(b"not-");
            let name = option.strip_prefix(b"not-").unwrap_or(&option);
            let field = if name == b"id" {
                let (ids, after) = ids(value, rest)?;
                rest = after;
                FilterField::Id(ids)
            } else {
                FilterField::parse(name, negated, value, call)?
            };
            filter.add(FilterCondition { field, negated });
        }
        for condition in &mut filter.conditions {
            if let FilterField::Id(ids) = &mut condition.field {
                ids.sort_unstable();
            }
        }
        Ok(filter)
    }

    fn add(&mut self, condition: FilterCondition) {
        let kind = |condition: &FilterCondition| {
            (std::mem::discriminant(&condition.field), condition.negated)
        };
        let same = |earlier: &&mut FilterCondition| kind(earlier) == kind(&condition);
        let Some(earlier) = self.conditions.iter_mut().find(same) else {
            self.conditions.push(condition);
            return;
        };
        match (&mut earlier.field, condition.field) {
            (FilterField::Id(ids), FilterField::Id(mut more)) => ids.append(&mut more),
            (field, replacement) => *field = replacement,
        }
    }

    pub(super) fn matches(&self, call: &Call<'_>, info: &ClientInfo) -> bool {
        if self.skip_me && info.id == call.client.info.id {
            return false;
        }
        let now_ms = call.data.conditions.now_ms;
        self.conditions.iter().all(|c| c.field.matches(info, now_ms) != c.negated)
    }
}

impl FilterField {
    fn parse(name: &[u8], negated: bool, value: &[u8], call: &Call<'_>) -> Result<Self, Failure> {
        Ok(match name {
            b"type" => Self::Type(class(value)?),
            b"addr" => Self::Address(value.into()),
            b"laddr" => Self::LocalAddress(value.into()),
            b"user" if call.server.acl.find(value).is_some() => Self::User(value.into()),
            b"user" => {
                let user = String::from_utf8_lossy(value);
                return Err(Failure::format(format!("ERR No such user '{user}'")));
            }
            b"flags" => Self::Flags(letters(value, "flags", negated, FLAG_LETTERS)?),
            b"name" => Self::Name(value.into()),
            b"lib-name" => Self::LibraryName(value.into()),
            b"lib-ver" => Self::LibraryVersion(value.into()),
            b"db" => Self::Database(database(value, negated, call)?),
            b"capa" => Self::Capabilities(letters(value, "capa", negated, CAPABILITY_LETTERS)?),
            b"ip" => Self::Ip(value.into()),
            b"idle" if !negated => Self::IdleSeconds(positive(value, "idle")?),
            b"maxage" if !negated => Self::AgeSeconds(positive(value, "maxage")?),
            _ => return Err(Failure::SYNTAX),
        })
    }

    fn matches(&self, info: &ClientInfo, now_ms: i64) -> bool {
        // A name that is not set matches nothing, not even an empty name.
        let is = |name: &[u8], wanted: &[u8]| !name.is_empty() && name == wanted;
        match self {
            Self::Id(ids) => ids.binary_search(&info.id).is_ok(),
            Self::Type(wanted) => {
                let is_primary = info.has(ClientFlag::PRIMARY);
                *wanted == (!is_primary).then(|| describe::class(info))
            }
            Self::Address(wanted) => info.peer.as_bytes() == &**wanted,
            Self::LocalAddress(wanted) => info.local.as_bytes() == &**wanted,
            Self::User(wanted) => info.user().is_some_and(|user| *user.name == **wanted),
            Self::Flags(wanted) => has_all(&describe::flags(info), wanted),
            Self::Name(wanted) => is(&info.names().name, wanted),
            Self::LibraryName(wanted) => is(&info.names().library, wanted),
            Self::LibraryVersion(wanted) => is(&info.names().library_version, wanted),
            Self::Database(wanted) => info.database.load(Ordering::Relaxed) == *wanted,
            Self::Capabilities(wanted) => has_all(describe::capabilities(info), wanted),
            Self::Ip(wanted) => ip(info).as_bytes() == &**wanted,
            Self::IdleSeconds(least) => {
                (now_ms - info.last_ms.load(Ordering::Relaxed)) / 1000 >= *least
            }
            Self::AgeSeconds(least) => (now_ms - info.created_ms) / 1000 >= *least,
        }
    }
}

/// Parses the numbers of `ID`: the first one, and those that follow it. Returns the rest of the
/// words.
fn ids<'a, 'b>(
    first: &[u8],
    mut rest: &'a [&'b [u8]],
) -> Result<(Vec<u64>, &'a [&'b [u8]]), Failure> {
    let valid = |id: i64| {
        u64::try_from(id).ok().filter(|id| *id > 0).ok_or("ERR client-id should be greater than 0")
    };
    let first = bobbin_resp::parse_i64(first).ok_or(Failure::SYNTAX)?;
    let mut ids = vec![valid(first)?];
    while let [word, after @ ..] = rest
        && let Some(id) = bobbin_resp::parse_i64(word)
    {
        ids.push(valid(id)?);
        rest = after;
    }
    Ok((ids, rest))
}

fn class(value: &[u8]) -> Result<Option<ClientClass>, Failure> {
    Ok(match &*value.to_ascii_lowercase() {
        b"normal" => Some(ClientClass::Normal),
        b"pubsub" => Some(ClientClass::Pubsub),
        b"replica" | b"slave" => Some(ClientClass::Replica),
        b"primary" | b"master" => None,
        _ => {
            let value = String::from_utf8_lossy(value);
            return Err(Failure::format(format!("ERR Unknown client type '{value}'")));
        }
    })
}

fn database(value: &[u8], negated: bool, call: &Call<'_>) -> Result<u32, Failure> {
    let name = if negated { "NOT-DB" } else { "DB" };
    let Some(number) = bobbin_resp::parse_i64(value) else {
        return Err(Failure::format(format!("ERR {name} is not an integer or out of range")));
    };
    let last = call.server.config.databases() - 1;
    let database = u32::try_from(number).ok().filter(|_| number <= last);
    let refused = || Failure::format(format!("ERR {name} number should be between 0 and {last}"));
    database.ok_or_else(refused)
}

fn positive(value: &[u8], name: &str) -> Result<i64, Failure> {
    let Some(number) = bobbin_resp::parse_i64(value) else {
        return Err(Failure::format(format!("ERR {name} is not an integer or out of range")));
    };
    if number <= 0 {
        return Err(Failure::format(format!("ERR {name} should be greater than 0")));
    }
    Ok(number)
}

fn letters(value: &[u8], name: &str, negated: bool, known: &str) -> Result<String, Failure> {
    let text = String::from_utf8_lossy(value);
    if has_all(known, &text) {
        return Ok(text.into_owned());
    }
    let which = match negated {
        true => format!("NOT-{}", name.to_ascii_uppercase()),
        false => "provided".to_owned(),
    };
    Err(Failure::format(format!("ERR Unknown {name} found in the {which} filter: {text}")))
}

fn yes_or_no(value: &[u8]) -> Result<bool, Failure> {
    match () {
        () if value.eq_ignore_ascii_case(b"yes") => Ok(true),
        () if value.eq_ignore_ascii_case(b"no") => Ok(false),
        () => Err(Failure::SYNTAX),
    }
}

fn has_all(letters: &str, wanted: &str) -> bool {
    wanted.chars().all(|letter| letters.contains(letter))
}

/// A peer's address without its port.
fn ip(info: &ClientInfo) -> &str {
    let ip = info.peer.rsplit_once(':').map_or(&*info.peer, |(ip, _)| ip);
    ip.strip_prefix('[').and_then(|ip| ip.strip_suffix(']')).unwrap_or(ip)
}

/// All letters that CLIENT LIST shows in any version.
const FLAG_LETTERS: &str = "OSMPxbtRBdcuAUreTIiEN";
const CAPABILITY_LETTERS: &str = "r";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_ids_follow_each_other() {
        let words: Vec<&[u8]> = vec![b"8", b"7", b"TYPE", b"10"];
        let (ids, rest) = ids(b"9", &words).unwrap();
        assert_eq!(ids, [9, 8, 7]);
        assert_eq!(rest, [&b"TYPE"[..], b"10"]);
        assert!(super::ids(b"x", &[]).is_err());
        assert!(super::ids(b"7", &[b"0"]).is_err());
    }

    #[test]
    fn ids_add_up_and_other_conditions_replace_each_other() {
        let mut filter = Filter::default();
        let ids = |ids: &[u64], negated| FilterCondition {
            field: FilterField::Id(ids.to_vec()),
            negated,
        };
        let user =
            |name: &[u8]| FilterCondition { field: FilterField::User(name.into()), negated: false };
        for condition in [ids(&[9, 7], false), user(b"a"), ids(&[8], true), user(b"b")] {
            filter.add(condition);
        }
        // The IDs are not sorted yet.
        filter.add(ids(&[8], false));
        let conditions = filter.conditions.iter().map(|it| format!("{:?}", it.field));
        assert_eq!(conditions.collect::<Vec<_>>(), ["Id([9, 7, 8])", "User([98])", "Id([8])"]);
    }

    #[test]
    fn an_address_without_its_port() {
        let ip_of = |peer: &str| {
            let info = ClientInfo::new(1, 0, peer.into(), String::new(), false, 0);
            ip(&info).to_owned()
        };
        assert_eq!(ip_of("127.0.0.1:6379"), "127.0.0.1");
        assert_eq!(ip_of("[::1]:6379"), "::1");
        assert_eq!(ip_of("/tmp/bobbin.sock:0"), "/tmp/bobbin.sock");
    }
}
