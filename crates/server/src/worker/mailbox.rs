//! How other threads reach a worker: a queue of posts, and a bell for when it sleeps.
//!
//! Posting never blocks and never fails for want of room: it may happen with a shard held. What a post
//! makes grow (a client's output) has its own limit.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex};

use super::connection::Connection;
use crate::client::ClientInfo;
use crate::io::Waker;
use crate::server::lock;

/// What can be left for a worker.
pub enum Post {
    /// A connection to serve from now on: new, or from another worker.
    Adopt(Box<Connection>),
    /// Look whether the client is to be closed.
    Kill(Arc<ClientInfo>),
    /// Bytes for a client that it did not ask for at this moment, such as what it monitors.
    Push { to: Arc<ClientInfo>, bytes: Arc<[u8]> },
    /// A pause has ended: look again at whom it put off.
    Resume,
    /// The number of workers changed: give connections away that are more than a fair share.
    Rebalance,
    /// Give all connections away, then end.
    Retire,
    /// End now.
    Stop,
}

/// See the module.
pub struct Mailbox {
    posts: Mutex<Queue>,
    asleep: AtomicBool,
    waker: Waker,
}

#[derive(Default)]
struct Queue {
    posts: Vec<Post>,
    closed: bool,
}

impl Mailbox {
    pub fn new(waker: Waker) -> Self {
        Self { posts: Mutex::default(), asleep: AtomicBool::new(false), waker }
    }

    /// Leaves a post; gives it back when the worker has ended.
    pub fn post(&self, post: Post) -> Result<(), Post> {
        {
            let mut queue = lock(&self.posts);
            if queue.closed {
                return Err(post);
            }
            queue.posts.push(post);
        }
        // Pairs with the fence in `sleep`: either the worker sees the post, or we see it asleep.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            self.waker.wake();
        }
        Ok(())
    }

    /// Announces that the worker is about to sleep; `false` when there is something to do first.
    pub fn sleep(&self) -> bool {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let idle = lock(&self.posts).posts.is_empty();
        if !idle {
            self.awake();
        }
        idle
    }

    /// The worker is awake and will look.
    pub fn awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Takes all posts, in the order in which they came.
    pub fn take(&self) -> Vec<Post> {
        std::mem::take(&mut lock(&self.posts).posts)
    }

    /// Takes what is left; from now on `post` gives posts back.
    pub fn close(&self) -> Vec<Post> {
        let mut queue = lock(&self.posts);
        queue.closed = true;
        std::mem::take(&mut queue.posts)
    }
}
