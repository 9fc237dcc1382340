//! CPU time of a server for each command, of many: ours and a peer's.
//!
//! Clients pipeline each command of `commands.txt` over data that both servers have. So what
//! receiving and sending cost is small beside the command, though it is counted as well.

mod fill;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use bobbin_testkit::transcript::split_words;
use bobbin_testkit::{TestServer, peers};

use crate::options::number;
use crate::shell::TaskResult;

/// Measures commands; `arguments` as [`USAGE`] has them.
pub(crate) fn run(arguments: &[&str]) -> TaskResult {
    let options = Options::parse(arguments)?;
    let rows: Vec<Row> = ROWS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(Row::parse)
        .collect::<Result<_, _>>()?;
    let wanted = |row: &&Row| {
        options.names.is_empty()
            || options.names.iter().any(|name| row.command[0].eq_ignore_ascii_case(name))
    };
    let rows: Vec<_> = rows.iter().filter(wanted).collect();
    let servers = [&options.ours, &options.peer].map(|binary| TestServer::start(binary, &[]));
    let [ours, peer] = servers;
    let servers = [ours?, peer?];
    for server in &servers {
        fill::fill(&mut server.connect())?;
    }
    let mut ratios = Vec::new();
    println!("{:>9} {:>9} {:>6}  command", "us", "peer us", "ratio");
    for row in rows {
        let mut least = [f64::INFINITY; 2];
        for _ in 0..options.rounds {
            for (server, least) in servers.iter().zip(&mut least) {
                *least = least.min(row.measure(server)?);
            }
        }
        let [ours, peer] = least;
        ratios.push(ours / peer);
        let mark = if ours > peer { " <" } else { "" };
        println!("{ours:>9.2} {peer:>9.2} {:>6.2}  {}{mark}", ours / peer, row.shown());
    }
    ratios.sort_by(f64::total_cmp);
    let above = ratios.iter().filter(|ratio| **ratio > 1.0).count();
    if let Some(median) = ratios.get(ratios.len() / 2) {
        println!("{} commands: median ratio {median:.2}, {above} above 1", ratios.len());
    }
    Ok(())
}

struct Options {
    ours: PathBuf,
    peer: PathBuf,
    rounds: usize,
    names: Vec<String>,
}

impl Options {
    fn parse(mut arguments: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            ours: peers::bobbin(),
            peer: peers::peer("valkey-server"),
            rounds: 2,
            names: Vec::new(),
        };
        loop {
            match *arguments {
                ["--server", path, ref rest @ ..] => {
                    (options.ours, arguments) = (path.into(), rest);
                }
                ["--peer", name @ ("valkey" | "redis"), ref rest @ ..] => {
                    options.peer = peers::peer(&format!("{name}-server"));
                    arguments = rest;
                }
                ["--peer", path, ref rest @ ..] => {
                    (options.peer, arguments) = (path.into(), rest);
                }
                ["--rounds", count, ref rest @ ..] => {
                    (options.rounds, arguments) = (number(count)?, rest);
                }
                [option, ..] if option.starts_with('-') => return Err(USAGE.to_owned()),
                ref names => {
                    options.names = names.iter().map(|&name| name.to_owned()).collect();
                    return Ok(options);
                }
            }
        }
    }
}

/// A line of the table.
struct Row {
    /// How often the command is sent.
    requests: usize,
    /// How many numbers may stand where `{}` does.
    numbers: usize,
    /// The command as the line has it.
    written: Vec<String>,
    command: Vec<String>,
}

impl Row {
    fn parse(line: &str) -> Result<Self, String> {
        let words = split_words(line)?;
        let mut words = words.into_iter().map(|word| String::from_utf8_lossy(&word).into_owned());
        let mut number = || words.next()?.parse().ok();
        let (Some(requests), Some(numbers)) = (number(), number()) else {
            return Err(format!("no command with two numbers before it: {line}"));
        };
        let written: Vec<_> = words.collect();
        if written.is_empty() {
            return Err(format!("no command: {line}"));
        }
        let times = |word: &String| word.strip_prefix('*')?.parse::<usize>().ok();
        let command = match written.iter().position(|word| times(word).is_some()) {
            Some(at) => {
                let (once, repeated) = (&written[..at], &written[at + 1..]);
                let numbered = |number: usize| {
                    repeated.iter().map(move |word| word.replace('#', &number.to_string()))
                };
                let many = (0..times(&written[at]).unwrap_or(1)).flat_map(numbered);
                once.iter().cloned().chain(many).collect()
            }
            None => written.clone(),
        };
        Ok(Self { requests, numbers, written, command })
    }

    fn shown(&self) -> String {
        let text = self.written.join(" ");
        let cut = text.char_indices().nth(SHOWN_MAX).map_or(text.len(), |(at, _)| at);
        text[..cut].to_owned()
    }

    /// Microseconds of the server's CPU time for each of these commands.
    fn measure(&self, server: &TestServer) -> Result<f64, String> {
        // What was slow before would make SLOWLOG's reply longer.
        server.connect().say("SLOWLOG RESET");
        let before = cpu(server);
        let status = Command::new(peers::peer("valkey-benchmark"))
            .args([
                "-p",
                &server.address().port().to_string(),
                "-q",
                "-c",
                "50",
                "-P",
                "16",
                "--threads",
                "2",
            ])
            .args(["-n", &self.requests.to_string(), "-r", &self.numbers.to_string(), "--"])
            .args(self.command.iter().map(|word| word.replace("{}", "__rand_int__")))
            .stdout(Stdio::null())
            .status()
            .map_err(|error| format!("valkey-benchmark: {error}"))?;
        if !status.success() {
            return Err(format!("valkey-benchmark with {}: {status}", self.shown()));
        }
        Ok((cpu(server) - before).as_secs_f64() * 1e6 / self.requests as f64)
    }
}

/// CPU time of all threads of a server.
pub(crate) fn cpu(server: &TestServer) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.id()));
    let of_task = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
    };
    Duration::from_nanos(tasks.into_iter().flatten().flatten().map(of_task).sum())
}

const ROWS: &str = include_str!("commands.txt");
pub(crate) const USAGE: &str = "\
usage: cargo xtask cpu [--server PATH] [--peer valkey|redis|PATH] [--rounds N] [COMMAND...]
  CPU time of a server for each of some 200 commands, or for these; the least of 2 rounds";
const SHOWN_MAX: usize = 60;
