//! What a link may do to the server once the server has another part.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;

use super::session::Session;
use super::wire::Wire;
use super::{Helpers, Link, LinkState};
use crate::config::Config;
use crate::engine::server::{Server, Switch};
use crate::persistence::aof::replay::Replay;
use crate::simulation::tasks;

/// A server, and a link to a primary that nobody runs.
fn server_and_link() -> (&'static Server, Arc<Link>) {
    tasks::begin();
    let server = crate::process::create(Config::new(), &[]).expect("a server can be made");
    let link = Link::start(server, "primary".into(), 1, channel().1).expect("it starts");
    (server, link)
}

/// The answer of the primary has come, and the server is promoted before it is looked at.
#[test]
fn a_server_that_leads_gets_no_name_of_a_primary() {
    let (server, link) = server_and_link();
    let mut replay = Replay::following(server).expect("there are threads for all");
    let mut helpers = Helpers::start(server);
    server.feed.begin(0);
    server.feed.relay(true);
    let id = server.feed.id();
    for is_over in [true, false] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let address = listener.local_addr().expect("it has an address");
        let wire = Wire::Plain(TcpStream::connect(address).expect("it listens"));
        link.is_over.store(is_over, Ordering::SeqCst);
        let mut session = Session::new(server, &link, (&mut replay, &mut helpers), wire, false);
        let answers =
            format!("+PONG\r\n{}+CONTINUE {}\r\n", "+OK\r\n".repeat(OPTIONS), "a".repeat(40));
        session.machine.room(answers.len())[..answers.len()].copy_from_slice(answers.as_bytes());
        session.machine.received(answers.len(), 0);
        drop(listener);
        assert!(session.follow().is_err(), "it comes to an end");
        assert_eq!(server.feed.id() == id, is_over, "{}", server.feed.id());
    }
}

/// What a link says of itself counts only as long as it is the server's.
#[test]
fn a_server_is_not_up_by_a_link_of_before() {
    let (server, link) = server_and_link();
    server.switches.set(Switch::LINK_DOWN, true);
    link.set_state(server, LinkState::Connected);
    assert!(server.switches.load() & Switch::LINK_DOWN != 0);
}

/// What the link says of itself before it asks for the stream.
const OPTIONS: usize = 3;
