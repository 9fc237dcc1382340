//! A queue of posts for one thread that sleeps somewhere else, such as in `epoll_wait`. It ensures
//! that the owner does not sleep while a post waits.
//!
//! Posting never blocks and never fails for lack of room, so a thread that holds a shard may post.
//! Whatever grows because of posts has its own limit.

use crate::{AtomicBool, Mutex, MutexGuard, Ordering, fence};

/// Wakes the owner from its sleep. A ring before the owner sleeps must keep it from sleeping.
pub trait Bell {
    fn ring(&self);
}

/// A queue between threads. The owner repeats these steps: it calls [`sleep`](Self::sleep), sleeps
/// if that returned true, and calls [`awake`](Self::awake) and [`take`](Self::take).
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
    /// `rank` is this inbox's own: see [`post_to_all`](Self::post_to_all).
    pub fn new(rank: u32, bell: B) -> Self {
        let queue = Mutex::ranked(Queue { posts: Vec::new(), closed: false }, rank);
        Self { queue, asleep: AtomicBool::new(false), bell }
    }

    /// Leaves a post. If the owner has ended, the post is returned.
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

    /// Leaves a post in each of several inboxes. No owner sees its post before all posts are there.
    /// The inboxes must come in the order of rising ranks. An owner that has ended gets no post. No
    /// owner is woken: call [`wake`](Self::wake) for each afterwards.
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
            // The last queue's lock can be released at once. Often it is the only one.
            if inboxes.peek().is_some() {
                queues.push(queue);
            }
        }
    }

    /// Wakes the owner if it sleeps. Call this after leaving what the owner should see.
    pub fn wake(&self) {
        // Pairs with the fence in `sleep`: either the owner sees the post, or this thread sees that
        // the owner sleeps.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            self.bell.ring();
        }
    }

    /// Announces that the owner is about to sleep. Returns false if there is something to do first.
    pub fn sleep(&self) -> bool {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let idle = self.lock().posts.is_empty();
        if !idle {
            self.awake();
        }
        idle
    }

    /// The owner is awake and will look for posts.
    pub fn awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Takes all posts, in the order in which they were left.
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

    /// Takes the remaining posts. From now on `post` returns posts to the caller.
    pub fn close(&self) -> Vec<P> {
        let mut queue = self.lock();
        queue.closed = true;
        std::mem::take(&mut queue.posts)
    }

    /// Closes the inbox if it is empty. Returns whether it is closed.
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
