//! `bobbin-cli migrate SOURCE`: has the server follow another one, shows how far it is, looks for
//! differences, and has it take over.
//!
//! All is done by commands that every server of the protocol knows, so either side may be a Redis,
//! a Valkey or a Bobbin.

mod link;
mod node;
mod sample;

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use bobbin_client::{ServerAddress, Target, TlsConnector, Transport};

use self::link::{LinkWatch, refuse_own_machine};
use self::node::{MigrationNode, NodeFacts};
use self::sample::Samples;
use super::statistics::human;
use crate::options::Options;
use crate::session::Session;
use crate::terminal;

/// What is wanted, by the words of the command.
struct Migration {
    source: Target,
    /// The target's keys may be replaced.
    replaces: bool,
    /// The target shall take over.
    switches: bool,
    /// The source shall follow the target then.
    keeps_way_back: bool,
}

/// How far the target is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// There is no link to the source.
    Connecting,
    /// The keys are copied.
    Copying,
    /// What was written meanwhile is carried out.
    CatchingUp,
    InStep,
}

/// Whether the words are this tool's. MIGRATE, the command, has more of them.
pub fn is_meant(command: &[Vec<u8>]) -> bool {
    let is_name = command.first().is_some_and(|name| name.eq_ignore_ascii_case(b"migrate"));
    is_name && (2..=WORDS_MAX).contains(&command.len())
}

/// The status is 0 once the target may take over, or has done so.
pub fn run(session: &mut Session, command: &[Vec<u8>]) -> ExitCode {
    let outcome = Migration::parse(&command[1..]).and_then(|migration| migration.run(session));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain!("{error}");
            ExitCode::FAILURE
        }
    }
}

impl Migration {
    fn parse(words: &[Vec<u8>]) -> Result<Self, String> {
        let (source, rest) = words.split_first().ok_or(USAGE)?;
        let text = String::from_utf8_lossy(source);
        let url = if text.contains("://") { text.into_owned() } else { format!("redis://{text}") };
        let source = Target::parse_url(&url).map_err(|error| {
            // What is before the last @ has the password.
            let shown = url.rsplit_once('@').map_or(&*url, |(_, place)| place);
            format!("{shown}: {error}")
        })?;
        let mut migration =
            Self { source, replaces: false, switches: false, keeps_way_back: false };
        for word in rest {
            match &*word.to_ascii_lowercase() {
                b"replace" => migration.replaces = true,
                b"switch" => migration.switches = true,
                b"back" => migration.keeps_way_back = true,
                _ => return Err(USAGE.into()),
            }
        }
        Ok(migration)
    }

    fn run(&self, session: &Session) -> Result<(), String> {
        let mut of_target = session.options.target.clone();
        of_target.address = session.address.clone();
        let mut target = MigrationNode::connect(&of_target, &session.options.transport)?;
        let mut source = MigrationNode::connect(&self.source, &self.transport(&session.options)?)?;
        let facts = source.facts().map_err(|error| match &self.source.password {
            None if error.contains("NOAUTH") => format!("{error} {PASSWORD_PLACE}"),
            _ => error,
        })?;
        out!("From  {} at {}: {}\n", facts.program(), source.address, facts.summary());
        let there = target.facts()?;
        out!("To    {} at {}: {}\n", there.program(), target.address, there.summary());
        if facts.is_same_server(&there) {
            return Err("They are the same server, which cannot follow itself.".into());
        }
        if link::is_below(&facts, &source.address, &there, &target.address) {
            return Err("The source is a replica of the target: both would wait for each other. \
                        REPLICAOF NO ONE makes it a primary."
                .into());
        }
        if self.switches && self.keeps_way_back {
            // It is too late to learn this once the writers wait.
            place_of(&of_target.address, WAY_BACK_SOCKET)?;
            refuse_own_machine(&of_target.address, &self.source.address, WAY_BACK_ADDRESS)?;
        }
        self.follow(&mut target, &facts, &there)?;
        let samples = watch(&mut source, &mut target)?;
        if !samples.different.is_empty() {
            return Err(tell_differences(&samples));
        }
        if self.switches {
            self.switch(&mut source, &mut target, &of_target)
        } else {
            out!("{}", how_to_switch(&self.source.address));
            Ok(())
        }
    }

    /// How to get to the source: with TLS if its address says so, whatever the target has.
    fn transport(&self, options: &Options) -> Result<Transport, String> {
        let tls = self.source.tls.then(|| TlsConnector::new(&options.tls)).transpose()?;
        Ok(Transport { tls, ..options.transport.clone() })
    }

    /// Has the target follow the source, if it does not.
    fn follow(
        &self,
        target: &mut MigrationNode,
        source: &NodeFacts,
        there: &NodeFacts,
    ) -> Result<(), String> {
        let (host, port) = place_of(&self.source.address, SOURCE_SOCKET)?;
        if source.is_on("cluster_enabled") {
            return Err("The source is a node of a cluster, which nobody can follow alone.".into());
        }
        if there.follows(source, host, port) {
            return Ok(());
        }
        refuse_own_machine(&self.source.address, &target.address, SOURCE_ADDRESS)?;
        if there.keys() > 0 && !self.replaces {
            let keys = there.keys();
            return Err(format!(
                "{} has keys ({keys}), which the copy would replace. Add \"replace\" if that is meant.",
                target.address
            ));
        }
        target.log_in_as(&self.source)?;
        if self.source.tls {
            target.demand(&["CONFIG", "SET", "tls-replication", "yes"])?;
        }
        target.demand(&["REPLICAOF", host, &port.to_string()])?;
        Ok(())
    }

    /// Stops the writers of the source, waits for what they wrote, and has the target take over.
    fn switch(
        &self,
        source: &mut MigrationNode,
        target: &mut MigrationNode,
        here: &Target,
    ) -> Result<(), String> {
        let pause_ms = PAUSE.as_millis().to_string();
        let started = Instant::now();
        source.demand(&["CLIENT", "PAUSE", &pause_ms, "WRITE"]).map_err(|error| {
            format!(
                "{error}\nStop all writers yourself, and then say REPLICAOF NO ONE to the target."
            )
        })?;
        if let Err(error) = take_over(source, target, started) {
            source.demand(&["CLIENT", "UNPAUSE"])?;
            return Err(format!("{error} Nothing was switched; the source takes writes again."));
        }
        let ms = started.elapsed().as_millis();
        out!("{} is a primary now. Writes stood still for {ms} ms until then.\n", target.address);
        if target.ask(&["CONFIG", "REWRITE"])?.is_error() {
            out!("Note: it has no configuration file, so this is forgotten when it restarts.\n");
        }
        if self.keeps_way_back {
            return self.follow_back(source, target, here);
        }
        out!("Have your programs use it. {}\n", what_comes_of(source));
        Ok(())
    }

    /// Has the source follow the target: what still writes to it is refused, and there is a way
    /// back. Until there is a link nobody knows to what server the address leads there.
    fn follow_back(
        &self,
        source: &mut MigrationNode,
        target: &mut MigrationNode,
        here: &Target,
    ) -> Result<(), String> {
        let (host, port) = place_of(&here.address, WAY_BACK_SOCKET)?;
        point_back(source, here, (host, port)).map_err(|error| {
            format!(
                "There is no way back: {error}. {} does not follow {host}:{port}. {}",
                source.address,
                what_comes_of(source)
            )
        })?;
        source.demand(&["CLIENT", "UNPAUSE"])?;
        let (mut link, mut view) = (LinkWatch::default(), View::new());
        loop {
            let (there, back) = (target.facts()?, source.facts()?);
            let is_up = link.look(&there, &back).map_err(|error| {
                view.end();
                format!(
                    "There is no way back: {} does not follow {host}:{port}. {error} It refuses \
                     writes.",
                    source.address
                )
            })?;
            if is_up {
                break;
            }
            let lag = there.offset() - back.offset();
            view.show(line(phase(&back, lag), &there, &back, lag, &Samples::default()));
            thread::sleep(INTERVAL);
        }
        view.close();
        out!(
            "{} follows it now and refuses writes. The way back: bobbin-cli on it, with migrate \
             {host}:{port} switch.\n",
            source.address
        );
        Ok(())
    }
}

/// What becomes of writes to a source that does not follow the target.
fn what_comes_of(source: &MigrationNode) -> String {
    let (address, seconds) = (&source.address, PAUSE.as_secs());
    format!("Writes to {address} stand still for {seconds} s, and are lost after that: stop it.")
}

/// Tells the source to follow the target.
fn point_back(
    source: &mut MigrationNode,
    here: &Target,
    (host, port): (&str, u16),
) -> Result<(), String> {
    source.log_in_as(here)?;
    if here.tls {
        source.demand(&["CONFIG", "SET", "tls-replication", "yes"])?;
    }
    source.demand(&["REPLICAOF", host, &port.to_string()]).map(drop)
}

/// Where a server of this address can be followed.
fn place_of<'a>(address: &'a ServerAddress, complaint: &str) -> Result<(&'a str, u16), String> {
    match address {
        ServerAddress::Tcp { host, port } => Ok((host.as_str(), *port)),
        ServerAddress::Unix(_) => Err(complaint.into()),
    }
}

/// Waits until the target has all that the source wrote, and makes it a primary.
fn take_over(
    source: &mut MigrationNode,
    target: &mut MigrationNode,
    started: Instant,
) -> Result<(), String> {
    // What was written just before may not be in the source's stream yet.
    let (mut end, mut still) = (source.facts()?.offset(), 0);
    while still < STILL_LOOKS || target.facts()?.offset() < end {
        if started.elapsed() > PAUSE / 2 {
            return Err("The target did not catch up in time.".into());
        }
        thread::sleep(LOOK_PAUSE);
        let now = source.facts()?.offset();
        still = if now == end { still + 1 } else { 0 };
        end = now;
    }
    target.demand(&["REPLICAOF", "NO", "ONE"]).map(drop)
}

/// Shows how far the target is, until it has been in step for a while and enough keys were
/// compared.
fn watch(source: &mut MigrationNode, target: &mut MigrationNode) -> Result<Samples, String> {
    let (mut samples, mut view) = (Samples::default(), View::new());
    let (mut calm, mut link) = (0, LinkWatch::default());
    while calm < CALM_LOOKS && samples.different.len() < DIFFERENT_MAX {
        let (here, there) = (source.facts()?, target.facts()?);
        let lag = here.offset() - there.offset();
        link.look(&here, &there).map_err(|error| {
            view.end();
            format!(
                "The target does not follow the source. {error} It goes on trying until it is told \
                 REPLICAOF NO ONE."
            )
        })?;
        let phase = phase(&there, lag);
        calm = if phase == Phase::InStep { calm + 1 } else { 0 };
        if matches!(phase, Phase::InStep | Phase::CatchingUp) {
            compare(source, target, &here, &mut samples)?;
        }
        view.show(line(phase, &here, &there, lag, &samples));
        thread::sleep(INTERVAL);
    }
    view.end();
    Ok(samples)
}

fn phase(there: &NodeFacts, lag: i64) -> Phase {
    if link::copies(there) {
        Phase::Copying
    } else if there.text("master_link_status") != "up" {
        Phase::Connecting
    } else if lag > LAG_MAX {
        Phase::CatchingUp
    } else {
        Phase::InStep
    }
}

fn line(phase: Phase, here: &NodeFacts, there: &NodeFacts, lag: i64, samples: &Samples) -> String {
    match phase {
        Phase::Connecting => "connecting    the link is not up; see the target's log".to_owned(),
        Phase::Copying => format!("copying       {} of {} keys", there.keys(), here.keys()),
        Phase::CatchingUp => format!("catching up   {} behind", human(lag)),
        Phase::InStep => format!("in step       {} behind; {}", human(lag.max(0)), samples.show()),
    }
}

/// Compares some keys of each database.
fn compare(
    source: &mut MigrationNode,
    target: &mut MigrationNode,
    here: &NodeFacts,
    samples: &mut Samples,
) -> Result<(), String> {
    let total = here.keys().max(1);
    for &(database, keys) in &here.databases {
        let count = (SAMPLES * keys).div_ceil(total);
        for _ in 0..count {
            if !samples.take(source, target, database)? {
                break;
            }
        }
    }
    Ok(())
}

fn tell_differences(samples: &Samples) -> String {
    let mut text = String::from("These keys differ, though the source's did not change:\n");
    for (key, what) in &samples.different {
        text.push_str(&format!("  {}: {what}\n", String::from_utf8_lossy(key)));
    }
    text + "Does anybody write to the target? It is not ready to take over."
}

fn how_to_switch(source: &ServerAddress) -> String {
    format!(
        "Ready. To switch, with writes standing still for a moment: the same command with \
         \"switch\".\nWith \"switch back\" {source} becomes a replica of the new primary.\n"
    )
}

/// Where the progress is shown: in one line of a terminal; elsewhere a line now and then.
struct View {
    shown: Instant,
    last: String,
}

impl View {
    fn new() -> Self {
        Self { shown: Instant::now(), last: String::new() }
    }

    fn show(&mut self, line: String) {
        if terminal::is_terminal() {
            terminal::command(terminal::CLEAR_LINE);
            out!("{line}");
        } else if self.shown.elapsed() >= LINE_INTERVAL {
            self.shown = Instant::now();
            out!("{line}\n");
        }
        self.last = line;
    }

    /// The last line goes.
    fn close(&self) {
        if terminal::is_terminal() {
            terminal::command(terminal::CLEAR_LINE);
        }
    }

    /// The last line stays.
    fn end(&self) {
        if terminal::is_terminal() {
            out!("\n");
        } else {
            out!("{}\n", self.last);
        }
    }
}

const PASSWORD_PLACE: &str = "Its password goes into its address: redis://user:password@host:port.";
const USAGE: &str = "usage: bobbin-cli [-h host] [-p port] migrate SOURCE [replace] [switch] [back]
SOURCE is host, host:port or redis://user:password@host:port; -h and -p say what shall follow it.";
/// What to do when one server's address would lead the other one to itself.
const SOURCE_ADDRESS: &str = "Name the source by an address that the target can reach.";
const WAY_BACK_ADDRESS: &str = "Name the target (-h) by an address that the source can reach.";
const SOURCE_SOCKET: &str = "The target cannot follow a Unix socket: name a host and a port.";
const WAY_BACK_SOCKET: &str =
    "The source cannot follow a Unix socket: name the target by a host and a port (-h, -p).";
/// The name, the source, and three words.
const WORDS_MAX: usize = 5;
/// For how long writers of the source are held at most.
const PAUSE: Duration = Duration::from_secs(60);
/// Between two looks while writers are held.
const LOOK_PAUSE: Duration = Duration::from_millis(5);
/// Looks in a row at which the source's stream must have stood still.
const STILL_LOOKS: u32 = 10;
/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(500);
/// Between two lines where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// Looks in a row at which the target must have been in step.
const CALM_LOOKS: u32 = 4;
/// Bytes that a target in step may be behind.
const LAG_MAX: i64 = 1 << 20;
/// Keys that are compared at each look.
const SAMPLES: u64 = 25;
/// After as many differences it is clear that something is wrong.
const DIFFERENT_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Vec<u8>> {
        line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn the_command_of_that_name_is_left_alone() {
        for line in ["migrate host", "MIGRATE redis://a:b@host:1 replace switch back"] {
            assert!(is_meant(&words(line)), "{line}");
        }
        for line in ["migrate", "migrate host 6379 key 0 1000", "migrated host"] {
            assert!(!is_meant(&words(line)), "{line}");
        }
    }

    #[test]
    fn words_say_what_is_wanted() {
        let parsed = Migration::parse(&words("10.0.0.1:7000 switch back")).unwrap();
        assert_eq!(parsed.source.address.to_string(), "10.0.0.1:7000");
        assert_eq!((parsed.switches, parsed.keeps_way_back, parsed.replaces), (true, true, false));
        let parsed = Migration::parse(&words("rediss://u:p@host")).unwrap();
        assert_eq!((parsed.source.tls, parsed.source.password), (true, Some(b"p".to_vec())));
        assert!(Migration::parse(&words("host now")).is_err());
        let error = Migration::parse(&words("redis://u:secret@host:x")).err().unwrap();
        assert!(error.starts_with("host:x: "), "{error}");
    }
}
