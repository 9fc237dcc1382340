//! A copy that comes by a connection of its own, while the stream behind it comes by the main one.
//!
//! The copy's connection tells where the copy is cut. Then the replica asks for the stream from
//! there on by the main connection, which names the other one, and gathers it until the copy is in
//! its place.

use super::super::handshake::{CopyHandshake, CopyStep, Cut};
use super::GiveUp;
use super::channel::Channel;
use super::receipt::{Receipt, Received};
use super::{COPY_TIMEOUT, HANDSHAKE_TIMEOUT, digits};

/// The connection of a copy, and how far the main one is meanwhile.
pub(super) struct Apart {
    pub channel: Channel,
    talk: Talk,
    joining: Joining,
    /// What the copy shows, once that is known.
    cut: Option<Cut>,
}

/// How far the connection of the copy is.
enum Talk {
    Handshake(CopyHandshake),
    Copy(Receipt),
}

/// How far the main connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Joining {
    /// The cut is awaited.
    Waits,
    /// It has said whose main connection it is.
    Names,
    /// It has asked for the stream.
    Asks,
    /// The stream comes, and is kept.
    Gathers,
}

impl Apart {
    pub(super) fn new(handshake: CopyHandshake, first: &[Vec<u8>], now_ms: i64) -> Self {
        let mut channel = Channel::new(now_ms);
        channel.say(first);
        Self { channel, talk: Talk::Handshake(handshake), joining: Joining::Waits, cut: None }
    }

    /// Whether the stream comes, and is to be kept.
    pub(super) fn gathers(&self) -> bool {
        self.joining == Joining::Gathers
    }

    /// What the copy shows, and what the stream behind it is about, if that is known.
    pub(super) fn cut(&self) -> (Option<(String, u64)>, Option<u32>) {
        let cut = self.cut.as_ref();
        (cut.map(|cut| (cut.id.clone(), cut.offset)), cut.and_then(|cut| cut.database))
    }

    /// Returns what has come of the copy. That it is whole is told when the stream behind it is
    /// sure to come.
    pub(super) fn next(
        &mut self,
        main: &mut Channel,
        copy_len_max: usize,
    ) -> Result<Received, GiveUp> {
        while let Talk::Handshake(handshake) = &mut self.talk {
            let Some(line) = self.channel.input.line()? else { break };
            match handshake.answer(&line) {
                CopyStep::Say(words) => self.channel.say(&words),
                CopyStep::GiveUp(why) => return Err(GiveUp::because(why)),
                CopyStep::Receive(cut) => {
                    let names = [&b"REPLCONF"[..], b"set-rdb-client-id", &digits(cut.client)];
                    main.say(&names.map(<[u8]>::to_vec));
                    // It was silent for as long as the copy was awaited.
                    main.heard_ms = self.channel.heard_ms;
                    self.joining = Joining::Names;
                    self.cut = Some(cut);
                    self.talk = Talk::Copy(Receipt::Awaited);
                }
            }
        }
        while !self.gathers() {
            let Some(line) = main.input.line()? else { break };
            self.join(&line, main)?;
        }
        let gathers = self.gathers();
        let Talk::Copy(receipt) = &mut self.talk else { return Ok(Received::Nothing) };
        Ok(match receipt.next(&mut self.channel.input, copy_len_max)? {
            Received::Whole if !gathers => Received::Nothing,
            received => received,
        })
    }

    /// Takes an answer by the main connection.
    fn join(&mut self, line: &[u8], main: &mut Channel) -> Result<(), GiveUp> {
        let text = String::from_utf8_lossy(line);
        let abort = || Err(GiveUp::because(format!("Aborting dual channel sync: {text}")));
        match (self.joining, &self.cut) {
            (Joining::Names, Some(cut)) if line.starts_with(b"+") => {
                log::info!(
                    "Dual channel replication: Trying a partial resynchronization using main \
                     channel (request {}:{}).",
                    cut.id,
                    cut.offset + 1
                );
                let asks = [&b"PSYNC"[..], cut.id.as_bytes(), &digits(cut.offset + 1)];
                main.say(&asks.map(<[u8]>::to_vec));
                self.joining = Joining::Asks;
                Ok(())
            }
            (Joining::Asks, Some(cut)) => {
                let Some(id) = text.strip_prefix("+CONTINUE") else { return abort() };
                // Under another name the copy would be a part of another history.
                if !matches!(id.trim(), id if id.is_empty() || id == cut.id) {
                    return abort();
                }
                log::info!(
                    "Dual channel replication: PRIMARY <-> REPLICA sync: Primary accepted a Partial \
                     Resynchronization, RDB load in background."
                );
                self.joining = Joining::Gathers;
                Ok(())
            }
            _ => abort(),
        }
    }

    /// What has taken too long, if anything has.
    pub(super) fn overdue(&self, main: &Channel, since_ms: i64) -> Option<&'static str> {
        if matches!(self.joining, Joining::Names | Joining::Asks) && main.heard_ms < since_ms {
            return Some(HANDSHAKE_TIMEOUT);
        }
        // The stream may be full, and is not read then.
        (self.channel.heard_ms < since_ms).then_some(COPY_TIMEOUT)
    }
}
