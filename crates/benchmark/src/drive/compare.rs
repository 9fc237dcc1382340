//! `bobbin-benchmark compare`: two JSON files of ours, test by test.

use std::path::PathBuf;

use serde_json::Value;

use super::{Failure, write_file};
use crate::{
    options::{Common, Flag, Grammar},
    page::Page,
};

#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub common: Common,
    pub html: Option<PathBuf>,
}

impl AsMut<Common> for Settings {
    fn as_mut(&mut self) -> &mut Common {
        &mut self.common
    }
}

pub const GRAMMAR: Grammar<Settings> = Grammar {
    program: "bobbin-benchmark compare",
    about: "Compares two files that --json-out-file or sweep wrote: the second to the first.",
    usage: "bobbin-benchmark compare [--html FILE] A.json B.json",
    notes: "The interval holds the ratio with 95% confidence. It comes from the runs of each test, or\n\
            from its seconds where there was one run; without either there is none.\n",
    connection: &[],
    shared: &[],
    flags: &[Flag {
        names: &["--html"],
        value: "file",
        help: "Also write the table as a page.",
        apply: |settings, value| {
            settings.html = Some(value.into());
            Ok(())
        },
    }],
    attached_values: false,
};

/// Reads both files and shows the ratios.
pub fn run(settings: &Settings, rest: &[String]) -> Result<(), Failure> {
    let [first, second] = rest else {
        return Err(Failure(format!("Two files are needed: {}", GRAMMAR.usage)));
    };
    let (before, after) = (read(first)?, read(second)?);
    let mut rows = Vec::new();
    for test in &before {
        let Some(other) = after.iter().find(|other| other.title == test.title) else { continue };
        rows.push(row(test, other));
    }
    if rows.is_empty() {
        return Err(Failure("The files have no test in common".into()));
    }
    let head = HEAD.map(str::to_owned);
    say!("{}", table(&head, &rows));
    if let Some(path) = &settings.html {
        let about = format!("Requests per second and p99 of {second}, compared to {first}.");
        let mut page = Page::new("Comparison", &about);
        page.table(&head, &rows);
        write_file(path, page.finish())?;
    }
    Ok(())
}

#[derive(Debug)]
struct Test {
    title: String,
    rate: f64,
    samples: Vec<f64>,
    p99_ms: Option<f64>,
}

fn read(path: &str) -> Result<Vec<Test>, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure(format!("Cannot read {path}: {error}")))?;
    let document: Value = serde_json::from_str(&text)
        .map_err(|error| Failure(format!("{path} is not JSON: {error}")))?;
    let tests = document["tests"].as_array();
    let tests = tests.ok_or_else(|| Failure(format!("{path} is no file of bobbin-benchmark")))?;
    Ok(tests.iter().filter_map(test).collect())
}

fn test(value: &Value) -> Option<Test> {
    let numbers = |values: &Value, of: fn(&Value) -> Option<f64>| -> Vec<f64> {
        values.as_array().map(|values| values.iter().filter_map(of).collect()).unwrap_or_default()
    };
    let rates = numbers(&value["rates"], Value::as_f64);
    let seconds = numbers(&value["series"], |second| second["rate"].as_f64());
    Some(Test {
        title: value["test"].as_str()?.to_owned(),
        rate: value["rate"].as_f64()?,
        samples: if rates.len() > 1 { rates } else { seconds },
        p99_ms: value["latency_ms"]["p99"].as_f64(),
    })
}

const HEAD: [&str; 7] =
    ["test", "rps before", "rps after", "ratio", "95% interval", "p99 ratio", "verdict"];

fn row(before: &Test, after: &Test) -> Vec<String> {
    let ratio = after.rate / before.rate;
    let interval = interval(&before.samples, &after.samples);
    let verdict = match interval {
        Some((low, _)) if low > 1.0 => "faster",
        Some((_, high)) if high < 1.0 => "slower",
        Some(_) => "no difference shown",
        None => "not known",
    };
    let p99 = before.p99_ms.zip(after.p99_ms).filter(|(before, _)| *before > 0.0);
    vec![
        before.title.clone(),
        format!("{:.0}", before.rate),
        format!("{:.0}", after.rate),
        format!("{ratio:.3}"),
        interval.map_or_else(|| "-".into(), |(low, high)| format!("{low:.3} to {high:.3}")),
        p99.map_or_else(|| "-".into(), |(before, after)| format!("{:.3}", after / before)),
        verdict.into(),
    ]
}

/// The ratio of the means lies in this interval with 95% confidence: Welch's, of the logarithms.
fn interval(before: &[f64], after: &[f64]) -> Option<(f64, f64)> {
    let moments = |samples: &[f64]| {
        let logs: Vec<_> = samples.iter().filter(|s| **s > 0.0).map(|s| s.ln()).collect();
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        (logs.len() > 1).then(|| (mean, squares / (count - 1.0) / count, count))
    };
    let (mean_before, error_before, count_before) = moments(before)?;
    let (mean_after, error_after, count_after) = moments(after)?;
    let error = error_before + error_after;
    let freedom = if error > 0.0 {
        error.powi(2)
            / (error_before.powi(2) / (count_before - 1.0)
                + error_after.powi(2) / (count_after - 1.0))
    } else {
        count_before + count_after - 2.0
    };
    let half = student(freedom) * error.sqrt();
    let difference = mean_after - mean_before;
    Some(((difference - half).exp(), (difference + half).exp()))
}

/// The 97.5% quantile of Student's distribution.
fn student(freedom: f64) -> f64 {
    let index = (freedom.floor().max(1.0) as usize - 1).min(STUDENT.len());
    STUDENT.get(index).copied().unwrap_or(1.96 + 2.4 / freedom)
}

const STUDENT: [f64; 15] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131,
];

/// Columns of text, the first to the left, the others to the right.
pub(super) fn table(head: &[String], rows: &[Vec<String>]) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_hold_the_ratio() {
        let (low, high) = interval(&[100.0, 102.0, 98.0], &[200.0, 204.0, 196.0]).unwrap();
        assert!(low > 1.9 && low < 2.0 && high > 2.0 && high < 2.1, "{low} {high}");
        assert_eq!(interval(&[1.0], &[1.0, 2.0]), None);
        let (low, high) = interval(&[100.0, 120.0], &[110.0, 105.0]).unwrap();
        assert!(low < 1.0 && high > 1.0);
        let same = interval(&[5.0, 5.0], &[10.0, 10.0]).unwrap();
        assert!((same.0 - 2.0).abs() < 1e-9 && (same.1 - 2.0).abs() < 1e-9);
    }
}
