//! One of the two servers: a connection, and what INFO says.

use std::time::Duration;

use bobbin_client::{RespClient, ServerAddress, Target, Transport, Value, error_text};

use crate::modes::info::{Info, part};
use crate::modes::statistics::human;
use crate::session::explain;

pub struct MigrationNode {
    pub address: ServerAddress,
    client: RespClient,
    database: u32,
}

/// What INFO says of a server that matters here.
pub struct NodeFacts {
    info: Info,
    /// The numbers of the databases that have keys, and how many.
    pub databases: Vec<(u32, u64)>,
}

impl MigrationNode {
    /// Connects and logs in.
    pub fn connect(target: &Target, transport: &Transport) -> Result<Self, String> {
        let address = target.address.clone();
        let client = RespClient::connect_to(&address, transport)
            .map_err(|error| format!("Could not connect to {address}: {}", error_text(&error)))?;
        let mut node = Self { address, client, database: 0 };
        // Both may be behind a network that drops what is idle.
        node.client.set_read_timeout(Some(SILENCE)).map_err(|error| error.to_string())?;
        if let Some(password) = &target.password {
            let user = target.user.as_deref();
            let words: Vec<&[u8]> =
                [&b"AUTH"[..]].into_iter().chain(user).chain([&password[..]]).collect();
            node.demand(&words)?;
        }
        Ok(node)
    }

    /// The reply to a command, which may be an error.
    pub fn ask(&mut self, words: &[impl AsRef<[u8]>]) -> Result<Value, String> {
        self.client.command(words).map_err(|error| format!("{}: {}", self.address, explain(&error)))
    }

    /// The reply to a command, which must not be an error.
    pub fn demand(&mut self, words: &[impl AsRef<[u8]>]) -> Result<Value, String> {
        let reply = self.ask(words)?;
        match reply.as_error() {
            None => Ok(reply),
            Some(text) => {
                let name = String::from_utf8_lossy(words[0].as_ref()).to_uppercase();
                let text = String::from_utf8_lossy(text);
                Err(format!("{} refused {name}: {text}", self.address))
            }
        }
    }

    /// Has the server log in to its primary as we do.
    pub fn log_in_as(&mut self, primary: &Target) -> Result<(), String> {
        let Some(password) = &primary.password else { return Ok(()) };
        let user = primary.user.as_deref().unwrap_or_default();
        let words = [&b"CONFIG"[..], b"SET", b"masteruser", user, b"masterauth", password];
        self.demand(&words).map(drop)
    }

    /// What follows is about this database.
    pub fn select(&mut self, database: u32) -> Result<(), String> {
        if self.database != database {
            self.demand(&["SELECT", &database.to_string()])?;
            self.database = database;
        }
        Ok(())
    }

    pub fn facts(&mut self) -> Result<NodeFacts, String> {
        let reply = self.demand(&["INFO"])?;
        let info = Info::read(&reply);
        Ok(NodeFacts { databases: databases(&info), info })
    }
}

impl NodeFacts {
    #[cfg(test)]
    pub fn of(text: &str) -> Self {
        Self { databases: Vec::new(), info: Info::read(&Value::Bulk(text.into())) }
    }

    pub fn text(&self, name: &str) -> &str {
        self.info.text(name).unwrap_or_default()
    }

    pub fn keys(&self) -> u64 {
        self.databases.iter().map(|(_, keys)| keys).sum()
    }

    /// Bytes of the stream that a primary has written, or that a replica has carried out.
    pub fn offset(&self) -> i64 {
        let name = if self.is_replica() { "slave_repl_offset" } else { "master_repl_offset" };
        self.info.integer(name)
    }

    pub fn is_replica(&self) -> bool {
        self.text("role") == "slave"
    }

    /// Whether it is a replica of the server with the facts `source` at this address. It may know
    /// that one by another address; the name of the history tells, once there is a link.
    pub fn follows(&self, source: &Self, host: &str, port: u16) -> bool {
        let is_place =
            self.text("master_host") == host && self.text("master_port") == port.to_string();
        let history = self.text("master_replid");
        let is_history = !history.is_empty() && history == source.text("master_replid");
        self.is_replica() && (is_place || is_history && !source.is_replica())
    }

    pub fn is_same_server(&self, other: &Self) -> bool {
        !self.text("run_id").is_empty() && self.text("run_id") == other.text("run_id")
    }

    pub fn is_on(&self, name: &str) -> bool {
        self.info.is_on(name)
    }

    /// Which program it is, in which version.
    pub fn program(&self) -> String {
        self.info.program()
    }

    /// Its part and its data, in a few words.
    pub fn summary(&self) -> String {
        let part = if self.is_replica() {
            format!("replica of {}:{}", self.text("master_host"), self.text("master_port"))
        } else {
            "primary".to_owned()
        };
        format!("{part}, {} keys, {}", self.keys(), human(self.info.integer("used_memory")))
    }
}

/// The databases that have keys, and how many.
fn databases(info: &Info) -> Vec<(u32, u64)> {
    let keys = |value| part(value, "keys")?.parse().ok();
    info.databases().filter_map(|(number, value)| Some((number, keys(value)?))).collect()
}

/// For how long a server may say nothing.
const SILENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_of_another_server_with_the_same_port() {
        let source = NodeFacts::of("role:master\r\nmaster_replid:aa\r\n");
        let replica = |host: &str, id: &str| {
            let place = format!("role:slave\r\nmaster_host:{host}\r\nmaster_port:6379\r\n");
            NodeFacts::of(&format!("{place}master_replid:{id}\r\n"))
        };
        assert!(!replica("b", "bb").follows(&source, "a", 6379));
        // There is no link yet, and here it has another name.
        assert!(replica("a", "bb").follows(&source, "a", 6379));
        assert!(replica("b", "aa").follows(&source, "a", 7000));
        assert!(!NodeFacts::of("role:master\r\nmaster_replid:aa\r\n").follows(&source, "a", 6379));
    }

    #[test]
    fn databases_and_their_keys() {
        let text = "db0:keys=3,expires=0\r\ndb12:keys=40,expires=1,avg_ttl=0\r\ndbx:keys=9\r\n";
        let info = Info::read(&Value::Bulk(text.into()));
        assert_eq!(databases(&info), [(0, 3), (12, 40)]);
    }
}
