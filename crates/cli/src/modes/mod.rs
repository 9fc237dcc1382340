//! The tools that an option starts instead of a command or the shell.

mod big_keys;
mod cluster;
pub mod doctor;
mod eval;
mod hot_keys;
mod info;
mod intrinsic_latency;
mod key_statistics;
mod keys;
mod latency;
mod latency_distribution;
mod lru_test;
pub mod migrate;
mod pipe;
mod progress;
mod rdb;
mod replica;
mod scan;
mod server;
mod statistics;
pub mod top;

use std::process::ExitCode;

use crate::{
    options::{self, Mode},
    repl,
    session::Session,
};

use big_keys::Measure;
use rdb::DataPart;

/// How a tool is used that was given other words than it takes. Mostly they are options, which come
/// before its name. No server has commands of these names.
pub fn misuse(command: &[Vec<u8>]) -> Option<&'static str> {
    match &**command.first()? {
        b"doctor" => Some("[options] doctor"),
        b"top" => Some("[options] top [--replay file [speed]]"),
        _ => None,
    }
}

/// Runs the tool. `arguments` is what stands behind the options.
pub fn run(mode: Mode, session: &mut Session, arguments: &[Vec<u8>]) -> ExitCode {
    match mode {
        Mode::Help => show(&options::help_text()),
        Mode::Version => show(&format!("bobbin-cli {}\n", env!("CARGO_PKG_VERSION"))),
        Mode::Manual => show(&options::manual_page()),
        Mode::Completion => show(&session.options.modes.shell.script()),
        Mode::Cluster => cluster::run(session),
        Mode::Latency => latency::run(session),
        Mode::LatencyDistribution => latency_distribution::run(session),
        Mode::Replica => replica::run(session),
        Mode::Rdb => rdb::run(session, DataPart::All),
        Mode::FunctionsRdb => rdb::run(session, DataPart::Functions),
        Mode::Pipe => pipe::run(session),
        Mode::BigKeys => big_keys::run(session, Measure::Length),
        Mode::MemoryKeys => big_keys::run(session, Measure::Memory),
        Mode::KeyStatistics => key_statistics::run(session),
        Mode::HotKeys => hot_keys::run(session),
        Mode::Statistics => statistics::run(session),
        Mode::Scan => scan::run(session),
        Mode::LruTest => lru_test::run(session),
        Mode::IntrinsicLatency => intrinsic_latency::run(session),
        Mode::TestHint => repl::print_hint(session),
        Mode::TestHintFile => repl::check_file(session),
        Mode::Eval => eval::run(session, arguments),
    }
}

fn show(text: &str) -> ExitCode {
    out!("{text}");
    ExitCode::SUCCESS
}
