//! A thread that does for a test what may hang: it and the test's thread take turns, so a seed says
//! all that happens.
//!
//! It must wait for nothing that the test's thread has: that would be for ever. Whenever it reaches
//! something where it may hang ([`may_hang`]), the test goes on, and lets it go on later.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::disk::Disk;
use super::{tasks, ticks};
use crate::base::random::Random;

type Outcome = Box<dyn Any + Send>;
type Work = Box<dyn FnOnce() -> Outcome + Send>;

/// The thread that uses the disk for a process, and may hang there.
pub struct Hands {
    /// `None`: it must end.
    work: Option<Sender<(Work, Disk)>>,
    news: Receiver<News>,
    go_on: Sender<()>,
    thread: Option<JoinHandle<()>>,
    hangs: bool,
}

enum News {
    Hangs,
    Done(Result<Outcome, Outcome>),
}

/// What the thread hangs by.
struct Hanging {
    news: Sender<News>,
    go_on: Receiver<()>,
    random: Random,
    one_in: u32,
}

thread_local! {
    static HANGING: RefCell<Option<Hanging>> = const { RefCell::new(None) };
}

/// The calling thread uses the disk. Nothing of the disk is locked.
pub fn may_hang() {
    HANGING.with_borrow_mut(|hanging| {
        let Some(hanging) = hanging else { return };
        if hanging.one_in > 0 && hanging.random.below(hanging.one_in) == 0 {
            // The test may be over.
            hanging.news.send(News::Hangs).ok();
            // Nothing lets it go on any more: the test is over, and so is the hang.
            hanging.go_on.recv().ok();
        }
    });
}

impl Hands {
    /// How many uses of the disk come to one that hangs; 0: none hangs.
    pub fn new(random: Random, one_in: u32) -> Self {
        let (work, taken) = channel::<(Work, Disk)>();
        let (tell, news) = channel();
        let (go_on, goes_on) = channel();
        let measured = ticks::shared();
        let run = move || {
            tasks::begin();
            ticks::adopt(measured);
            let hanging = Hanging { news: tell.clone(), go_on: goes_on, random, one_in };
            HANGING.set(Some(hanging));
            for (work, disk) in taken {
                Disk::put_in(Some(disk));
                // The test may be over.
                drop(tell.send(News::Done(catch_unwind(AssertUnwindSafe(work)))));
            }
        };
        let thread = std::thread::spawn(run);
        Self { work: Some(work), news, go_on, thread: Some(thread), hangs: false }
    }

    pub const fn hangs(&self) -> bool {
        self.hangs
    }

    /// Has it do something on a disk; what came of it, unless it hangs. It does not hang yet.
    pub fn have<T: Send + 'static>(
        &mut self,
        disk: &Disk,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        assert!(!self.hangs, "it is at work");
        let work = Box::new(move || Box::new(work()) as Outcome);
        let sent = self.work.as_ref().is_some_and(|to| to.send((work, disk.clone())).is_ok());
        assert!(sent, "the thread is there");
        self.await_news().map(|outcome| *outcome.downcast().expect("it is what was asked for"))
    }

    /// Lets it go on where it hangs; whether it is done.
    pub fn go_on(&mut self) -> bool {
        // If the thread is there no more, there is no news of it either.
        self.go_on.send(()).ok();
        self.await_news().is_some()
    }

    fn await_news(&mut self) -> Option<Outcome> {
        let news = self.news.recv();
        self.hangs = matches!(news, Ok(News::Hangs));
        match news.expect("the thread is there") {
            News::Hangs => None,
            News::Done(outcome) => Some(outcome.unwrap_or_else(|panic| resume_unwind(panic))),
        }
    }
}

impl Drop for Hands {
    fn drop(&mut self) {
        self.work = None;
        // Without the other end no wait is one.
        self.go_on = channel().0;
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}
