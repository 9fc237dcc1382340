//! From settings to measurements and reports, one file for each way of calling the program.

pub mod compare;
pub mod expire;
mod fuzz;
pub mod generate;
pub mod limits;
pub mod memtier;
mod monitor;
mod process;
pub mod redis;
pub mod sweep;

use std::{
    io,
    path::Path,
    time::{Duration, SystemTime},
};

use bobbin_client::error_text;

use crate::{
    engine::{LatencyHistogram, LoadOutcome, LoadRun, run},
    output::OutputFile,
    report::{hdr_log, hdr_text, live::Live},
};

/// Why the program ends early.
#[derive(Debug, PartialEq, Eq)]
pub struct DriveFailure(pub String);

impl<E: std::fmt::Display> From<E> for DriveFailure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// Measures, with the live line where there is a terminal.
pub(crate) fn measure(
    job: &LoadRun<'_>,
    title: &str,
    hidden: bool,
) -> Result<LoadOutcome, DriveFailure> {
    let mut live = Live::new(title, hidden);
    let outcome = match &mut live {
        Some(live) => run(job, Some(&mut |progress| live.show(progress))),
        None => run(job, None),
    };
    Ok(outcome?)
}

/// The index of the run with the median rate; the lower one of an even number.
pub(crate) fn median(rates: &[f64]) -> usize {
    let mut order: Vec<_> = (0..rates.len()).collect();
    order.sort_by(|&a, &b| rates[a].total_cmp(&rates[b]));
    order[(order.len() - 1) / 2]
}

/// Writes a distribution as `name.txt` and `name.hgrm`.
pub(crate) fn write_distribution(
    name: &str,
    title: &str,
    latencies: &LatencyHistogram,
    started: SystemTime,
    lasted: Duration,
) -> Result<(), DriveFailure> {
    write_file(format!("{name}.txt").as_ref(), hdr_text(latencies))?;
    write_file(format!("{name}.hgrm").as_ref(), hdr_log(latencies, title, started, lasted)?)
}

pub(crate) fn write_file(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), DriveFailure> {
    Ok(OutputFile::open(path)?.write(contents)?)
}

/// Whether a distribution of this name can be written, before it is measured.
pub(crate) fn check_distribution(name: &str) -> Result<(), DriveFailure> {
    OutputFile::open(format!("{name}.txt").as_ref())?;
    Ok(())
}

/// A file that cannot be read.
fn unreadable(path: &str, error: &io::Error) -> DriveFailure {
    DriveFailure(format!("Cannot read {path}: {}", error_text(error)))
}

/// Columns of text, the first to the left, the others to the right.
pub(crate) fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let rows = rows.iter().map(|row| row[column].chars().count());
        rows.max().unwrap_or(0).max(head[column].chars().count())
    };
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for row in std::iter::once(head).chain(rows.iter().map(Vec::as_slice)) {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            text += &match column {
                0 => format!("{cell:<width$}"),
                _ => format!("  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text
}

/// What a test is called in a file's name.
pub(crate) fn file_name(title: &str) -> String {
    title
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' })
        .take(FILE_NAME_LEN_MAX)
        .collect()
}

const FILE_NAME_LEN_MAX: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[5.0]), 0);
        assert_eq!(median(&[5.0, 1.0, 3.0]), 2);
        assert_eq!(median(&[5.0, 1.0, 3.0, 4.0]), 2);
    }
}
