//! What came out of a sweep, in words.

use super::{
    SweepSettings,
    measure::{Results, SweepCell, threads_title},
};
use crate::{
    page::short,
    statistics::{self, ConfidenceInterval},
};

/// A sentence, and sentences that say how sure it is.
pub(super) struct Headline {
    pub(super) sentence: String,
    pub(super) details: Vec<String>,
}

/// The first server beside each other one, with the most threads; or, of one server, the most
/// threads beside the fewest.
pub(super) fn headline(settings: &SweepSettings, results: &Results) -> Headline {
    let threads = settings.io_threads.iter().copied();
    let (fewest, most) = (threads.clone().min().unwrap_or(1), threads.max().unwrap_or(1));
    let cells_of = |server: usize, io_threads: usize| -> Vec<&SweepCell> {
        let cells = results.cells.iter();
        cells.filter(|cell| cell.server == server && cell.io_threads == io_threads).collect()
    };
    if results.cells.is_empty() {
        return expiry(settings, results);
    }
    let ours = cells_of(0, most);
    let name = results.title(0);
    let mut comparisons = Vec::new();
    if results.servers.len() > 1 {
        for server in 1..results.servers.len() {
            let other = results.title(server).to_owned();
            comparisons.extend(Comparison::new(other, &ours, &cells_of(server, most)));
        }
    } else if fewest < most {
        let fewest_title = threads_title(fewest);
        comparisons.extend(Comparison::new(fewest_title, &ours, &cells_of(0, fewest)));
    }
    let with = format!("With {}", threads_title(most));
    if comparisons.is_empty() {
        let mut sentence = plain(&with, name, &ours);
        if ours.iter().any(|cell| cell.errors > 0) {
            sentence += " Replies were errors, so that says little.";
        }
        return Headline { sentence, details: Vec::new() };
    }
    let details = comparisons.iter().map(Comparison::detail).collect();
    let sentence = match comparisons.as_slice() {
        [Comparison { ratio, .. }] if results.servers.len() == 1 => {
            if comparisons[0].has_errors {
                format!(
                    "{name} has no comparison of {fewest} and {most} I/O threads, for replies were \
                     errors."
                )
            } else if comparisons[0].is_shown() {
                format!(
                    "{with}, {name} serves {ratio:.2} times as many requests a second as with {fewest}."
                )
            } else {
                format!("{name} shows no difference between {fewest} and {most} I/O threads.")
            }
        }
        _ => sentence(&with, name, &comparisons),
    };
    Headline { sentence, details }
}

/// How a server does beside another, over all tests.
#[derive(Debug)]
struct Comparison {
    other: String,
    /// The geometric mean of the ratios of all tests.
    ratio: f64,
    /// Student's, over the rounds.
    interval: Option<ConfidenceInterval>,
    /// The tests with the lowest and the highest ratio.
    lowest: (String, f64),
    highest: (String, f64),
    tests: usize,
    /// One of the two had error replies, so that they did not do the same.
    has_errors: bool,
}

impl Comparison {
    /// Both have the same tests in the same order. `None` where one has no rate above 0.
    fn new(other: String, ours: &[&SweepCell], theirs: &[&SweepCell]) -> Option<Self> {
        let pairs: Vec<(&SweepCell, &SweepCell)> =
            ours.iter().copied().zip(theirs.iter().copied()).collect();
        let rounds = pairs.iter().map(|(a, b)| a.rates.len().min(b.rates.len())).min()?;
        // The rounds are paired: both servers met the same weather in each.
        let by_round: Option<Vec<f64>> = (0..rounds)
            .map(|round| {
                let ratios: Vec<_> =
                    pairs.iter().map(|(a, b)| a.rates[round] / b.rates[round]).collect();
                Some(statistics::geometric_mean(&ratios)?.ln())
            })
            .collect();
        let by_round = by_round.filter(|logs| logs.iter().all(|log| log.is_finite()))?;
        let interval = statistics::interval(&by_round);
        let is_alone = ours.iter().all(|cell| cell.shape == ours[0].shape);
        let mut by_test = Vec::new();
        for (a, b) in &pairs {
            let ratio =
                statistics::geometric_mean(&a.rates)? / statistics::geometric_mean(&b.rates)?;
            by_test.push((if is_alone { a.title() } else { a.full_title() }, ratio));
        }
        by_test.sort_by(|a, b| a.1.total_cmp(&b.1));
        Some(Self {
            other,
            ratio: statistics::mean(&by_round).exp(),
            interval: interval.map(|ConfidenceInterval { low, high }| ConfidenceInterval {
                low: low.exp(),
                high: high.exp(),
            }),
            lowest: by_test.first()?.clone(),
            highest: by_test.last()?.clone(),
            tests: by_test.len(),
            has_errors: pairs.iter().any(|(a, b)| a.errors + b.errors > 0),
        })
    }

    /// Whether the rounds tell the two apart.
    fn is_shown(&self) -> bool {
        self.interval.is_none_or(|interval| interval.low > 1.0 || interval.high < 1.0)
    }

    fn detail(&self) -> String {
        let Self { other, ratio, tests, .. } = self;
        let mut text = format!("Beside {other}: {ratio:.2} times");
        match self.interval {
            Some(ConfidenceInterval { low, high }) => {
                text += &format!(" (95% interval {low:.2} to {high:.2})");
            }
            None => text += " (one round: nothing says how sure that is)",
        }
        if *tests > 1 {
            let ((slow, low), (fast, high)) = (&self.lowest, &self.highest);
            text += &format!(
                ", the geometric mean of {tests} measurements, from {low:.2} times in {slow} to \
                 {high:.2} times in {fast}"
            );
        }
        text + if self.has_errors { ". Replies were errors." } else { "." }
    }
}

/// What is said beside others, those left out with which a comparison would mislead.
fn sentence(with: &str, name: &str, comparisons: &[Comparison]) -> String {
    let (failed, good): (Vec<_>, Vec<_>) = comparisons.iter().partition(|c| c.has_errors);
    let failed: Vec<&str> = failed.iter().map(|comparison| comparison.other.as_str()).collect();
    let failed = failed.join(" and ");
    if good.is_empty() {
        return format!("{with}, {name} has no comparison with {failed}, for replies were errors.");
    }
    let mut text = comparison_sentence(with, name, &good);
    if !failed.is_empty() {
        text += &format!(" It has no comparison with {failed}, for replies were errors.");
    }
    text
}

fn comparison_sentence(with: &str, name: &str, comparisons: &[&Comparison]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let (shown, others): (Vec<&Comparison>, Vec<_>) =
        comparisons.iter().partition(|comparison| comparison.is_shown());
    for Comparison { other, ratio, .. } in shown {
        parts.push(match parts.is_empty() {
            true => format!("{ratio:.2} times as many requests a second as {other}"),
            false => format!("{ratio:.2} times as many as {other}"),
        });
    }
    let unknown: Vec<&str> = others.iter().map(|comparison| comparison.other.as_str()).collect();
    match (parts.is_empty(), unknown.is_empty()) {
        (false, true) => format!("{with}, {name} serves {}.", parts.join(" and ")),
        (false, false) => format!(
            "{with}, {name} serves {}; beside {} no difference is shown.",
            parts.join(" and "),
            unknown.join(" and ")
        ),
        (true, _) => {
            format!("{with}, no difference between {name} and {} is shown.", unknown.join(" or "))
        }
    }
}

/// Of one server with one number of threads there are only its rates.
fn plain(with: &str, name: &str, cells: &[&SweepCell]) -> String {
    let rate = |cell: &SweepCell| statistics::mean(&cell.rates);
    let sorted = |a: &&&SweepCell, b: &&&SweepCell| rate(a).total_cmp(&rate(b));
    let cells = || cells.iter().filter(|cell| cell.is_measured());
    let ends = cells().min_by(sorted).zip(cells().max_by(sorted));
    match ends {
        Some((slow, fast)) if cells().count() > 1 => format!(
            "{with}, {name} serves {} requests a second in {} to {} in {}.",
            short(rate(slow)),
            slow.title(),
            short(rate(fast)),
            fast.title()
        ),
        Some((only, _)) => {
            format!("{with}, {name} serves {} requests a second.", short(rate(only)))
        }
        None => format!("{with}, nothing of {name} was measured."),
    }
}

/// What setting a time to live costs, beside not setting one.
fn expiry(settings: &SweepSettings, results: &Results) -> Headline {
    let seconds = |server: usize, title: &str| {
        let found = results.expiry.iter().find(|e| e.server == server && e.title == title);
        found.map(|expiry| statistics::mean(&expiry.seconds)).filter(|seconds| *seconds > 0.0)
    };
    let costs: Vec<String> = (0..results.servers.len())
        .filter_map(|server| {
            let without = seconds(server, "SET in MULTI")?;
            let ratio = seconds(server, "SET NX EX 100 in MULTI")? / without;
            Some(format!("{ratio:.2} times the time in {}", results.title(server)))
        })
        .collect();
    let sentence = match costs.as_slice() {
        [] => "What a time to live costs was not measured.".to_owned(),
        costs => format!("A SET with a time to live takes {}.", costs.join(", ")),
    };
    Headline {
        sentence,
        details: vec![format!(
            "Beside a SET without one, {} operations in a transaction on one connection.",
            settings.expiry_operations
        )],
    }
}

#[cfg(test)]
mod tests {
    use super::super::measure::{LoadShape, SweepServer};
    use super::*;

    fn cell(server: usize, io_threads: usize, test: &str, rates: &[f64]) -> SweepCell {
        let shape = LoadShape { data_size: 3, pipeline: 1, clients: 50 };
        SweepCell { rates: rates.to_vec(), ..SweepCell::new(server, io_threads, shape, test) }
    }

    fn results(names: &[&str], cells: Vec<SweepCell>) -> Results {
        let server = |name: &&str| SweepServer {
            asked: (*name).into(),
            name: (*name).into(),
            version: None,
            commands: Vec::new(),
        };
        let servers = names.iter().map(server).collect();
        Results { servers, cells, expiry: Vec::new(), interrupted: None }
    }

    #[test]
    fn the_first_server_beside_the_others() {
        let settings = SweepSettings { io_threads: vec![1, 4], ..SweepSettings::default() };
        let cells = vec![
            cell(0, 1, "get", &[1.0, 1.0]),
            cell(0, 4, "get", &[400.0, 440.0]),
            cell(0, 4, "set", &[400.0, 360.0]),
            cell(1, 4, "get", &[100.0, 110.0]),
            cell(1, 4, "set", &[400.0, 360.0]),
            cell(2, 4, "get", &[400.0, 200.0]),
            cell(2, 4, "set", &[200.0, 400.0]),
        ];
        let found = headline(&settings, &results(&["a", "b", "c"], cells));
        // Beside b both rounds say the same, the root of 4 times 1; beside c they scatter.
        assert_eq!(
            found.sentence,
            "With 4 I/O threads, a serves 2.00 times as many requests a second as b and 1.41 times \
             as many as c."
        );
        assert_eq!(
            found.details[0],
            "Beside b: 2.00 times (95% interval 2.00 to 2.00), the geometric mean of 2 \
             measurements, from 1.00 times in SET to 4.00 times in GET."
        );
    }

    #[test]
    fn a_server_with_errors_does_not_win() {
        let settings = SweepSettings { io_threads: vec![1], ..SweepSettings::default() };
        let of = |errors: [u64; 3]| {
            let mut cells = vec![
                cell(0, 1, "get", &[200.0, 220.0]),
                cell(1, 1, "get", &[100.0, 110.0]),
                cell(2, 1, "get", &[400.0, 440.0]),
            ];
            for (cell, errors) in cells.iter_mut().zip(errors) {
                cell.errors = errors;
            }
            headline(&settings, &results(&["a", "b", "c"], cells))
        };
        let Headline { sentence, details } = of([0, 0, 1]);
        assert_eq!(
            sentence,
            "With 1 I/O thread, a serves 2.00 times as many requests a second as b. It has no \
             comparison with c, for replies were errors."
        );
        assert!(details[1].ends_with(". Replies were errors."), "{}", details[1]);
        let expected =
            "With 1 I/O thread, a has no comparison with b and c, for replies were errors.";
        assert_eq!(of([1, 0, 0]).sentence, expected);
        let mut alone = vec![cell(0, 1, "get", &[200.0])];
        alone[0].errors = 1;
        let Headline { sentence, .. } = headline(&settings, &results(&["a"], alone));
        assert!(sentence.ends_with(" Replies were errors, so that says little."), "{sentence}");
    }

    #[test]
    fn a_difference_that_the_rounds_do_not_show() {
        let settings = SweepSettings { io_threads: vec![1], ..SweepSettings::default() };
        let cells = vec![cell(0, 1, "get", &[100.0, 120.0]), cell(1, 1, "get", &[110.0, 105.0])];
        let found = headline(&settings, &results(&["a", "b"], cells));
        let expected = "With 1 I/O thread, no difference between a and b is shown.";
        assert_eq!(found.sentence, expected);
        assert!(found.details[0].contains("95% interval 0."), "{}", found.details[0]);
    }

    #[test]
    fn one_server() {
        let settings = SweepSettings { io_threads: vec![1, 2], ..SweepSettings::default() };
        let cells = vec![cell(0, 1, "get", &[100.0]), cell(0, 2, "get", &[150.0])];
        let found = headline(&settings, &results(&["a"], cells));
        let expected =
            "With 2 I/O threads, a serves 1.50 times as many requests a second as with 1.";
        assert_eq!(found.sentence, expected);
        assert!(found.details[0].contains("one round"), "{}", found.details[0]);
        let settings = SweepSettings { io_threads: vec![1], ..SweepSettings::default() };
        let cells = vec![cell(0, 1, "get", &[2000.0]), cell(0, 1, "set", &[1000.0])];
        let found = headline(&settings, &results(&["a"], cells));
        let expected = "With 1 I/O thread, a serves 1k requests a second in SET to 2k in GET.";
        assert_eq!(found.sentence, expected);
    }
}
