//! The append-only file: the log of all changes on disk, from which the data set is made again at start.
//!
//! It consists of a base and of increments, as a [`manifest`] says. One thread ([`writer`]) takes the log's
//! records in their order, writes them to the current increment and forces them to disk as `appendfsync` says.
//! Nobody else waits for the disk: with `always`, workers keep replies back until [`Aof::durable`] has reached the
//! records that they may tell of, and one `fsync` serves everybody who waits.

pub mod check;
mod directory;
mod load;
mod manifest;
mod reader;
mod replay;
mod rewrite;
mod writer;

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

pub use directory::Directory;
pub use manifest::{Manifest, Part};
pub use reader::{Fault, Item, Reader};
pub use rewrite::Rewrites;

use self::writer::{Order, Writer};
use crate::blocking::Waiter;
use crate::command::Data;
use crate::config::AppendFsync;
use crate::server::{Server, Switch, lock};

/// What is shared about the log on disk.
#[derive(Default)]
pub struct Aof {
    /// What the files are, as on disk.
    manifest: Mutex<Manifest>,
    orders: Mutex<Vec<Order>>,
    has_orders: AtomicBool,
    /// Whether the writer's thread runs.
    running: AtomicBool,
    /// Replies wait for the disk.
    holds_replies: AtomicBool,
    /// The last record that is on disk for good.
    durable: AtomicU64,
    /// The log was turned on, and has no base yet: what is there counts for nothing.
    waits_for_base: AtomicBool,
    /// Clients of WAITAOF, and the records that they wait for.
    waiters: Mutex<Vec<(u64, Arc<Waiter>)>>,
    pub rewrites: Rewrites,
    pub figures: Figures,
}

/// What INFO tells.
#[derive(Default)]
pub struct Figures {
    /// Bytes of all files that are read at start.
    pub size: AtomicU64,
    /// Bytes at the start, or after the last rewrite.
    pub base_size: AtomicU64,
    /// Bytes of the increment that is being written.
    pub increment_size: AtomicU64,
    /// Bytes that are merged and not written.
    pub buffered: AtomicU64,
    /// How often writing waited for a slow disk.
    pub delayed_fsync: AtomicU64,
    /// The error number of the last write or fsync; 0: it succeeded.
    pub error: AtomicI32,
}

impl Aof {
    /// The number of the last record that is on disk for good.
    #[inline]
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::SeqCst)
    }

    /// Whether replies have to wait for the disk.
    #[inline(always)]
    pub fn holds_replies(&self) -> bool {
        self.holds_replies.load(Ordering::Relaxed)
    }

    /// Whether a base is to be written before the log counts.
    pub fn is_waiting_for_base(&self) -> bool {
        self.waits_for_base.load(Ordering::SeqCst)
    }

    /// Answers a client of WAITAOF once a record is on disk.
    pub fn await_record(&self, server: &Server, number: u64, waiter: Arc<Waiter>) {
        lock(&self.waiters).push((number, waiter));
        self.answer_waiters(server);
        server.log.wake();
    }

    /// Answers those clients of WAITAOF whose records are on disk.
    fn answer_waiters(&self, server: &Server) {
        let durable = self.durable();
        let mut waiters = lock(&self.waiters);
        if waiters.is_empty() {
            return;
        }
        let over: Vec<_> = waiters.extract_if(.., |(number, _)| *number <= durable).collect();
        waiters.retain(|(_, waiter)| waiter.is_waiting());
        drop(waiters);
        for (_, waiter) in over {
            waiter.answer(server, |reply| {
                reply.array(2);
                reply.integer(1);
                reply.integer(0);
                Ok(())
            });
        }
    }

    fn order(&self, server: &Server, order: Order) {
        lock(&self.orders).push(order);
        self.has_orders.store(true, Ordering::SeqCst);
        server.log.wake();
    }
}

impl Server {
    /// Loads the data set from the log and goes on with it, while clients are told to wait.
    pub fn start_log(&'static self) -> Result<(), String> {
        let file = load::load_and_open(self)?;
        self.start_writer(Some(file))?;
        let gate = self.gate.take();
        self.log.switch(true);
        self.follow_log_config();
        drop(gate);
        Ok(())
    }

    /// Turns the log on or off, as `appendonly` says now. The gate is held.
    pub fn switch_log(&'static self, data: &mut Data) -> Result<(), String> {
        let on = self.config.appendonly();
        if on == self.log.is_on() {
            return Ok(());
        }
        if on {
            Directory::of(&self.config).create().map_err(|error| {
                log::warn!("Can't create the directory of the log: {error}");
                "Unable to turn on AOF. Check server logs.".to_owned()
            })?;
            if !self.aof.running.load(Ordering::SeqCst) {
                self.start_writer(None)?;
            }
            self.aof.waits_for_base.store(true, Ordering::SeqCst);
            self.log.switch(true);
            if self.cut_is_busy() {
                self.aof.rewrites.schedule();
            } else {
                self.begin_rewrite(data);
            }
        } else {
            self.aof.rewrites.cancel();
            self.log.switch(false);
            self.aof.order(self, Order::Stop { after: self.log.last() });
        }
        data.effects.refresh();
        self.follow_log_config();
        Ok(())
    }

    /// Takes up what `appendfsync` says; the gate is held.
    pub fn follow_log_config(&self) {
        let holds = self.log.is_on() && self.config.appendfsync() == AppendFsync::Always;
        self.aof.holds_replies.store(holds, Ordering::SeqCst);
        self.log.wake();
    }

    /// Writes all there is, and forces it to disk. The workers have ended.
    pub fn end_log(&self) {
        if self.aof.running.load(Ordering::SeqCst) {
            let (done, wait) = std::sync::mpsc::channel();
            self.aof.order(self, Order::Settle { done });
            let _ = wait.recv();
        }
    }

    fn start_writer(&'static self, file: Option<std::fs::File>) -> Result<(), String> {
        let writer = Writer::new(self, file);
        let spawned = std::thread::Builder::new().name("bobbin-log".into()).spawn(|| writer.run());
        spawned.map_err(|error| format!("Can't start the log's thread: {error}"))?;
        self.aof.running.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// What a write is refused with while the log cannot be written.
    #[cold]
    pub fn log_failure(&self) -> String {
        let error =
            std::io::Error::from_raw_os_error(self.aof.figures.error.load(Ordering::Relaxed));
        let text = error.to_string();
        let text = text.split(" (os error").next().unwrap_or_default();
        format!("MISCONF Errors writing to the AOF file: {text}")
    }

    /// Notes how the last write, or fsync, of the log went.
    fn note_log_outcome(&self, outcome: &std::io::Result<()>) {
        let number = match outcome {
            Ok(()) => 0,
            Err(error) => error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error()),
        };
        let before = self.aof.figures.error.swap(number, Ordering::SeqCst);
        if before == number {
            return;
        }
        match outcome {
            Ok(()) => log::warn!("AOF write error looks solved. The server can write again."),
            Err(error) => log::warn!("Error writing to the AOF file: {error}"),
        }
        self.switches.set(Switch::LOG_FAILED, number != 0);
    }
}
