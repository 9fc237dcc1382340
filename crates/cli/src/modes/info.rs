//! INFO's reply, by field.

use std::collections::HashMap;

use bobbin_client::Value;

pub struct Info(HashMap<String, String>);

impl Info {
    pub fn read(reply: &Value) -> Self {
        let text = String::from_utf8_lossy(reply.as_bytes().unwrap_or_default());
        let fields = text.lines().filter_map(|line| line.trim_end().split_once(':'));
        Self(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// 0 where there is no such field, as in old servers.
    pub fn integer(&self, name: &str) -> i64 {
        self.number(name).map_or(0, |number| number as i64)
    }

    pub fn number(&self, name: &str) -> Option<f64> {
        self.text(name)?.parse().ok()
    }

    /// The keys of all databases.
    pub fn keys(&self) -> u64 {
        let databases = self.0.iter().filter(|(name, _)| {
            name.strip_prefix("db").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()))
        });
        let keys = databases.filter_map(|(_, value)| {
            value.split(',').find_map(|part| part.strip_prefix("keys="))?.parse::<u64>().ok()
        });
        keys.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        let text =
            b"# Server\r\nused_memory:12\r\ndb0:keys=3,expires=0\r\ndb12:keys=4\r\ndbx:keys=9\r\n";
        let info = Info::read(&Value::Bulk(text.to_vec()));
        assert_eq!((info.integer("used_memory"), info.integer("none"), info.keys()), (12, 0, 7));
    }
}
