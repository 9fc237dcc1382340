//! A client in one line, as CLIENT LIST and CLIENT INFO show it.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use crate::config::ClientClass;
use crate::engine::acl::DEFAULT_USER;
use crate::engine::clients::{ClientFlag, ClientInfo};
use crate::engine::pubsub::ChannelKind;
use crate::engine::server::Server;

/// The line that describes a client. `asking`: the client asks for its own line, with this many
/// bytes of arguments.
///
/// The fields are in valkey-server's order. Figures of memory are what the connection holds. It has
/// no reply buffer of its own (`rbs`, `rbp`), since replies lie in its worker's memory until they
/// are sent. Behind valkey-server's fields stands the worker that serves the client, by the number
/// that INFO threads calls its `id`, and -1 for the connection to a primary.
pub fn line(server: &Server, info: &ClientInfo, now_ms: i64, asking: Option<usize>) -> String {
    write_line(server, info, now_ms, asking, Shown { is_hidden: false, name_max: usize::MAX })
}

/// The line, without its end, for a log that keeps many: names that the client chose are cut.
pub fn line_to_keep(server: &Server, info: &ClientInfo, now_ms: i64) -> String {
    let shown = Shown { is_hidden: false, name_max: KEPT_NAME_MAX };
    let mut line = write_line(server, info, now_ms, None, shown);
    line.truncate(line.trim_end().len());
    line.shrink_to_fit();
    line
}

/// The line, without its end, for the server's log: `hide-user-data-from-log` keeps names out.
pub fn line_for_log(server: &Server, info: &ClientInfo, now_ms: i64) -> String {
    let is_hidden = server.config.hide_user_data_from_log();
    let shown = Shown { is_hidden, name_max: usize::MAX };
    let mut line = write_line(server, info, now_ms, None, shown);
    line.truncate(line.trim_end().len());
    line
}

/// The beginning of what a client sent, for the server's log: `hide-user-data-from-log` keeps it
/// out.
pub fn input_for_log(server: &Server, input: &[u8]) -> String {
    match server.config.hide_user_data_from_log() {
        true => REDACTED.into(),
        false => input[..input.len().min(INPUT_SHOWN_MAX)].escape_ascii().to_string(),
    }
}

/// How names are shown.
#[derive(Clone, Copy)]
struct Shown {
    /// The client's name and its user's are replaced.
    is_hidden: bool,
    /// How many bytes of a name that the client chose are shown.
    name_max: usize,
}

impl Shown {
    fn name(self, name: &[u8]) -> Cow<'_, str> {
        if self.is_hidden { REDACTED.into() } else { String::from_utf8_lossy(name) }
    }

    /// The beginning of a name that the client chose.
    fn cut(self, name: &[u8]) -> &[u8] {
        &name[..name.len().min(self.name_max)]
    }
}

fn write_line(
    server: &Server,
    info: &ClientInfo,
    now_ms: i64,
    asking: Option<usize>,
    shown: Shown,
) -> String {
    let seconds_since = |then_ms: i64| (now_ms - then_ms).max(0) / 1000;
    let idle_s = asking.map_or_else(|| seconds_since(info.last_ms.load(Relaxed)), |_| 0);
    let argument_bytes = asking.unwrap_or(0);
    let queued_bytes = info.queued_bytes.load(Relaxed);
    let input_bytes = info.input_bytes.load(Relaxed);
    let input_capacity = info.input_capacity.load(Relaxed);
    let output_bytes = info.output_bytes.load(Relaxed);
    let total_bytes = super::memory(info) + argument_bytes;
    let names = info.names().clone();
    let command = server.registry.all().get(info.command.load(Relaxed));
    let is_primary = info.has(ClientFlag::PRIMARY);
    let nobody = if is_primary { b"(superuser)" } else { DEFAULT_USER };
    let user = names.user.as_ref().map_or(nobody, |user| &user.name);
    let worker = if is_primary { -1 } else { info.worker.load(Relaxed) as i64 };
    let mut line = String::with_capacity(LINE_LEN);
    // Writing to a string does not fail.
    writeln!(
        line,
        "id={} addr={} laddr={} fd={} name={} age={} idle={idle_s} flags={} capa={} db={} sub={} \
         psub={} ssub={} multi={} watch={} qbuf={input_bytes} qbuf-free={} argv-mem={argument_bytes} \
         multi-mem={queued_bytes} rbs=0 rbp=0 obl=0 oll={} omem={output_bytes} \
         tot-mem={total_bytes} events={} cmd={} user={} redir={} resp={} lib-name={} \
         lib-ver={} tot-net-in={} tot-net-out={} tot-cmds={} io-thread={}",
        info.id,
        info.peer,
        info.local,
        info.socket,
        shown.name(shown.cut(&names.name)),
        seconds_since(info.created_ms),
        flags(info),
        capabilities(info),
        info.database.load(Relaxed),
        info.subscriptions[ChannelKind::Channel as usize].load(Relaxed),
        info.subscriptions[ChannelKind::Pattern as usize].load(Relaxed),
        info.subscriptions[ChannelKind::Shard as usize].load(Relaxed),
        info.queued.load(Relaxed),
        info.watched.load(Relaxed),
        input_capacity.saturating_sub(input_bytes),
        usize::from(output_bytes > 0),
        if output_bytes > 0 { "rw" } else { "r" },
        command.map_or("NULL", |command| &command.full_name),
        shown.name(user),
        info.redirect.load(Relaxed),
        info.protocol.load(Relaxed),
        String::from_utf8_lossy(shown.cut(&names.library)),
        String::from_utf8_lossy(shown.cut(&names.library_version)),
        info.net_input_bytes.get(),
        info.net_output_bytes.get(),
        info.commands.get(),
        worker,
    ).ok();
    line
}

/// The letters for a client's state; `N` if none applies.
pub fn flags(info: &ClientInfo) -> String {
    let broken = info.redirect_broken.load(Relaxed);
    let is_set = |bit: u32| if bit == BROKEN { broken } else { info.has(bit) };
    let set = FLAGS.iter().filter(|(bit, _)| is_set(*bit));
    let letters: String = set.map(|(_, letter)| *letter).collect();
    let is_ending = info.kill.load(Relaxed);
    match (letters.is_empty(), is_ending) {
        (true, false) => "N".into(),
        (_, true) => letters + "A",
        (false, false) => letters,
    }
}

/// The letters for the capabilities that a client has announced.
pub fn capabilities(info: &ClientInfo) -> &'static str {
    if info.has(ClientFlag::CAPA_REDIRECT) { "r" } else { "" }
}

/// The class of a client for CLIENT LIST TYPE and the output limits. A monitor is a normal client.
pub fn class(info: &ClientInfo) -> ClientClass {
    if info.has(ClientFlag::REPLICA) {
        ClientClass::Replica
    } else if info.has(ClientFlag::PUBSUB) {
        ClientClass::Pubsub
    } else {
        ClientClass::Normal
    }
}

/// The flags in the order in which they are shown.
const FLAGS: [(u32, char); 15] = [
    (ClientFlag::REPLICA, 'S'),
    (ClientFlag::MONITOR, 'O'),
    (ClientFlag::PRIMARY, 'M'),
    (ClientFlag::PUBSUB, 'P'),
    (ClientFlag::MULTI, 'x'),
    (ClientFlag::BLOCKED, 'b'),
    (ClientFlag::TRACKING, 't'),
    (BROKEN, 'R'),
    (ClientFlag::BROADCAST, 'B'),
    (ClientFlag::CLOSE_AFTER_REPLY, 'c'),
    (ClientFlag::UNIX_SOCKET, 'U'),
    (ClientFlag::READONLY, 'r'),
    (ClientFlag::NO_EVICT, 'e'),
    (ClientFlag::NO_TOUCH, 'T'),
    (ClientFlag::IMPORT_SOURCE, 'I'),
];
/// Stands for `redirect_broken`, which other threads set.
const BROKEN: u32 = 0;
/// How many bytes of a client's input the log shows.
const INPUT_SHOWN_MAX: usize = 128;
/// Valkey's word for hidden data.
const REDACTED: &str = "*redacted*";
/// How much of a name is kept in a log of many lines: as much as SLOWLOG keeps.
const KEPT_NAME_MAX: usize = 128;
/// Most lines are shorter than this.
const LINE_LEN: usize = 448;
