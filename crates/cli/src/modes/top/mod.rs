//! `bobbin-cli top`: the server, live, on the whole screen; or one look at it as text, where the
//! output is no terminal.

mod change;
mod draw;
mod facts;
mod keyboard;
mod model;
mod plain;
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
    model::Model,
    sample::Question,
    sampler::{News, Sampler},
};
use crate::{options::Repeat, session::Session, terminal};

/// Shows the server until the user quits.
pub fn run(session: &Session) -> ExitCode {
    let started = Instant::now();
    let interval = session.options.interval.unwrap_or(INTERVAL);
    let model = Model::new(session.address.to_string(), interval);
    if terminal::has_screen() {
        return screen::run(model, Sampler::start(session, started, interval, &[]), started);
    }
    let also = [Question::Clients, Question::HotKeys];
    let sampler = Sampler::start(session, started, interval, &also);
    match print(model, &sampler, interval, session.options.repeat) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            complain!("{reason}");
            ExitCode::FAILURE
        }
    }
}

/// Prints as many looks as `repeat` says. The first needs two samples, as it shows rates.
fn print(
    mut model: Model,
    sampler: &Sampler,
    interval: Duration,
    repeat: Repeat,
) -> Result<(), String> {
    let mut printed = 0;
    let mut is_first = true;
    while !matches!(repeat, Repeat::Times(times) if printed >= times) {
        match sampler.news.recv_timeout(interval + PATIENCE) {
            Ok(News::Sample(sample)) => model.take(*sample),
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
