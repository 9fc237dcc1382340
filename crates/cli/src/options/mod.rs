//! What the command line says. One table ([`table::FLAGS`]) has every option; the parser, `--help`,
//! the man page and the shells' completions are made from it.

mod cluster;
mod completion;
mod help;
mod manual;
mod parse;
mod table;

use std::time::Duration;

use bobbin_client::{Target, TlsConnector, TlsOptions, Transport};

use crate::format::Style;

pub use cluster::ClusterOptions;
pub use completion::Shell;
pub use parse::{Environment, ParsedOptions, parse};
pub use {
    help::text as help_text,
    manual::page as manual_page,
    table::{find as flag, unquote},
};

/// Everything that can be asked for: a field for each option.
#[derive(Clone, Debug)]
pub struct Options {
    pub target: Target,
    pub transport: Transport,
    /// Of use where the target wants TLS.
    pub tls: TlsOptions,
    pub ask_password: bool,
    pub auth_warning: bool,
    pub protocol: ProtocolChoice,

    /// `None` where nobody said how often.
    pub repeat: Option<Repeat>,
    /// Between repetitions, samples or cycles; what the default is depends on the mode.
    pub interval: Option<Duration>,
    pub standard_input: StandardInput,
    pub quoted_input: bool,
    /// End with an error when a command fails (`-e`).
    pub fail_on_error: bool,
    /// Follow the redirections of a cluster (`-c`).
    pub cluster: bool,

    pub style: Style,
    /// Print what is pushed unasked.
    pub show_pushes: bool,
    pub verbose: bool,

    pub mode: Option<Mode>,
    pub modes: ModeOptions,
    /// What `--cluster` does.
    pub manager: ClusterOptions,

    /// The command and its arguments.
    pub command: Vec<Vec<u8>>,
}

/// What only some modes read: a field for each option.
#[derive(Clone, Debug)]
pub struct ModeOptions {
    pub latency_history: bool,
    pub monochrome: bool,
    pub intrinsic_seconds: u64,
    pub lru_keys: u64,
    pub pattern: Option<Vec<u8>>,
    pub count: u64,
    pub memory_samples: Option<u64>,
    pub hot_keys: usize,
    pub cursor: u64,
    pub top: usize,
    pub file: Vec<u8>,
    pub script: Vec<u8>,
    /// Stop in front of its lines.
    pub debugging: Option<Debugging>,
    pub pipe_timeout: Option<Duration>,
    pub hint_input: Vec<u8>,
    pub shell: Shell,
}

/// What to do instead of running a command or the shell. Where several are asked for, the first in
/// this order is done, which is valkey-cli's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    Help,
    Version,
    Manual,
    Completion,
    Cluster,
    Latency,
    LatencyDistribution,
    Replica,
    Rdb,
    FunctionsRdb,
    Pipe,
    BigKeys,
    MemoryKeys,
    KeyStatistics,
    HotKeys,
    Statistics,
    Scan,
    LruTest,
    IntrinsicLatency,
    TestHint,
    TestHintFile,
    Eval,
}

/// What happens to other clients, and to changes, while a script is debugged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Debugging {
    /// The server debugs in a process of its own: others go on, and changes are lost.
    Forked,
    /// Others wait, and changes stay.
    Synchronous,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolChoice {
    /// What the server starts with: version 2.
    Default,
    Resp2,
    Resp3,
    /// Version 3 where the server has it: what the JSON forms like.
    Resp3IfThere,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    Times(u64),
    Forever,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StandardInput {
    /// Only what the shell or a mode reads.
    Untouched,
    /// It is the last argument (`-x`).
    LastArgument,
    /// It replaces the argument that equals this (`-X`).
    Tag(Vec<u8>),
}

impl Options {
    /// How often to do what is done once unless somebody says otherwise.
    pub fn times(&self) -> Repeat {
        self.repeat.unwrap_or(Repeat::Times(1))
    }

    /// The defaults, which depend on whether there is a terminal.
    pub fn new(terminal: bool) -> Self {
        use crate::format::ReplyForm;
        Self {
            target: Target::default(),
            transport: Transport::default(),
            tls: TlsOptions::default(),
            ask_password: false,
            auth_warning: true,
            protocol: ProtocolChoice::Default,
            repeat: None,
            interval: None,
            standard_input: StandardInput::Untouched,
            quoted_input: false,
            fail_on_error: false,
            cluster: false,
            style: Style::new(if terminal { ReplyForm::Tty } else { ReplyForm::Raw }),
            show_pushes: terminal,
            verbose: false,
            mode: None,
            modes: ModeOptions {
                latency_history: false,
                monochrome: false,
                intrinsic_seconds: 0,
                lru_keys: 0,
                pattern: None,
                count: SCAN_COUNT,
                memory_samples: None,
                hot_keys: HOT_KEYS,
                cursor: 0,
                top: TOP_KEYS,
                file: Vec::new(),
                script: Vec::new(),
                debugging: None,
                pipe_timeout: Some(PIPE_TIMEOUT),
                hint_input: Vec::new(),
                shell: Shell::Bash,
            },
            manager: ClusterOptions::default(),
            command: Vec::new(),
        }
    }

    /// Reads the files that TLS needs, where it is wanted.
    pub fn prepare_tls(&mut self) -> Result<(), String> {
        if self.target.tls {
            self.transport.tls = Some(TlsConnector::new(&self.tls)?);
        }
        Ok(())
    }

    /// Asks for a mode. The first in the order of [`Mode`] wins.
    fn choose(&mut self, mode: Mode) {
        self.mode = Some(self.mode.map_or(mode, |chosen| chosen.min(mode)));
    }
}

const SCAN_COUNT: u64 = 10;
const HOT_KEYS: usize = 16;
const TOP_KEYS: usize = 10;
const PIPE_TIMEOUT: Duration = Duration::from_secs(30);
