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

use bobbin_client::{RespClient, error_text};
use rustix::{event::epoll, time::Timespec};

use super::{
    DriveFailure, process,
    redis::{Bench, loads},
};
use crate::{
    engine::{LatencyHistogram, latencies},
    options::{Common, Flag, Grammar, connection, number, positive, redis, set},
    report::quantile_ms,
    server, statistics,
};

#[derive(Clone, Debug)]
pub struct LimitsSettings {
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

impl Default for LimitsSettings {
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

impl AsMut<Common> for LimitsSettings {
    fn as_mut(&mut self) -> &mut Common {
        &mut self.common
    }
}

pub const GRAMMAR: Grammar<LimitsSettings> = Grammar {
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
            apply: |settings, value| set(&mut settings.clients, number(value, 1..=100_000)?),
        },
        Flag {
            names: &["--threads"],
            value: "threads",
            help: "Threads that send (default 1).",
            apply: |settings, value| set(&mut settings.threads, number(value, 1..=500)?),
        },
        Flag {
            names: &["--seconds"],
            value: "seconds",
            help: "Duration of each measurement (default 1). Those of the machine itself are divided \
                   into three, which have to agree, else there are more.",
            apply: |settings, value| set(&mut settings.seconds, positive(value)?.min(1e6)),
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
            apply: |settings, value| set(&mut settings.serve, Some(number(value, 1..=65535)?)),
        },
        Flag {
            names: &["--machine-only"],
            value: "",
            help: "Measure no server.",
            apply: |settings, _| set(&mut settings.machine_only, true),
        },
    ],
    attached_values: false,
};

/// Measures and prints, the machine first.
pub fn run(settings: &LimitsSettings, rest: &[String]) -> Result<(), DriveFailure> {
    if let Some(word) = rest.first() {
        return Err(DriveFailure(format!(
            "Unexpected argument '{word}'; --help lists the options"
        )));
    }
    if let Some(port) = settings.serve {
        return serve_for_ever(port);
    }
    let time = Duration::from_secs_f64(settings.seconds);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    say_line!("This machine, {cores} processors");
    let loopback = Baseline::of_loopback(time)?;
    loopback.show("TCP round trip on loopback", "TCP bandwidth on loopback");
    say_line!("{:<34} {:10.2} GB/s", "  memory copied by one thread", copying(1, time) / 1e9);
    say_line!("{:<34} {:10.2} GB/s", "  memory copied by all", copying(cores, time) / 1e9);
    show("  a sleep of 1 ms is late by", &timer(time));
    show("  waking another thread", &wake_ups(time));
    let (null, mut baseline) = match &settings.null {
        None => (null_rates(settings, &NullServer::start()?.common())?, loopback),
        Some((host, port)) => {
            let common = Common { host: host.clone(), port: *port, ..Common::default() };
            say_line!("\nThe null server at {}", server::place(&common));
            let mut client = server::connect(&common)?;
            let mut trips: Measure<LatencyHistogram> =
                Box::new(move |time| ping_trips(&mut client, time));
            let steady = Steady::measure(quickness, time, &mut trips)?;
            let baseline = Baseline { trips: steady, again: trips, bandwidth: None };
            baseline.show("round trip", "");
            (null_rates(settings, &common)?, baseline)
        }
    };
    if settings.machine_only {
        return Ok(());
    }
    server_limits(settings, &null, &mut baseline, cores)
}

/// Requests a second that a server reaches that does nothing, by pipeline.
fn null_rates(settings: &LimitsSettings, common: &Common) -> Result<Vec<f64>, DriveFailure> {
    let mut rates = Vec::new();
    for pipeline in PIPELINES {
        let time = Duration::from_secs_f64(settings.seconds);
        let mut measure = |time| ping(settings, common, pipeline, time);
        let steady = Steady::measure(|rate| *rate, time, &mut measure)?;
        let name = format!("  null server, pipeline {pipeline}");
        say_line!("{name:<34} {:10.0} requests/s", steady.best);
        steady.show_doubt();
        rates.push(steady.best);
    }
    Ok(rates)
}

fn server_limits(
    settings: &LimitsSettings,
    null_rates: &[f64],
    baseline: &mut Baseline,
    cores: usize,
) -> Result<(), DriveFailure> {
    say_line!("\nThe server at {}", server::place(&settings.common));
    let mut client = server::connect(&settings.common)?;
    let time = Duration::from_secs_f64(settings.seconds);
    let trips = ping_trips(&mut client, time)?;
    show("  PING round trip", &trips);
    baseline.compare_trips(&trips, time)?;
    if let Some(rate) = echo_bandwidth(&mut client, time) {
        say_line!("{:<34} {:10.2} GB/s", "  ECHO, there and back", rate / 1e9);
        baseline.compare_bandwidth(rate, time)?;
    }
    let process = local_process(&mut client);
    for (pipeline, null_rate) in PIPELINES.into_iter().zip(null_rates) {
        let before = process.and_then(process::user_and_kernel_ticks);
        let rate = ping(settings, &settings.common, pipeline, time)?;
        let after = process.and_then(process::user_and_kernel_ticks);
        let name = format!("  PING, pipeline {pipeline}");
        let share = rate / null_rate * 100.0;
        let reason = if share > 100.0 { ", which has one thread" } else { "" };
        say_line!("{name:<34} {rate:10.0} requests/s, {share:.0}% of the null server{reason}");
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

/// Something that can be measured for a time, again and again.
type Measure<T> = Box<dyn FnMut(Duration) -> Result<T, DriveFailure>>;

/// A measurement of the machine, repeated until it is stable. A limit is the best of what was seen:
/// whatever else goes on can only make it look worse.
struct Steady<T> {
    best: T,
    /// Of each repetition, and more is better.
    values: Vec<f64>,
    value: fn(&T) -> f64,
}

impl<T> Steady<T> {
    fn measure(
        value: fn(&T) -> f64,
        time: Duration,
        measure: &mut dyn FnMut(Duration) -> Result<T, DriveFailure>,
    ) -> Result<Self, DriveFailure> {
        let best = measure(time / REPETITIONS_MIN as u32)?;
        let values = vec![value(&best)];
        let mut steady = Self { best, values, value };
        steady.repeat(time, measure)?;
        Ok(steady)
    }

    /// Repeats it until the last few agree, but not for ever.
    fn repeat(
        &mut self,
        time: Duration,
        measure: &mut dyn FnMut(Duration) -> Result<T, DriveFailure>,
    ) -> Result<(), DriveFailure> {
        for number in 1..REPETITIONS_MAX {
            if number >= REPETITIONS_MIN && self.is_stable() {
                return Ok(());
            }
            let next = measure(time / REPETITIONS_MIN as u32)?;
            let value = (self.value)(&next);
            if value > (self.value)(&self.best) {
                self.best = next;
            }
            self.values.push(value);
        }
        Ok(())
    }

    fn is_stable(&self) -> bool {
        let last = self.values.len().saturating_sub(REPETITIONS_MIN);
        self.values.len() >= REPETITIONS_MIN && !statistics::disagree(&self.values[last..])
    }

    fn show_doubt(&self) {
        if !self.is_stable() {
            let count = self.values.len();
            let spread = statistics::spread(&self.values) * 100.0;
            say_line!("    not stable: {count} repetitions, spread by {spread:.0}%");
        }
    }
}

/// What the machine itself reaches, which a server is compared with.
struct Baseline {
    trips: Steady<LatencyHistogram>,
    again: Measure<LatencyHistogram>,
    bandwidth: Option<Steady<f64>>,
}

impl Baseline {
    fn of_loopback(time: Duration) -> Result<Self, DriveFailure> {
        let mut again: Measure<LatencyHistogram> = Box::new(quicker_round_trips);
        Ok(Self {
            trips: Steady::measure(quickness, time, &mut again)?,
            again,
            bandwidth: Some(Steady::measure(|rate| *rate, time, &mut bandwidth)?),
        })
    }

    fn show(&self, trip: &str, bandwidth: &str) {
        show(&format!("  {trip}"), &self.trips.best);
        self.trips.show_doubt();
        let Some(steady) = &self.bandwidth else { return };
        say_line!("{:<34} {:10.2} GB/s", format!("  {bandwidth}"), steady.best / 1e9);
        steady.show_doubt();
    }

    /// Says how far a server's round trips are from the limit. One that beats it shows that the
    /// limit was measured at a bad time: it is measured again.
    fn compare_trips(
        &mut self,
        trips: &LatencyHistogram,
        time: Duration,
    ) -> Result<(), DriveFailure> {
        let times = |steady: &Steady<LatencyHistogram>| quickness(&steady.best) / quickness(trips);
        if times(&self.trips) < 1.0 {
            self.trips.repeat(time, &mut self.again)?;
        }
        match times(&self.trips) {
            times if times >= 1.0 => say_line!("{:<34} {times:10.2} times the limit", ""),
            _ => say_line!("{:<34} {BEATEN}", ""),
        }
        self.trips.show_doubt();
        Ok(())
    }

    fn compare_bandwidth(&mut self, rate: f64, time: Duration) -> Result<(), DriveFailure> {
        let Some(limit) = &mut self.bandwidth else { return Ok(()) };
        if rate > limit.best {
            limit.repeat(time, &mut bandwidth)?;
        }
        match rate / limit.best * 100.0 {
            share if share <= 100.0 => say_line!("{:<34} {share:9.0}% of the limit", ""),
            _ => say_line!("{:<34} {BEATEN}", ""),
        }
        limit.show_doubt();
        Ok(())
    }
}

/// The more the shorter the median is.
fn quickness(trips: &LatencyHistogram) -> f64 {
    1.0 / quantile_ms(trips, 0.5).max(1e-6)
}

/// PING after PING over one connection.
fn ping_trips(client: &mut RespClient, time: Duration) -> Result<LatencyHistogram, DriveFailure> {
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
fn echo_bandwidth(client: &mut RespClient, time: Duration) -> Option<f64> {
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
fn local_process(client: &mut RespClient) -> Option<u32> {
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
fn ping(
    settings: &LimitsSettings,
    common: &Common,
    pipeline: usize,
    time: Duration,
) -> Result<f64, DriveFailure> {
    let settings = redis::RedisSettings {
        common: common.clone(),
        clients: settings.clients,
        threads: settings.threads,
        pipeline,
        duration: Some(time),
        tests: Some("ping_inline".into()),
        ..redis::RedisSettings::default()
    };
    let loads = loads(&settings, &[])?;
    let outcomes = Bench::new(&settings)?.measure(&loads[0])?;
    Ok(outcomes[0].rate())
}

/// Round trips on loopback with an end that sleeps until a byte comes, or one that never does,
/// whichever is quicker: servers are of both kinds, and waking a thread can cost more than all
/// else.
fn quicker_round_trips(time: Duration) -> Result<LatencyHistogram, DriveFailure> {
    let sleeping = round_trips(time / 2, false)?;
    let busy = round_trips(time / 2, true)?;
    Ok(if quickness(&busy) > quickness(&sleeping) { busy } else { sleeping })
}

/// A byte there and back over loopback. This end blocks; the other does, or asks all the time.
fn round_trips(time: Duration, is_busy: bool) -> Result<LatencyHistogram, DriveFailure> {
    let (mut here, mut there) = pair()?;
    there.set_nonblocking(is_busy)?;
    let echo = std::thread::spawn(move || {
        let mut byte = [0];
        loop {
            match there.read(&mut byte) {
                Ok(1..) if there.write_all(&byte).is_ok() => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                _ => return,
            }
        }
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
fn bandwidth(time: Duration) -> Result<f64, DriveFailure> {
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

fn pair() -> Result<(TcpStream, TcpStream), DriveFailure> {
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

fn timer(time: Duration) -> LatencyHistogram {
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
fn wake_ups(time: Duration) -> LatencyHistogram {
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

fn record(to: &mut LatencyHistogram, time: Duration) {
    to.saturating_record(time.as_nanos().max(1) as u64);
}

fn show(name: &str, latencies: &LatencyHistogram) {
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
    fn start() -> Result<Self, DriveFailure> {
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

fn serve_for_ever(port: u16) -> Result<(), DriveFailure> {
    let listener =
        TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)));
    let listener = listener.map_err(|error| {
        DriveFailure(format!("Cannot listen on port {port}: {}", error_text(&error)))
    })?;
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

const BEATEN: &str = "beyond what was measured of the machine, so there is no ratio";
/// So many repetitions have to agree.
const REPETITIONS_MIN: usize = 3;
const REPETITIONS_MAX: usize = 12;
const PIPELINES: [usize; 2] = [1, 16];
const BLOCK_LEN: usize = 64 * 1024;
const ECHO_LEN: usize = 1 << 20;
const MEMORY_LEN: usize = 64 << 20;
const NAP: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn steady_of(rates: &[f64]) -> (Steady<f64>, usize) {
        let mut next = rates.iter().copied().cycle();
        let mut count = 0;
        let mut measure = |time: Duration| {
            assert_eq!(time, Duration::from_secs(1));
            count += 1;
            Ok(next.next().unwrap())
        };
        let steady = Steady::measure(|rate| *rate, Duration::from_secs(3), &mut measure);
        (steady.unwrap_or_else(|DriveFailure(error)| panic!("{error}")), count)
    }

    #[test]
    fn a_baseline_is_repeated_until_it_is_stable() {
        let (steady, count) = steady_of(&[100.0, 101.0, 99.0]);
        assert_eq!((steady.best, count, steady.is_stable()), (101.0, 3, true));
        let (steady, count) = steady_of(&[20.0, 100.0, 103.0, 98.0]);
        assert_eq!((steady.best, count, steady.is_stable()), (103.0, 4, true));
        let (steady, count) = steady_of(&[20.0, 100.0]);
        assert_eq!((steady.best, count, steady.is_stable()), (100.0, REPETITIONS_MAX, false));
    }

    #[test]
    fn a_server_that_beats_the_baseline_has_it_measured_again() {
        let of = |nanoseconds| {
            let mut trips = latencies();
            trips.record_n(nanoseconds, 9).unwrap();
            trips
        };
        let second = Duration::from_secs(1);
        let mut slow: Measure<LatencyHistogram> = Box::new(move |_| Ok(of(50_000)));
        let mut measured = Vec::new();
        for later in [10_000, 40_000] {
            let trips = Steady::measure(quickness, second, &mut slow).ok().unwrap();
            let again: Measure<LatencyHistogram> = Box::new(move |_| Ok(of(later)));
            let mut baseline = Baseline { trips, again, bandwidth: None };
            baseline.compare_trips(&of(20_000), second).ok().unwrap();
            measured.push(quantile_ms(&baseline.trips.best, 0.5) >= 0.02);
        }
        // The second is beaten still, which is said instead of a ratio.
        assert_eq!(measured, [false, true]);
    }
}
