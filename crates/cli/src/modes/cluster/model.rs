//! What a cluster is made of, as `CLUSTER NODES` tells it.
//!
//! A line of that reply is `<id> <host>:<port>@<bus port>[,<hostname>...] <flags> <primary's id or
//! -> <ping> <pong> <epoch> <link> <slots...>`; slots are `7`, `0-99`, or, of the node that
//! answers, `[7->-<id>]` (leaving) and `[7-<-<id>]` (arriving). From Redis's cluster specification.

use std::{fmt, ops::RangeInclusive};

use bobbin_client::SLOTS;

/// A node, as it sees itself or as another sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterNode {
    pub id: String,
    pub host: String,
    pub port: u16,
    pub bus_port: Option<u16>,
    pub flags: Vec<String>,
    /// Whose replica it is.
    pub primary_id: Option<String>,
    pub epoch: u64,
    pub is_linked: bool,
    pub slots: SlotBitmap,
    pub migrating: Vec<OpenSlot>,
    pub importing: Vec<OpenSlot>,
}

/// A slot on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSlot {
    pub slot: u16,
    /// The node at the other end.
    pub peer_id: String,
}

/// Reads a reply of CLUSTER NODES; `None` where it is none.
pub fn parse_nodes(reply: &str) -> Option<Vec<ClusterNode>> {
    reply.lines().map(ClusterNode::parse).collect()
}

impl ClusterNode {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let id = words.next()?.to_owned();
        let (place, bus) = match words.next()?.split_once('@') {
            Some((place, rest)) => (place, rest.split(',').next()),
            None => ("", None),
        };
        let (host, port) = place.rsplit_once(':')?;
        let flags: Vec<String> = words.next()?.split(',').map(str::to_owned).collect();
        let primary = words.next()?;
        let mut words = words.skip(2);
        let epoch = words.next()?.parse().ok()?;
        let is_linked = words.next()? == "connected";
        let mut node = Self {
            id,
            host: host.to_owned(),
            port: port.parse().ok()?,
            bus_port: bus.and_then(|bus| bus.parse().ok()),
            flags,
            primary_id: None,
            epoch,
            is_linked,
            slots: SlotBitmap::default(),
            migrating: Vec::new(),
            importing: Vec::new(),
        };
        if node.has_flag("slave") || node.has_flag("replica") {
            node.primary_id = Some(primary.to_owned());
        }
        for word in words.filter(|word| !word.is_empty()) {
            node.add_slots(word)?;
        }
        Some(node)
    }

    fn add_slots(&mut self, word: &str) -> Option<()> {
        if let Some(open) = word.strip_prefix('[') {
            let open = open.strip_suffix(']')?;
            let (slot, peer_id, list) = match open.split_once("->-") {
                Some((slot, peer)) => (slot, peer, &mut self.migrating),
                None => {
                    let (slot, peer) = open.split_once("-<-")?;
                    (slot, peer, &mut self.importing)
                }
            };
            list.push(OpenSlot { slot: parse_slot(slot)?, peer_id: peer_id.to_owned() });
            return Some(());
        }
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        for slot in parse_slot(first)?..=parse_slot(last)? {
            self.slots.insert(slot);
        }
        Some(())
    }

    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|known| known == flag)
    }

    pub fn is_replica(&self) -> bool {
        self.primary_id.is_some()
    }

    /// `127.0.0.1:7000`
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// What it is to others: all flags but that it is the one that answered.
    pub fn role(&self) -> String {
        let flags: Vec<&str> =
            self.flags.iter().map(String::as_str).filter(|flag| *flag != "myself").collect();
        flags.join(",")
    }

    /// The lines that scripts read: role, id and address; slots; whose replica, or how many it has.
    pub fn describe(&self, replicas: usize, indent: usize) -> String {
        let blank = " ".repeat(indent);
        let letter = if self.is_replica() { 'S' } else { 'M' };
        let mut text = format!(
            "{blank}{letter}: {} {}\n{blank}   slots:{} ({} slots) {}\n",
            self.id,
            self.address(),
            self.slots,
            self.slots.len(),
            self.role()
        );
        match &self.primary_id {
            Some(id) => text.push_str(&format!("{blank}   replicates {id}\n")),
            None if replicas > 0 => {
                text.push_str(&format!("{blank}   {replicas} additional replica(s)\n"));
            }
            None => {}
        }
        text
    }

    /// An element of a backup's `nodes.json`. `errors` is what was wrong with the cluster.
    pub fn json(&self, errors: usize) -> String {
        let replicate =
            self.primary_id.as_ref().map_or_else(|| "null".into(), |id| format!("\"{id}\""));
        let mut fields = vec![
            format!("\"name\": \"{}\"", self.id),
            format!("\"host\": \"{}\"", self.host),
            format!("\"port\": {}", self.port),
            format!("\"replicate\": {replicate}"),
            format!("\"slots\": [{}]", self.slots.to_string().replace('-', ",")),
            format!("\"slots_count\": {}", self.slots.len()),
            format!("\"flags\": \"{}\"", self.role()),
            format!("\"current_epoch\": {}", self.epoch),
        ];
        if errors > 0 {
            fields.push(format!("\"cluster_errors\": {errors}"));
        }
        for (name, list) in [("migrating", &self.migrating), ("importing", &self.importing)] {
            let pairs: Vec<String> = list
                .iter()
                .map(|open| format!("\"{}\": \"{}\"", open.slot, open.peer_id))
                .collect();
            if !pairs.is_empty() {
                fields.push(format!("\"{name}\": {{{}}}", pairs.join(",")));
            }
        }
        format!("  {{\n    {}\n  }}", fields.join(",\n    "))
    }
}

/// Which node owns which slots, in the order of ids. Equal for nodes that agree.
pub fn signature(nodes: &[ClusterNode]) -> Vec<(String, String)> {
    let owners = nodes.iter().filter(|node| !node.slots.is_empty());
    let mut owners: Vec<_> = owners.map(|node| (node.id.clone(), node.slots.to_string())).collect();
    owners.sort();
    owners
}

/// A set of slots.
#[derive(Clone, PartialEq, Eq)]
pub struct SlotBitmap {
    bits: Box<[u64; WORDS]>,
}

impl Default for SlotBitmap {
    fn default() -> Self {
        Self { bits: Box::new([0; WORDS]) }
    }
}

impl SlotBitmap {
    pub fn insert(&mut self, slot: u16) {
        self.bits[usize::from(slot / 64)] |= 1 << (slot % 64);
    }

    pub fn remove(&mut self, slot: u16) {
        self.bits[usize::from(slot / 64)] &= !(1 << (slot % 64));
    }

    pub fn contains(&self, slot: u16) -> bool {
        self.bits[usize::from(slot / 64)] & (1 << (slot % 64)) != 0
    }

    pub fn len(&self) -> usize {
        self.bits.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = u16> {
        (0..SLOTS).filter(|slot| self.contains(*slot))
    }

    pub fn ranges(&self) -> Vec<RangeInclusive<u16>> {
        ranges(self.iter())
    }
}

impl FromIterator<u16> for SlotBitmap {
    fn from_iter<I: IntoIterator<Item = u16>>(slots: I) -> Self {
        let mut set = Self::default();
        slots.into_iter().for_each(|slot| set.insert(slot));
        set
    }
}

impl fmt::Display for SlotBitmap {
    /// `[0-99],[200]`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.ranges().iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match (range.start(), range.end()) {
                (first, last) if first == last => write!(f, "{comma}[{first}]")?,
                (first, last) => write!(f, "{comma}[{first}-{last}]")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for SlotBitmap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Slots in ascending order as ranges.
pub fn ranges(slots: impl IntoIterator<Item = u16>) -> Vec<RangeInclusive<u16>> {
    let mut ranges: Vec<RangeInclusive<u16>> = Vec::new();
    for slot in slots {
        match ranges.last_mut() {
            Some(range) if *range.end() + 1 == slot => *range = *range.start()..=slot,
            _ => ranges.push(slot..=slot),
        }
    }
    ranges
}

fn parse_slot(text: &str) -> Option<u16> {
    text.parse().ok().filter(|slot| *slot < SLOTS)
}

const WORDS: usize = SLOTS as usize / 64;

#[cfg(test)]
mod tests {
    use super::*;

    const REPLY: &str = "\
aa 127.0.0.1:7000@17000,,shard-id=x myself,master - 0 0 3 connected 0-5 7 [9->-bb] [11-<-cc]
bb ::1:7001@17001,host.example master - 0 1 2 connected 9-10
cc :7002@17002 slave,fail bb 0 1 2 disconnected
";

    #[test]
    fn nodes_are_read() {
        let nodes = parse_nodes(REPLY).unwrap();
        assert_eq!(nodes[0].slots.to_string(), "[0-5],[7]");
        assert_eq!(nodes[0].slots.len(), 7);
        assert_eq!(nodes[0].migrating, [OpenSlot { slot: 9, peer_id: "bb".into() }]);
        assert_eq!(nodes[0].importing, [OpenSlot { slot: 11, peer_id: "cc".into() }]);
        assert_eq!((nodes[0].bus_port, nodes[0].epoch), (Some(17000), 3));
        assert_eq!((nodes[1].host.as_str(), nodes[1].port), ("::1", 7001));
        assert_eq!(nodes[2].primary_id.as_deref(), Some("bb"));
        assert!(nodes[2].has_flag("fail") && !nodes[2].is_linked && nodes[1].is_linked);
        for wrong in ["", "x", "aa h:1@2 master - 0 0 1", "aa h:1@2 master - 0 0 1 connected 16384"]
        {
            assert_eq!(ClusterNode::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn nodes_are_shown() {
        let nodes = parse_nodes(REPLY).unwrap();
        assert_eq!(
            nodes[0].describe(2, 4),
            "    M: aa 127.0.0.1:7000\n       slots:[0-5],[7] (7 slots) master\n       2 additional \
             replica(s)\n"
        );
        assert_eq!(
            nodes[2].describe(0, 0),
            "S: cc :7002\n   slots: (0 slots) slave,fail\n   replicates bb\n"
        );
        assert_eq!(
            nodes[0].json(1),
            "  {\n    \"name\": \"aa\",\n    \"host\": \"127.0.0.1\",\n    \"port\": 7000,\n    \
             \"replicate\": null,\n    \"slots\": [[0,5],[7]],\n    \"slots_count\": 7,\n    \
             \"flags\": \"master\",\n    \"current_epoch\": 3,\n    \"cluster_errors\": 1,\n    \
             \"migrating\": {\"9\": \"bb\"},\n    \"importing\": {\"11\": \"cc\"}\n  }"
        );
        assert_eq!(
            signature(&nodes),
            [("aa".into(), "[0-5],[7]".into()), ("bb".into(), "[9-10]".into())]
        );
    }

    #[test]
    fn all_slots() {
        let all: SlotBitmap = (0..SLOTS).collect();
        assert_eq!((all.len(), all.to_string().as_str()), (16384, "[0-16383]"));
        let mut none = all;
        (0..SLOTS).for_each(|slot| none.remove(slot));
        assert!(none.is_empty());
        assert_eq!(ranges([1, 2, 4]), [1..=2, 4..=4]);
    }
}
