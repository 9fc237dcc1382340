//! The metrics endpoint, over HTTP/1.x on its own port: `/metrics` in a text format for Prometheus,
//! `/` with a page about the server's state, `/status.json` with the data of that page, and
//! `/sign-in` for users who want to see more of it.
//!
//! Two threads serve it. One answers, and never waits for what a worker may hold: it reads atomics,
//! and mutexes that are held only for moments. The other one gathers the figures of the shards, and
//! may have to wait for a stuck worker. Then the earlier figures are shown, with their age.

mod accept;
mod aliases;
mod exposition;
mod figures;
mod http;
mod json;
mod keys;
mod page;
mod request;
mod site;
mod status;
mod text;

/// What the reference is made from.
#[cfg(test)]
pub(crate) use self::{
    aliases::ALIASES,
    exposition::PREFIX,
    text::{FAMILIES, metric_of},
};

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use bobbin_io::{Complaint, error_text};
use rustix::event::{PollFd, PollFlags, poll};

use self::figures::Gatherer;
use self::http::{Exchange, HttpState};
use self::page::MetricsPage;
use self::site::{Answers, Resource, Site};
use crate::config::OptionId;
use crate::engine::acl::check::Reason;
use crate::engine::acl::log::{AclEvent, Scene};
use crate::engine::server::Server;

/// The most connections at a time. A further connection closes the oldest one. A peer that sends
/// its request at once and reads the answer is done long before, even if many others are slow or
/// silent.
const PEERS_MAX: usize = 16;
/// How long an exchange may take, from the connection to the last byte.
const EXCHANGE_MAX: Duration = Duration::from_secs(5);

struct MetricsPeer {
    stream: TcpStream,
    exchange: Exchange,
    until: Instant,
}

/// Starts to serve metrics if `metrics-port` is set.
pub fn start_metrics(server: &'static Server) -> Result<(), String> {
    let port = server.config.metrics_port() as u16;
    if port == 0 {
        return Ok(());
    }
    let listeners = listeners(&server.config.words_of(OptionId::metrics_bind), port)?;
    let gatherer = Gatherer::start(server)?;
    let page = MetricsPage::new();
    let policy = page.policy.clone();
    let run = move || {
        let is_known = |name: &str| {
            let words_of = |option| server.config.words_of(option);
            is_host(name, &words_of(OptionId::metrics_hosts), &words_of(OptionId::metrics_bind))
        };
        // The page shows what a user with all rights could read by commands.
        let admits = |user: &[u8], password: &[u8]| {
            let found = server.acl.log_in(user, password);
            let is_admitted =
                found.is_some_and(|user| user.is_unlimited() && !user.has_no_password());
            if !is_admitted {
                let event = AclEvent::new(Reason::Password, Scene::Toplevel, b"sign-in", user);
                server.note_denied_to("name=metrics-port".to_owned(), event, server.clock.now_ms());
            }
            is_admitted
        };
        let body = |resource, trust| match resource {
            Resource::Page => page.with(&status::overview(server, &gatherer)).into(),
            Resource::Status => status::write(server, &gatherer, trust).into(),
            Resource::Metrics(format) => text::write(server, &gatherer, format).into(),
            Resource::SignIn => "".into(),
        };
        serve(&listeners, &Site { is_known, admits, policy, body });
    };
    let spawned = std::thread::Builder::new().name("bobbin-metrics".into()).spawn(run);
    spawned
        .map(drop)
        .map_err(|error| format!("Can't start the thread of metrics: {}", error_text(&error)))
}

/// Whether a browser may use this name for the server. Listening on all addresses makes no name
/// known.
fn is_host(name: &str, hosts: &[String], bound: &[String]) -> bool {
    let bound = bound.iter().map(|address| address.strip_prefix('-').unwrap_or(address));
    let mut known = hosts.iter().map(String::as_str).chain(bound);
    hosts.iter().any(|host| host == "*") || known.any(|known| known.eq_ignore_ascii_case(name))
}

/// Binds all addresses. An address with a leading `-` may be missing.
fn listeners(addresses: &[String], port: u16) -> Result<Vec<TcpListener>, String> {
    let mut listeners = Vec::new();
    for address in addresses {
        let (optional, host) = match address.strip_prefix('-') {
            Some(host) => (true, host),
            None => (false, address.as_str()),
        };
        match listen(host, port) {
            Ok(listener) => listeners.push(listener),
            Err(_) if optional => {}
            Err(error) => {
                return Err(format!(
                    "Can't serve metrics on {host}:{port}: {}",
                    error_text(&error)
                ));
            }
        }
    }
    if listeners.is_empty() {
        return Err(format!("None of metrics-bind's addresses is there, for port {port}"));
    }
    Ok(listeners)
}

fn listen(host: &str, port: u16) -> std::io::Result<TcpListener> {
    let host = match host {
        "*" => "0.0.0.0",
        "::*" => "::",
        host => host,
    };
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    let listener = TcpListener::bind(&addresses[..])?;
    listener.set_nonblocking(true)?;
    log::info!("Metrics are served on http://{}/metrics", listener.local_addr()?);
    Ok(listener)
}

/// Serves peers for ever.
fn serve(listeners: &[TcpListener], site: &impl Answers) {
    // The oldest first.
    let mut peers: Vec<MetricsPeer> = Vec::new();
    let mut complaint = Complaint::default();
    loop {
        wait(listeners, &peers);
        accept(listeners, &mut peers, &mut complaint);
        let now = Instant::now();
        peers.retain_mut(|peer| {
            now < peer.until && peer.exchange.go_on(&mut peer.stream, site) != HttpState::Done
        });
        peers.drain(..peers.len().saturating_sub(PEERS_MAX));
    }
}

/// Sleeps until a peer or a listener is ready, or a peer's time is over.
fn wait(listeners: &[TcpListener], peers: &[MetricsPeer]) {
    let accepting = listeners.iter().map(|listener| (listener.as_fd(), PollFlags::IN));
    let served = peers.iter().map(|peer| {
        let sends = peer.exchange.state() == HttpState::Sending;
        (peer.stream.as_fd(), if sends { PollFlags::OUT } else { PollFlags::IN })
    });
    let all = accepting.chain(served);
    let mut all: Vec<PollFd<'_>> =
        all.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)).collect();
    let left = peers.iter().map(|peer| peer.until.saturating_duration_since(Instant::now())).min();
    // Rounded up, so that it does not end just before the time.
    let timeout = left.map(|left| rustix::event::Timespec {
        tv_sec: left.as_secs() as i64,
        tv_nsec: i64::from(left.subsec_nanos()),
    });
    if poll(&mut all, timeout.as_ref()).is_err() {
        // Interrupted, or out of memory: try again soon.
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn accept(listeners: &[TcpListener], peers: &mut Vec<MetricsPeer>, complaint: &mut Complaint) {
    for listener in listeners {
        // Several new peers are all accepted before the oldest have to go.
        for _ in 0..PEERS_MAX {
            match listener.accept() {
                Ok((stream, peer)) => {
                    if stream.set_nonblocking(true).is_ok() {
                        let until = Instant::now() + EXCHANGE_MAX;
                        let exchange = Exchange::with(peer.ip());
                        peers.push(MetricsPeer { stream, exchange, until });
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => {
                    complaint.say("Accepting a connection for metrics", &error);
                    std::thread::sleep(Duration::from_millis(100));
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_listen_everywhere_makes_no_name_known() {
        let words =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let is_known = |name: &str, hosts: &[&str], bound: &[&str]| {
            is_host(name, &words(hosts), &words(bound))
        };
        assert!(!is_known("evil.example", &[], &["*", "-::*"]));
        assert!(!is_known("*", &["a"], &["127.0.0.1"]));
        assert!(is_known("evil.example", &["*"], &["127.0.0.1"]));
        assert!(is_known("DB7.internal", &["db7.internal"], &["*"]));
        assert!(is_known("db7", &[], &["127.0.0.1", "-db7"]));
    }
}
