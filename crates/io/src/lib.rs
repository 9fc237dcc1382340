//! The sockets: everything that speaks to the kernel about connections.
//!
//! A worker thread owns one [`Driver`] and loops: `wait`, handle the events, queue sends, `wait`.
//! Two drivers stand behind the trait, [`Epoll`] and (where the kernel lets us) [`Uring`];
//! [`AnyDriver`] is the one a worker holds. New connections come from the [`Acceptor`], a thread
//! that sleeps on all [`Listener`]s.

mod accept;
mod address;
mod any;
mod driver;
mod epoll;
mod error;
mod listen;
#[cfg(feature = "simulation")]
mod memory;
mod pages;
mod pending;
mod receive;
mod slots;
#[cfg(test)]
mod tests;
mod uring;
mod waker;

pub use accept::{Accepted, Acceptor};
pub use address::Address;
pub use any::{AnyDriver, DriverKind};
pub use driver::{Bytes, Driver, Event, PARTS_MAX, Token};
pub use epoll::Epoll;
pub use error::error_text;
pub use listen::{ListenError, Listener};
#[cfg(feature = "simulation")]
pub use memory::{Memory, Network, Peer};
pub use pending::unsent;
pub use receive::{Received, receive_into, receive_split};
pub use uring::Uring;
pub use waker::Waker;
