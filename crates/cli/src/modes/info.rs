//! INFO's reply: its fields in their order, and by name.

use std::collections::HashMap;

use bobbin_client::Value;

#[derive(Clone, Debug, Default)]
pub struct Info {
    fields: Vec<InfoLine>,
    /// Where a name is in `fields`.
    places: HashMap<String, usize>,
}

/// A line of INFO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfoLine {
    /// Where in the order of sections it stands: what is behind `# Memory`.
    pub section: String,
    pub name: String,
    pub value: String,
}

impl Info {
    pub fn read(reply: &Value) -> Self {
        let text = String::from_utf8_lossy(reply.as_bytes().unwrap_or_default());
        let mut info = Self::default();
        let mut section = "";
        for line in text.lines().map(str::trim_end) {
            if let Some(title) = line.strip_prefix("# ") {
                section = title;
            } else if let Some((name, value)) = line.split_once(':') {
                info.places.insert(name.to_owned(), info.fields.len());
                info.fields.push(InfoLine {
                    section: section.to_owned(),
                    name: name.to_owned(),
                    value: value.to_owned(),
                });
            }
            if info.fields.len() >= FIELDS_MAX {
                break;
            }
        }
        info
    }

    /// All fields, as the server orders them.
    pub fn fields(&self) -> &[InfoLine] {
        &self.fields
    }

    /// The names that begin so, without that beginning, and their values.
    pub fn named<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.fields
            .iter()
            .filter_map(move |field| Some((field.name.strip_prefix(prefix)?, &*field.value)))
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.places.get(name).map(|&place| self.fields[place].value.as_str())
    }

    /// 0 where there is no such field, as in old servers.
    pub fn integer(&self, name: &str) -> i64 {
        self.number(name).map_or(0, |number| number as i64)
    }

    pub fn number(&self, name: &str) -> Option<f64> {
        self.text(name)?.parse().ok().filter(|number: &f64| number.is_finite())
    }

    /// Whether a field that is 0 or 1 is there and not 0.
    pub fn is_on(&self, name: &str) -> bool {
        self.integer(name) != 0
    }

    /// The databases that have keys: the number, and what is said of each.
    pub fn databases(&self) -> impl Iterator<Item = (u32, &str)> {
        self.named("db").filter_map(|(number, value)| Some((number.parse().ok()?, value)))
    }

    /// The keys of all databases.
    pub fn keys(&self) -> u64 {
        let keys = self.databases().filter_map(|(_, value)| part(value, "keys")?.parse().ok());
        keys.fold(0, u64::saturating_add)
    }

    /// Which program it is, in which version.
    pub fn program(&self) -> String {
        let named = |name, field| self.text(field).map(|version| format!("{name} {version}"));
        named("bobbin", "bobbin_version")
            .or_else(|| named("valkey", "valkey_version"))
            .or_else(|| named("redis", "redis_version"))
            .unwrap_or_else(|| "a server".to_owned())
    }
}

/// The value of a part of `calls=1,usec=16`.
pub fn part<'a>(value: &'a str, name: &str) -> Option<&'a str> {
    value.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

/// More than any server has; a hostile one may send as many as it likes.
const FIELDS_MAX: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Info {
        Info::read(&Value::Bulk(text.as_bytes().to_vec()))
    }

    #[test]
    fn fields() {
        let info = read(
            "# Server\r\nused_memory:12\r\n\r\n# Keyspace\r\ndb0:keys=3,expires=0\r\n\
             db12:keys=4\r\ndbx:keys=9\r\n",
        );
        assert_eq!((info.integer("used_memory"), info.integer("none"), info.keys()), (12, 0, 7));
        assert_eq!(info.fields()[0].section, "Server");
        assert_eq!(info.fields()[2].section, "Keyspace");
        assert_eq!(info.databases().map(|(number, _)| number).collect::<Vec<_>>(), [0, 12]);
        assert_eq!(part("calls=1,usec=16", "usec"), Some("16"));
        assert_eq!(part("calls=1,usec=16", "use"), None);
    }

    #[test]
    fn what_no_server_sends() {
        let info =
            read("a:NaN\nb:inf\nc:-\nno colon\n:\ndb1:keys=18446744073709551615\ndb2:keys=9");
        assert_eq!((info.number("a"), info.number("b"), info.number("c")), (None, None, None));
        assert_eq!(info.keys(), u64::MAX);
        let endless = "a:1\n".repeat(FIELDS_MAX + 5);
        assert_eq!(read(&endless).fields().len(), FIELDS_MAX);
        assert_eq!(Info::read(&Value::Null).fields(), []);
    }
}
