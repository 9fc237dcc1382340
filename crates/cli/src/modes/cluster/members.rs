//! The nodes of a cluster and the connections to them.

use std::{
    net::{IpAddr, ToSocketAddrs},
    thread,
    time::{Duration, Instant},
};

use bobbin_client::{AddressFamily, RespClient, SLOTS, ServerAddress, Value, error_text};

use super::{
    model::{self, ClusterNode},
    say::{self, ClusterResult, Failed},
};
use crate::{
    options::Options,
    session::{explain, keep_alive},
};

/// All nodes that can be reached, the one that was named first.
pub struct Cluster {
    pub members: Vec<ClusterMember>,
    /// Primaries that are known but cannot be reached.
    pub unreachable: usize,
}

pub struct ClusterMember {
    pub node: ClusterNode,
    client: RespClient,
}

impl Cluster {
    /// Connects to the named node and to all that it knows of.
    pub fn load(options: &Options, host: &str, port: u16) -> ClusterResult<Self> {
        let mut first = ClusterMember::join(options, host, port)?;
        let others = first.nodes()?;
        let mut cluster = Self { members: vec![first], unreachable: 0 };
        for known in others.into_iter().filter(|known| !known.has_flag("myself")) {
            match reach(options, &known) {
                Some(member) => cluster.members.push(member),
                None if known.is_replica() => {}
                None => cluster.unreachable += 1,
            }
        }
        for member in &cluster.members {
            if let Some(id) = &member.node.primary_id
                && cluster.find(id).is_none()
            {
                let address = member.node.address();
                say::note(&format!("{address} says it is a replica of {id}, which is not there."));
            }
        }
        Ok(cluster)
    }

    /// Where the node of that id is, in small letters or capitals.
    pub fn find(&self, id: &str) -> Option<usize> {
        self.members.iter().position(|member| member.node.id.eq_ignore_ascii_case(id))
    }

    pub fn node(&self, index: usize) -> &ClusterNode {
        &self.members[index].node
    }

    /// The primaries' places.
    pub fn primaries(&self) -> Vec<usize> {
        let all = 0..self.members.len();
        all.filter(|index| !self.node(*index).is_replica()).collect()
    }

    pub fn replicas_of(&self, index: usize) -> usize {
        let id = &self.node(index).id;
        let members = self.members.iter();
        members.filter(|member| member.node.primary_id.as_ref() == Some(id)).count()
    }

    /// The primary with the fewest replicas, other than `except`.
    pub fn neediest(&self, except: Option<usize>) -> Option<usize> {
        let candidates = self.primaries().into_iter().filter(|index| Some(*index) != except);
        candidates.min_by_key(|index| self.replicas_of(*index))
    }

    /// One node's lines.
    pub fn describe(&self, index: usize, indent: usize) -> String {
        self.node(index).describe(self.replicas_of(index), indent)
    }

    /// Whether all nodes say the same of which node owns which slots.
    pub fn agrees(&mut self) -> bool {
        let mut signatures =
            self.members.iter_mut().map(|member| Some(model::signature(&member.nodes().ok()?)));
        let Some(first) = signatures.next().flatten() else { return false };
        signatures.all(|signature| signature.as_ref() == Some(&first))
    }

    /// Waits until all know each other and agree.
    pub fn wait_until_joined(&mut self) -> ClusterResult {
        out!("Waiting for the cluster to join\n");
        let start = Instant::now();
        let warn_after = LINKS_WARNED_AFTER + self.members.len() as u32 * LINKS_WARNED_AFTER_EACH;
        let (mut dots, mut warned) = (0, 0);
        while !(self.know_each_other() && self.agrees()) {
            let waited = start.elapsed();
            if waited > JOIN_WAIT_MAX {
                out!("\n");
                return Err(say::fail("The nodes did not join. Are their bus ports reachable?"));
            }
            if waited.as_secs() > dots {
                dots = waited.as_secs();
                out!(".");
            }
            if waited > warn_after * (warned + 1) {
                warned += 1;
                out!("\n");
                self.warn_of_links();
            }
            thread::sleep(JOIN_POLL);
        }
        out!("\n");
        Ok(())
    }

    fn know_each_other(&mut self) -> bool {
        let ids: Vec<String> = self.members.iter().map(|member| member.node.id.clone()).collect();
        self.members.iter_mut().all(|member| {
            let Ok(known) = member.nodes() else { return false };
            ids.iter()
                .all(|id| known.iter().any(|node| node.id == *id && !node.has_flag("handshake")))
        })
    }

    /// Warns about each node that another node cannot reach.
    fn warn_of_links(&mut self) {
        for member in &mut self.members {
            let from = member.node.address();
            for other in member.nodes().unwrap_or_default() {
                if !other.has_flag("myself") && (!other.is_linked || other.has_flag("handshake")) {
                    let port =
                        other.bus_port.map_or_else(String::new, |bus| format!(" port {bus}"));
                    say::warn(&format!("{from} does not reach {}{port}.", other.host));
                }
            }
        }
    }
}

impl ClusterMember {
    /// Connects to a node, which must have its cluster enabled.
    pub fn join(options: &Options, host: &str, port: u16) -> ClusterResult<Self> {
        let mut client = connect(options, host, port)?;
        let address = format!("{host}:{port}");
        let reply = client
            .command(&["INFO"])
            .map_err(|error| say::fail(&format!("Node {address} {}", explain(&error))))?;
        if let Some(text) = reply.as_error() {
            return Err(replied_with_error(&address, &String::from_utf8_lossy(text)));
        }
        if info_field(&reply, "cluster_enabled") != Some(1) {
            return Err(say::fail(&format!("Node {address} is not configured as a cluster node.")));
        }
        Self::over(client, &address, host)
    }

    fn over(client: RespClient, address: &str, host: &str) -> ClusterResult<Self> {
        let nobody = || say::fail(&format!("Node {address} does not say who it is."));
        let (name, port) = address.rsplit_once(':').unwrap_or((host, ""));
        let mut member = Self { node: unknown(name, port.parse().unwrap_or(0)), client };
        let known = member.nodes()?;
        let mut node = known.into_iter().find(|node| node.has_flag("myself")).ok_or_else(nobody)?;
        // By the name under which it was reached: it may not know its own.
        host.clone_into(&mut node.host);
        node.port = member.node.port;
        member.node = node;
        Ok(member)
    }

    /// What it says of all nodes.
    pub fn nodes(&mut self) -> ClusterResult<Vec<ClusterNode>> {
        let reply = self.demand(&["CLUSTER", "NODES"])?;
        let text = String::from_utf8_lossy(reply.as_bytes().unwrap_or_default()).into_owned();
        model::parse_nodes(&text).ok_or_else(|| {
            say::fail(&format!("Node {} answers no list of nodes.", self.node.address()))
        })
    }

    /// Whether it neither knows others nor has keys in database 0.
    pub fn is_empty(&mut self) -> ClusterResult<bool> {
        let keyspace = self.demand(&["INFO"])?;
        let info = self.demand(&["CLUSTER", "INFO"])?;
        let has_keys = info_text(&keyspace).lines().any(|line| line.starts_with("db0:"));
        Ok(!has_keys && info_field(&info, "cluster_known_nodes") == Some(1))
    }

    /// Refuses a node that is in use.
    pub fn demand_empty(&mut self) -> ClusterResult {
        if self.is_empty()? {
            return Ok(());
        }
        let address = self.node.address();
        Err(say::fail(&format!(
            "Node {address} is not empty. It knows other nodes (CLUSTER NODES tells) or has keys \
             in database 0."
        )))
    }

    /// The reply to a command; an error's text, the server's or the connection's.
    pub fn ask(&mut self, words: &[impl AsRef<[u8]>]) -> Result<Value, String> {
        self.client.send(words);
        receive(&mut self.client)
    }

    /// Returns the reply to a command; prints the error if there is one.
    pub fn demand(&mut self, words: &[impl AsRef<[u8]>]) -> ClusterResult<Value> {
        self.ask(words).map_err(|text| self.replied_with_error(&text))
    }

    pub fn demand_line(&mut self, line: &str) -> ClusterResult<Value> {
        let words: Vec<&str> = line.split(' ').collect();
        self.demand(&words)
    }

    pub fn ask_line(&mut self, line: &str) -> Result<Value, String> {
        let words: Vec<&str> = line.split(' ').collect();
        self.ask(&words)
    }

    pub fn replied_with_error(&self, text: &str) -> Failed {
        replied_with_error(&self.node.address(), text)
    }

    /// How many keys it has in each of these slots.
    pub fn count_keys(&mut self, slots: &[u16]) -> ClusterResult<Vec<u64>> {
        let mut counts = Vec::with_capacity(slots.len());
        for chunk in slots.chunks(COUNTS_AT_ONCE) {
            for slot in chunk {
                self.client.send(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]);
            }
            for _ in chunk {
                let count =
                    receive(&mut self.client).map_err(|text| self.replied_with_error(&text))?;
                counts
                    .push(count.as_integer().and_then(|count| count.try_into().ok()).unwrap_or(0));
            }
        }
        Ok(counts)
    }

    pub fn count_keys_in(&mut self, slot: u16) -> ClusterResult<u64> {
        Ok(self.count_keys(&[slot])?[0])
    }

    pub fn client(&mut self) -> &mut RespClient {
        &mut self.client
    }

    /// Gives the node a slot that no node has. `close` is to end its moving, too.
    pub fn take_slot(&mut self, slot: u16, close: bool) -> ClusterResult {
        let mut lines = vec![
            "MULTI".to_owned(),
            format!("CLUSTER DELSLOTS {slot}"),
            format!("CLUSTER ADDSLOTS {slot}"),
        ];
        if close {
            lines.push(format!("CLUSTER SETSLOT {slot} STABLE"));
        }
        lines.push("CLUSTER BUMPEPOCH".to_owned());
        for line in &lines {
            self.demand_line(line)?;
        }
        let reply = self.demand(&["EXEC"])?;
        // That it did not have the slot before is no error.
        match reply.as_elements().and_then(|replies| replies.get(1)).and_then(Value::as_error) {
            Some(text) => Err(self.replied_with_error(&String::from_utf8_lossy(text))),
            None => {
                self.node.slots.insert(slot);
                Ok(())
            }
        }
    }

    /// Takes a slot from the node, if it thinks that it has an owner.
    pub fn drop_slot(&mut self, slot: u16) -> ClusterResult {
        if let Err(text) = self.ask_line(&format!("CLUSTER DELSLOTS {slot}"))
            && !text.contains("already unassigned")
        {
            return Err(self.replied_with_error(&text));
        }
        self.node.slots.remove(slot);
        Ok(())
    }

    pub fn close_slot(&mut self, slot: u16) -> ClusterResult {
        self.demand_line(&format!("CLUSTER SETSLOT {slot} STABLE")).map(drop)
    }

    /// `CLUSTER SETSLOT <slot> <how> <id>`
    pub fn set_slot(&mut self, slot: u16, how: &str, id: &str) -> Result<(), String> {
        self.ask(&["CLUSTER", "SETSLOT", &slot.to_string(), how, id]).map(drop)
    }

    /// Brings the node into the cluster that `host` is in.
    pub fn meet(&mut self, options: &Options, other: &ClusterNode) -> ClusterResult {
        let ip = resolve(options, &other.host, other.port)?.to_string();
        let mut words = vec!["CLUSTER".to_owned(), "MEET".to_owned(), ip, other.port.to_string()];
        // The usual bus port is not said: old servers know no such argument.
        let usual = other.port.checked_add(BUS_PORT_OFFSET);
        if let Some(bus) = other.bus_port.filter(|bus| Some(*bus) != usual) {
            words.push(bus.to_string());
        }
        self.demand(&words).map(drop)
    }
}

/// The next reply. An error of the server's, or of the connection, is a text.
pub fn receive(client: &mut RespClient) -> Result<Value, String> {
    match client.receive() {
        Ok(reply) => match reply.as_error() {
            Some(text) => Err(String::from_utf8_lossy(text).into_owned()),
            None => Ok(reply),
        },
        Err(error) => Err(explain(&error)),
    }
}

/// Connects, and authenticates as the options say.
pub fn connect(options: &Options, host: &str, port: u16) -> ClusterResult<RespClient> {
    let address = ServerAddress::Tcp { host: host.to_owned(), port };
    let connected = RespClient::connect_to(&address, &options.transport)
        .and_then(|client| keep_alive(&client).map(|()| client));
    let mut client = connected.map_err(|error| {
        complain!("Could not connect to {address}: {}", error_text(&error));
        Failed
    })?;
    let target = &options.target;
    authenticate(&mut client, &address, target.user.as_deref(), target.password.as_deref())?;
    Ok(client)
}

pub fn authenticate(
    client: &mut RespClient,
    address: &ServerAddress,
    user: Option<&[u8]>,
    password: Option<&[u8]>,
) -> ClusterResult {
    let Some(password) = password else { return Ok(()) };
    let words: Vec<&[u8]> = [&b"AUTH"[..]].into_iter().chain(user).chain([password]).collect();
    let text = match client.command(&words) {
        Ok(reply) => match reply.as_error() {
            Some(text) => String::from_utf8_lossy(text).into_owned(),
            None => return Ok(()),
        },
        Err(error) => explain(&error),
    };
    Err(replied_with_error(&address.to_string(), &text))
}

/// A field of INFO or CLUSTER INFO that is a number.
pub fn info_field(reply: &Value, name: &str) -> Option<i64> {
    let text = info_text(reply);
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(field, _)| *field == name).and_then(|(_, value)| value.trim().parse().ok())
}

/// In the form that scripts look for.
fn replied_with_error(address: &str, text: &str) -> Failed {
    say::complain(&format!("Node {address} replied with error:\n{text}"));
    Failed
}

/// A node that another knows of; nothing where it cannot be reached or is said to have failed.
fn reach(options: &Options, known: &ClusterNode) -> Option<ClusterMember> {
    let is_gone = ["noaddr", "fail", "handshake"].iter().any(|flag| known.has_flag(flag));
    if known.host.is_empty() || known.port == 0 || is_gone {
        return None;
    }
    let client = connect(options, &known.host, known.port).ok()?;
    ClusterMember::over(client, &known.address(), &known.host).ok()
}

/// A node before it has told its id.
fn unknown(host: &str, port: u16) -> ClusterNode {
    ClusterNode {
        id: String::new(),
        host: host.to_owned(),
        port,
        bus_port: None,
        flags: Vec::new(),
        primary_id: None,
        epoch: 0,
        is_linked: true,
        slots: model::SlotBitmap::default(),
        migrating: Vec::new(),
        importing: Vec::new(),
    }
}

/// CLUSTER MEET takes no names.
fn resolve(options: &Options, host: &str, port: u16) -> ClusterResult<IpAddr> {
    let addresses = (host, port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
    let addresses = addresses.unwrap_or_default();
    let preferred = addresses.iter().find(|address| match options.transport.family {
        AddressFamily::Any => true,
        AddressFamily::Ipv4 => address.is_ipv4(),
        AddressFamily::Ipv6 => address.is_ipv6(),
    });
    let address = preferred.or_else(|| addresses.first());
    address.map(|address| address.ip()).ok_or_else(|| {
        complain!("No address is known for the host '{host}'.");
        Failed
    })
}

fn info_text(reply: &Value) -> String {
    String::from_utf8_lossy(reply.as_bytes().unwrap_or_default()).into_owned()
}

const BUS_PORT_OFFSET: u16 = 10_000;
const JOIN_POLL: Duration = Duration::from_millis(200);
const JOIN_WAIT_MAX: Duration = Duration::from_secs(600);
const LINKS_WARNED_AFTER: Duration = Duration::from_secs(20);
const LINKS_WARNED_AFTER_EACH: Duration = Duration::from_millis(150);
/// The slots whose counts are asked for in one pipeline.
const COUNTS_AT_ONCE: usize = SLOTS as usize / 16;
