//! A client's own part in client-side caching: its mode, and how its reads are remembered.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::TrackingClient;
use crate::base::bits::bits;
use crate::engine::client::Client;
use crate::engine::clients::{ClientFlag, ClientInfo};
use crate::engine::command::{Call, Flags};
use crate::engine::server::Server;

bits! {
    /// How a client tracks, as CLIENT TRACKING names it.
    Mode: u32 {
        BROADCAST = "bcast",
        OPT_IN = "optin",
        OPT_OUT = "optout",
        NO_LOOP = "noloop",
    }
}

/// The tracking state of a client, in its connection's memory.
#[derive(Default)]
pub struct ConnectionTracking {
    /// The number of the client. For a script's client, that of the client that runs the script.
    pub id: u64,
    pub mode: Mode,
    /// The number of the client that is told instead; 0 if there is none.
    pub redirect: u64,
    /// The prefixes of broadcast mode.
    pub prefixes: BTreeSet<Box<[u8]>>,
    /// Whether CLIENT CACHING made an exception for the next command.
    pub caching: bool,
    /// Whether the keys of the current command are remembered already, as it has released them.
    remembered: bool,
}

/// Begins to track for a client. With broadcasts the gate is held.
pub fn enable(
    server: &Server,
    client: &mut Client,
    mode: Mode,
    redirect: Option<Arc<ClientInfo>>,
    prefixes: Vec<Box<[u8]>>,
) {
    let id = client.info.id;
    let redirect_id = redirect.as_ref().map_or(0, |to| to.id);
    let before = client.tracking.take().map(|tracked| tracked.prefixes);
    let mut all = before.unwrap_or_default();
    let mut bytes = 0;
    server.tracking.change(server, |registry| {
        let redirect = redirect.map(|to| (to.id, to));
        registry
            .readers
            .insert(id, TrackingClient { info: Arc::clone(&client.info), redirect, mode });
        for prefix in prefixes {
            if all.insert(prefix.clone()) {
                bytes += memory_of(&prefix);
                registry.prefixes.entry(prefix).or_default().push(id);
            }
        }
    });
    let tracked = ConnectionTracking {
        id,
        mode,
        redirect: redirect_id,
        prefixes: all,
        caching: false,
        remembered: false,
    };
    client.tracking = Some(Box::new(tracked));
    // With subscriptions, messages for the client follow the reply of its own command.
    client.subscriptions.get_or_insert_default();
    client.info.tracking_bytes.fetch_add(bytes, Ordering::Relaxed);
    client.info.flag(ClientFlag::TRACKING, true);
    client.info.flag(ClientFlag::BROADCAST, mode.has(Mode::BROADCAST));
    client.info.redirect.store(redirect_id as i64, Ordering::Relaxed);
    client.info.redirect_broken.store(false, Ordering::Relaxed);
}

/// Bytes of a prefix: in the client's own list and in the registry.
const fn memory_of(prefix: &[u8]) -> usize {
    2 * (size_of::<Box<[u8]>>() + prefix.len()) + size_of::<Vec<u64>>() + size_of::<u64>()
}

/// Makes the client of a script track for the client that runs the script: reads are remembered for
/// that client. The prefixes stay with that client.
pub fn track_as(client: &mut Client, caller: &Client) {
    let Some(tracked) = &caller.tracking else {
        client.tracking = None;
        return;
    };
    let own = client.tracking.get_or_insert_default();
    (own.id, own.mode, own.caching) = (tracked.id, tracked.mode, tracked.caching);
    own.remembered = false;
}

/// Ends tracking for a client.
pub fn disable(server: &Server, client: &mut Client) {
    let Some(tracked) = client.tracking.take() else { return };
    client.info.tracking_bytes.store(0, Ordering::Relaxed);
    server.tracking.change(server, |registry| {
        registry.readers.remove(&tracked.id);
        for prefix in &tracked.prefixes {
            let Some(clients) = registry.prefixes.get_mut(prefix) else { continue };
            clients.retain(|&id| id != tracked.id);
            if clients.is_empty() {
                registry.prefixes.remove(prefix);
            }
        }
    });
    client.info.flag(ClientFlag::TRACKING | ClientFlag::BROADCAST, false);
    client.info.redirect.store(-1, Ordering::Relaxed);
    client.info.redirect_broken.store(false, Ordering::Relaxed);
}

/// Remembers the keys that a command of a tracking client has read. Their shards are held.
#[cold]
pub fn remember(call: &mut Call<'_>) {
    let Some(tracked) = &mut call.client.tracking else { return };
    if std::mem::take(&mut tracked.remembered) {
        return;
    }
    let reader = reader(call);
    if let Some(tracked) = &mut call.client.tracking
        && !call.in_transaction
        && call.client.transaction.is_none()
        && !call.command.full_name.starts_with("client|")
    {
        tracked.caching = false;
    }
    let Some(reader) = reader else { return };
    call.each_key(|call, key| call.data.track(key, reader));
}

/// Remembers the keys of a command that is about to release them before its end.
#[cold]
pub fn remember_already(call: &mut Call<'_>) {
    remember(call);
    if let Some(tracked) = &mut call.client.tracking {
        tracked.remembered = true;
    }
}

/// The number that the command's reads are remembered by; `None` if they are not remembered.
pub fn reader(call: &Call<'_>) -> Option<u64> {
    let tracked = call.client.tracking.as_ref()?;
    // CLIENT CACHING makes an exception from the rule of the client's mode.
    let wanted =
        !tracked.mode.has(Mode::BROADCAST) && tracked.mode.has(Mode::OPT_IN) == tracked.caching;
    let reads = call.command.has(Flags::READONLY) && !call.command.has(Flags::RUNS_SCRIPT);
    (wanted && reads).then_some(tracked.id)
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::embedded::Embedded;

    #[test]
    fn a_script_tracks_for_its_caller_without_its_prefixes() {
        let mut embedded = Embedded::new(Config::new(), 1).expect("it starts");
        let mut session = embedded.connect();
        for (line, id) in [
            ("HELLO 3", None),
            ("CLIENT TRACKING ON BCAST PREFIX a: PREFIX b:", Some(1)),
            ("CLIENT TRACKING OFF", None),
            ("CLIENT TRACKING ON", Some(1)),
        ] {
            embedded.feed(&mut session, format!("{line}\r\n").as_bytes());
            embedded.feed(&mut session, b"EVAL \"return 1\" 0\r\n");
            let lua = embedded.data().lua.last().expect("it ran");
            let tracked = lua.state.client.tracking.as_ref();
            assert_eq!(tracked.map(|tracked| tracked.id), id, "{line}");
            assert!(tracked.is_none_or(|tracked| tracked.prefixes.is_empty()), "{line}");
        }
    }
}
