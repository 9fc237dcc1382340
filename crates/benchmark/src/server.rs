//! The measured server, as it is asked about outside of the measurement: its settings, its nodes.

use bobbin_client::{RespClient, SLOTS, ServerAddress, Value, error_text, key_slot};

use crate::{
    engine::{Endpoint, Greeting, ServerNode, Topology},
    options::{Common, redis::ReadFrom},
    workload::TAG_LEN,
};

/// What every connection says first.
pub fn greeting(common: &Common, tracking: bool) -> Greeting {
    let mut greeting = Greeting::default();
    for command in hello(common) {
        greeting.push(&command);
    }
    if tracking {
        greeting.push(&["CLIENT", "TRACKING", "ON"]);
    }
    greeting
}

/// A connection of our own that has said the same.
pub fn connect(common: &Common) -> Result<RespClient, String> {
    let opened = RespClient::connect_to(&common.address(), &common.transport);
    let mut client = opened.map_err(|error| {
        format!("Could not connect to server at {}: {}", place(common), error_text(&error))
    })?;
    for command in hello(common) {
        call(&mut client, &command)?;
    }
    Ok(client)
}

/// Such a connection to each node that takes writes.
pub fn connect_to_primaries(common: &Common) -> Result<Vec<RespClient>, String> {
    if !common.cluster {
        return Ok(vec![connect(common)?]);
    }
    let connect = |(host, port, _)| connect(&Common { host, port, socket: None, ..common.clone() });
    places(common, ReadFrom::Primaries)?.into_iter().map(connect).collect()
}

/// Sends a command; an error reply is an error here.
pub fn call(client: &mut RespClient, command: &[impl AsRef<[u8]>]) -> Result<Value, String> {
    let reply = client.command(command).map_err(|error| format!("Error: {error}"))?;
    match reply.as_error() {
        Some(text) => Err(format!("Error from server: {}", String::from_utf8_lossy(text))),
        None => Ok(reply),
    }
}

/// The value of an option of the server, if it tells.
pub fn option(client: &mut RespClient, name: &str) -> Option<String> {
    let reply = call(client, &["CONFIG", "GET", name]).ok()?;
    let value = match &reply {
        Value::Map(pairs) => &pairs.first()?.1,
        other => other.as_elements()?.get(1)?,
    };
    Some(String::from_utf8_lossy(value.as_bytes()?).into_owned())
}

type Place = (String, u16, Vec<[u8; TAG_LEN]>);

/// The server alone, or the nodes of the cluster that it belongs to.
pub fn nodes(common: &Common, read_from: ReadFrom) -> Result<Vec<ServerNode>, String> {
    if !common.cluster {
        return Ok(vec![node(&common.address(), common, &[])?]);
    }
    places(common, read_from)?
        .into_iter()
        .map(|(host, port, tags)| node(&ServerAddress::Tcp { host, port }, common, &tags))
        .collect()
}

/// The nodes of the cluster: host, port, and words that lead to each of its slots.
fn places(common: &Common, read_from: ReadFrom) -> Result<Vec<Place>, String> {
    let mut client = connect(common)?;
    let reply = call(&mut client, &["CLUSTER", "SLOTS"])
        .map_err(|error| format!("Cannot learn the cluster's nodes. {error}"))?;
    let tags = tags_by_slot();
    let mut nodes: Vec<Place> = Vec::new();
    for range in reply.as_elements().unwrap_or_default() {
        let Some([from, to, primary, replicas @ ..]) = range.as_elements() else { continue };
        let slots = from.as_integer().zip(to.as_integer());
        let Some((from, to)) = slots
            .and_then(|(from, to)| Some((usize::try_from(from).ok()?, usize::try_from(to).ok()?)))
        else {
            continue;
        };
        let primaries = (read_from != ReadFrom::Replicas).then_some(primary);
        let replicas = if read_from == ReadFrom::Primaries { &[] } else { replicas };
        for node in primaries.into_iter().chain(replicas) {
            let Some((host, port)) = host_and_port(node, common) else { continue };
            let known = nodes.iter().position(|node| node.0 == host && node.1 == port);
            let at = known.unwrap_or_else(|| {
                nodes.push((host, port, Vec::new()));
                nodes.len() - 1
            });
            nodes[at].2.extend(tags.get(from..=to).unwrap_or_default());
        }
    }
    if nodes.is_empty() {
        return Err(match read_from {
            ReadFrom::Replicas => "The cluster has no replicas to read from (--rfr yes)".into(),
            _ => "The cluster has no nodes with slots".into(),
        });
    }
    Ok(nodes)
}

/// For a cluster, a function that asks for its nodes again.
pub fn topology(common: &Common, read_from: ReadFrom) -> Option<Topology> {
    let common = common.clone();
    common.cluster.then(|| Topology(Box::new(move || nodes(&common, read_from))))
}

fn hello(common: &Common) -> Vec<Vec<Vec<u8>>> {
    let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
    let mut commands = Vec::new();
    if let Some(password) = &common.password {
        let mut command = vec![b"AUTH".to_vec()];
        command.extend(common.user.clone());
        command.push(password.clone());
        commands.push(command);
    }
    if common.protocol != 0 {
        commands.push(words(&["HELLO", &common.protocol.to_string()]));
    }
    if common.database != 0 {
        commands.push(words(&["SELECT", &common.database.to_string()]));
    }
    commands
}

fn node(
    address: &ServerAddress,
    common: &Common,
    tags: &[[u8; TAG_LEN]],
) -> Result<ServerNode, String> {
    let endpoint = Endpoint::new(address, &common.transport)
        .map_err(|error| format!("Could not connect to server at {address}: {error}"))?;
    Ok(ServerNode { endpoint, tags: tags.into() })
}

/// Where the server is, for people.
pub fn place(common: &Common) -> String {
    common.address().to_string()
}

/// A node of CLUSTER SLOTS; an empty host is the one we are connected to.
fn host_and_port(node: &Value, common: &Common) -> Option<(String, u16)> {
    let [host, port, ..] = node.as_elements()? else { return None };
    let host = String::from_utf8_lossy(host.as_bytes().unwrap_or_default()).into_owned();
    let host = if host.is_empty() || host == "?" { common.host.clone() } else { host };
    Some((host, u16::try_from(port.as_integer()?).ok()?))
}

/// For each slot the first of the three-letter words that leads to it.
fn tags_by_slot() -> Vec<[u8; TAG_LEN]> {
    let mut tags = vec![None; usize::from(SLOTS)];
    let mut left = tags.len();
    let letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    'search: for &a in letters {
        for &b in letters {
            for &c in letters {
                let tag = &mut tags[usize::from(key_slot(&[a, b, c]))];
                if tag.is_none() {
                    *tag = Some([a, b, c]);
                    left -= 1;
                    if left == 0 {
                        break 'search;
                    }
                }
            }
        }
    }
    tags.into_iter().map(|tag| tag.expect("every slot has a word of three letters")).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
    };

    use super::*;

    #[test]
    fn a_cluster_may_have_no_replicas() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            for stream in listener.incoming().take(2) {
                let mut stream = stream.unwrap();
                let slots = b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:7000\r\n";
                stream.write_all(slots).unwrap();
                stream.read_to_end(&mut Vec::new()).unwrap();
            }
        });
        let common = Common { port, cluster: true, ..Common::default() };
        let found = |read_from| places(&common, read_from).map(|places| places.len());
        assert_eq!(found(ReadFrom::Primaries), Ok(1));
        let none = found(ReadFrom::Replicas);
        assert_eq!(none, Err("The cluster has no replicas to read from (--rfr yes)".into()));
        server.join().unwrap();
    }

    #[test]
    fn every_slot_has_a_tag() {
        for (number, tag) in tags_by_slot().into_iter().enumerate() {
            assert_eq!(usize::from(key_slot(&tag)), number);
        }
    }
}
