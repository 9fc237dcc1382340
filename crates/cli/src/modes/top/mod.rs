//! `bobbin-cli top`: the server, live, on the whole screen; or one look at it as text, where the
//! output is no terminal. It shows a recording as it shows a server.

mod change;
mod draw;
mod facts;
mod model;
mod plain;
mod player;
pub mod record;
mod recording;
mod sample;
mod sampler;
mod screen;
mod table;
mod text;
mod views;

use std::{
    process::ExitCode,
    sync::mpsc::RecvTimeoutError,
    time::{Duration, Instant},
};

use self::{
    model::TopModel,
    player::Recording,
    sample::Question,
    sampler::{News, Sampler},
};
use crate::{options::Repeat, session::Session, terminal};

/// Shows the server until the user quits.
pub fn run(session: &Session) -> ExitCode {
    let started = Instant::now();
    let interval = session.options.interval.unwrap_or(INTERVAL);
    let model = TopModel::new(session.address.to_string(), interval);
    if terminal::has_screen() {
        return screen::run(model, Sampler::start(session, started, interval, &[]), started);
    }
    let also = [Question::Clients, Question::HotKeys];
    let sampler = Sampler::start(session, started, interval, &also);
    match print(model, &sampler, interval, session.options.times()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            complain!("{reason}");
            ExitCode::FAILURE
        }
    }
}

/// Whether a command line is meant for [`replay`]: no server has such a command.
pub fn is_replay(command: &[Vec<u8>]) -> bool {
    matches!(command, [name, option, ..] if name.eq_ignore_ascii_case(b"top") && option == b"--replay")
}

/// Shows a recording, which is of the words behind `--replay`.
pub fn replay(session: &Session, words: &[Vec<u8>]) -> ExitCode {
    let recording = match Recording::open(words) {
        Ok(recording) => recording,
        Err(reason) => {
            complain!("{reason}");
            return ExitCode::FAILURE;
        }
    };
    let interval = session.options.interval.unwrap_or(INTERVAL);
    let mut model = TopModel::new(recording.header.server.clone(), interval);
    model.is_recording = true;
    if terminal::has_screen() {
        return screen::run(model, recording.play(), Instant::now());
    }
    let player = recording.at_once().play();
    match print(model, &player, interval, session.options.times()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            complain!("{reason}");
            ExitCode::FAILURE
        }
    }
}

/// Prints as many looks as `repeat` says. The first needs two samples, as it shows rates.
fn print(
    mut model: TopModel,
    sampler: &Sampler,
    interval: Duration,
    repeat: Repeat,
) -> Result<(), String> {
    let mut printed = 0;
    let mut is_first = true;
    while !matches!(repeat, Repeat::Times(times) if printed >= times) {
        match sampler.news.recv_timeout(interval + PATIENCE) {
            Ok(News::Sample(sample)) => model.take(*sample),
            // In a recording it came back, or the look before it is the last.
            Ok(News::Lost(reason)) if model.is_recording => model.lose(reason),
            Ok(News::Notice(_)) if model.is_recording && printed > 0 => return Ok(()),
            Ok(News::Lost(reason) | News::Notice(reason)) => return Err(reason),
            Err(RecvTimeoutError::Timeout) => return Err("The server does not answer.".into()),
            Err(RecvTimeoutError::Disconnected) => return Err("Nobody asks the server.".into()),
        }
        if !std::mem::take(&mut is_first) {
            let gap = if printed > 0 { "\n" } else { "" };
            out!("{gap}{}", plain::frame(&model));
            printed += 1;
        }
    }
    Ok(())
}

const INTERVAL: Duration = Duration::from_secs(1);
/// For how long scripts wait for a server that says nothing, or too slowly.
const PATIENCE: Duration = Duration::from_secs(30);
