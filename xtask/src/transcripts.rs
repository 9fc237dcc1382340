//! Replays `tests/transcripts` on the real servers and on Bobbin, or records it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bobbin_testkit::transcript::{
    Oracle, Player, StepAction, Transcript, TranscriptMode, TranscriptOutcome as Played,
};
use bobbin_testkit::{TestServer, peers};

use crate::shell::{self, TaskResult};

/// Replays on Bobbin, and with `with_peers` on the real servers too; any difference is an error,
/// and `shown` of each file are printed.
pub(crate) fn check(files: &[&str], with_peers: bool, shown: usize) -> TaskResult {
    let transcripts = load(files)?;
    let mut failed = 0;
    if with_peers {
        failed += check_on("valkey", Oracle::Valkey, &transcripts, shown)?;
        failed += check_on("redis", Oracle::Redis, &transcripts, shown)?;
    }
    failed += check_on("bobbin", Oracle::Bobbin, &transcripts, shown)?;
    if files.is_empty() {
        failed += check_coverage(&transcripts)?;
    }
    if failed == 0 { Ok(()) } else { Err(format!("{failed} differences")) }
}

/// Writes the real servers' replies into the files.
pub(crate) fn record(files: &[&str]) -> TaskResult {
    let mut failed = 0;
    for oracle in [Oracle::Valkey, Oracle::Redis] {
        // Loaded anew: recording moves lines.
        let transcripts: Vec<_> = load(files)?.into_iter().filter(|t| asks(t, oracle)).collect();
        if transcripts.is_empty() {
            continue;
        }
        for transcript in &transcripts {
            let played = play(oracle, TranscriptMode::Record, transcript)?;
            report("recording", transcript, &played, DIFFERENCES_SHOWN);
            failed += played.differences.len();
            shell::write(&transcript.path, &(played.lines.join("\n") + "\n"))?;
        }
    }
    if failed == 0 { Ok(()) } else { Err(format!("{failed} steps are not as their masks say")) }
}

fn check_on(
    name: &str,
    oracle: Oracle,
    transcripts: &[Transcript],
    shown: usize,
) -> Result<usize, String> {
    let (mut steps, mut failed) = (0, 0);
    for transcript in transcripts.iter().filter(|transcript| asks(transcript, oracle)) {
        let played = play(oracle, TranscriptMode::Check, transcript)?;
        report(name, transcript, &played, shown);
        steps += played.steps;
        failed += played.differences.len();
    }
    println!("{name}: {steps} replies compared, {failed} differences");
    Ok(failed)
}

fn play(oracle: Oracle, mode: TranscriptMode, transcript: &Transcript) -> Result<Played, String> {
    let server = match oracle {
        Oracle::Valkey => TestServer::valkey(SERVER_FLAGS),
        Oracle::Redis => TestServer::redis(SERVER_FLAGS),
        Oracle::Bobbin => TestServer::bobbin(SERVER_FLAGS),
    };
    Ok(Player::new(server.address(), oracle, mode)?.play(transcript))
}

fn report(name: &str, transcript: &Transcript, played: &Played, shown: usize) {
    let file = transcript.path.file_name().unwrap_or_default().to_string_lossy();
    for section in &played.skipped {
        println!("{name}: {file}: SKIPPED {section}");
    }
    for difference in played.differences.iter().take(shown) {
        println!("{name}: {difference}");
    }
    let more = played.differences.len().saturating_sub(shown);
    if more > 0 {
        println!("{name}: {file}: {more} more differences");
    }
}

/// Every command that Bobbin lists occurs in a transcript.
fn check_coverage(transcripts: &[Transcript]) -> Result<usize, String> {
    let server = TestServer::bobbin(SERVER_FLAGS);
    let listed = server.connect().say("COMMAND LIST");
    let shown: BTreeSet<String> = transcripts
        .iter()
        .flat_map(|transcript| &transcript.sections)
        .flat_map(|section| &section.steps)
        .flat_map(|step| match &step.action {
            StepAction::Send(bytes) => names(bytes),
            _ => Vec::new(),
        })
        .collect();
    let missing: Vec<_> = listed
        .items()
        .iter()
        .map(|name| name.text().to_uppercase())
        .filter(|name| !shown.contains(name))
        .collect();
    for name in &missing {
        println!("bobbin: no transcript runs {name}");
    }
    Ok(missing.len())
}

/// `NAME` and `NAME|SUBCOMMAND` of `*N\r\n$N\r\nNAME\r\n$N\r\nSUBCOMMAND\r\n...`.
fn names(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes).to_uppercase();
    let mut lines = text.split("\r\n").skip(2).step_by(2);
    match (lines.next(), lines.next()) {
        (Some(name), Some(second)) => vec![name.to_owned(), format!("{name}|{second}")],
        (Some(name), None) => vec![name.to_owned()],
        _ => Vec::new(),
    }
}

fn asks(transcript: &Transcript, oracle: Oracle) -> bool {
    oracle == Oracle::Bobbin || transcript.sections.iter().any(|section| section.oracle == oracle)
}

fn load(files: &[&str]) -> Result<Vec<Transcript>, String> {
    let folder = peers::repository().join("tests/transcripts");
    if files.is_empty() {
        return Transcript::load_all(&folder);
    }
    files.iter().map(|file| Transcript::load(&find(&folder, file))).collect()
}

/// A path, or a name in the folder with or without its ending.
fn find(folder: &Path, file: &str) -> PathBuf {
    let candidates = [folder.join(file), folder.join(format!("{file}.txt"))];
    candidates.into_iter().find(|path| path.exists()).unwrap_or_else(|| file.into())
}

const SERVER_FLAGS: &[&str] =
    &["--enable-debug-command", "yes", "--enable-protected-configs", "yes"];
/// Of each file, unless all are asked for.
pub(crate) const DIFFERENCES_SHOWN: usize = 20;
