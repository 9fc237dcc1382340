//! Long walks over the shards in short turns.

use super::super::Data;

impl Data {
    /// Calls `f` with shards, for a thread that serves no clients and has no turn. It has one for a
    /// few shards at a time: a thread that takes the gate waits until all turns have ended, and
    /// shuts out those that serve clients meanwhile.
    pub fn each_in_turns(
        &mut self,
        shards: impl Iterator<Item = usize>,
        mut f: impl FnMut(&mut Self, usize),
    ) {
        let mut shards = shards.peekable();
        while shards.peek().is_some() {
            self.enter();
            shards.by_ref().take(SHARDS_PER_TURN).for_each(|index| f(self, index));
            self.leave();
        }
    }
}

/// How many shards are looked at within a turn.
const SHARDS_PER_TURN: usize = 32;

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use bobbin_store::SHARDS;

    use super::*;
    use crate::simulation::process::SimulatedProcess;

    #[test]
    fn a_thread_that_takes_the_gate_waits_for_a_few_shards() {
        let server = SimulatedProcess::new(1).server;
        let mut data = Data::new(&server.keyspace, &server.gate, 1).expect("there is room");
        let ((begins, has_begun), (takes, is_taken)) = (channel(), channel());
        let taker = std::thread::spawn(move || {
            has_begun.recv().expect("the walk begins");
            let gate = server.gate.take();
            takes.send(()).expect("the walk goes on");
            drop(gate);
        });
        let mut was_taken_at = None;
        data.each_in_turns(0..SHARDS, |_, index| {
            if index == 0 {
                begins.send(()).expect("the thread waits for it");
                while !server.gate.is_closed() {
                    std::thread::yield_now();
                }
            }
            if was_taken_at.is_none() && is_taken.try_recv().is_ok() {
                was_taken_at = Some(index);
            }
        });
        taker.join().expect("it takes the gate");
        assert_eq!(was_taken_at, Some(SHARDS_PER_TURN));
    }
}
