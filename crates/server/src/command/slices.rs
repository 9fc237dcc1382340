//! Long commands in slices, so that nobody else waits for them.
//!
//! A large collection is *pinned*: cloning it takes microseconds and shares its chunks. The command then works
//! on the pinned value with no lock held, a slice a turn, while its client waits and all others are served; who
//! changes the key meanwhile copies the chunks that it changes. Inside a transaction everything is done at once.

use bobbin_resp::{Protocol, Reply};

use super::{Call, Data};
use crate::server::Server;
use crate::worker::Job;

/// Replies of more elements than this are made in slices.
pub const SLICED_MIN: usize = 4096;
/// Elements between two looks at the time.
pub const SLICE: usize = 256;

/// Makes a reply in slices: `step` appends some `SLICE` elements of it at each call, and returns whether there
/// are more. Inside a transaction it is made at once.
pub fn reply_in_slices(
    call: &mut Call<'_>,
    mut step: impl FnMut(&mut Reply<'_>) -> bool + Send + 'static,
) {
    if call.in_transaction {
        while step(&mut call.reply) {}
        return;
    }
    let job = ReplyInSlices { step, bytes: Vec::new(), protocol: call.client.protocol };
    call.client.job = Some(Box::new(job));
}

/// Computes something in slices and finishes with the keys' shards held.
///
/// `step` works on pinned values, some `SLICE` elements at each call, and returns whether there is more to do;
/// `finish` locks what it needs, looks whether the pinned values are still those of the keys (else it starts
/// over, by returning `false`), stores the result and appends the reply. Inside a transaction the caller does it
/// all at once instead.
pub fn compute_in_slices<S: Send + 'static>(
    call: &mut Call<'_>,
    state: S,
    step: fn(&mut S, &mut Data) -> bool,
    finish: fn(&mut S, &'static Server, &mut Data, &mut Reply<'_>) -> bool,
) {
    let protocol = call.client.protocol;
    let job = ComputeInSlices { state, step, finish, bytes: Vec::new(), protocol };
    call.client.job = Some(Box::new(job));
}

struct ReplyInSlices<F> {
    step: F,
    bytes: Vec<u8>,
    protocol: Protocol,
}

impl<F: FnMut(&mut Reply<'_>) -> bool + Send> Job for ReplyInSlices<F> {
    fn step(&mut self, _: &'static Server, _: &mut Data, more: &mut dyn FnMut() -> bool) -> bool {
        let mut reply = Reply::new(&mut self.bytes, self.protocol);
        loop {
            if !(self.step)(&mut reply) {
                return true;
            }
            if !more() {
                return false;
            }
        }
    }

    fn reply(&mut self, reply: &mut Reply<'_>) {
        append(reply, &mut self.bytes);
    }
}

struct ComputeInSlices<S> {
    state: S,
    step: fn(&mut S, &mut Data) -> bool,
    finish: fn(&mut S, &'static Server, &mut Data, &mut Reply<'_>) -> bool,
    bytes: Vec<u8>,
    protocol: Protocol,
}

impl<S: Send> Job for ComputeInSlices<S> {
    fn step(
        &mut self,
        server: &'static Server,
        data: &mut Data,
        more: &mut dyn FnMut() -> bool,
    ) -> bool {
        while (self.step)(&mut self.state, data) {
            if !more() {
                return false;
            }
        }
        let mut reply = Reply::new(&mut self.bytes, self.protocol);
        let done = (self.finish)(&mut self.state, server, data, &mut reply);
        data.release();
        done
    }

    fn reply(&mut self, reply: &mut Reply<'_>) {
        append(reply, &mut self.bytes);
    }
}

/// Appends a reply that was made elsewhere; a large one is not copied if it is all there is.
fn append(reply: &mut Reply<'_>, bytes: &mut Vec<u8>) {
    if reply.output().is_empty() {
        std::mem::swap(reply.output(), bytes);
    } else {
        reply.raw(bytes);
    }
}
