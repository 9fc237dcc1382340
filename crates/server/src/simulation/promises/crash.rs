//! What a crash or the end of the server leaves, and whether that is allowed.

use super::*;

impl Play<'_> {
    /// Does what uses the disk. Sometimes the power goes in the midst of it.
    pub(super) fn while_power_may_go<T>(
        &mut self,
        f: impl FnOnce(&mut Self) -> T,
    ) -> Result<T, String> {
        if !self.one_in(8) {
            return Ok(f(self));
        }
        let (steps, seed) = (self.below(20), u64::from(self.random.next_u32()));
        self.disk.cut_power_after(steps, Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let result = f(self);
        if let Some(left) = self.disk.left_by_power_cut() {
            self.look_at(left, &format!("the power went {steps} steps within what follows"))?;
        }
        Ok(result)
    }

    /// The power goes, or the process alone.
    pub(super) fn crash(&mut self) -> Result<(), String> {
        if self.one_in(4) {
            self.look_at(self.disk.after_kill(), "it was killed")
        } else {
            let left = self.disk.after_power_cut(&mut self.random);
            self.look_at(left, "the power went")
        }
    }

    /// The server ends in order, unless that is refused; whether it did.
    pub(super) fn end(&mut self, mut request: EndRequest) -> Result<bool, String> {
        let server = self.stage.process.server;
        self.clients.iter().for_each(|client| client.peer.set_room(None));
        if !shutdown::prepare_end(server, &mut request) {
            self.note("(it does not end)");
            self.counts.refused_ends += 1;
            return Ok(false);
        }
        if !self.one_in(8) {
            // Else workers wait for a disk that hangs.
            aof::step_log(server);
            for worker in 0..WORKERS {
                self.turn(worker)?;
            }
            aof::step_log(server);
        }
        server.workers.stop();
        for worker in 0..WORKERS {
            self.turn(worker)?;
        }
        // What a transaction or a script had done that goes no further is seen here, and is nowhere
        // else.
        let is_in_midst = self.is_in_midst();
        aof::end_log_alone(server);
        self.counts.ends += 1;
        self.is_over = true;
        let is_whole = Aof::of(server).is_on() && !Aof::of(server).is_waiting_for_base();
        if is_whole && !is_in_midst && !self.lost && self.disk.faults().room.is_none() {
            self.promise(self.tokens.len(), CLIENTS, "the end");
            self.cells.promise_all();
        }
        let left = self.disk.after_power_cut(&mut self.random);
        self.look_at(left, "it ended")?;
        Ok(true)
    }

    /// Has scripts, rewrites and the log's thread come to an end. The disk fails no more, and may
    /// still be full.
    pub(super) fn go_on_until_idle(&mut self) -> Result<(), String> {
        let server = self.stage.process.server;
        let mut faults = self.disk.faults();
        faults.failing_syncs = 0;
        if self.one_in(2) {
            faults.room = None;
        }
        self.disk.set_faults(faults);
        while self.hands.hangs() {
            self.hands.go_on();
        }
        for _ in 0..1_000 {
            aof::step_log(server);
            if !aof::log_has_orders(server) {
                tasks::run_next();
            } else if self.disk.faults().room.is_some() {
                // A rewrite waits for a disk that is not full.
                self.disk.set_faults(Faults { room: None, ..faults });
            }
            for worker in 0..WORKERS {
                self.turn(worker)?;
            }
            if !self.is_in_midst() && !tasks::are_there() && !aof::log_has_orders(server) {
                return Ok(());
            }
        }
        Err("a script, or a rewrite, does not end".into())
    }

    /// Whether a script has paused.
    pub(super) fn is_in_midst(&self) -> bool {
        let server = self.stage.process.server;
        server.gate.is_reserved() || server.switches.has(Switch::BUSY)
    }

    /// Another process starts from what is left.
    pub(super) fn look_at(&mut self, left: Disk, how: &str) -> Result<(), String> {
        self.counts.crashes += 1;
        self.counts.midst += usize::from(self.is_in_midst());
        self.counts.hung += usize::from(self.hands.hangs());
        let shown = left.list();
        let now_ms = self.stage.process.now_ms();
        let readings: Vec<_> = (0..self.cells.len()).map(|cell| self.reading(cell)).collect();
        let read = &mut self.stage.read;
        Disk::put_in(Some(Disk::default()));
        read.ask("FLUSHALL");
        if self.has_functions {
            read.ask("FUNCTION FLUSH");
        }
        self.stage.reader.be_at(now_ms);
        Disk::put_in(Some(left));
        let loaded = aof::load_log(self.stage.reader.server);
        Disk::put_in(Some(self.disk.clone()));
        let fault = |what: String| {
            let (promise, tokens) = (&self.promise, self.tokens.len());
            Err(format!("{how}: {what}\n{promise}, of {tokens} ({loaded:?}, {shown:?})"))
        };
        if loaded.is_err() && !self.lost {
            return fault("it cannot be loaded".into());
        }
        read.embedded.set_time(now_ms);
        for (cell, reply) in read.ask_all(&readings).into_iter().enumerate() {
            let value = match reply {
                ParsedReply::Text(text) => text.parse().ok(),
                _ => None,
            };
            if let Err(what) = self.cells.left(cell, value, now_ms) {
                return fault(what);
            }
        }
        let left = read.texts("LRANGE tokens 0 -1");
        if !self.tokens.starts_with(&left) {
            let at = left.iter().zip(&self.tokens).position(|(left, there)| left != there);
            return fault(format!("what is left is no beginning, from {at:?} on: {left:?}"));
        }
        if left.len() < self.promised {
            return fault(format!("{} tokens are left", left.len()));
        }
        for key in 0..KEYS {
            let is_written = |token: &&String| self.keys.get(*token) == Some(&key);
            let wanted: Vec<String> =
                left.iter().rev().find(is_written).cloned().into_iter().collect();
            for twin in ["one", "two"] {
                let is = read.texts(&format!("GET {twin}:{key}"));
                if is != wanted {
                    return fault(format!("{twin}:{key} is {is:?} and not {wanted:?}"));
                }
            }
        }
        Ok(())
    }
}
