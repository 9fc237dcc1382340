//! A worker's connections, by slot. A slot gets a new generation for each connection, so a token
//! never names two connections.

use std::sync::atomic::Ordering;

use bobbin_io::Token;

use crate::engine::client::connection::Connection;

/// The connections of a worker.
#[derive(Default)]
pub struct Slab {
    slots: Vec<SlabSlot>,
    free: Vec<u32>,
}

#[derive(Default)]
struct SlabSlot {
    generation: u32,
    connection: Option<Box<Connection>>,
}

impl Slab {
    /// Stores a connection, and gives it a slot and a token. `worker` is the id of this worker.
    pub fn insert(&mut self, mut connection: Box<Connection>, worker: usize) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(SlabSlot::default());
            self.slots.len() as u32 - 1
        });
        let place = &mut self.slots[slot as usize];
        connection.token = Token::new(slot, place.generation);
        *connection.client.info.token.lock() = connection.token;
        connection.client.info.worker.store(worker, Ordering::Relaxed);
        place.connection = Some(connection);
        slot
    }

    /// The connection of a token; `None` if it is gone.
    #[inline(always)]
    pub fn find(&mut self, token: Token) -> Option<&mut Connection> {
        let connection = self.slots.get_mut(token.slot() as usize)?.connection.as_deref_mut()?;
        (connection.token == token).then_some(connection)
    }

    pub fn get(&self, slot: u32) -> Option<&Connection> {
        self.slots.get(slot as usize)?.connection.as_deref()
    }

    #[inline(always)]
    pub fn at(&mut self, slot: u32) -> Option<&mut Connection> {
        self.slots.get_mut(slot as usize)?.connection.as_deref_mut()
    }

    pub fn remove(&mut self, slot: u32) -> Option<Box<Connection>> {
        let place = self.slots.get_mut(slot as usize)?;
        let connection = place.connection.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(slot);
        Some(connection)
    }

    pub fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// The slots in use.
    pub fn used(&self) -> Vec<u32> {
        let used =
            |(slot, place): (usize, &SlabSlot)| place.connection.as_ref().map(|_| slot as u32);
        self.slots.iter().enumerate().filter_map(used).collect()
    }
}
