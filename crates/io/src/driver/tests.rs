//! The same tests for every driver, over pairs of sockets: they check what the trait promises.

use super::*;
use crate::receive::{Received, receive_into};
use rustix::io::Errno;
use std::io::{IoSlice, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Runs every test with a driver of `$kind`, if that kind works here.
macro_rules! suite {
    ($module:ident, $kind:expr, $($test:ident),* $(,)?) => {
        mod $module {
            $(
                #[test]
                fn $test() {
                    match $kind.check() {
                        Ok(()) => super::$test(crate::AnyDriver::new($kind).unwrap()),
                        Err(error) => println!("skipped: {error}"),
                    }
                }
            )*
        }
    };
    ($($module:ident: $kind:expr;)*) => {
        $(suite!($module, $kind,
            answers_a_request,
            answers_many_connections,
            tells_a_short_send,
            tells_two_thousand_short_sends,
            tells_a_failed_send,
            sends_parts_as_one,
            tells_when_the_peer_closes,
            keeps_the_end_behind_the_data,
            tells_of_room_behind_the_end,
            tells_nothing_after_remove,
            keeps_generations_apart,
            holds_data_back_while_paused,
            tells_what_it_held_before_what_comes_later,
            tells_of_a_broken_connection_while_paused,
            receives_directly,
            hands_a_connection_over_without_loss,
            hands_over_what_it_held,
            what_leaves_is_not_called_back,
            speaks_tcp_and_tells_a_reset,
            wakes_from_another_thread,
            times_out,
            sleeps_over_whole_sends,
            serves_more_than_its_buffers,
            serves_two_thousand,
        );)*
    };
}

suite! {
    epoll: crate::DriverKind::Epoll;
    io_uring: crate::DriverKind::Uring;
}

#[test]
fn the_kinds_work_and_tell_their_names() {
    let (best, reason) = DriverKind::best();
    assert_eq!(best == DriverKind::Uring, reason.is_none());
    for kind in [DriverKind::Epoll, best] {
        kind.check().unwrap();
        let mut bench = Bench::new(AnyDriver::new(kind).unwrap());
        assert_eq!(bench.driver.name(), kind.name());
        let (token, mut peer) = bench.connect();
        peer.write_all(b"any").unwrap();
        assert_eq!(bench.receive(token, 3), b"any");
    }
}

/// A driver whose connections are the one ends of socket pairs. The tests have the other ends.
struct Bench<D> {
    driver: D,
    ends: Vec<(Token, Rc<UnixStream>)>,
    events: Vec<Event>,
}

impl<D: Driver> Bench<D> {
    fn new(driver: D) -> Self {
        Self { driver, ends: Vec::new(), events: Vec::new() }
    }

    fn connect(&mut self) -> (Token, UnixStream) {
        let (ours, peer) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let token = Token::new(self.ends.len() as u32, 7);
        // SAFETY: `ends` keeps the socket open. Tests that close it remove it from the driver
        // first.
        unsafe { self.driver.add(token, ours.as_fd()).unwrap() };
        self.ends.push((token, Rc::new(ours)));
        (token, peer)
    }

    fn socket(&self, token: Token) -> Rc<UnixStream> {
        Rc::clone(&self.ends[token.slot() as usize].1)
    }

    fn send(&mut self, token: Token, bytes: &'static [u8]) {
        let socket = self.socket(token);
        // SAFETY: static bytes stay in place.
        unsafe { self.driver.send(token, socket.as_fd(), bytes.as_ptr(), bytes.len()) };
    }

    fn wait(&mut self, timeout_ms: u64) -> &mut Vec<Event> {
        self.driver.wait(Some(Duration::from_millis(timeout_ms)), &mut self.events).unwrap();
        &mut self.events
    }

    /// Waits, for as many batches as necessary, until `found` returns true. Fails after ten
    /// seconds.
    fn until(&mut self, mut found: impl FnMut(&Event) -> bool) {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < Duration::from_secs(10), "no such event");
            let mut enough = false;
            for event in self.wait(100).iter() {
                enough |= found(event);
            }
            if enough {
                return;
            }
        }
    }

    fn receive(&mut self, token: Token, len: usize) -> Vec<u8> {
        let mut received = Vec::new();
        self.until(|event| {
            received.extend(data_of(event, token));
            received.len() >= len
        });
        received
    }

    /// The result of the only send. It was short, so the wait must not sleep.
    fn result_of_send(&mut self) -> usize {
        let start = Instant::now();
        let patience = Duration::from_secs(60);
        self.driver.wait(Some(patience), &mut self.events).unwrap();
        assert!(start.elapsed() < patience, "slept over a short send");
        match self.events[..] {
            [Event::Sent { result, .. }] => result.unwrap(),
            _ => panic!("not in the next batch: {:?}", self.events),
        }
    }

    /// Shows `see` the events of a short time. For tests that expect none.
    fn for_a_while(&mut self, mut see: impl FnMut(&Event)) {
        for _ in 0..3 {
            self.wait(5).iter().for_each(&mut see);
        }
    }
}

fn data_of(event: &Event, of: Token) -> &[u8] {
    match event {
        // SAFETY: the bench copies the bytes before its next wait.
        Event::Data { token, bytes } if *token == of => unsafe { bytes.as_slice() },
        _ => &[],
    }
}

fn answers_a_request(driver: impl Driver) {
    let mut bench = Bench::new(driver);
    let (token, mut peer) = bench.connect();
    for _ in 0..100 {
        peer.write_all(b"PING").unwrap();
        assert_eq!(bench.receive(token, 4), b"PING");
        bench.send(token, b"PONG!");
        let mut sent = None;
        bench.driver.wait(Some(Duration::ZERO), &mut bench.events).unwrap();
        for event in &bench.events {
            if let Event::Sent { token: of, result } = event {
                assert_eq!(*of, token);
                sent = Some(*result);
            }
        }
        assert_eq!(sent, Some(Ok(5)));
        let mut reply = [0; 5];
        peer.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"PONG!");
    }
}

fn answers_many_connections(driver: impl Driver) {
    serve_rounds(driver, 100, 20);
}

fn serves_more_than_its_buffers(driver: impl Driver) {
    // The bytes of every peer need more buffers than a driver has for one turn.
    let mut bench = Bench::new(driver);
    let mut peers: Vec<_> = (0..150).map(|_| bench.connect()).collect();
    let block: Vec<u8> = (0..100_000u32).map(|at| at as u8).collect();
    for (_, peer) in &mut peers {
        peer.write_all(&block).unwrap();
    }
    let mut received = vec![Vec::new(); peers.len()];
    let mut total = 0;
    bench.until(|event| {
        if let Event::Data { token, .. } = event {
            let bytes = data_of(event, *token);
            total += bytes.len();
            received[token.slot() as usize].extend_from_slice(bytes);
        }
        total >= block.len() * peers.len()
    });
    assert!(received.iter().all(|bytes| *bytes == block));
}

fn serves_two_thousand(driver: impl Driver) {
    serve_rounds(driver, 2000, 3);
}

/// All peers send a request at once, and each gets its own answer.
fn serve_rounds(driver: impl Driver, peers: usize, rounds: usize) {
    let mut bench = Bench::new(driver);
    let mut peers: Vec<_> = (0..peers).map(|_| bench.connect()).collect();
    for round in 0..rounds {
        for (token, peer) in &mut peers {
            let request = [token.slot().to_le_bytes(), (round as u32).to_le_bytes()].concat();
            peer.write_all(&request).unwrap();
        }
        let mut answered = 0;
        let mut sent = 0;
        while sent < peers.len() {
            bench.wait(1000);
            let events = std::mem::take(&mut bench.events);
            let mut replies = Vec::new();
            for event in &events {
                match event {
                    Event::Data { token, .. } => replies.push((*token, data_of(event, *token))),
                    Event::Sent { result, .. } => {
                        assert_eq!(*result, Ok(8));
                        sent += 1;
                    }
                    other => panic!("unexpected {other:?}"),
                }
            }
            // The request itself is the reply: it stays in place until the next wait, as a reply
            // must.
            for (token, bytes) in replies {
                assert_eq!(bytes.len(), 8);
                let socket = bench.socket(token);
                // The driver might reuse a batch's bytes while it sends them. So they are copied to
                // memory that is never freed.
                let kept: &'static [u8] = bytes.to_vec().leak();
                // SAFETY: leaked bytes are never freed.
                unsafe { bench.driver.send(token, socket.as_fd(), kept.as_ptr(), kept.len()) };
                answered += 1;
            }
            if answered == peers.len() {
                bench.driver.wait(Some(Duration::ZERO), &mut bench.events).unwrap();
                sent += bench
                    .events
                    .iter()
                    .filter(|event| matches!(event, Event::Sent { result: Ok(8), .. }))
                    .count();
            }
        }
        for (token, peer) in &mut peers {
            let mut reply = [0; 8];
            peer.read_exact(&mut reply).unwrap();
            assert_eq!(reply[..4], token.slot().to_le_bytes());
            assert_eq!(reply[4..], (round as u32).to_le_bytes());
        }
    }
}

fn tells_two_thousand_short_sends(driver: impl Driver) {
    let mut bench = Bench::new(driver);
    let peers: Vec<_> = (0..2000).map(|_| bench.connect()).collect();
    let block: &'static [u8] = vec![0; 1 << 20].leak();
    let mut short = Vec::new();
    for (token, _) in &peers {
        let socket = bench.socket(*token);
        rustix::net::sockopt::set_socket_send_buffer_size(&*socket, 4096).unwrap();
        short.push(*token);
    }
    for round in 0..3 {
        for (token, _) in &peers {
            bench.send(*token, block);
        }
        bench.driver.wait(Some(Duration::ZERO), &mut bench.events).unwrap();
        let mut told = Vec::new();
        for event in &bench.events {
            let Event::Sent { token, result } = event else { panic!("unexpected {event:?}") };
            let taken = result.unwrap();
            assert!(taken < block.len() && (taken > 0) == (round == 0), "{taken} of {token:?}");
            told.push(*token);
        }
        assert_eq!(told, short, "in round {round}");
    }
}

fn tells_a_short_send(driver: impl Driver) {
    let mut bench = Bench::new(driver);
    let (token, mut peer) = bench.connect();
    let socket = bench.socket(token);
    rustix::net::sockopt::set_socket_send_buffer_size(&*socket, 4096).unwrap();
    let block: Vec<u8> = (0..1_000_000u32).map(|at| (at / 7) as u8).collect();
    let mut offset = 0;
    let mut received = Vec::new();
    for round in 0..6 {
        let rest = &block[offset..];
        if round % 2 == 0 {
            // SAFETY: `block` outlives the loop.
            unsafe { bench.driver.send(token, socket.as_fd(), rest.as_ptr(), rest.len()) };
        } else {
            let parts: Vec<_> = rest.chunks(1000).map(IoSlice::new).collect();
            // SAFETY: the parts refer to `block`, which outlives the loop.
            unsafe { bench.driver.send_vectored(token, socket.as_fd(), &parts) };
        }
        let taken = bench.result_of_send();
        assert!(taken > 0 && taken < rest.len());
        offset += taken;
        // The full socket takes nothing at all.
        bench.send(token, b"no room");
        assert_eq!(bench.result_of_send(), 0);
        bench.driver.notify_writable(token, socket.as_fd());
        bench.for_a_while(|event| panic!("no room, and yet told {event:?}"));
        while received.len() < offset {
            let mut part = vec![0; offset - received.len()];
            let len = peer.read(&mut part).unwrap();
            received.extend_from_slice(&part[..len]);
        }
        bench.until(|event| matches!(event, Event::Writable { .. }));
        bench.for_a_while(|event| panic!("told twice: {event:?}"));
    }
    assert!(received == block[..offset]);
}

fn tells_a_failed_send(driver: impl Driver) {
    let mut bench = Bench::new(driver);
    let (token, peer) = bench.connect();
    drop(peer);
    bench.until(|event| matches!(event, Event::Closed { error: None, .. }));
    bench.send(token, b"too late");
    let mut result = None;
    bench.until(|event| match event {
        Event::Sent { result: of, .. } => {
            result = Some(*of);
            true
        }
        _ => false,
    });
    assert_eq!(result, Some(Err(Errno::PIPE)));
}

fn sends_parts_as_one(driver: impl Driver) {
    let mut bench = Bench::new(driver);
    let (token, mut peer) = bench.connect();
    let socket = bench.socket(token);
    let numbers: Vec<String> = (0..PARTS_MAX + 10).map(|number| format!("{number},")).collect();
    let parts: Vec<_> = numbers.iter().map(|text| IoSlice::new(text.as_bytes())).collect();
    // SAFETY: `numbers` outlives the wait below.
    unsafe { bench.driver.send_vectored(token, socket.as_fd(), &parts) };
    drop(parts);
    let whole = numbers[..PARTS_MAX].concat();
    bench.until(|event| match event {
        Event::Sent { result, .. } => {
            assert_eq!(*result, Ok(whole.len()));
            true
        }
        _ => false,
    });
    let mut received = vec![0; whole.len()];
    peer.read_exact(&mut received).unwrap();
    assert_eq!(received, whole.as_bytes());
}

fn tells_when_the_peer_closes(driver: impl Driver) {
    let mut bench = Bench::new(driver);
    let (token, peer) = bench.connect();
    let (_, _other) = bench.connect();
    drop(peer);
    bench.until(|event| match event {
        Event::Closed { token: of, error } => {
            assert_eq!((*of, *error), (token, None));
            true
        }
        _ => false,
    });
    bench.for_a_while(|event| panic!("told again: {event:?}"));
    let socket = bench.socket(token);
    bench.driver.remove(token, socket.as_fd());
    bench.for_a_while(|event| panic!("after remove: {event:?}"));
}

fn keeps_the_end_behind_the_data(driver: impl Driver) {
    let mut bench = Bench::new(driver);
    let (token, mut peer) = bench.connect();
    bench.wait(0);
    peer.write_all(b"last words").unwrap();
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(bench.receive(token, 10), b"last words");
    assert!(!bench.events.iter().any(|event| matches!(event, Event::Closed { .. })));
    bench.send(token, b"answer");
    bench.until(|event| matches!(event, Event::Closed { error: None, .. }));
    let mut reply = [0; 6];
    peer.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"answer");
}

fn tells_of_room_behind_the_end(driver: impl Driver) {
    let mut bench = Bench::new(driver);
    let (token, mut peer) = bench.connect();
    let socket = bench.socket(token);
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    bench.until(|event| matches!(event, Event::Closed { error: None, .. }));
    static BLOCK: [u8; 1 << 20] = [b'x'; 1 << 20];
    rustix::net::sockopt::set_socket_send_buffer_size(&*socket, 4096).unwrap();
    let mut offset = 0;
    loop {
        bench.send(token, &BLOCK);
        match bench.result_of_send() {
            0 => break,
            sent => offset += sent,
        }
    }
    bench.driver.notify_writable(token, socket.as_fd());
    bench.for_a_while(|event| panic!("no room, and yet told {event:?}"));
    let mut received = vec![0; offset];
    peer.read_exact(&mut received).unwrap();
    bench.until(|event| matches!(event, Event::Writable { .. }));
    bench.for_a_while(|event| panic!("told twice: {event:?}"));
    drop(peer);
    bench.driver.remove(token, socket.as_fd());
    bench.for_a_while(|event| panic!("after remove: {event:?}"));
}

fn tells_nothing_after_remove(driver: impl Driver) {
    let mut bench = Bench::new(driver);
    let (token, mut peer) = bench.connect();
    let (other, mut other_peer) = bench.connect();
    for round in 0..50 {
        peer.write_all(b"noise").unwrap();
        other_peer.write_all(b"signal").unwrap();
        if round == 25 {
            let socket = bench.socket(token);
            bench.driver.pause(token, socket.as_fd());
            bench.send(token, b"dropped");
            bench.driver.notify_writable(token, socket.as_fd());
            bench.driver.remove(token, socket.as_fd());
        }
        let mut signal = 0;
        bench.until(|event| {
            signal += data_of(event, other).len();
            assert!(round < 25 || data_of(event, token).is_empty());
            assert!(!matches!(event, Event::Sent { .. } | Event::Writable { .. }), "{event:?}");
            signal >= 6
        });
    }
    // The driver does not keep the socket open: closing our end ends the connection.
    bench.ends[0].1 = Rc::new(UnixStream::pair().unwrap().0);
    bench.wait(0);
    peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut rest = Vec::new();
    let end = peer.read_to_end(&mut rest);
    assert!(end.is_ok() || end.unwrap_err().raw_os_error() == Some(104), "still open");
}

fn keeps_generations_apart(driver: impl Driver) {
    let mut bench = Bench::new(driver);
    let (old, mut old_peer) = bench.connect();
    bench.wait(0);
    old_peer.write_all(b"old").unwrap();
    let socket = bench.socket(old);
    bench.driver.remove(old, socket.as_fd());
    let (ours, mut peer) = UnixStream::pair().unwrap();
    let new = Token::new(old.slot(), old.generation() + 1);
    assert_ne!(old, new);
    // SAFETY: `ours` lives to the end of the test.
    unsafe { bench.driver.add(new, ours.as_fd()).unwrap() };
    peer.write_all(b"new").unwrap();
    let mut received = Vec::new();
    bench.until(|event| {
        assert!(data_of(event, old).is_empty());
        received.extend_from_slice(data_of(event, new));
        received.len() >= 3
    });
    assert_eq!(received, b"new");
}

fn holds_data_back_while_paused(driver: impl Driver) {
    let mut bench = Bench::new(driver);
    let (token, mut peer) = bench.connect();
    let socket = bench.socket(token);
    let mut expected = Vec::new();
    let mut received = Vec::new();
    for round in 0..20u8 {
        let block = vec![round; 30_000];
        expected.extend_from_slice(&block);
        bench.wait(0).iter().for_each(|event| received.extend_from_slice(data_of(event, token)));
        peer.write_all(&block).unwrap();
        bench.driver.pause(token, socket.as_fd());
        bench.for_a_while(|event| panic!("paused: {event:?}"));
        bench.driver.resume(token, socket.as_fd());
        if round % 2 == 0 {
            // Paused and resumed again before anything could come.
            bench.driver.pause(token, socket.as_fd());
            bench.driver.resume(token, socket.as_fd());
        }
        bench.until(|event| {
            received.extend_from_slice(data_of(event, token));
            received.len() >= expected.len()
        });
        assert!(received == expected, "round {round}");
    }
}

/// This also holds while there is more to settle than one turn does.
fn tells_what_it_held_before_what_comes_later(driver: impl Driver) {
    let mut bench = Bench::new(driver);
    let (token, mut peer) = bench.connect();
    let socket = bench.socket(token);
    bench.for_a_while(|event| panic!("nothing was sent: {event:?}"));
    let others: Vec<_> = (0..1000).map(|_| bench.connect()).collect();
    bench.driver.pause(token, socket.as_fd());
    peer.write_all(b"a").unwrap();
    assert!(bench.wait(5).is_empty(), "it is paused");
    bench.driver.resume(token, socket.as_fd());
    peer.write_all(b"b").unwrap();
    drop(peer);
    let mut received = Vec::new();
    bench.until(|event| {
        received.extend_from_slice(data_of(event, token));
        matches!(event, Event::Closed { token: closed, .. } if *closed == token)
    });
    assert_eq!(received, b"ab");
    drop(others);
}

fn tells_of_a_broken_connection_while_paused(driver: impl Driver) {
    let mut bench = Bench::new(driver);
    let (token, mut peer) = bench.connect();
    let socket = bench.socket(token);
    bench.wait(0);
    peer.write_all(b"unheard").unwrap();
    bench.driver.pause(token, socket.as_fd());
    bench.for_a_while(|event| panic!("paused: {event:?}"));
    drop(peer);
    bench.until(|event| matches!(event, Event::Closed { token: of, .. } if *of == token));
    bench.driver.resume(token, socket.as_fd());
    bench.for_a_while(|event| panic!("after the end: {event:?}"));
}

fn receives_directly(driver: impl Driver) {
    let mut bench = Bench::new(driver);
    let (token, mut peer) = bench.connect();
    let socket = bench.socket(token);
    let block: Vec<u8> = (0..8_000_000u32).map(|at| (at / 11) as u8).collect();
    let expected = block.clone();
    let writer = std::thread::spawn(move || {
        peer.write_all(&block).unwrap();
        peer
    });
    let mut received = bench.receive(token, 1);
    bench.driver.direct(token, socket.as_fd());
    let mut direct = 0;
    while received.len() < expected.len() {
        bench.wait(1000);
        for event in std::mem::take(&mut bench.events) {
            match event {
                Event::Data { .. } => {
                    assert_eq!(direct, 0, "data of the driver after direct data");
                    received.extend_from_slice(data_of(&event, token));
                }
                Event::Readable { token: of } => {
                    assert_eq!(of, token);
                    if let Received::Bytes(len) =
                        receive_into(socket.as_fd(), &mut received, 1 << 20).unwrap()
                    {
                        direct += len;
                    }
                }
                other => panic!("unexpected {other:?}"),
            }
        }
    }
    assert!(received == expected);
    assert!(direct > expected.len() / 2);
    bench.for_a_while(|event| assert!(!matches!(event, Event::Data { .. })));
    bench.driver.resume(token, socket.as_fd());
    let mut peer = writer.join().unwrap();
    peer.write_all(b"small again").unwrap();
    assert_eq!(bench.receive(token, 11), b"small again");
    bench.driver.direct(token, socket.as_fd());
    drop(peer);
    // The driver may see the end before the worker does.
    bench.until(|event| match event {
        Event::Readable { .. } => {
            assert_eq!(receive_into(socket.as_fd(), &mut received, 100), Ok(Received::End));
            true
        }
        _ => matches!(event, Event::Closed { error: None, .. }),
    });
}

fn hands_a_connection_over_without_loss(driver: AnyDriver) {
    let kind = if driver.name() == "epoll" { DriverKind::Epoll } else { DriverKind::Uring };
    let mut benches = [Bench::new(driver), Bench::new(AnyDriver::new(kind).unwrap())];
    let (token, mut peer) = benches[0].connect();
    let socket = benches[0].socket(token);
    let block: Vec<u8> = (0..4_000_000u32).map(|at| (at / 13) as u8).collect();
    let expected = block.clone();
    let writer = std::thread::spawn(move || {
        for part in block.chunks(777) {
            peer.write_all(part).unwrap();
        }
        peer
    });
    let mut received = Vec::new();
    let mut moves = 0;
    while received.len() < expected.len() {
        let bench = &mut benches[moves % 2];
        let goal = expected.len().min(received.len() + 50_000);
        bench.until(|event| {
            received.extend_from_slice(data_of(event, token));
            received.len() >= goal
        });
        bench.driver.detach(token, socket.as_fd());
        bench.until(|event| {
            received.extend_from_slice(data_of(event, token));
            matches!(event, Event::Detached { token: of } if *of == token)
        });
        bench.for_a_while(|event| panic!("after it left: {event:?}"));
        moves += 1;
        // SAFETY: `socket` lives to the end of the test.
        unsafe { benches[moves % 2].driver.add(token, socket.as_fd()).unwrap() };
    }
    // How many moves there are depends on how much arrives at once, which can be much on a busy
    // machine.
    assert!(moves > 1);
    assert!(received == expected);
    writer.join().unwrap();
}

fn hands_over_what_it_held(driver: impl Driver) {
    let mut bench = Bench::new(driver);
    let (token, mut peer) = bench.connect();
    let socket = bench.socket(token);
    bench.wait(0);
    peer.write_all(b"held").unwrap();
    bench.driver.pause(token, socket.as_fd());
    bench.for_a_while(|event| panic!("paused: {event:?}"));
    bench.driver.detach(token, socket.as_fd());
    let mut received = Vec::new();
    bench.until(|event| {
        received.extend_from_slice(data_of(event, token));
        matches!(event, Event::Detached { .. })
    });
    // The bytes were either reported as data or left in the socket.
    let _ = receive_into(socket.as_fd(), &mut received, 100);
    assert_eq!(received, b"held");
}

fn what_leaves_is_not_called_back<D: Driver>(driver: D) {
    let mut bench = Bench::new(driver);
    let (token, _peer) = bench.connect();
    let socket = bench.socket(token);
    for call_back in [D::resume, D::pause, D::direct] {
        // The driver is about to receive.
        bench.wait(0);
        bench.driver.detach(token, socket.as_fd());
        call_back(&mut bench.driver, token, socket.as_fd());
        bench.until(|event| matches!(event, Event::Detached { .. }));
        // SAFETY: `socket` lives to the end of the test.
        unsafe { bench.driver.add(token, socket.as_fd()).unwrap() };
    }
}

fn speaks_tcp_and_tells_a_reset(driver: impl Driver) {
    let mut bench = Bench::new(driver);
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    for (generation, paused) in [(1, false), (2, true)] {
        let mut peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (ours, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        let token = Token::new(0, generation);
        // SAFETY: `ours` is removed before it is closed.
        unsafe { bench.driver.add(token, ours.as_fd()).unwrap() };
        peer.write_all(b"request").unwrap();
        assert_eq!(bench.receive(token, 7), b"request");
        // SAFETY: static bytes.
        unsafe { bench.driver.send(token, ours.as_fd(), b"reply".as_ptr(), 5) };
        bench.until(|event| matches!(event, Event::Sent { result: Ok(5), .. }));
        let mut reply = [0; 5];
        peer.read_exact(&mut reply).unwrap();
        if paused {
            bench.driver.pause(token, ours.as_fd());
            bench.wait(0);
        }
        rustix::net::sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
        drop(peer);
        bench.until(|event| match event {
            Event::Closed { token: of, error } => {
                assert_eq!((*of, *error), (token, Some(Errno::CONNRESET)));
                true
            }
            _ => false,
        });
        bench.driver.remove(token, ours.as_fd());
    }
}

fn wakes_from_another_thread(driver: impl Driver) {
    let mut bench = Bench::new(driver);
    let (_, _peer) = bench.connect();
    let waker = bench.driver.waker();
    for _ in 0..20 {
        let waker = waker.clone();
        let thread = std::thread::spawn(move || waker.wake());
        bench.until(|event| matches!(event, Event::Woken));
        thread.join().unwrap();
    }
    // Several wakes at once come as one or more events. Then no more come.
    (0..10).for_each(|_| waker.wake());
    bench.until(|event| matches!(event, Event::Woken));
    bench.for_a_while(|event| panic!("still awake: {event:?}"));
    // A wake before the wait is not lost.
    waker.wake();
    bench.until(|event| matches!(event, Event::Woken));
    drop(bench);
    waker.wake();
}

fn times_out(driver: impl Driver) {
    let mut bench = Bench::new(driver);
    let (_, _peer) = bench.connect();
    bench.wait(0);
    let start = Instant::now();
    assert!(bench.wait(0).is_empty());
    let mut slept = Duration::ZERO;
    while slept < Duration::from_millis(30) {
        assert!(bench.wait(30).is_empty());
        slept = start.elapsed();
        assert!(slept < Duration::from_secs(5));
    }
}

fn sleeps_over_whole_sends(driver: impl Driver) {
    let mut bench = Bench::new(driver);
    let (token, _peer) = bench.connect();
    bench.wait(0);
    bench.send(token, b"whole");
    let start = Instant::now();
    assert!(matches!(bench.wait(60)[..], [Event::Sent { result: Ok(5), .. }]));
    assert!(start.elapsed() >= Duration::from_millis(55));
}
