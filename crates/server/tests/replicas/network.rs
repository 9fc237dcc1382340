//! Connections between nodes: bytes under way, in both directions.

use std::collections::{BTreeMap, VecDeque};

/// The end that connected, and the one that was connected to.
pub const CALLER: usize = 0;
pub const CALLED: usize = 1;

#[derive(Default)]
pub struct ReplicaNetwork {
    connections: BTreeMap<u32, NetworkConnection>,
    last: u32,
}

pub struct NetworkConnection {
    pub nodes: [usize; 2],
    /// Bytes on their way to each end.
    ways: [Way; 2],
}

#[derive(Default)]
struct Way {
    bytes: VecDeque<u8>,
    /// Nothing more is put in. The end sees that when it has all.
    is_closed: bool,
    /// Nothing arrives any more, and nobody is told.
    is_stuck: bool,
    /// The end sees nothing any more: it closed the connection itself.
    is_left: bool,
}

/// What arrives.
pub enum Arrival {
    Bytes(Vec<u8>),
    Closed,
}

/// So much is under way at most: a sender waits then.
const UNDER_WAY_MAX: usize = 600;

impl ReplicaNetwork {
    pub fn connect(&mut self, caller: usize, called: usize) -> u32 {
        self.last += 1;
        let connection = NetworkConnection { nodes: [caller, called], ways: Default::default() };
        self.connections.insert(self.last, connection);
        self.last
    }

    pub fn ids(&self) -> Vec<u32> {
        self.connections.keys().copied().collect()
    }

    /// The node at an end of a connection, if that is there.
    pub fn node(&self, id: u32, end: usize) -> Option<usize> {
        self.connections.get(&id).map(|connection| connection.nodes[end])
    }

    /// How much may be sent from an end.
    pub fn room(&self, id: u32, from: usize) -> usize {
        let Some(connection) = self.connections.get(&id) else { return 0 };
        UNDER_WAY_MAX.saturating_sub(connection.ways[1 - from].bytes.len())
    }

    pub fn send(&mut self, id: u32, from: usize, bytes: &[u8]) {
        if let Some(connection) = self.connections.get_mut(&id) {
            let way = &mut connection.ways[1 - from];
            if !way.is_closed {
                way.bytes.extend(bytes);
            }
        }
    }

    /// An end closes the connection. What it sent may still arrive.
    pub fn close(&mut self, id: u32, from: usize) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.ways[1 - from].is_closed = true;
            connection.ways[from].is_left = true;
            connection.ways[from].bytes.clear();
            if connection.ways.iter().all(|way| way.is_left) {
                self.connections.remove(&id);
            }
        }
    }

    /// The connection breaks: each end may have some of what is under way, and then sees the end.
    pub fn cut(&mut self, id: u32, mut keep: impl FnMut(usize) -> usize) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        for way in &mut connection.ways {
            way.bytes.truncate(keep(way.bytes.len() + 1));
            way.is_closed = true;
        }
    }

    /// From now on nothing arrives at an end.
    pub fn stick(&mut self, id: u32, end: usize) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.ways[end].is_stuck = true;
        }
    }

    /// What arrives at an end next: `max` bytes at most.
    pub fn take(&mut self, id: u32, end: usize, max: usize) -> Option<Arrival> {
        let way = &mut self.connections.get_mut(&id)?.ways[end];
        if way.is_stuck || way.is_left {
            return None;
        }
        if way.bytes.is_empty() {
            return way.is_closed.then_some(Arrival::Closed);
        }
        let len = max.min(way.bytes.len());
        Some(Arrival::Bytes(way.bytes.drain(..len).collect()))
    }
}
