//! `bobbin-benchmark limits`: what this machine allows, and how far a server is from it.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    time::{Duration, Instant},
};

use bobbin_client::Client;
use rustix::{event::epoll, time::Timespec};

use super::{
    Failure, process,
    redis::{Bench, loads},
};
use crate::{
    engine::{Latencies, latencies},
    options::{Common, Flag, Grammar, connection, number, positive, redis},
    report::quantile_ms,
    server,
};

#[derive(Clone, Debug)]
pub struct Settings {
    pub common: Common,
    pub seconds: f64,
    pub clients: usize,
    pub threads: usize,
    pub machine_only: bool,
    /// A null server of another machine, as `host:port`.
    pub null: Option<(String, u16)>,
    /// Be such a server, on this port.
    pub serve: Option<u16>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            common: Common::default(),
            seconds: 1.0,
            clients: 50,
            threads: 1,
            machine_only: false,
            null: None,
            serve: None,
        }
    }
}

impl AsMut<Common> for Settings {
    fn as_mut(&mut self) -> &mut Common {
        &mut self.common
    }
}

pub const GRAMMAR: Grammar<Settings> = Grammar {
    program: "bobbin-benchmark limits",
    about: "Measures what this machine allows (network, memory, timers, a server that does nothing) \
            and how far a server is from it.",
    usage: "bobbin-benchmark limits [OPTIONS]",
    notes: "",
    connection: connection::REDIS,
    shared: &[connection::TRANSPORT],
    flags: &[
        Flag {
            names: &["-c"],
            value: "clients",
            help: "Connections (default 50).",
            apply: |settings, value| {
                settings.clients = number(value, 1..=100_000)?;
                Ok(())
            },
        },
        Flag {
            names: &["--threads"],
            value: "threads",
            help: "Threads that send (default 1).",
            apply: |settings, value| {
                settings.threads = number(value, 1..=500)?;
                Ok(())
            },
        },
        Flag {
            names: &["--seconds"],
            value: "seconds",
            help: "Duration of each measurement (default 1).",
            apply: |settings, value| {
                settings.seconds = positive(value)?.min(1e6);
                Ok(())
            },
        },
        Flag {
            names: &["--null"],
            value: "host:port",
            help: "Compare with the null server that 'limits --serve' runs there, so that the network \
                   between is in both, instead of one of our own.",
            apply: |settings, value| {
                let (host, port) = value.rsplit_once(':').ok_or("not of the form host:port")?;
                let host = host.trim_start_matches('[').trim_end_matches(']');
                settings.null = Some((host.to_owned(), number(port, 1..=65535)?));
                Ok(())
            },
        },
        Flag {
            names: &["--serve"],
            value: "port",
            help: "Only be a null server on this port of all addresses, until somebody ends it: it \
                   answers PONG to everything.",
            apply: |settings, value| {
                settings.serve = Some(number(value, 1..=65535)?);
                Ok(())
            },
        },
        Flag {
            names: &["--machine-only"],
            value: "",
            help: "Measure no server.",
            apply: |settings, _| {
                settings.machine_only = true;
                Ok(())
            },
        },
    ],
    attached_values: false,
};

/// Measures and prints, the machine first.
pub fn run(settings: &Settings, rest: &[String]) -> Result<(), Failure> {
    if let Some(word) = rest.first() {
        return Err(Failure(format!("Unexpected argument '{word}'; --help lists the options")));
    }
    if let Some(port) = settings.serve {
        return serve_for_ever(port);
    }
    let time = Duration::from_secs_f64(settings.seconds);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    say_line!("This machine, {cores} processors");
    let loopback = Reach { trips: round_trips(time)?, bytes_per_second: Some(bandwidth(time)?) };
    loopback.show("TCP round trip on loopback", "TCP bandwidth on loopback", None);
    say_line!("{:<34} {:10.2} GB/s", "  memory copied by one thread", copying(1, time) / 1e9);
    say_line!("{:<34} {:10.2} GB/s", "  memory copied by all", copying(cores, time) / 1e9);
    show("  a sleep of 1 ms is late by", &timer(time));
    show("  waking another thread", &wake_ups(time));
    let (null, reach) = match &settings.null {
        None => (null_rates(settings, &NullServer::start()?.common())?, loopback),
        Some((host, port)) => {
            let common = Common { host: host.clone(), port: *port, ..Common::default() };
            say_line!("\nThe null server at {}", server::place(&common));
            let trips = ping_trips(&mut server::connect(&common)?, time)?;
            let reach = Reach { trips, bytes_per_second: None };
            reach.show("round trip", "", None);
            (null_rates(settings, &common)?, reach)
        }
    };
    if settings.machine_only {
        return Ok(());
    }
    server_limits(settings, &null, &reach, cores)
}

/// Requests a second that a server reaches that does nothing, by pipeline.
fn null_rates(settings: &Settings, common: &Common) -> Result<Vec<f64>, Failure> {
    let mut rates = Vec::new();
    for pipeline in PIPELINES {
        let rate = ping(settings, common, pipeline)?;
        say_line!("{:<34} {rate:10.0} requests/s", format!("  null server, pipeline {pipeline}"));
        rates.push(rate);
    }
    Ok(rates)
}

fn server_limits(
    settings: &Settings,
    null_rates: &[f64],
    limit: &Reach,
    cores: usize,
) -> Result<(), Failure> {
    say_line!("\nThe server at {}", server::place(&settings.common));
    let mut client = server::connect(&settings.common)?;
    let time = Duration::from_secs_f64(settings.seconds);
    let reach = Reach {
        trips: ping_trips(&mut client, time)?,
        bytes_per_second: echo_bandwidth(&mut client, time),
    };
    reach.show("PING round trip", "ECHO, there and back", Some(limit));
    let process = local_process(&mut client);
    for (pipeline, null_rate) in PIPELINES.into_iter().zip(null_rates) {
        let before = process.and_then(process::user_and_kernel_ticks);
        let rate = ping(settings, &settings.common, pipeline)?;
        let after = process.and_then(process::user_and_kernel_ticks);
        let name = format!("  PING, pipeline {pipeline}");
        let share = rate / null_rate * 100.0;
        say_line!("{name:<34} {rate:10.0} requests/s, {share:.0}% of the null server");
        if let Some((before, after)) = before.zip(after) {
            amdahl(before, after, cores);
        }
    }
    if process.is_none() {
        say_line!("  (its processor time is not seen from here)");
    }
    Ok(())
}

/// What the ticks in user space and in the kernel, before and after a run, say of its bounds.
fn amdahl(before: (u64, u64), after: (u64, u64), cores: usize) {
    let (user, kernel) = ((after.0 - before.0) as f64, (after.1 - before.1) as f64);
    let share = kernel / (user + kernel).max(1.0);
    say_line!("{:<34} {:9.1}% of its time", "    in the kernel", share * 100.0);
    // What may run in parallel is sped up by the processors, the rest is not.
    let bound = |parallel: f64| 1.0 / (1.0 - parallel + parallel / cores as f64);
    say_line!(
        "{:<34} {:9.2} times as fast at most on {cores} processors",
        "    kernel work in parallel",
        bound(share)
    );
    say_line!(
        "{:<34} {:9.2} times as fast at most",
        "    without any work of its own",
        1.0 / share.max(0.01)
    );
}

/// How a place is reached.
struct Reach {
    trips: Latencies,
    bytes_per_second: Option<f64>,
}

impl Reach {
    /// Shows it, and how far it is from a limit.
    fn show(&self, trip: &str, bandwidth: &str, limit: Option<&Self>) {
        show(&format!("  {trip}"), &self.trips);
        if let Some(limit) = limit {
            let times = quantile_ms(&self.trips, 0.5) / quantile_ms(&limit.trips, 0.5).max(1e-6);
            say_line!("{:<34} {times:10.2} times the limit", "");
        }
        let Some(rate) = self.bytes_per_second else { return };
        say_line!("{:<34} {:10.2} GB/s", format!("  {bandwidth}"), rate / 1e9);
        if let Some(most) = limit.and_then(|limit| limit.bytes_per_second) {
            say_line!("{:<34} {:9.0}% of the limit", "", rate / most * 100.0);
        }
    }
}

/// PING after PING over one connection.
fn ping_trips(client: &mut Client, time: Duration) -> Result<Latencies, Failure> {
    let mut trips = latencies();
    let started = Instant::now();
    while started.elapsed() < time {
        let sent = Instant::now();
        server::call(client, &["PING"])?;
        record(&mut trips, sent.elapsed());
    }
    Ok(trips)
}

/// Bytes a second over one connection that are sent to the server and come back. Nothing where it
/// does not echo.
fn echo_bandwidth(client: &mut Client, time: Duration) -> Option<f64> {
    let block = vec![b'x'; ECHO_LEN];
    let mut sum = 0;
    let started = Instant::now();
    while started.elapsed() < time || sum == 0 {
        let reply = server::call(client, &[b"ECHO", block.as_slice()]).ok()?;
        sum += reply.as_bytes()?.len();
    }
    Some(2.0 * sum as f64 / started.elapsed().as_secs_f64())
}

/// The server's process, if it runs on this machine.
fn local_process(client: &mut Client) -> Option<u32> {
    let reply = server::call(client, &["INFO", "server"]).ok()?;
    let text = String::from_utf8_lossy(reply.as_bytes()?).into_owned();
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
    };
    let process: u32 = field("process_id:")?.parse().ok()?;
    let port = field("tcp_port:")?;
    // Another machine may have a process of that number; ours names the port or the program.
    let command = std::fs::read_to_string(format!("/proc/{process}/cmdline")).ok()?;
    (command.contains(&port) || command.contains("server")).then_some(process)
}

/// PINGs a second of the whole engine.
fn ping(settings: &Settings, common: &Common, pipeline: usize) -> Result<f64, Failure> {
    let settings = redis::Settings {
        common: common.clone(),
        clients: settings.clients,
        threads: settings.threads,
        pipeline,
        duration: Some(Duration::from_secs_f64(settings.seconds)),
        tests: Some("ping_inline".into()),
        ..redis::Settings::default()
    };
    let loads = loads(&settings, &[])?;
    let outcomes = Bench::new(&settings)?.measure(&loads[0])?;
    Ok(outcomes[0].rate())
}

/// A byte there and back over loopback, both ends blocking.
fn round_trips(time: Duration) -> Result<Latencies, Failure> {
    let (mut here, mut there) = pair()?;
    let echo = std::thread::spawn(move || {
        let mut byte = [0];
        while there.read_exact(&mut byte).is_ok() && there.write_all(&byte).is_ok() {}
    });
    let mut trips = latencies();
    let started = Instant::now();
    let mut byte = [1];
    while started.elapsed() < time {
        let sent = Instant::now();
        here.write_all(&byte)?;
        here.read_exact(&mut byte)?;
        record(&mut trips, sent.elapsed());
    }
    drop(here);
    let _ = echo.join();
    Ok(trips)
}

/// Bytes a second over one connection.
fn bandwidth(time: Duration) -> Result<f64, Failure> {
    let (mut here, mut there) = pair()?;
    let reader = std::thread::spawn(move || {
        let mut buffer = vec![0; BLOCK_LEN];
        let mut sum = 0;
        while let Ok(count @ 1..) = there.read(&mut buffer) {
            sum += count;
        }
        sum
    });
    let block = vec![0; BLOCK_LEN];
    let started = Instant::now();
    while started.elapsed() < time {
        here.write_all(&block)?;
    }
    drop(here);
    let sum = reader.join().unwrap_or(0);
    Ok(sum as f64 / started.elapsed().as_secs_f64())
}

fn pair() -> Result<(TcpStream, TcpStream), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let here = TcpStream::connect(listener.local_addr()?)?;
    let (there, _) = listener.accept()?;
    here.set_nodelay(true)?;
    there.set_nodelay(true)?;
    Ok((here, there))
}

/// Bytes a second that threads copy between blocks too large for caches; each is read and written.
fn copying(threads: usize, time: Duration) -> f64 {
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            std::thread::spawn(move || {
                let from = vec![1u8; MEMORY_LEN];
                let mut to = vec![2u8; MEMORY_LEN];
                let started = Instant::now();
                let mut sum = 0;
                while started.elapsed() < time {
                    to.copy_from_slice(std::hint::black_box(&from));
                    std::hint::black_box(&mut to);
                    sum += MEMORY_LEN;
                }
                sum as f64 / started.elapsed().as_secs_f64()
            })
        })
        .collect();
    workers.into_iter().map(|worker| worker.join().unwrap_or(0.0)).sum()
}

fn timer(time: Duration) -> Latencies {
    let mut late = latencies();
    let started = Instant::now();
    while started.elapsed() < time {
        let slept = Instant::now();
        std::thread::sleep(NAP);
        record(&mut late, slept.elapsed().saturating_sub(NAP));
    }
    late
}

/// There and back between two threads that sleep, halved.
fn wake_ups(time: Duration) -> Latencies {
    let (to, from) = mpsc::sync_channel::<()>(1);
    let (back, answers) = mpsc::sync_channel::<()>(1);
    let other = std::thread::spawn(move || while from.recv().is_ok() && back.send(()).is_ok() {});
    let mut wakes = latencies();
    let started = Instant::now();
    while started.elapsed() < time {
        let sent = Instant::now();
        if to.send(()).is_err() || answers.recv().is_err() {
            break;
        }
        record(&mut wakes, sent.elapsed() / 2);
    }
    drop(to);
    let _ = other.join();
    wakes
}

fn record(to: &mut Latencies, time: Duration) {
    to.saturating_record(time.as_nanos().max(1) as u64);
}

fn show(name: &str, latencies: &Latencies) {
    let us = |quantile| quantile_ms(latencies, quantile) * 1e3;
    say_line!("{name:<34} {:10.1} us, p99 {:.1}, worst {:.1}", us(0.5), us(0.99), us(1.0));
}

/// A server that answers each line by `+PONG`, whatever it says: what is left when a server does
/// nothing but read and write, with one thread and one epoll.
struct NullServer {
    port: u16,
    is_over: Arc<AtomicBool>,
}

impl NullServer {
    fn start() -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        // What goes wrong there shows as a lost connection here.
        std::thread::spawn(move || serve(&listener, &over));
        Ok(Self { port, is_over })
    }

    fn common(&self) -> Common {
        Common { port: self.port, ..Common::default() }
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
    }
}

fn serve_for_ever(port: u16) -> Result<(), Failure> {
    let listener =
        TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)));
    let listener =
        listener.map_err(|error| Failure(format!("Cannot listen on port {port}: {error}")))?;
    say_line!("Answering PONG on port {port} (end with Ctrl-C)");
    Ok(serve(&listener, &AtomicBool::new(false))?)
}

fn serve(listener: &TcpListener, is_over: &AtomicBool) -> std::io::Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    listener.set_nonblocking(true)?;
    epoll::add(&epoll, listener, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    // Connections by their token less 1; those that ended are empty.
    let mut streams: Vec<Option<TcpStream>> = Vec::new();
    let mut buffer = vec![0; BLOCK_LEN];
    let mut replies = Vec::new();
    let patience = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    while !is_over.load(Relaxed) {
        let mut events = [std::mem::MaybeUninit::<epoll::Event>::uninit(); 256];
        let (events, _) = epoll::wait(&epoll, &mut events, Some(&patience))?;
        for event in events {
            let token = event.data.u64() as usize;
            if token == 0 {
                let Ok((stream, _)) = listener.accept() else { continue };
                stream.set_nodelay(true)?;
                streams.push(Some(stream));
                let data = epoll::EventData::new_u64(streams.len() as u64);
                let stream = streams.last().and_then(Option::as_ref);
                epoll::add(&epoll, stream.expect("just pushed"), data, epoll::EventFlags::IN)?;
                continue;
            }
            let Some(stream) = &mut streams[token - 1] else { continue };
            let count = stream.read(&mut buffer).unwrap_or(0);
            // The questions about options that come first are arrays, PINGs are lines.
            let lines = match buffer[0] {
                b'*' => 1,
                _ => buffer[..count].iter().filter(|&&byte| byte == b'\n').count(),
            };
            replies.clear();
            for _ in 0..lines {
                replies.extend_from_slice(b"+PONG\r\n");
            }
            if count == 0 || stream.write_all(&replies).is_err() {
                streams[token - 1] = None;
            }
        }
    }
    Ok(())
}

const PIPELINES: [usize; 2] = [1, 16];
const BLOCK_LEN: usize = 64 * 1024;
const ECHO_LEN: usize = 1 << 20;
const MEMORY_LEN: usize = 64 << 20;
const NAP: Duration = Duration::from_millis(1);
