//! `bobbin-benchmark compare`: two JSON files of ours, test by test.

use std::path::PathBuf;

use serde_json::Value;

use super::{DriveFailure, table, unreadable, write_file};
use crate::{
    options::{Common, Flag, Grammar, positive, set},
    page::{DOUBT, ERRORS, HtmlPage},
    provenance,
    statistics::{self, ConfidenceInterval, ROUNDS_MAX},
};

#[derive(Clone, Debug)]
pub struct CompareSettings {
    pub common: Common,
    pub html: Option<PathBuf>,
    /// As a share: the difference that the advice on rounds is about.
    pub difference: f64,
}

impl Default for CompareSettings {
    fn default() -> Self {
        Self { common: Common::default(), html: None, difference: 0.05 }
    }
}

impl AsMut<Common> for CompareSettings {
    fn as_mut(&mut self) -> &mut Common {
        &mut self.common
    }
}

pub const GRAMMAR: Grammar<CompareSettings> = Grammar {
    program: "bobbin-benchmark compare",
    about: "Compares two files that --json-out-file or sweep wrote: the second to the first.",
    usage: "bobbin-benchmark compare [OPTIONS] A.json B.json",
    notes: "The interval holds the ratio with 95% confidence (Welch's, of the logarithms). It comes \
            from the\nrounds of each test, or from its seconds where there was one round; without \
            either there is none.\n",
    connection: &[],
    shared: &[],
    flags: &[
        Flag {
            names: &["--difference"],
            value: "percent",
            help: "Say how many rounds would show a difference of this size (default 5).",
            apply: |settings, value| {
                set(&mut settings.difference, positive(value)?.min(1e6) / 100.0)
            },
        },
        Flag {
            names: &["--html"],
            value: "file",
            help: "Also write the table as a page.",
            apply: |settings, value| set(&mut settings.html, Some(value.into())),
        },
    ],
    attached_values: false,
};

/// Reads both files and shows the ratios.
pub fn run(settings: &CompareSettings, rest: &[String]) -> Result<(), DriveFailure> {
    let [first, second] = rest else {
        return Err(DriveFailure(format!("Two files are needed: {}", GRAMMAR.usage)));
    };
    let (before, after) = (read(first)?, read(second)?);
    let mut comparisons = Vec::new();
    for test in &before.tests {
        let Some(other) = after.tests.iter().find(|other| other.title == test.title) else {
            continue;
        };
        comparisons.push(Comparison::new(test, other, settings.difference));
    }
    if comparisons.is_empty() {
        return Err(DriveFailure("The files have no test in common".into()));
    }
    let head = HEAD.map(str::to_owned);
    let rows: Vec<_> = comparisons.iter().map(Comparison::row).collect();
    let conclusions = conclusions(&comparisons, settings.difference);
    say!("{}", table(&head, &rows));
    say_line!();
    for conclusion in &conclusions {
        say_line!("{conclusion}");
    }
    if let Some(path) = &settings.html {
        let headline = conclusions.first().map_or("Comparison", String::as_str);
        let mut page = HtmlPage::new("Comparison", headline);
        for conclusion in conclusions.iter().skip(1) {
            page.text(conclusion);
        }
        page.table(&head, &rows);
        for (title, name, file) in [("Before", first, &before), ("After", second, &after)] {
            page.heading(title);
            let mut lines = vec![("File".to_owned(), name.clone())];
            lines.extend(file.provenance.iter().cloned());
            page.definitions(&lines);
        }
        write_file(path, page.finish())?;
    }
    Ok(())
}

/// A file of results.
#[derive(Debug)]
struct Results {
    tests: Vec<Test>,
    provenance: Vec<(String, String)>,
}

#[derive(Debug)]
struct Test {
    title: String,
    rate: f64,
    samples: Vec<f64>,
    /// The samples are seconds of one round.
    are_seconds: bool,
    p99_ms: Option<f64>,
    /// Requests that had no reply.
    unanswered: u64,
    /// Replies that were errors.
    errors: u64,
    /// Replies that only said where in the cluster to ask.
    redirections: u64,
}

fn read(path: &str) -> Result<Results, DriveFailure> {
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    let document: Value = serde_json::from_str(&text)
        .map_err(|error| DriveFailure(format!("{path} is not JSON: {error}")))?;
    let tests = document["tests"].as_array();
    let tests =
        tests.ok_or_else(|| DriveFailure(format!("{path} is no file of bobbin-benchmark")))?;
    Ok(Results {
        tests: tests.iter().filter_map(test).collect(),
        provenance: provenance::lines_of(&document),
    })
}

fn test(value: &Value) -> Option<Test> {
    let numbers = |values: &Value, of: fn(&Value) -> Option<f64>| -> Vec<f64> {
        values.as_array().map(|values| values.iter().filter_map(of).collect()).unwrap_or_default()
    };
    let rates = numbers(&value["rates"], Value::as_f64);
    let seconds = numbers(&value["series"], |second| second["rate"].as_f64());
    let count = |name: &str| value[name].as_u64().unwrap_or(0);
    let are_seconds = rates.len() < 2;
    Some(Test {
        title: value["test"].as_str()?.to_owned(),
        rate: value["rate"].as_f64()?,
        samples: if are_seconds { seconds } else { rates },
        are_seconds,
        p99_ms: value["latency_ms"]["p99"].as_f64(),
        unanswered: count("unanswered"),
        errors: count("errors"),
        redirections: count("moved") + count("asked"),
    })
}

/// A test of both files.
struct Comparison {
    title: String,
    rates: (f64, f64),
    ratio: f64,
    interval: Option<ConfidenceInterval>,
    rounds: (usize, usize),
    are_seconds: bool,
    /// Rounds that would show the difference that was asked about.
    needed: Option<usize>,
    p99_ratio: Option<f64>,
    is_doubtful: bool,
    unanswered: u64,
    /// Error replies, before and after.
    errors: (u64, u64),
    redirections: u64,
}

impl Comparison {
    fn new(before: &Test, after: &Test, difference: f64) -> Self {
        let interval = statistics::ratio(&before.samples, &after.samples);
        let means = statistics::geometric_mean(&after.samples)
            .zip(statistics::geometric_mean(&before.samples))
            .filter(|_| interval.is_some());
        let p99 = before.p99_ms.zip(after.p99_ms).filter(|(before, _)| *before > 0.0);
        let is_doubtful = |test: &Test| !test.are_seconds && statistics::disagree(&test.samples);
        Self {
            title: before.title.clone(),
            rates: (before.rate, after.rate),
            ratio: means.map_or(after.rate / before.rate, |(after, before)| after / before),
            interval,
            rounds: (before.samples.len(), after.samples.len()),
            are_seconds: before.are_seconds || after.are_seconds,
            needed: statistics::rounds_needed(&before.samples, &after.samples, difference),
            p99_ratio: p99.map(|(before, after)| after / before),
            is_doubtful: is_doubtful(before) || is_doubtful(after),
            unanswered: before.unanswered + after.unanswered,
            errors: (before.errors, after.errors),
            redirections: before.redirections + after.redirections,
        }
    }

    /// A server that answers with errors does other work than was asked for: nobody wins then.
    fn verdict(&self) -> &'static str {
        match self.interval {
            _ if self.errors != (0, 0) => FAILED,
            Some(ConfidenceInterval { low, .. }) if low > 1.0 => FASTER,
            Some(ConfidenceInterval { high, .. }) if high < 1.0 => SLOWER,
            Some(_) => "no difference shown",
            None => UNKNOWN,
        }
    }

    fn row(&self) -> Vec<String> {
        let interval = |ConfidenceInterval { low, high }| format!("{low:.3} to {high:.3}");
        let (before, after) = self.rounds;
        let unit = if self.are_seconds { " s" } else { "" };
        let needed = match self.needed {
            Some(needed) => format!("{needed}{unit}"),
            None if self.interval.is_some() => format!("over {ROUNDS_MAX}"),
            None => "-".into(),
        };
        let doubt = if self.is_doubtful { DOUBT } else { "" };
        let mark = |errors| if errors > 0 { ERRORS } else { "" };
        vec![
            self.title.clone(),
            format!("{:.0}{}", self.rates.0, mark(self.errors.0)),
            format!("{:.0}{}", self.rates.1, mark(self.errors.1)),
            format!("{:.3}", self.ratio),
            self.interval.map_or_else(|| "-".into(), interval),
            format!("{before}, {after}{unit}"),
            needed,
            self.p99_ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.3}")),
            format!("{}{doubt}", self.verdict()),
        ]
    }
}

/// What the table says, in words: first what came out, then what a reader should do about it.
fn conclusions(comparisons: &[Comparison], difference: f64) -> Vec<String> {
    let count = |verdict: &str| comparisons.iter().filter(|c| c.verdict() == verdict).count();
    let all = comparisons.len();
    let (faster, slower, unknown) = (count(FASTER), count(SLOWER), count(UNKNOWN));
    let failed = count(FAILED);
    let rest = all - faster - slower - unknown - failed;
    let tests = if all == 1 { "test" } else { "tests" };
    let mut lines = vec![format!(
        "Of {all} {tests} the second file is faster in {faster} and slower in {slower}; {rest} \
         show{} no difference{}{}.",
        if rest == 1 { "s" } else { "" },
        match unknown {
            0 => String::new(),
            _ => format!(", and of {unknown} it is not known"),
        },
        match failed {
            0 => String::new(),
            _ => format!("; of {failed} nothing is said, for there were error replies"),
        }
    )];
    let percent = difference * 100.0;
    let known = comparisons.iter().filter(|comparison| comparison.interval.is_some());
    let needed: Option<Vec<usize>> = known.clone().map(|comparison| comparison.needed).collect();
    let are_seconds = known.clone().any(|comparison| comparison.are_seconds);
    let rounds = if are_seconds { "seconds of one round" } else { "rounds" };
    match needed.as_deref() {
        Some([]) => lines.push(
            "How far the results scatter is not known: measure again with --runs 5 or so.".into(),
        ),
        Some(needed) => {
            let most = needed.iter().max().copied().unwrap_or(0);
            let have = known.map(|c| c.rounds.0.min(c.rounds.1)).min().unwrap_or(0);
            let enough = if have >= most { ": there are enough" } else { "" };
            lines.push(format!(
                "To show a difference of {percent}% in every test, each file needs about {most} \
                 {rounds}, if more of them scatter as these do; they have {have}{enough}."
            ));
        }
        None => lines.push(format!(
            "The results scatter so much that more than {ROUNDS_MAX} {rounds} would be needed to \
             show a difference of {percent}% in every test."
        )),
    }
    if are_seconds {
        lines.push(
            "The seconds of one round depend on each other, so the intervals may be too narrow: \
             --runs 5 measures rounds."
                .into(),
        );
    }
    lines.extend(warnings(comparisons));
    lines
}

/// What makes results doubtful, each with the number of tests.
fn warnings(comparisons: &[Comparison]) -> Vec<String> {
    let all = comparisons.len();
    let tests = if all == 1 { "test" } else { "tests" };
    let warning = |of: fn(&Comparison) -> bool, what: &str| {
        let count = comparisons.iter().filter(|comparison| of(comparison)).count();
        (count > 0).then(|| format!("Warning: in {count} of {all} {tests} {what}"))
    };
    let (before, after) = comparisons.iter().fold((0, 0), |(before, after), comparison| {
        (before + comparison.errors.0, after + comparison.errors.1)
    });
    [
        warning(
            |comparison| comparison.errors != (0, 0),
            &format!(
                "replies were errors (marked{ERRORS}), {before} in the first file and {after} in \
                 the second: an error may be quicker than what was asked for."
            ),
        ),
        warning(
            |comparison| comparison.redirections > 0,
            "replies were redirections, of requests for slots that other nodes have: they count as \
             requests, and were not sent again.",
        ),
        warning(
            |comparison| comparison.is_doubtful,
            &format!(
                "the rounds of a file disagree (marked{DOUBT}): its fastest and slowest are more \
                 than {:.0}% of the median apart.",
                statistics::SPREAD_MAX * 100.0
            ),
        ),
        warning(
            |comparison| comparison.unanswered > 0,
            "requests had waited for long and had no reply at the end: a server may have stood \
             still, or not have kept up.",
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

const HEAD: [&str; 9] = [
    "test",
    "rps before",
    "rps after",
    "ratio",
    "95% interval",
    "rounds",
    "needed",
    "p99 ratio",
    "verdict",
];
const FASTER: &str = "faster";
const SLOWER: &str = "slower";
const UNKNOWN: &str = "not known";
const FAILED: &str = "error replies";

#[cfg(test)]
mod tests {
    use super::*;

    fn of(title: &str, samples: &[f64], are_seconds: bool) -> Test {
        Test {
            title: title.into(),
            rate: statistics::mean(samples),
            samples: samples.to_vec(),
            are_seconds,
            p99_ms: Some(2.0),
            unanswered: 0,
            errors: 0,
            redirections: 0,
        }
    }

    #[test]
    fn errors_do_not_win() {
        let before = of("GET", &[100.0, 102.0, 98.0], false);
        let mut after = of("GET", &[200.0, 204.0, 196.0], false);
        let good = Comparison::new(&before, &after, 0.05);
        (after.errors, after.redirections) = (600, 3);
        let failed = Comparison::new(&before, &after, 0.05);
        assert_eq!(failed.row()[1..4], ["100", "200 !", "2.000"]);
        assert_eq!(failed.row()[8], "error replies");
        let lines = conclusions(&[good, failed], 0.05);
        assert_eq!(
            lines[0],
            "Of 2 tests the second file is faster in 1 and slower in 0; 0 show no difference; of 1 \
             nothing is said, for there were error replies."
        );
        assert!(
            lines[2].starts_with(
                "Warning: in 1 of 2 tests replies were errors (marked !), 0 in the first file and \
                 600 in the second"
            ),
            "{lines:?}"
        );
        assert!(lines[3].starts_with("Warning: in 1 of 2 tests replies were redir"), "{lines:?}");
    }

    #[test]
    fn what_two_files_show() {
        let before = of("GET", &[100.0, 102.0, 98.0], false);
        let faster = Comparison::new(&before, &of("GET", &[200.0, 204.0, 196.0], false), 0.05);
        assert_eq!(faster.verdict(), "faster");
        assert_eq!(faster.row()[3..6], ["2.000", "1.911 to 2.093", "3, 3"]);
        // Deviations of 2% in both: t(2n - 2) * sqrt(0.0008 / n) is 0.0453 for n = 3, and ln(1.05)
        // is 0.0488.
        assert_eq!(faster.row()[6..], ["3", "1.000", "faster"]);
        let same = Comparison::new(&before, &of("GET", &[90.0, 115.0], false), 0.05);
        assert_eq!(same.verdict(), "no difference shown");
        assert!(same.is_doubtful && same.needed.unwrap() > 3);
        let lines = conclusions(&[faster, same], 0.05);
        assert_eq!(
            lines[0],
            "Of 2 tests the second file is faster in 1 and slower in 0; 1 shows no difference."
        );
        assert!(lines[1].contains("they have 2."), "{}", lines[1]);
        assert!(lines[2].starts_with("Warning: in 1 of 2 tests"), "{lines:?}");
    }

    #[test]
    fn results_that_say_little() {
        let none = Comparison::new(&of("GET", &[], true), &of("GET", &[], true), 0.05);
        assert_eq!(none.verdict(), "not known");
        let lines = conclusions(&[none], 0.05);
        assert_eq!(
            lines[0],
            "Of 1 test the second file is faster in 0 and slower in 0; 0 show no difference, and of \
             1 it is not known."
        );
        assert!(lines[1].contains("not known"));
        let seconds = of("GET", &[100.0, 101.0], true);
        let lines = conclusions(&[Comparison::new(&seconds, &seconds, 0.05)], 0.05);
        assert!(
            lines[1].contains("seconds of one round; they have 2") || lines[1].contains("seconds")
        );
        assert!(lines[2].contains("too narrow"), "{lines:?}");
    }
}
