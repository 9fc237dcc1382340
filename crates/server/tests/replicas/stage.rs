//! What happens, drawn at random, and what must be true whatever happens.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use bobbin_server::engine::log::history::HistoryId;

use crate::network::{Arrival, CALLED, CALLER, ReplicaNetwork};
use crate::node::{CopyWay, Deed, ReplicaNode};

pub struct ReplicaStage {
    random: Random,
    now_ms: i64,
    nodes: Vec<ReplicaNode>,
    network: ReplicaNetwork,
    names: u64,
    /// What there is of each history, as its primary wrote it.
    truth: BTreeMap<String, Truth>,
    /// Writes that WAIT confirmed.
    confirmed: Vec<Confirmed>,
    story: String,
    pub counts: StageCounts,
}

/// A history.
struct Truth {
    data: Vec<u8>,
    /// The offset behind the last byte of the data.
    offset: u64,
}

struct Confirmed {
    primary: usize,
    id: HistoryId,
    offset: u64,
    /// The nodes that have it, except those whose part was changed since.
    by: BTreeSet<usize>,
}

/// What was seen.
#[derive(Default, Debug)]
pub struct StageCounts {
    copies: u64,
    copies_apart: u64,
    resumptions: u64,
    confirmed: u64,
    failovers: u64,
    rescued: u64,
}

impl StageCounts {
    pub fn add(&mut self, other: &Self) {
        self.copies += other.copies;
        self.copies_apart += other.copies_apart;
        self.resumptions += other.resumptions;
        self.confirmed += other.confirmed;
        self.failovers += other.failovers;
        self.rescued += other.rescued;
    }

    /// Whether enough happened for anything to have been shown.
    pub const fn is_telling(&self) -> bool {
        self.copies > 100
            && self.copies_apart > 100
            && self.resumptions > 100
            && self.failovers > 20
            && self.rescued > 20
    }
}

/// Steps with faults, and the most that it may take afterwards until all have the same.
const STEPS: usize = 3000;
const CALM_STEPS: usize = 1000;

impl ReplicaStage {
    pub fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let count = 2 + random.below(4);
        let mut stage = Self {
            random,
            now_ms: 0,
            nodes: Vec::new(),
            network: ReplicaNetwork::default(),
            names: 0,
            truth: BTreeMap::new(),
            confirmed: Vec::new(),
            story: String::new(),
            counts: StageCounts::default(),
        };
        for at in 0..count {
            let id = stage.name();
            stage.nodes.push(ReplicaNode::new(at, id));
            stage.tell_truth(at);
        }
        for at in 1..count {
            let primary = stage.random.below(at);
            stage.follow(at, primary);
        }
        stage
    }

    pub fn story(&self) -> &str {
        &self.story
    }

    pub fn play(&mut self) {
        for _ in 0..STEPS {
            self.step();
            match self.random.below(600) {
                0..4 => self.cut(),
                4..6 => self.stick(),
                6 => self.restart(),
                7 => self.fail_over(),
                8 => self.change_part(),
                9 => self.promote(),
                _ => {}
            }
        }
        self.calm_down();
        for node in &self.nodes {
            self.counts.copies += node.copies;
            self.counts.copies_apart += node.copies_apart;
            self.counts.resumptions += node.resumptions;
        }
    }

    /// Faults end, all follow one node, and all have the same in the end.
    fn calm_down(&mut self) {
        for id in self.network.ids() {
            self.network.cut(id, |_| 0);
        }
        let first = (0..self.nodes.len()).max_by_key(|&at| self.nodes[at].offset()).unwrap_or(0);
        self.lead(first);
        let mut following = vec![first];
        for at in 0..self.nodes.len() {
            if at != first {
                let primary = following[self.random.below(following.len())];
                self.follow(at, primary);
                following.push(at);
            }
        }
        for _ in 0..CALM_STEPS {
            self.calm_step();
            // A node that has not yet heard that its primary took another history may be as far by
            // chance.
            let (end, id) = (self.nodes[first].offset(), self.nodes[first].history.id);
            let has_all =
                |node: &ReplicaNode| node.is_up() && node.offset() == end && node.history.id == id;
            if self.nodes.iter().all(has_all) {
                break;
            }
        }
        let first = &self.nodes[first];
        for node in &self.nodes {
            assert!(node.is_up() && node.offset() == first.offset(), "{} lags for ever", node.at);
            assert!(node.data == first.data, "{} has something else", node.at);
            assert_eq!(node.history.id, first.history.id);
        }
    }

    /// Time goes on, something arrives, a client writes.
    fn step(&mut self) {
        self.now_ms += self.random.below(20) as i64;
        match self.random.below(10) {
            0..2 => self.write(),
            2..4 => {
                let at = self.random.below(self.nodes.len());
                self.tick(at);
            }
            _ => {
                let ids = self.network.ids();
                if !ids.is_empty() {
                    let (id, end) = (ids[self.random.below(ids.len())], self.random.below(2));
                    let most = [1, 10, 100, 10_000][self.random.below(4)];
                    let max = 1 + self.random.below(most);
                    self.deliver(id, end, max);
                }
            }
        }
        self.confirm();
    }

    /// Time goes on, and everything arrives.
    fn calm_step(&mut self) {
        self.now_ms += 50;
        (0..self.nodes.len()).for_each(|at| self.tick(at));
        for id in self.network.ids() {
            self.deliver(id, CALLED, usize::MAX);
            self.deliver(id, CALLER, usize::MAX);
        }
    }

    fn write(&mut self) {
        let at = self.random.below(self.nodes.len());
        if self.nodes[at].uplink.is_some() {
            return;
        }
        let set = |n: u64| format!("*2\r\n$3\r\nSET\r\n$8\r\n{:08}\r\n", n % 100_000_000);
        let unit = match self.random.below(4) {
            0 => {
                let many: String = (0..1 + self.random.below(5)).map(|n| set(n as u64)).collect();
                format!("*1\r\n$5\r\nMULTI\r\n{many}*1\r\n$4\r\nEXEC\r\n")
            }
            _ => set(self.random.next()),
        };
        self.append(at, unit.as_bytes());
    }

    fn append(&mut self, at: usize, unit: &[u8]) {
        self.nodes[at].write(unit);
        let id = self.nodes[at].history.id;
        let truth = self.truth.get_mut(id.as_str()).expect("a primary names its history");
        truth.data.extend_from_slice(unit);
        truth.offset += unit.len() as u64;
        assert_eq!(truth.offset, self.nodes[at].offset(), "two primaries write one history");
    }

    fn tick(&mut self, at: usize) {
        if self.nodes[at].pings(self.now_ms) {
            self.append(at, b"*1\r\n$4\r\nPING\r\n");
        }
        let Some(primary) = self.nodes[at].tick(&mut self.network, self.now_ms) else { return };
        let connection = self.network.connect(at, primary);
        let part = self.nodes[at].part;
        self.nodes[primary].accept((at, part), connection, self.now_ms);
        self.nodes[at].connected(connection, self.now_ms);
    }

    fn deliver(&mut self, id: u32, end: usize, max: usize) {
        let Some(at) = self.network.node(id, end) else { return };
        if end == CALLER && !self.nodes[at].takes(id) {
            return;
        }
        let Some(arrival) = self.network.take(id, end, max) else { return };
        if end == CALLED {
            let mark = (self.random.below(2) == 0).then(|| format!("{:040x}", self.random.next()));
            let way = match self.random.below(4) {
                0 => CopyWay::Valkey,
                1 => CopyWay::Redis,
                _ => CopyWay::Main,
            };
            let (network, now_ms) = (&mut self.network, self.now_ms);
            self.nodes[at].hear_replica(network, id, arrival, now_ms, mark, way);
            return;
        }
        let is_end = matches!(arrival, Arrival::Closed);
        let deeds = self.nodes[at].hear_primary(&mut self.network, id, arrival, self.now_ms);
        if is_end {
            self.network.close(id, CALLER);
        }
        for deed in deeds {
            self.check(at, &deed);
        }
    }

    /// A node has what the primary of its history had at this offset, and nothing else.
    fn check(&self, at: usize, deed: &Deed) {
        let node = &self.nodes[at];
        let Some(truth) = self.truth.get(node.history.id.as_str()) else {
            panic!("{at} has a history that nobody wrote");
        };
        let behind = truth.offset.checked_sub(node.offset());
        let behind = behind.unwrap_or_else(|| panic!("{at} is ahead of its primary")) as usize;
        let expected = &truth.data[..truth.data.len() - behind];
        assert_eq!(node.data.len(), expected.len(), "{at} lacks something, or has it twice");
        let from = match deed {
            Deed::Appended(len) => expected.len() - len,
            Deed::Copied | Deed::Resumed => 0,
        };
        assert!(node.data[from..] == expected[from..], "{at} has what its primary never had");
    }

    /// WAIT: notes writes that replicas have acknowledged.
    fn confirm(&mut self) {
        for node in self.nodes.iter().filter(|node| node.uplink.is_none()) {
            let known = self.confirmed.iter().find(|c| c.primary == node.at);
            let known = known.map_or(0, |confirmed| confirmed.offset);
            let Some(offset) =
                node.replicas.iter().map(|replica| replica.acked).filter(|&o| o > known).max()
            else {
                continue;
            };
            // A primary counts a replica that got another part until it hears of that.
            let follows = |&(at, part): &(usize, u64)| self.nodes[at].part == part;
            let by = node.acknowledged(offset).into_iter().filter(follows);
            let by: BTreeSet<_> = by.map(|(at, _)| at).collect();
            if !by.is_empty() {
                let (primary, id) = (node.at, node.history.id);
                self.confirmed.retain(|confirmed| confirmed.primary != primary);
                self.confirmed.push(Confirmed { primary, id, offset, by });
                self.counts.confirmed += 1;
            }
        }
    }

    /// What a node acknowledged it may lose now: it was given another part.
    fn forget(&mut self, at: usize) {
        for confirmed in &mut self.confirmed {
            confirmed.by.remove(&at);
        }
        self.confirmed.retain(|confirmed| confirmed.primary != at && !confirmed.by.is_empty());
    }

    fn cut(&mut self) {
        let ids = self.network.ids();
        if !ids.is_empty() {
            let id = ids[self.random.below(ids.len())];
            self.note(format_args!("cut {id}"));
            let random = &mut self.random;
            self.network.cut(id, |len| random.below(len));
        }
    }

    fn stick(&mut self) {
        let ids = self.network.ids();
        if !ids.is_empty() {
            let (id, end) = (ids[self.random.below(ids.len())], self.random.below(2));
            self.note(format_args!("nothing arrives at {id}:{end}"));
            self.network.stick(id, end);
        }
    }

    fn restart(&mut self) {
        let (at, id) = (self.random.below(self.nodes.len()), self.name());
        self.note(format_args!("restart {at}"));
        let was_primary = self.nodes[at].uplink.is_none();
        self.nodes[at].restart(&mut self.network, id, true);
        if was_primary {
            self.forget(at);
            self.tell_truth(at);
        }
    }

    /// A primary loses everything. Of its replicas the one that is furthest takes over.
    fn fail_over(&mut self) {
        let at = self.random.below(self.nodes.len());
        let id = self.nodes[at].history.id;
        if self.nodes[at].uplink.is_some() {
            return;
        }
        let others: Vec<_> = (0..self.nodes.len()).filter(|&other| other != at).collect();
        let knows = |&&other: &&usize| {
            self.nodes[other].history.id == id && self.nodes[other].uplink.is_some()
        };
        let furthest = others.iter().filter(knows).max_by_key(|&&other| self.nodes[other].offset());
        let promised = self.confirmed.iter().find(|c| c.primary == at && c.id == id);
        let furthest = furthest.copied();
        if let Some(promised) = promised {
            let has = furthest.map_or(0, |furthest| self.nodes[furthest].offset());
            assert!(has >= promised.offset, "{at} promised {} and {has} is left", promised.offset);
            self.counts.rescued += 1;
        }
        let Some(furthest) = furthest else { return };
        self.note(format_args!("{at} is lost, {furthest} takes over"));
        self.counts.failovers += 1;
        let name = self.name();
        self.nodes[at].restart(&mut self.network, name, false);
        self.tell_truth(at);
        self.forget(at);
        self.lead(furthest);
        for other in others {
            if other != furthest && self.random.below(4) > 0 && !self.is_above(other, furthest) {
                self.follow(other, furthest);
            }
        }
        self.follow(at, furthest);
    }

    /// A node gets another primary.
    fn change_part(&mut self) {
        let (at, primary) =
            (self.random.below(self.nodes.len()), self.random.below(self.nodes.len()));
        // A circle would never have anything to say.
        if !self.is_above(at, primary) {
            self.follow(at, primary);
        }
    }

    fn promote(&mut self) {
        let at = self.random.below(self.nodes.len());
        if self.nodes[at].uplink.is_some() {
            self.lead(at);
        }
    }

    /// Whether `below` gets its stream from `above`, by any way.
    fn is_above(&self, above: usize, mut below: usize) -> bool {
        loop {
            if below == above {
                return true;
            }
            let Some(uplink) = &self.nodes[below].uplink else { return false };
            below = uplink.primary;
        }
    }

    fn follow(&mut self, at: usize, primary: usize) {
        self.note(format_args!("{at} follows {primary}"));
        self.forget(at);
        self.nodes[at].follow(&mut self.network, primary);
    }

    fn lead(&mut self, at: usize) {
        self.note(format_args!("{at} leads"));
        self.forget(at);
        let name = self.name();
        self.nodes[at].lead(&mut self.network, name);
        self.tell_truth(at);
    }

    /// What a node has is the beginning of a history of its own.
    fn tell_truth(&mut self, at: usize) {
        let node = &self.nodes[at];
        let truth = Truth { data: node.data.clone(), offset: node.offset() };
        let known = self.truth.insert(node.history.id.to_string(), truth);
        assert!(known.is_none(), "two histories have one name");
    }

    fn name(&mut self) -> HistoryId {
        self.names += 1;
        HistoryId::parse(format!("{:040x}", self.names).as_bytes()).expect("it is a name")
    }

    fn note(&mut self, what: std::fmt::Arguments<'_>) {
        writeln!(self.story, "{:>6} ms: {what}", self.now_ms).expect("a string takes everything");
    }
}

/// A small generator of numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}
