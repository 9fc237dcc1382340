//! The types of keys, and how large each key is: what `--bigkeys`, `--memkeys` and `--keystats`
//! ask.

use bobbin_client::RespClient;

use super::server;
use crate::format::quoted;

/// A type of value, and how its size is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    pub name: String,
    /// The command that counts, with what it counts; modules' types have none.
    length: Option<(&'static str, &'static str)>,
}

impl Type {
    /// What the length is a number of.
    pub fn unit(&self) -> &'static str {
        self.length.map_or("?", |(_, unit)| unit)
    }

    /// Whether it is known how to ask for the length.
    pub fn has_length(&self) -> bool {
        self.length.is_some()
    }
}

/// All types met so far. The known ones come first, in the order of redis-cli's reports.
pub struct Types(Vec<Type>);

impl Types {
    pub fn known() -> Self {
        let known = KNOWN.map(|(name, command, unit)| Type {
            name: name.to_owned(),
            length: Some((command, unit)),
        });
        Self(known.to_vec())
    }

    pub fn get(&self, index: usize) -> &Type {
        &self.0[index]
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The type of each key, as an index; `None` for keys that have gone.
    pub fn of(&mut self, client: &mut RespClient, keys: &[Vec<u8>]) -> Vec<Option<usize>> {
        for key in keys {
            client.send(&[b"TYPE", key.as_slice()]);
        }
        keys.iter()
            .map(|_| {
                let reply = server::receive(client);
                let Some(name) = reply.as_bytes() else {
                    let text = String::from_utf8_lossy(reply.as_error().unwrap_or(b"no text"));
                    complain!("TYPE failed: {text}");
                    std::process::exit(1);
                };
                let name = String::from_utf8_lossy(name);
                (name != "none").then(|| self.index(&name))
            })
            .collect()
    }

    /// How many elements, or bytes of a string, each key has; 0 where that cannot be told.
    pub fn lengths(
        &self,
        client: &mut RespClient,
        keys: &[Vec<u8>],
        types: &[Option<usize>],
    ) -> Vec<u64> {
        let command = |kind: &Option<usize>| {
            kind.and_then(|index| self.0[index].length).map(|(command, _)| command)
        };
        for (key, kind) in keys.iter().zip(types) {
            if let Some(command) = command(kind) {
                client.send(&[command.as_bytes(), key]);
            }
        }
        let sizes = keys.iter().zip(types);
        sizes
            .map(|(key, kind)| {
                command(kind).map_or(0, |command| receive_size(client, command, key))
            })
            .collect()
    }

    /// How much memory each key takes. `samples` is how many elements the server looks at.
    pub fn memory(
        client: &mut RespClient,
        keys: &[Vec<u8>],
        types: &[Option<usize>],
        samples: Option<u64>,
    ) -> Vec<u64> {
        for (key, _) in keys.iter().zip(types).filter(|(_, kind)| kind.is_some()) {
            match samples {
                None => client.send(&[b"MEMORY", &b"USAGE"[..], key]),
                Some(samples) => {
                    let samples = samples.to_string();
                    client.send(&[b"MEMORY", &b"USAGE"[..], key, b"SAMPLES", samples.as_bytes()]);
                }
            }
        }
        let sizes = keys.iter().zip(types);
        sizes
            .map(|(key, kind)| kind.map_or(0, |_| receive_size(client, "MEMORY USAGE", key)))
            .collect()
    }

    fn index(&mut self, name: &str) -> usize {
        let known = self.0.iter().position(|kind| kind.name == name);
        known.unwrap_or_else(|| {
            self.0.push(Type { name: name.to_owned(), length: None });
            self.0.len() - 1
        })
    }
}

/// The key may have become another, or none, since it was seen.
fn receive_size(client: &mut RespClient, command: &str, key: &[u8]) -> u64 {
    let reply = server::receive(client);
    let size = reply.as_integer().and_then(|size| u64::try_from(size).ok());
    size.unwrap_or_else(|| {
        complain!("Warning:  {command} on '{}' failed (may have changed type)", plain(key));
        0
    })
}

/// A key in a message.
pub fn plain(key: &[u8]) -> String {
    let quoted = quoted(key);
    quoted[1..quoted.len() - 1].to_owned()
}

const KNOWN: [(&str, &str, &str); 6] = [
    ("list", "LLEN", "items"),
    ("hash", "HLEN", "fields"),
    ("stream", "XLEN", "entries"),
    ("string", "STRLEN", "bytes"),
    ("set", "SCARD", "members"),
    ("zset", "ZCARD", "members"),
];
