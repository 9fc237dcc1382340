//! A message on its way to the clients that listen. It is encoded once and shared by all workers
//! that have such clients.

use std::ops::Range;
use std::sync::Arc;

use bobbin_resp::{Protocol, Reply, ReplyPart};
use bobbin_store::entry::{INLINE_MAX, SharedString};

use super::ChannelKind;
use crate::base::glob;
use crate::engine::client::Client;

/// A published message, encoded for each protocol.
pub struct Message {
    /// What it was published to; never a pattern.
    pub kind: ChannelKind,
    /// `message`, the channel and the payload as RESP2; RESP3 differs only in the first byte. If
    /// the payload is large, only its header is here.
    frame: Box<[u8]>,
    /// The range of the channel's name in the frame. `tail` is where the channel begins as a bulk
    /// string.
    channel: Range<usize>,
    tail: usize,
    large: Option<SharedString>,
    /// The patterns that match the channel and have listeners.
    pub patterns: Vec<Arc<[u8]>>,
    /// The number of the client for which it was decided earlier whether it gets the message; 0 if
    /// there is none.
    pub settled_for: u64,
}

/// A message that a transaction or a script publishes. It is sent when the unit ends.
#[derive(Debug)]
pub struct Publication {
    pub kind: ChannelKind,
    pub channel: Box<[u8]>,
    payload: SharedString,
    /// As in `Message`: the transaction's own client, if its subscriptions have changed since.
    pub settled_for: u64,
}

impl Publication {
    pub fn new(kind: ChannelKind, channel: &[u8], payload: MessagePayload<'_>) -> Self {
        let payload = match payload {
            MessagePayload::Large(shared) => SharedString::clone(shared),
            MessagePayload::Bytes(bytes) => SharedString::new(bytes.to_vec()),
        };
        Self { kind, channel: channel.into(), payload, settled_for: 0 }
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.channel.len() + self.payload.len()
    }

    pub fn payload(&self) -> MessagePayload<'_> {
        match self.payload.len() {
            0..=INLINE_MAX => MessagePayload::Bytes(&self.payload),
            _ => MessagePayload::Large(&self.payload),
        }
    }

    /// Appends the message to `output` if the current client listens to it now. Its subscriptions
    /// are about to change, so it must not get the message later. `patterns` are those that it
    /// listens to.
    pub fn settle(&mut self, client: &Client, patterns: &[Arc<[u8]>], output: &mut Vec<u8>) {
        let mut message = Message::new(self.kind, &self.channel, self.payload());
        if self.kind == ChannelKind::Channel {
            let matching = patterns.iter().filter(|it| glob::matches_text(it, &self.channel));
            message.patterns = matching.cloned().collect();
        }
        message.append_for(client, output);
        self.settled_for = client.info.id;
    }
}

/// The payload of a message.
#[derive(Clone, Copy)]
pub enum MessagePayload<'a> {
    Bytes(&'a [u8]),
    /// Too long to be copied.
    Large(&'a SharedString),
}

impl Message {
    pub fn new(kind: ChannelKind, channel: &[u8], payload: MessagePayload<'_>) -> Self {
        let word: &[u8] = if kind == ChannelKind::Shard { b"smessage" } else { b"message" };
        let len = if let MessagePayload::Bytes(bytes) = payload { bytes.len() } else { 0 };
        let mut frame = Vec::with_capacity(word.len() + channel.len() + len + FRAMING_LEN);
        let mut reply = Reply::new(&mut frame, Protocol::Resp2);
        reply.push(3);
        reply.bulk(word);
        let tail = reply.output().len();
        reply.bulk(channel);
        let end = reply.output().len() - LINE_END.len();
        let large = match payload {
            MessagePayload::Bytes(bytes) => {
                reply.bulk(bytes);
                None
            }
            MessagePayload::Large(shared) => {
                reply.bulk_header(shared.len());
                Some(Arc::clone(shared))
            }
        };
        let channel = end - channel.len()..end;
        Self {
            kind,
            frame: frame.into(),
            channel,
            tail,
            large,
            patterns: Vec::new(),
            settled_for: 0,
        }
    }

    pub fn channel(&self) -> &[u8] {
        &self.frame[self.channel.clone()]
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.frame.len() + self.large.as_ref().map_or(0, |large| large.len())
    }

    /// Appends the message for a client that listens to the channel, or to the pattern with this
    /// index.
    pub fn append(
        &self,
        pattern: Option<usize>,
        protocol: Protocol,
        output: &mut Vec<u8>,
        parts: Option<&mut Vec<ReplyPart>>,
    ) {
        match pattern {
            None => {
                output.push(if protocol == Protocol::Resp3 { b'>' } else { b'*' });
                output.extend_from_slice(&self.frame[1..]);
            }
            Some(index) => {
                let mut reply = Reply::new(output, protocol);
                reply.push(4);
                reply.bulk(b"pmessage");
                reply.bulk(&self.patterns[index]);
                reply.raw(&self.frame[self.tail..]);
            }
        }
        if let Some(large) = &self.large {
            match parts {
                Some(parts) => {
                    parts.push(ReplyPart { at: output.len(), bytes: Arc::clone(large).into() });
                }
                None => output.extend_from_slice(large),
            }
            output.extend_from_slice(LINE_END);
        }
    }

    /// Appends the message once for each subscription of the client that matches.
    pub fn append_for(&self, client: &Client, output: &mut Vec<u8>) {
        if self.settled_for == client.info.id {
            return;
        }
        let Some(subscriptions) = &client.subscriptions else { return };
        if subscriptions.contains(self.kind, self.channel()) {
            self.append(None, client.protocol, output, None);
        }
        for (index, pattern) in self.patterns.iter().enumerate() {
            if subscriptions.contains(ChannelKind::Pattern, pattern) {
                self.append(Some(index), client.protocol, output, None);
            }
        }
    }
}

const LINE_END: &[u8] = b"\r\n";
/// Bytes around the words of a frame, or a few more.
const FRAMING_LEN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames() {
        let text = |message: &Message, pattern, protocol| {
            let mut output = Vec::new();
            message.append(pattern, protocol, &mut output, None);
            String::from_utf8(output).unwrap()
        };
        let shared = Arc::new(b"hello".to_vec());
        for payload in [MessagePayload::Bytes(b"hello"), MessagePayload::Large(&shared)] {
            let mut message = Message::new(ChannelKind::Channel, b"c\r\n", payload);
            message.patterns = vec![Arc::from(&b"c*"[..])];
            assert_eq!(message.channel(), b"c\r\n");
            let tail = "$3\r\nc\r\n\r\n$5\r\nhello\r\n";
            let direct = text(&message, None, Protocol::Resp2);
            assert_eq!(direct, format!("*3\r\n$7\r\nmessage\r\n{tail}"));
            let matched = text(&message, Some(0), Protocol::Resp3);
            assert_eq!(matched, format!(">4\r\n$8\r\npmessage\r\n$2\r\nc*\r\n{tail}"));
        }
        let message = Message::new(ChannelKind::Shard, b"", MessagePayload::Bytes(b""));
        let direct = text(&message, None, Protocol::Resp3);
        assert_eq!(direct, ">3\r\n$8\r\nsmessage\r\n$0\r\n\r\n$0\r\n\r\n");
    }
}
