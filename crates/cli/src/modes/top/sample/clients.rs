//! CLIENT LIST: a line of `name=value` for each connection.

use bobbin_client::Value;

use super::{super::text, NAME_LEN_MAX};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientSample {
    pub id: u64,
    pub address: String,
    pub name: String,
    pub user: String,
    pub flags: String,
    pub command: String,
    pub library: String,
    pub database: Option<u64>,
    pub age_s: Option<u64>,
    pub idle_s: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub output_bytes: Option<u64>,
    /// Which thread serves it.
    pub thread: Option<u64>,
    pub commands: Option<u64>,
    pub received_bytes: Option<u64>,
    pub sent_bytes: Option<u64>,
}

/// The connections that have an ID, which is all of them since Redis 2.8.12.
pub fn read(reply: &Value) -> Vec<ClientSample> {
    let lines = reply.as_bytes().unwrap_or_default().split(|&byte| byte == b'\n');
    lines.filter_map(connection).take(CLIENTS_MAX).collect()
}

fn connection(line: &[u8]) -> Option<ClientSample> {
    let mut connection = ClientSample::default();
    let mut id = None;
    for word in line.trim_ascii_end().split(|&byte| byte == b' ') {
        let Some(end) = word.iter().position(|&byte| byte == b'=') else { continue };
        let (name, value) = (&word[..end], &word[end + 1..]);
        let number = || std::str::from_utf8(value).ok()?.parse::<u64>().ok();
        let shown = || text::safe(value, NAME_LEN_MAX);
        match name {
            b"id" => id = number(),
            b"addr" => connection.address = shown(),
            b"name" => connection.name = shown(),
            b"user" => connection.user = shown(),
            b"flags" => connection.flags = shown(),
            b"cmd" => connection.command = shown(),
            b"lib-name" => connection.library = shown(),
            b"db" => connection.database = number(),
            b"age" => connection.age_s = number(),
            b"idle" => connection.idle_s = number(),
            b"tot-mem" => connection.memory_bytes = number(),
            b"omem" => connection.output_bytes = number(),
            b"io-thread" => connection.thread = number(),
            b"tot-cmds" => connection.commands = number(),
            b"tot-net-in" => connection.received_bytes = number(),
            b"tot-net-out" => connection.sent_bytes = number(),
            _ => {}
        }
    }
    connection.id = id?;
    Some(connection)
}

const CLIENTS_MAX: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &[u8]) -> Vec<ClientSample> {
        read(&Value::Bulk(text.to_vec()))
    }

    #[test]
    fn a_line_for_each_connection() {
        let clients = of(b"id=3 addr=127.0.0.1:41098 fd=18 name=app age=7 idle=2 flags=N db=1 \
                           omem=5 tot-mem=855 cmd=client|list user=default lib-name=jedis \
                           io-thread=1 tot-net-in=26 tot-net-out=9 tot-cmds=4\n\
                           id=4 addr= name= cmd=get\r\n");
        assert_eq!(clients.len(), 2);
        let first = &clients[0];
        assert_eq!((first.id, first.address.as_str()), (3, "127.0.0.1:41098"));
        assert_eq!((first.name.as_str(), first.command.as_str()), ("app", "client|list"));
        assert_eq!((first.age_s, first.idle_s, first.database), (Some(7), Some(2), Some(1)));
        assert_eq!((first.memory_bytes, first.output_bytes), (Some(855), Some(5)));
        assert_eq!((first.commands, first.thread), (Some(4), Some(1)));
        assert_eq!((first.received_bytes, first.sent_bytes), (Some(26), Some(9)));
        assert_eq!((clients[1].id, clients[1].commands), (4, None));
    }

    #[test]
    fn hostile_lines() {
        assert_eq!(of(b"addr=1.2.3.4:5\nid=-1\nid=x\nid\n\n = \nid=99999999999999999999"), []);
        let named = of(b"id=1 name=\x1b[2Jx\xff=");
        assert_eq!(named[0].name, r"\x1b[2Jx\xff=");
        assert_eq!(of(&b"id=1\n".repeat(CLIENTS_MAX + 10)).len(), CLIENTS_MAX);
        let long = [b"id=1 name=".to_vec(), b"x".repeat(1 << 20)].concat();
        assert_eq!(of(&long)[0].name.chars().count(), NAME_LEN_MAX + 1);
    }
}
