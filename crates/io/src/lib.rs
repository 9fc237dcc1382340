//! Everything that asks the kernel about connections.
//!
//! A worker thread owns one [`Driver`] and loops: `wait`, handle the events, queue sends, `wait`.
//! Two drivers implement the trait: [`Epoll`] and (if the kernel permits it) [`Uring`]. A worker
//! has an [`AnyDriver`]. New connections come from the [`Acceptor`], a thread that sleeps on all
//! [`Listener`]s.

mod accept;
mod address;
mod driver;
mod pending;
mod receive;
mod waker;

pub use accept::{Accepted, Acceptor, Complaint, ListenError, Listener, TcpOptions};
pub use address::{Address, bracketed};
pub use bobbin_text::error_text;
pub use driver::{
    AnyDriver, Driver, DriverKind, Epoll, Event, PARTS_MAX, ReceivedBytes, Token, Uring,
};
#[cfg(feature = "simulation")]
pub use driver::{Memory, Network, Peer};
pub use pending::unsent;
pub use receive::{Received, receive_into, receive_split};
pub use waker::Waker;
