//! `:watch`: a command again and again on a cleared screen, until Ctrl-C. It has a colon, as WATCH
//! is a command of the server.

use std::time::Duration;

use super::editor::LineSource;
use crate::{interrupt, options::Repeat, session::Session, terminal};

/// Runs what is behind `:watch`. The error is for the user.
pub fn run(session: &mut Session, lines: &mut LineSource, words: &[Vec<u8>]) -> Result<(), String> {
    let (interval, command) = parse(words)?;
    if !lines.is_typed() || !terminal::is_terminal() {
        return Err(":watch needs a terminal".into());
    }
    if session.is_queueing() || session.is_subscribed() {
        return Err(":watch runs outside of transactions and subscriptions".into());
    }
    let shown: Vec<_> = command.iter().map(|word| String::from_utf8_lossy(word)).collect();
    let shown = shown.join(" ");
    let hold = interrupt::hold();
    while !hold.is_pressed() {
        lines.clear_screen();
        out!("{shown}, every {}s; Ctrl-C ends it\n\n", interval.as_secs_f64());
        // What went wrong has been said; it may be right again the next time.
        let _ = session.run(command, Repeat::Times(1));
        if session.is_queueing() || session.is_subscribed() {
            return Ok(());
        }
        interrupt::sleep(interval);
    }
    out!("\n");
    drop(hold);
    // A command whose reply nobody waited for took the connection with it.
    if !session.is_connected() {
        let _ = session.connect();
    }
    Ok(())
}

/// `[seconds] command ...`
fn parse(words: &[Vec<u8>]) -> Result<(Duration, &[Vec<u8>]), String> {
    let first = words.first().and_then(|word| std::str::from_utf8(word).ok());
    let seconds = first.and_then(|word| word.parse::<f64>().ok());
    let (seconds, command) = match seconds {
        Some(seconds) => (seconds, &words[1..]),
        None => (SECONDS, words),
    };
    if !SECONDS_ALLOWED.contains(&seconds) {
        return Err("the seconds of :watch are from 0.1 to 86400".into());
    }
    if command.is_empty() {
        return Err(":watch needs a command, as in ':watch 1 INFO memory'".into());
    }
    Ok((Duration::from_secs_f64(seconds), command))
}

const SECONDS: f64 = 2.0;
const SECONDS_ALLOWED: std::ops::RangeInclusive<f64> = 0.1..=86_400.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_a_command() {
        let words = |line: &str| -> Vec<Vec<u8>> {
            line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
        };
        let parsed =
            |line: &str| parse(&words(line)).map(|(interval, command)| (interval, command.len()));
        assert_eq!(parsed("dbsize"), Ok((Duration::from_secs(2), 1)));
        assert_eq!(parsed("0.5 info memory"), Ok((Duration::from_millis(500), 2)));
        for wrong in ["", "1", "0 ping", "-1 ping", "nan ping", "inf ping", "1e9 ping"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
