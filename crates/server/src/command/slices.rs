//! Long commands in slices, so that nobody else waits for them.
//!
//! A large collection is *pinned*: cloning it takes microseconds and shares its chunks. The command then works
//! on the pinned value with no lock held, a slice a turn, while its client waits and all others are served; who
//! changes the key meanwhile copies the chunks that it changes. Inside a transaction everything is done at once.

use bobbin_resp::{Aggregate, Protocol, Reply};

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
    let step = move |reply: &mut Reply<'_>, _: &mut usize| step(reply);
    call.client.job = Some(Box::new(ReplyInSlices::new(step, None, call.client.protocol)));
}

/// The same for an array, say, whose length is known at its end only: `step` adds to the count what it appends.
pub fn elements_in_slices(
    call: &mut Call<'_>,
    kind: Aggregate,
    mut step: impl FnMut(&mut Reply<'_>, &mut usize) -> bool + Send + 'static,
) {
    if call.in_transaction {
        let (header, mut count) = (call.reply.defer(), 0);
        while step(&mut call.reply, &mut count) {}
        call.reply.finish(header, kind, count);
        return;
    }
    call.client.job = Some(Box::new(ReplyInSlices::new(step, Some(kind), call.client.protocol)));
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

/// A reply in pieces: as a whole, many megabytes would be copied each time that they grow, and freeing them would
/// take long.
#[derive(Default)]
pub struct Pieces {
    full: Vec<Vec<u8>>,
    /// Behind the full ones.
    last: Vec<u8>,
}

impl Pieces {
    /// Where the reply goes on: what is appended there stays together.
    pub fn open(&mut self) -> &mut Vec<u8> {
        if self.last.len() >= PIECE {
            let room = Vec::with_capacity(self.last.capacity());
            self.full.push(std::mem::replace(&mut self.last, room));
        }
        &mut self.last
    }

    /// All but the last piece, with a header in front.
    pub fn take(&mut self, header: Vec<u8>) -> Vec<Vec<u8>> {
        let mut pieces = std::mem::take(&mut self.full);
        if !header.is_empty() {
            pieces.insert(0, header);
        }
        pieces
    }

    /// Appends what `take` has left.
    pub fn append_rest(&mut self, reply: &mut Reply<'_>) {
        append(reply, &mut self.last);
    }
}

struct ReplyInSlices<F> {
    step: F,
    /// Of what there are `count`, if the header comes last.
    kind: Option<Aggregate>,
    count: usize,
    pieces: Pieces,
    protocol: Protocol,
}

impl<F> ReplyInSlices<F> {
    const fn new(step: F, kind: Option<Aggregate>, protocol: Protocol) -> Self {
        let pieces = Pieces { full: Vec::new(), last: Vec::new() };
        Self { step, kind, count: 0, pieces, protocol }
    }
}

impl<F: FnMut(&mut Reply<'_>, &mut usize) -> bool + Send> Job for ReplyInSlices<F> {
    fn step(&mut self, _: &'static Server, _: &mut Data, more: &mut dyn FnMut() -> bool) -> bool {
        loop {
            let mut reply = Reply::new(self.pieces.open(), self.protocol);
            if !(self.step)(&mut reply, &mut self.count) {
                return true;
            }
            if !more() {
                return false;
            }
        }
    }

    fn pieces(&mut self) -> Vec<Vec<u8>> {
        let mut header = Vec::new();
        if let Some(kind) = self.kind {
            let mut reply = Reply::new(&mut header, self.protocol);
            let deferred = reply.defer();
            reply.finish(deferred, kind, self.count);
        }
        self.pieces.take(header)
    }

    fn reply(&mut self, reply: &mut Reply<'_>) {
        self.pieces.append_rest(reply);
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

/// A piece is full when it has this many bytes.
const PIECE: usize = 64 * 1024;

/// Appends a reply that was made elsewhere; a large one is not copied if it is all there is.
fn append(reply: &mut Reply<'_>, bytes: &mut Vec<u8>) {
    if reply.output().is_empty() {
        std::mem::swap(reply.output(), bytes);
    } else {
        reply.raw(bytes);
    }
}
