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

use rustix::{event::epoll, time::Timespec};

use super::{
    Failure, process,
    redis::{Bench, loads},
};
use crate::{
    engine::{Latencies, latencies},
    options::{Common, Flag, Grammar, number, positive, redis},
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
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            common: Common::default(),
            seconds: 1.0,
            clients: 50,
            threads: 1,
            machine_only: false,
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
    flags: &[
        Flag {
            names: &["-h"],
            value: "host",
            help: "The server's host (default 127.0.0.1).",
            apply: |settings, value| {
                settings.common.host = value.into();
                Ok(())
            },
        },
        Flag {
            names: &["-p"],
            value: "port",
            help: "Its port (default 6379).",
            apply: |settings, value| {
                settings.common.port = number(value, 1..=65535)?;
                Ok(())
            },
        },
        Flag {
            names: &["-a"],
            value: "password",
            help: "Authenticate with this password.",
            apply: |settings, value| {
                settings.common.password = Some(value.into());
                Ok(())
            },
        },
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
    let time = Duration::from_secs_f64(settings.seconds);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    say_line!("This machine, {cores} processors");
    show("  TCP round trip on loopback", &round_trips(time)?);
    say_line!("{:<34} {:10.2} GB/s", "  TCP bandwidth on loopback", bandwidth(time)? / 1e9);
    say_line!("{:<34} {:10.2} GB/s", "  memory copied by one thread", copying(1, time) / 1e9);
    say_line!("{:<34} {:10.2} GB/s", "  memory copied by all", copying(cores, time) / 1e9);
    show("  a sleep of 1 ms is late by", &timer(time));
    show("  waking another thread", &wake_ups(time));
    let null = NullServer::start()?;
    let mut null_rates = Vec::new();
    for pipeline in PIPELINES {
        let rate = ping(settings, &null.common(), pipeline)?;
        say_line!("{:<34} {rate:10.0} requests/s", format!("  null server, pipeline {pipeline}"));
        null_rates.push(rate);
    }
    drop(null);
    if settings.machine_only {
        return Ok(());
    }
    server_limits(settings, &null_rates, cores)
}

fn server_limits(settings: &Settings, null_rates: &[f64], cores: usize) -> Result<(), Failure> {
    say_line!("\nThe server at {}", server::place(&settings.common));
    let mut client = server::connect(&settings.common)?;
    let time = Duration::from_secs_f64(settings.seconds);
    let mut trips = latencies();
    let started = Instant::now();
    while started.elapsed() < time {
        let sent = Instant::now();
        server::call(&mut client, &["PING"])?;
        record(&mut trips, sent.elapsed());
    }
    show("  PING round trip", &trips);
    let process = local_process(&mut client);
    for (pipeline, null_rate) in PIPELINES.into_iter().zip(null_rates) {
        let before = process.and_then(process::user_and_kernel_ticks);
        let rate = ping(settings, &settings.common, pipeline)?;
        let after = process.and_then(process::user_and_kernel_ticks);
        let name = format!("  PING, pipeline {pipeline}");
        let share = rate / null_rate * 100.0;
        say_line!("{name:<34} {rate:10.0} requests/s, {share:.0}% of the null server");
        if let Some(((user_before, kernel_before), (user, kernel))) = before.zip(after) {
            let (user, kernel) = ((user - user_before) as f64, (kernel - kernel_before) as f64);
            let share = kernel / (user + kernel).max(1.0);
            say_line!("{:<34} {:9.1}% of its time", "    in the kernel", share * 100.0);
            // Amdahl: what may run in parallel is sped up by the processors, the rest is not.
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
    }
    if process.is_none() {
        say_line!("  (its processor time is not seen from here)");
    }
    Ok(())
}

/// The server's process, if it runs on this machine.
fn local_process(client: &mut bobbin_client::Client) -> Option<u32> {
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
const MEMORY_LEN: usize = 64 << 20;
const NAP: Duration = Duration::from_millis(1);
