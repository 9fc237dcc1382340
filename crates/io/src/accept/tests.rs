//! Tests of listeners with the acceptor, over real sockets.

use super::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, channel};

/// Listens on ports that no process used a moment ago. Another process may take such a port first,
/// so this tries several times.
fn listen_somewhere(bind: &[&str]) -> (Vec<Listener>, u16) {
    listen_with(bind, OPTIONS)
}

fn listen_with(bind: &[&str], options: TcpOptions) -> (Vec<Listener>, u16) {
    for _ in 0..20 {
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        if let Ok(listeners) = Listener::tcp(bind, port, options) {
            return (listeners, port);
        }
    }
    panic!("no free port");
}

fn start(listeners: Vec<Listener>) -> (Acceptor, Receiver<Accepted>) {
    start_with(listeners, || true)
}

fn start_with(
    listeners: Vec<Listener>,
    have_room: impl Fn() -> bool + Send + 'static,
) -> (Acceptor, Receiver<Accepted>) {
    let (sender, receiver) = channel();
    let acceptor = Acceptor::start(listeners, 300, have_room, move |accepted| {
        let _ = sender.send(accepted);
    });
    (acceptor.unwrap(), receiver)
}

fn next(receiver: &Receiver<Accepted>) -> Accepted {
    receiver.recv_timeout(Duration::from_secs(10)).unwrap()
}

/// Waits until nobody listens on a port. A process that another test has just started shares this
/// one's sockets until it executes its program.
fn wait_until_refused(port: u16) {
    let start = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_ok() {
        assert!(start.elapsed() < Duration::from_secs(10), "it still listens");
    }
}

fn has_ipv6() -> bool {
    TcpListener::bind(("::1", 0)).is_ok()
}

fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("bobbin-{}-{name}", std::process::id()))
}

const OPTIONS: TcpOptions = TcpOptions { backlog: 511, multipath: false, mark: 0 };

/// If the system has MultiPath TCP, clients of both kinds can connect; if not, only those of plain
/// TCP.
#[test]
fn multipath_tcp_takes_plain_connections_too() {
    let (listeners, port) = listen_with(&["127.0.0.1"], TcpOptions { multipath: true, ..OPTIONS });
    assert_eq!(listeners.len(), 1);
    TcpStream::connect(("127.0.0.1", port)).unwrap();
}

/// If the process may not set marks, it listens without one.
#[test]
fn a_mark_is_put_on_what_listens() {
    let own = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let may_set = socket2::SockRef::from(&own).set_mark(7).is_ok();
    for (mark, seen) in [(0, 0), (7, if may_set { 7 } else { 0 })] {
        let (listeners, _) = listen_with(&["127.0.0.1"], TcpOptions { mark, ..OPTIONS });
        assert_eq!(socket2::SockRef::from(&listeners[0]).mark().unwrap(), seen);
    }
}

#[test]
fn accepts_on_ipv4_with_its_options() {
    let (listeners, port) = listen_somewhere(&["127.0.0.1"]);
    let (_acceptor, accepted) = start(listeners);
    let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let ours = next(&accepted);
    assert_eq!(ours.peer.to_string(), peer.local_addr().unwrap().to_string());
    assert_eq!(ours.local.to_string(), format!("127.0.0.1:{port}"));
    assert!(ours.is_tcp());
    assert!(sockopt::tcp_nodelay(&ours.socket).unwrap());
    assert!(sockopt::socket_keepalive(&ours.socket).unwrap());
    assert_eq!(sockopt::tcp_keepidle(&ours.socket).unwrap().as_secs(), 300);
    assert_eq!(sockopt::tcp_keepintvl(&ours.socket).unwrap().as_secs(), 100);
    assert_eq!(sockopt::tcp_keepcnt(&ours.socket).unwrap(), 3);
    let mut ours = TcpStream::from(ours.socket);
    assert_eq!(ours.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    ours.write_all(b"hello").unwrap();
    let mut greeting = [0; 5];
    peer.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"hello");
}

#[test]
fn accepts_on_all_addresses_of_both_protocols() {
    if !has_ipv6() {
        return;
    }
    let (listeners, port) = listen_somewhere(&["*", "-::*"]);
    assert_eq!(listeners.len(), 2);
    let (_acceptor, accepted) = start(listeners);
    let _four = TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert!(next(&accepted).peer.to_string().starts_with("127.0.0.1:"));
    let _six = TcpStream::connect(("::1", port)).unwrap();
    let six = next(&accepted);
    assert!(six.peer.to_string().starts_with("[::1]:"));
    assert_eq!(six.local.to_string(), format!("[::1]:{port}"));
}

#[test]
fn accepts_on_a_unix_socket_with_its_permission() {
    let path = temporary("accept.sock");
    std::fs::write(&path, "stale").unwrap();
    let listener = Listener::unix(&path, b"", 0o700, 511).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    let (_acceptor, accepted) = start(vec![listener]);
    let _peer = UnixStream::connect(&path).unwrap();
    let ours = next(&accepted);
    assert_eq!(ours.peer.to_string(), format!("{}:0", path.display()));
    assert_eq!(ours.local, ours.peer);
    assert!(!ours.is_tcp());
    // The name of the socket that was just closed can be used again.
    drop(Listener::unix(&path, b"", 0, 511).unwrap());
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn tells_why_it_cannot_listen() {
    let (_listeners, port) = listen_somewhere(&["127.0.0.1"]);
    let busy = Listener::tcp(&["127.0.0.1"], port, OPTIONS).unwrap_err();
    assert_eq!(busy.to_string(), format!("Failed listening on port {port} (tcp), aborting."));
    let nowhere = Listener::unix(&temporary("no/such/folder"), b"", 0, 511).unwrap_err();
    let unknown = Listener::unix(&temporary("group.sock"), b"no-such-group", 0, 511).unwrap_err();
    std::fs::remove_file(temporary("group.sock")).unwrap();
    let text = "Failed opening Unix socket: getgrnam error for group 'no-such-group': Success";
    assert_eq!(unknown.to_string(), text);
    let text = "Failed opening Unix socket: bind: No such file or directory";
    assert_eq!(nowhere.to_string(), text);
}

#[test]
fn port_zero_and_absent_addresses_are_harmless() {
    assert!(Listener::tcp(&["127.0.0.1"], 0, OPTIONS).unwrap().is_empty());
    // Addresses in 192.0.2.0/24 are reserved for documentation: no machine has one.
    let (listeners, port) = listen_somewhere(&["-192.0.2.1", "127.0.0.1"]);
    assert_eq!(listeners.len(), 1);
    drop(listeners);
    assert!(Listener::tcp(&["192.0.2.1"], port, OPTIONS).is_err());
    assert!(Listener::tcp(&["no.such.name.invalid"], port, OPTIONS).is_err());
}

#[test]
fn changes_its_listeners_while_running() {
    let (listeners, old) = listen_somewhere(&["127.0.0.1"]);
    let (acceptor, accepted) = start(listeners);
    let _peer = TcpStream::connect(("127.0.0.1", old)).unwrap();
    next(&accepted);
    acceptor.remove(Listener::is_tcp);
    wait_until_refused(old);
    // The port is free again at once, though one of its connections is still open.
    let again = Listener::tcp(&["127.0.0.1"], old, OPTIONS).unwrap();
    let (more, new) = listen_somewhere(&["127.0.0.1"]);
    acceptor.add(again).unwrap();
    acceptor.add(more).unwrap();
    assert_eq!(acceptor.addresses().len(), 2);
    for port in [old, new] {
        let _peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
        assert_eq!(next(&accepted).local.port(), port);
    }
    acceptor.change_keepalive(0);
    let _peer = TcpStream::connect(("127.0.0.1", new)).unwrap();
    assert!(!sockopt::socket_keepalive(&next(&accepted).socket).unwrap());
    drop(acceptor);
    wait_until_refused(new);
}

#[test]
fn accepts_a_crowd() {
    let (listeners, port) = listen_somewhere(&["127.0.0.1"]);
    let (_acceptor, accepted) = start(listeners);
    let peers: Vec<_> =
        (0..300).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let mut ports: Vec<_> = peers.iter().map(|_| next(&accepted).peer.port()).collect();
    let mut expected: Vec<_> = peers.iter().map(|peer| peer.local_addr().unwrap().port()).collect();
    ports.sort_unstable();
    expected.sort_unstable();
    assert_eq!(ports, expected);
}

/// What is not accepted stays in the backlog. Nothing has to tell the acceptor that there is room.
#[test]
fn accepts_when_there_is_room_and_little_when_there_is_none_for_long() {
    for asked_for_nothing in [20, usize::MAX] {
        let asked = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&asked);
        let have_room = move || counts.fetch_add(1, Ordering::SeqCst) >= asked_for_nothing;
        let (listeners, port) = listen_somewhere(&["127.0.0.1"]);
        let (_acceptor, accepted) = start_with(listeners, have_room);
        let _peers = [(); 3].map(|()| TcpStream::connect(("127.0.0.1", port)).unwrap());
        next(&accepted);
        let pauses = asked.load(Ordering::SeqCst);
        assert!(pauses > asked_for_nothing.min(ROOM_PAUSES_MAX as usize), "{pauses}");
        next(&accepted);
        next(&accepted);
    }
}

#[test]
fn stops_though_there_is_no_room() {
    let (listeners, port) = listen_somewhere(&["127.0.0.1"]);
    let (asked, asks) = channel();
    let have_room = move || {
        let _ = asked.send(());
        false
    };
    let (acceptor, _accepted) = start_with(listeners, have_room);
    let _peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
    asks.recv_timeout(Duration::from_secs(10)).unwrap();
    acceptor.remove(|_| true);
    drop(acceptor);
}

/// Runs in its own process, so that no other test meets the limit.
#[test]
fn survives_running_out_of_descriptors() {
    let name = "accept::tests::survives_running_out_of_descriptors";
    if std::env::var_os(ALONE).is_none() {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && told.contains("1 passed"), "{told}");
        return;
    }
    let (listeners, port) = listen_somewhere(&["127.0.0.1"]);
    let (acceptor, accepted) = start(listeners);
    let mut peers = Vec::new();
    let mut spare: Vec<OwnedFd> = Vec::new();
    for _ in 0..5 {
        peers.push(TcpStream::connect(("127.0.0.1", port)).unwrap());
        spare.push(next(&accepted).socket);
    }
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let limits = rustix::process::Rlimit { current: Some(64), ..limits };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limits).unwrap();
    peers.push(TcpStream::connect(("127.0.0.1", port)).unwrap());
    spare.push(next(&accepted).socket);
    // The last peer's own socket took the last descriptor.
    let mut fillers = Vec::new();
    while let Ok(filler) = spare[0].try_clone() {
        fillers.push(filler);
    }
    fillers.pop();
    peers.push(TcpStream::connect(("127.0.0.1", port)).unwrap());
    let before = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    assert!(accepted.recv_timeout(Duration::from_millis(300)).is_err());
    let after = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let used_ms =
        (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1_000_000;
    assert!(used_ms < 200, "spun for {used_ms} ms of 300");
    fillers.clear();
    assert_eq!(next(&accepted).peer.port(), peers[6].local_addr().unwrap().port());
    drop(acceptor);
}

const ALONE: &str = "BOBBIN_TEST_ALONE";
