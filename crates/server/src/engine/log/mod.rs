//! The log: the effects of all changes, in one order for all threads.
//!
//! Commands append their effects to the lane of their thread ([`Recorder`]) while they hold their
//! shards. [`RecordStream`] merges the lanes and yields the bytes for a file or for replicas, and
//! [`Feed`] keeps those for replicas, as a part of a [`history`]. While nothing reads the log,
//! nothing is logged. The order itself is made by `bobbin_store::log`.

mod effects;
pub mod feed;
pub mod history;
mod stream;
mod value;

pub use effects::{Effects, Recorder, append_command};
pub use feed::Feed;
pub use stream::{RecordBytes, RecordStream, StreamOutput, append_timestamp};
pub use value::{append_restore, payload_of, with_field_time, with_group_position};
