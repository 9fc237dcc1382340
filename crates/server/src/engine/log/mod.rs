//! The log: what every change of a key comes to, in one order for all threads.
//!
//! Commands append their effects to the lane of their thread ([`Recorder`]) while they hold their
//! shards; [`RecordStream`] puts the lanes together and yields the bytes that a file or a replica
//! gets, and [`Feed`] keeps those for replicas, as a part of a [`history`]. While nothing reads the
//! log nothing of it is made. The order itself is `bobbin_store::log`.

mod effects;
pub mod feed;
pub mod history;
mod stream;

pub use effects::{Effects, Recorder, append_command};
pub use feed::Feed;
pub use stream::{RecordBytes, RecordStream, StreamOutput, append_timestamp};
