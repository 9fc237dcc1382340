//! Keeps the stream behind a copy that goes over a connection of its own, until the replica's main
//! connection takes it.
//!
//! A replica of Valkey's kind learns on the copy's connection where the stream continues. It then
//! asks for the stream on its main connection, and names the copy's connection there. A replica of
//! Redis 8's kind names its main connection on the copy's connection, and gets the stream without
//! asking. Until then nothing reads the stream, so it is kept here. The copy may end before that.
//! Then the main connection has a grace period.

use bobbin_sync::Mutex;

use crate::engine::log::feed::FeedReader;

/// Streams that no replica has taken yet.
pub struct AwaitedStreams(Mutex<Awaited>);

struct Awaited {
    streams: Vec<AwaitedStream>,
    /// How long to wait for the main connection after the copy's connection has gone.
    grace_ms: i64,
}

struct AwaitedStream {
    /// The client that gets the copy.
    copy_client: u64,
    /// The client that will get the stream, if the copy's connection named it.
    main_client: Option<u64>,
    stream: FeedReader,
    /// When the copy's client went (Unix ms).
    gone_ms: Option<i64>,
}

/// Why a stream is not kept any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dropped {
    /// The main connection has not come for this long (ms).
    TooLate(i64),
    /// Too many bytes wait for the main connection.
    TooMuch,
}

/// As long as in Valkey.
const GRACE_MS: i64 = 60 * 1000;
/// The most streams that are kept for replicas whose copy's connection has gone.
const GONE_MAX: usize = 64;

impl Default for AwaitedStreams {
    fn default() -> Self {
        Self(Mutex::new(Awaited { streams: Vec::new(), grace_ms: GRACE_MS }))
    }
}

impl AwaitedStreams {
    /// Keeps the stream for the replica that gets its copy on this client. `main_client` is the
    /// main connection if the copy's connection named one.
    pub fn keep(&self, copy_client: u64, main_client: Option<u64>, stream: FeedReader) {
        let awaited = AwaitedStream { copy_client, main_client, stream, gone_ms: None };
        self.0.lock().streams.push(awaited);
    }

    /// The stream for this client, and the client that gets the copy before it.
    pub fn take(&self, main_client: u64) -> Option<(u64, FeedReader)> {
        let mut awaited = self.0.lock();
        let is_its = |awaited: &AwaitedStream| awaited.main_client == Some(main_client);
        let at = awaited.streams.iter().position(is_its)?;
        let AwaitedStream { copy_client, stream, .. } = awaited.streams.remove(at);
        Some((copy_client, stream))
    }

    /// Whether a stream is kept for the replica that gets its copy on this client.
    pub fn has(&self, copy_client: u64) -> bool {
        self.0.lock().streams.iter().any(|awaited| awaited.copy_client == copy_client)
    }

    /// Drops the stream because the main connection has come and reads it itself. Returns whether a
    /// stream was kept.
    pub fn came(&self, copy_client: u64) -> bool {
        let mut awaited = self.0.lock();
        let count = awaited.streams.len();
        awaited.streams.retain(|awaited| awaited.copy_client != copy_client);
        awaited.streams.len() < count
    }

    /// Notes that the client that got the copy has gone.
    pub fn copy_client_went(&self, copy_client: u64, now_ms: i64) {
        let mut awaited = self.0.lock();
        for awaited in &mut awaited.streams {
            if awaited.copy_client == copy_client {
                awaited.gone_ms = Some(now_ms);
            }
        }
        let is_gone = |awaited: &AwaitedStream| awaited.gone_ms.is_some();
        if awaited.streams.iter().filter(|awaited| is_gone(awaited)).count() > GONE_MAX
            && let Some(oldest) = awaited.streams.iter().position(is_gone)
        {
            awaited.streams.remove(oldest);
        }
    }

    /// Drops the streams whose main connection is too late, or for which too many bytes wait.
    /// Returns the client that got the copy for each.
    pub fn look(&self, now_ms: i64) -> Vec<(u64, Dropped)> {
        let mut awaited = self.0.lock();
        let grace_ms = awaited.grace_ms;
        // If the system's clock was set back, the grace period begins anew.
        let gone = awaited.streams.iter_mut().filter_map(|awaited| awaited.gone_ms.as_mut());
        gone.for_each(|gone_ms| *gone_ms = now_ms.min(*gone_ms));
        let reason = |awaited: &AwaitedStream| {
            let late_ms = now_ms - awaited.gone_ms?;
            if late_ms > grace_ms {
                Some(Dropped::TooLate(late_ms))
            } else {
                awaited.stream.is_let_go().then_some(Dropped::TooMuch)
            }
        };
        let mut dropped = Vec::new();
        awaited.streams.retain(|awaited| {
            let reason = reason(awaited);
            dropped.extend(reason.map(|reason| (awaited.copy_client, reason)));
            reason.is_none()
        });
        dropped
    }

    /// How many bytes up to this offset of the stream wait for the replica that gets its copy on
    /// this client. `None`: they were too many, and are not kept.
    pub fn waiting_bytes(&self, copy_client: u64, end: u64) -> Option<u64> {
        let awaited = self.0.lock();
        let its = awaited.streams.iter().find(|awaited| awaited.copy_client == copy_client);
        its.map_or(Some(0), |awaited| awaited.stream.waiting_bytes(end))
    }

    /// How many main connections have still to come.
    pub fn count(&self) -> usize {
        self.0.lock().streams.len()
    }

    /// Sets the grace period for DEBUG DELAY-RDB-CLIENT-FREE-SECONDS.
    pub fn set_grace_ms(&self, grace_ms: i64) {
        self.0.lock().grace_ms = grace_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::log::Feed;

    /// Gives a feed this many bytes, and returns a stream from its beginning on. More than
    /// `waiting_max` bytes are too many to wait.
    fn stream(feed: &Feed, bytes: usize, waiting_max: u64) -> FeedReader {
        feed.begin(0);
        let stream = feed.reader(0, None).expect("it is there");
        feed.append_relayed(&vec![b'x'; bytes]);
        feed.publish(0, waiting_max, |_| {});
        stream
    }

    #[test]
    fn a_main_connection_has_a_while_to_come_once_the_copy_is_over() {
        let (awaited, feed) = (AwaitedStreams::default(), Feed::default());
        awaited.keep(7, None, stream(&feed, 100, 101));
        assert!(awaited.has(7) && !awaited.has(8) && awaited.count() == 1);
        assert_eq!(awaited.waiting_bytes(7, 100), Some(100));
        assert!(awaited.look(1_000_000).is_empty(), "its copy goes on");
        awaited.copy_client_went(7, 1_000_000);
        assert!(awaited.look(1_060_000).is_empty());
        assert_eq!(awaited.look(1_060_001), [(7, Dropped::TooLate(60_001))]);
        assert!(!awaited.has(7) && !awaited.came(7));
    }

    #[test]
    fn the_while_ends_though_the_clock_is_set_back() {
        let (awaited, feed) = (AwaitedStreams::default(), Feed::default());
        awaited.keep(7, None, stream(&feed, 100, 101));
        awaited.copy_client_went(7, 5_000_000);
        assert!(awaited.look(1_000_000).is_empty() && awaited.look(1_060_000).is_empty());
        assert_eq!(awaited.look(1_060_001), [(7, Dropped::TooLate(60_001))]);
    }

    #[test]
    fn a_client_that_was_named_takes_its_stream_once() {
        let (awaited, feed) = (AwaitedStreams::default(), Feed::default());
        awaited.keep(7, Some(5), stream(&feed, 100, 101));
        assert!(awaited.take(7).is_none());
        let (copy_client, stream) = awaited.take(5).expect("it is kept");
        assert_eq!((copy_client, stream.offset()), (7, 0));
        assert!(awaited.take(5).is_none() && awaited.count() == 0);
    }

    #[test]
    fn what_waits_has_a_limit() {
        let (awaited, feed) = (AwaitedStreams::default(), Feed::default());
        awaited.keep(7, None, stream(&feed, 100, 100));
        assert_eq!(awaited.waiting_bytes(7, 100), None);
        awaited.copy_client_went(7, 0);
        assert_eq!(awaited.look(1), [(7, Dropped::TooMuch)]);
        for client in 0..100 {
            awaited.keep(client, None, feed.reader(100, None).expect("it is there"));
            awaited.copy_client_went(client, 1);
        }
        assert_eq!(awaited.count(), GONE_MAX);
        assert!(awaited.came(99) && awaited.count() == GONE_MAX - 1 && !awaited.has(0));
    }
}
