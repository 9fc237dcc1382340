//! `maxmemory-clients`: disconnects the clients with the most memory when all clients together use
//! too much.
//!
//! The sum is kept only while the option is set. Each worker adds the changes of its own clients'
//! memory. A worker that finds the sum at the limit looks through all clients for the largest ones.

use std::sync::atomic::{AtomicI64, Ordering};

use bobbin_sync::Mutex;

use crate::base::clock::has_come;
use crate::engine::client::{self, describe};
use crate::engine::clients::{ClientFlag, ClientInfo};
use crate::engine::server::{Server, Switch};

/// Lower limits are raised to this one, so that a bad configuration does not lock all clients out.
const LIMIT_MIN: usize = 128 * 1024;
/// How long to wait before the next look, if disconnecting all possible clients did not help.
const RETRY_MS: i64 = 100;

/// The memory of all clients together.
#[derive(Default)]
#[repr(align(128))]
pub struct ClientMemory {
    /// Bytes of all clients. Workers add and subtract in any order, so it may be below 0 for a
    /// moment.
    sum: AtomicI64,
    retry_at_ms: AtomicI64,
    /// Held by the thread that evicts.
    evicting: Mutex<()>,
}

impl Server {
    /// The most bytes that all clients may use together, if there is a limit.
    pub fn client_memory_limit(&self) -> Option<usize> {
        let limit = match self.config.maxmemory_clients() {
            0 => return None,
            percent if percent < 0 => {
                let maxmemory = self.config.maxmemory();
                if maxmemory == 0 {
                    return None;
                }
                (maxmemory as f64 * -(percent as f64) / 100.0) as usize
            }
            bytes => bytes as usize,
        };
        Some(limit.max(LIMIT_MIN))
    }

    /// Begins or ends the count as the options say. The gate is held, or there are no clients yet.
    pub fn follow_client_memory(&self) {
        let on = self.client_memory_limit().is_some();
        let was_on = self.switches.has(Switch::CLIENT_MEMORY);
        self.switches.set(Switch::CLIENT_MEMORY, on);
        self.client_memory.retry_at_ms.store(0, Ordering::Relaxed);
        if on != was_on {
            for info in self.clients.all() {
                let counts = on && !info.kill.load(Ordering::Relaxed);
                self.client_memory.count(&info, if counts { counted(&info) } else { 0 });
            }
        }
    }

    /// Counts a client's memory anew, if it is counted at all. Only the client's worker calls this.
    #[inline]
    pub fn count_client_memory(&self, info: &ClientInfo) {
        if self.switches.has(Switch::CLIENT_MEMORY) && !info.kill.load(Ordering::Relaxed) {
            self.client_memory.count(info, counted(info));
        }
    }

    /// Removes a client that has gone from the sum.
    pub fn uncount_client_memory(&self, info: &ClientInfo) {
        if info.counted_bytes.load(Ordering::Relaxed) > 0 {
            self.client_memory.count(info, 0);
        }
    }

    /// Whether the clients use more than they may, and a new attempt to evict some is due.
    #[inline]
    pub fn is_over_client_memory(&self, now_ms: i64) -> bool {
        self.switches.has(Switch::CLIENT_MEMORY)
            && self.client_memory_limit().is_some_and(|limit| self.client_memory.is_over(limit))
            && has_come(now_ms, self.client_memory.retry_at_ms.load(Ordering::Relaxed), RETRY_MS)
    }

    /// Disconnects the largest clients until the others use less than the limit; returns how many.
    /// Their workers close them soon after.
    #[cold]
    pub fn evict_clients(&self, now_ms: i64) -> u64 {
        let memory = &self.client_memory;
        let Some(_evicting) = memory.evicting.try_lock() else { return 0 };
        let Some(limit) = self.client_memory_limit() else { return 0 };
        if !memory.is_over(limit) {
            return 0;
        }
        let mut clients = self.clients.all();
        clients.retain(|info| !info.kill.load(Ordering::Relaxed) && !info.has(SPARED));
        clients.sort_by_cached_key(|info| info.counted_bytes.load(Ordering::Relaxed));
        let mut evicted = 0;
        while memory.is_over(limit) {
            let Some(info) = clients.pop() else {
                log::warn!("Over client maxmemory after evicting all evictable clients");
                memory.retry_at_ms.store(now_ms + RETRY_MS, Ordering::Relaxed);
                break;
            };
            let line = describe::line_for_log(self, &info, now_ms);
            log::info!("Evicting client: {line}");
            client::kill(self, &info);
            memory.count(&info, 0);
            evicted += 1;
        }
        evicted
    }
}

impl ClientMemory {
    fn is_over(&self, limit: usize) -> bool {
        usize::try_from(self.sum.load(Ordering::Relaxed)).is_ok_and(|sum| sum >= limit)
    }

    fn count(&self, info: &ClientInfo, bytes: usize) {
        let before = info.counted_bytes.swap(bytes, Ordering::Relaxed);
        if before != bytes {
            self.sum.fetch_add(bytes as i64 - before as i64, Ordering::Relaxed);
        }
    }
}

/// Bytes of a client that count towards the sum. Replicas do not count: they have a limit of their
/// own.
fn counted(info: &ClientInfo) -> usize {
    if info.has(ClientFlag::REPLICA) { 0 } else { client::memory(info) }
}

/// Clients with one of these flags are not evicted.
const SPARED: u32 = ClientFlag::NO_EVICT | ClientFlag::REPLICA;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sum_is_over_a_limit_that_cannot_be_reached() {
        let memory = ClientMemory::default();
        for (sum, limit, is_over) in [
            (1000, 1000, true),
            (1000, 1001, false),
            (-1000, 1, false),
            (1000, 1 << 63, false),
            (i64::MAX, usize::MAX, false),
        ] {
            memory.sum.store(sum, Ordering::Relaxed);
            assert_eq!(memory.is_over(limit), is_over, "{sum} {limit}");
        }
    }

    #[test]
    fn replicas_neither_count_nor_go() {
        let info = ClientInfo::new(1, -1, "test".into(), "test".into(), true, 0);
        assert!(counted(&info) > 0 && !info.has(SPARED));
        info.flag(ClientFlag::REPLICA, true);
        assert!(counted(&info) == 0 && info.has(SPARED));
    }
}
