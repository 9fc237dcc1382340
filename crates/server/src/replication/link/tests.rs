//! What a link may do to the server once the server's role has changed.

use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;

use super::machine::{GiveUp, LinkEvent};
use super::session::Session;
use super::wire::Wire;
use super::{Helpers, Link, LinkState};
use crate::config::{Config, OptionId};
use crate::engine::server::{Server, Switch};
use crate::persistence::aof::replay::Replay;
use crate::replication::Replication;
use crate::simulation::tasks;

/// A server, and a link to a primary that nobody runs.
fn server_and_link() -> (&'static Server, Arc<Link>) {
    tasks::begin();
    let server = crate::process::create(Config::new(), &[]).expect("a server can be made");
    let link = Link::start(server, "primary".into(), 1, channel().1).expect("it starts");
    (server, link)
}

/// A session, and the primary's end of its connection.
fn session<'a>(
    server: &'static Server,
    link: &'a Link,
    at_hand: (&'a mut Replay, &'a mut Helpers),
) -> (Session<'a>, TcpStream) {
    let (wire, primary) = connection();
    (Session::new(server, link, at_hand, wire, false), primary)
}

/// A connection to a primary, and the primary's end of it.
fn connection() -> (Wire, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let address = listener.local_addr().expect("it has an address");
    let wire = Wire::Plain(TcpStream::connect(address).expect("it listens"));
    (wire, listener.accept().expect("it was connected to").0)
}

/// Has a session receive these bytes from its primary.
fn hear(session: &mut Session<'_>, said: &[u8]) {
    session.machine.room(said.len())[..said.len()].copy_from_slice(said);
    session.machine.received(said.len(), 0);
}

/// The primary's answer has come, but the server is promoted before it handles the answer.
#[test]
fn a_server_that_leads_gets_no_name_of_a_primary() {
    let (server, link) = server_and_link();
    let mut replay = Replay::following(server).expect("there are threads for all");
    let mut helpers = Helpers::start(server);
    server.feed.begin(0);
    server.feed.relay(true);
    let id = server.feed.id();
    for is_over in [true, false] {
        link.is_over.store(is_over, Ordering::SeqCst);
        let (mut session, primary) = session(server, &link, (&mut replay, &mut helpers));
        let answers = format!("{GREETING}+CONTINUE {}\r\n", "a".repeat(40));
        hear(&mut session, answers.as_bytes());
        drop(primary);
        assert!(session.follow().is_err(), "it comes to an end");
        assert_eq!(server.feed.id() == id, is_over, "{}", server.feed.id());
    }
}

/// After a failed copy the old data is gone, so nobody may continue from it at the same offset.
#[test]
fn after_a_copy_that_broke_nobody_goes_on_with_what_was_there() {
    let (server, link) = server_and_link();
    let mut replay = Replay::following(server).expect("there are threads for all");
    let mut helpers = Helpers::start(server);
    *Replication::of(server).link.lock() = Some(Arc::clone(&link));
    server.config.set_internally(OptionId::repl_diskless_load, "flush-before-load").unwrap();
    server.feed.begin(100);
    server.feed.relay(true);
    let id = server.feed.id();
    let (mut session, primary) = session(server, &link, (&mut replay, &mut helpers));
    let copy = b"REDIS0011\xfe\x00\x99, which is no key";
    let head = format!("+FULLRESYNC {} 5000\r\n${}\r\n", "a".repeat(40), copy.len());
    hear(&mut session, &[GREETING.as_bytes(), head.as_bytes(), copy].concat());
    assert!(session.follow().is_err(), "it is no copy");
    assert!(!server.feed.is_on());
    drop(primary);
    Replication::of(server).lead(server);
    let offset = server.feed.published();
    assert!(!server.feed.history().holds(id.as_str().as_bytes(), offset));
}

/// A primary closes the connection of a copy as soon as it has sent all of it.
#[test]
fn a_copy_may_be_over_before_the_stream_is_sure_to_come() {
    let (server, link) = server_and_link();
    let mut replay = Replay::following(server).expect("there are threads for all");
    let mut helpers = Helpers::start(server);
    server.config.set_internally(OptionId::dual_channel_replication_enabled, "yes").unwrap();
    let copy = format!("+OK\r\n$ENDOFF:12 {} 0 7\r\n$4\r\nkeys", "a".repeat(40));
    for len in [copy.len() - 1, copy.len()] {
        let (mut session, mut primary) = session(server, &link, (&mut replay, &mut helpers));
        hear(&mut session, format!("{GREETING}+DUALCHANNELSYNC\r\n").as_bytes());
        assert_eq!(session.machine.next_event(), Ok(LinkEvent::WantsChannel));
        let (wire, mut channel) = connection();
        session.fetch_by(wire);
        channel.write_all(&copy.as_bytes()[..len]).expect("it is connected");
        channel.shutdown(Shutdown::Write).expect("it is connected");
        let mut next = || {
            let event = session.machine.next_event();
            if event == Ok(LinkEvent::Nothing) {
                session.receive()?;
                return Ok(None);
            }
            event.map(|event| Some(format!("{event:?}")))
        };
        let events: Result<Vec<_>, GiveUp> = (0..10).map(|_| next()).collect();
        let is_whole = len == copy.len();
        assert_eq!(events.is_ok(), is_whole, "{events:?}");
        if is_whole {
            primary.write_all(b"+OK\r\n+CONTINUE\r\n").expect("it is connected");
            while next() != Ok(Some("CopyEnds".to_owned())) {}
        }
    }
}

/// A link's state counts only while the link is the server's current one.
#[test]
fn a_server_is_not_up_by_a_link_of_before() {
    let (server, link) = server_and_link();
    server.switches.set(Switch::LINK_DOWN, true);
    link.set_state(server, LinkState::Connected);
    assert!(server.switches.load() & Switch::LINK_DOWN != 0);
}

/// What a primary answers before it is asked for the stream.
const GREETING: &str = "+PONG\r\n+OK\r\n+OK\r\n+OK\r\n";
