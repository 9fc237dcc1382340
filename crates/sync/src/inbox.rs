//! A queue of posts for one thread that sleeps somewhere else, such as in `epoll_wait`: how it is
//! made sure that no post lies there while its owner sleeps.
//!
//! Posting never blocks and never fails for want of room: it may happen with a shard held. What a
//! post makes grow has its own limit.

use crate::{AtomicBool, Mutex, MutexGuard, Ordering, fence};

/// What wakes the owner from where it sleeps. A ring before it sleeps must keep it from sleeping.
pub trait Bell {
    fn ring(&self);
}

/// A queue between threads. The owner's round is [`sleep`](Self::sleep); the sleep itself, if that
/// said so; [`awake`](Self::awake); [`take`](Self::take).
pub struct Inbox<P, B> {
    queue: Mutex<Queue<P>>,
    asleep: AtomicBool,
    bell: B,
}

struct Queue<P> {
    posts: Vec<P>,
    closed: bool,
}

impl<P, B: Bell> Inbox<P, B> {
    /// `rank` is its own: see [`post_to_all`](Self::post_to_all).
    pub fn new(rank: u32, bell: B) -> Self {
        let queue = Mutex::ranked(Queue { posts: Vec::new(), closed: false }, rank);
        Self { queue, asleep: AtomicBool::new(false), bell }
    }

    /// Leaves a post; gives it back when the owner has ended.
    pub fn post(&self, post: P) -> Result<(), P> {
        self.post_and(post, || ())
    }

    /// Leaves a post, and calls `tell` before any other thread can leave one.
    pub fn post_and(&self, post: P, tell: impl FnOnce()) -> Result<(), P> {
        {
            let mut queue = self.lock();
            if queue.closed {
                return Err(post);
            }
            queue.posts.push(post);
            tell();
        }
        self.wake();
        Ok(())
    }

    /// Leaves a post in each of several inboxes, so that no owner sees its own before all the
    /// others could see theirs. Inboxes are named by rising ranks. An owner that has ended gets
    /// nothing. No owner is woken: [`wake`](Self::wake) each afterwards.
    pub fn post_to_all<'a>(inboxes: impl Iterator<Item = &'a Self>, mut post: impl FnMut() -> P)
    where
        Self: 'a,
    {
        let mut queues: Vec<MutexGuard<'a, Queue<P>>> = Vec::new();
        let mut inboxes = inboxes.peekable();
        while let Some(inbox) = inboxes.next() {
            let mut queue = inbox.lock();
            if !queue.closed {
                queue.posts.push(post());
            }
            // The last one may be let go at once; often it is the only one.
            if inboxes.peek().is_some() {
                queues.push(queue);
            }
        }
    }

    /// Wakes the owner if it sleeps. To be called after what should wake it was left.
    pub fn wake(&self) {
        // Pairs with the fence in `sleep`: either the owner sees the post, or we see it asleep.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            self.bell.ring();
        }
    }

    /// Announces that the owner is about to sleep; `false` when there is something to do first.
    pub fn sleep(&self) -> bool {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let idle = self.lock().posts.is_empty();
        if !idle {
            self.awake();
        }
        idle
    }

    /// The owner is awake and will look.
    pub fn awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Takes all posts, in the order in which they came.
    pub fn take(&self) -> Vec<P> {
        std::mem::take(&mut self.lock().posts)
    }

    /// How many posts wait.
    pub fn len(&self) -> usize {
        self.lock().posts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes what is left; from now on `post` gives posts back.
    pub fn close(&self) -> Vec<P> {
        let mut queue = self.lock();
        queue.closed = true;
        std::mem::take(&mut queue.posts)
    }

    /// Closes the inbox if nothing is left in it; returns whether it is closed.
    pub fn close_if_empty(&self) -> bool {
        let mut queue = self.lock();
        queue.closed |= queue.posts.is_empty();
        queue.closed
    }

    pub const fn bell(&self) -> &B {
        &self.bell
    }

    #[cfg_attr(debug_assertions, track_caller)]
    fn lock(&self) -> MutexGuard<'_, Queue<P>> {
        self.queue.lock()
    }
}
