//! The databases of INFO's section `keyspace`, and HOTKEYS GET: the keys that take most.

use bobbin_client::Value;

use super::{super::text, NAME_LEN_MAX, number};
use crate::modes::info::{Info, part};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseSample {
    pub number: u32,
    pub keys: u64,
    /// Those with a time to live, and how long that is on average.
    pub expiring: u64,
    pub ttl_mean_ms: Option<u64>,
}

/// The keys that take most, of those that were used while the server watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hot {
    /// Whether a client asked the server to watch, now or before.
    pub is_known: bool,
    pub is_watching: bool,
    /// In the order in which keys are first named.
    pub keys: Vec<LargestKey>,
}

/// A key, as far as it is among those that take most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LargestKey {
    pub key: String,
    pub time_us: Option<u64>,
    pub traffic_bytes: Option<u64>,
    pub size_bytes: Option<u64>,
}

pub fn databases(info: &Info) -> Vec<DatabaseSample> {
    let read = |(number, value): (u32, &str)| {
        let integer = |name| part(value, name)?.parse::<u64>().ok();
        Some(DatabaseSample {
            number,
            keys: integer("keys")?,
            expiring: integer("expires").unwrap_or(0),
            ttl_mean_ms: integer("avg_ttl").filter(|ms| *ms > 0),
        })
    };
    info.databases().filter_map(read).take(DATABASES_MAX).collect()
}

/// Reads names and values in turn, within an array of their own or not.
pub fn hot(reply: &Value) -> Hot {
    let mut hot = Hot::default();
    let Some(mut fields) = reply.as_elements() else { return hot };
    if let [Value::Array(inner)] = fields {
        fields = inner;
    }
    for field in fields.chunks_exact(2).take(HOT_FIELDS_MAX) {
        let name = field[0].as_bytes().unwrap_or_default();
        let list = field[1].as_elements().unwrap_or_default();
        let place: fn(&mut LargestKey) -> &mut Option<u64> = match name {
            b"tracking-active" => {
                hot.is_known = true;
                hot.is_watching = number(&field[1]) == Some(1);
                continue;
            }
            b"by-cpu-time-us" => |key| &mut key.time_us,
            b"by-net-bytes" => |key| &mut key.traffic_bytes,
            b"by-size-bytes" => |key| &mut key.size_bytes,
            _ => continue,
        };
        for pair in list.chunks_exact(2).take(HOT_MAX) {
            let key = text::safe(pair[0].as_bytes().unwrap_or_default(), NAME_LEN_MAX);
            let known = hot.keys.iter().position(|other| other.key == key);
            let known = known.unwrap_or(hot.keys.len());
            if known == hot.keys.len() && known < HOT_MAX {
                hot.keys.push(LargestKey { key, ..LargestKey::default() });
            }
            if let Some(measured) = hot.keys.get_mut(known) {
                *place(measured) = number(&pair[1]);
            }
        }
    }
    hot
}

const DATABASES_MAX: usize = 16_384;
/// As many as a server counts, and more.
const HOT_MAX: usize = 128;
const HOT_FIELDS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::super::tests::of_info;
    use super::*;

    #[test]
    fn databases_with_keys() {
        let sample = of_info(0, "db0:keys=3,expires=1,avg_ttl=500\ndb3:keys=4\ndb4:keys=x\n");
        let whole = DatabaseSample { number: 0, keys: 3, expiring: 1, ttl_mean_ms: Some(500) };
        let bare = DatabaseSample { number: 3, keys: 4, expiring: 0, ttl_mean_ms: None };
        assert_eq!(sample.databases, [whole, bare]);
    }

    #[test]
    fn a_key_of_several_lists_is_one() {
        let bulk = |text: &[u8]| Value::Bulk(text.to_vec());
        let list = |key: &[u8], number| Value::Array(vec![bulk(key), Value::Integer(number)]);
        let fields = vec![
            bulk(b"tracking-active"),
            Value::Integer(1),
            bulk(b"by-cpu-time-us"),
            list(b"a", 80),
            bulk(b"by-size-bytes"),
            list(b"a", 16),
            bulk(b"by-net-bytes"),
            list(b"\x1b", -1),
            bulk(b"odd"),
        ];
        for reply in [Value::Array(fields.clone()), Value::Array(vec![Value::Array(fields)])] {
            let hot = hot(&reply);
            assert!(hot.is_known && hot.is_watching);
            assert_eq!(hot.keys.len(), 2);
            assert_eq!((hot.keys[0].time_us, hot.keys[0].size_bytes), (Some(80), Some(16)));
            assert_eq!((hot.keys[1].key.as_str(), hot.keys[1].traffic_bytes), (r"\x1b", None));
        }
        assert!(!hot(&Value::Null).is_known);
    }
}
