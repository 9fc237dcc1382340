//! The model in docs/scaling.md: how many commands a second a server on many cores would do, made
//! of the lines that move for each command and of the processor time that one worker takes for it.
//! `cargo xtask scaling` writes the table and the chart; `cargo xtask tidy` wants them to be what
//! the counts in the document say.

use std::fmt::Write;

use bobbin_testkit::peers::repository;

use crate::shell::{self, TaskResult};

/// A load of the model.
struct Load {
    /// Its name in the table of counts.
    name: &'static str,
    title: &'static str,
    /// Processor time of the server for a command, with one worker: docs/performance.md.
    cpu_ns: f64,
    color: &'static str,
}

const LOADS: &[Load] = &[
    Load { name: "get", title: "GET, -P 16", cpu_ns: 235.0, color: "#1b6ca8" },
    Load { name: "set", title: "SET, -P 16", cpu_ns: 245.0, color: "#b3541e" },
    Load { name: "mset10", title: "MSET of ten keys, -P 16", cpu_ns: 707.0, color: "#2d7d46" },
    Load { name: "set-alone", title: "SET, one at a time", cpu_ns: 2670.0, color: "#555555" },
];
const CORES: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// The workers of the table of counts.
const COUNTED_WORKERS: f64 = 16.0;
/// What a line that moves is assumed to cost: between sockets, where nothing hides it; and between
/// neighbours, where most were prefetched.
const MOVE_NS: [f64; 2] = [100.0, 25.0];

/// Millions of commands a second by the number of cores, for each of [`MOVE_NS`].
type Rates = [[f64; CORES.len()]; MOVE_NS.len()];

/// What was counted for a load with 16 workers.
struct Counts {
    moves: f64,
    hottest: f64,
}

const DOCUMENT: &str = "docs/scaling.md";
const CHART: &str = "docs/scaling.svg";
/// Between these lines the document has what this writes.
const BEGIN: &str = "<!-- cargo xtask scaling -->";
const END: &str = "<!-- end -->";

/// Writes the table and the chart anew.
pub(crate) fn write() -> TaskResult {
    for (file, text) in files()? {
        shell::write(&repository().join(file), &text)?;
    }
    Ok(())
}

/// What is out of date.
pub(crate) fn faults() -> Result<Vec<String>, String> {
    let mut faults = Vec::new();
    for (file, text) in files()? {
        if shell::read(&repository().join(file))? != text {
            faults.push(format!("{file}: run cargo xtask scaling"));
        }
    }
    Ok(faults)
}

/// The files as they should be.
fn files() -> Result<[(&'static str, String); 2], String> {
    let document = shell::read(&repository().join(DOCUMENT))?;
    let rates: Vec<_> = LOADS
        .iter()
        .map(|load| {
            let counts = counts(&document, load.name)
                .ok_or_else(|| format!("{DOCUMENT} has no counts of {}", load.name))?;
            Ok(MOVE_NS.map(|move_ns| CORES.map(|cores| rate(load, &counts, cores, move_ns))))
        })
        .collect::<Result<_, String>>()?;
    let missing = |mark: &str| format!("{DOCUMENT}: no {mark}");
    let (before, rest) = document.split_once(BEGIN).ok_or_else(|| missing(BEGIN))?;
    let (_, behind) = rest.split_once(END).ok_or_else(|| missing(END))?;
    let document = format!("{before}{BEGIN}\n{}{END}{behind}", table(&rates));
    Ok([(DOCUMENT, document), (CHART, chart(&rates))])
}

/// A load's row in the table of counts.
fn counts(document: &str, name: &str) -> Option<Counts> {
    let name = format!("`{name}`");
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect();
    let mut rows = document.lines().map(cells);
    let row: Vec<String> = rows.find(|row: &Vec<String>| row.get(2) == Some(&name))?;
    Some(Counts { moves: row.get(3)?.parse().ok()?, hottest: row.get(5)?.parse().ok()? })
}

/// Millions of commands a second.
fn rate(load: &Load, counts: &Counts, cores: u32, move_ns: f64) -> f64 {
    let cores = f64::from(cores);
    // A line that another one used last moves: that is so for all but one core's share.
    let share = (1.0 - 1.0 / cores) / (1.0 - 1.0 / COUNTED_WORKERS);
    let each_ns = load.cpu_ns + counts.moves * share * move_ns;
    let together = cores / each_ns * 1000.0;
    let hottest = counts.hottest * share;
    if hottest > 0.0 { together.min(1000.0 / (hottest * move_ns)) } else { together }
}

fn shown(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

/// Two rates as a range, or one if they look the same.
fn range(low: f64, high: f64) -> String {
    let (low, high) = (shown(low), shown(high));
    if low == high { low } else { format!("{low} to {high}") }
}

fn table(rates: &[Rates]) -> String {
    let mut table = String::from("| cores |");
    CORES.iter().for_each(|cores| table.push_str(&format!(" {cores} |")));
    table.push_str("\n|---|");
    table.push_str(&"--:|".repeat(CORES.len()));
    for (load, [low, high]) in LOADS.iter().zip(rates) {
        table.push_str(&format!("\n| {} |", load.title));
        let ranges = low.iter().zip(high).map(|(low, high)| range(*low, *high));
        ranges.for_each(|range| table.push_str(&format!(" {range} |")));
    }
    table.push('\n');
    table
}

/// Cores to the right and commands a second upwards, both doubling from step to step.
fn chart(rates: &[Rates]) -> String {
    const LEFT: f64 = 60.0;
    const TOP: f64 = 20.0;
    const STEP: f64 = 70.0;
    const HEIGHT: f64 = 330.0;
    /// In millions.
    const LABELS: [f64; 6] = [0.3, 1.0, 4.0, 16.0, 64.0, 256.0];
    let (lowest, highest) = (LABELS[0].log2(), 512_f64.log2());
    let x = |index: usize| LEFT + STEP * index as f64;
    let y = |rate: f64| TOP + HEIGHT * (highest - rate.log2()) / (highest - lowest);
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 620 400\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <title>Modelled millions of commands a second by cores</title>\n\
         <rect width=\"620\" height=\"400\" fill=\"#ffffff\"/>\n",
    );
    let right = x(CORES.len() - 1);
    // Writing to a String does not fail, here and below.
    for label in LABELS {
        let at = y(label);
        writeln!(
            svg,
            "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#dddddd\"/>\
             <text x=\"52\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#333333\">{label}M</text>",
            at + 4.0
        )
        .ok();
    }
    for (index, cores) in CORES.iter().enumerate() {
        let at = x(index);
        writeln!(
            svg,
            "<text x=\"{at}\" y=\"372\" text-anchor=\"middle\" fill=\"#333333\">{cores}</text>"
        )
        .ok();
    }
    writeln!(
        svg,
        "<text x=\"{right}\" y=\"392\" text-anchor=\"end\" fill=\"#333333\">cores</text>"
    )
    .ok();
    for (row, (load, rates)) in LOADS.iter().zip(rates).enumerate() {
        let points = |rates: &[f64]| -> Vec<String> {
            let points = rates.iter().enumerate();
            points.map(|(index, rate)| format!("{:.1},{:.1}", x(index), y(*rate))).collect()
        };
        // There along the lower rates, and back along the higher ones.
        let [low, mut high] = rates.each_ref().map(|rates| points(rates));
        high.reverse();
        let (color, legend) = (load.color, 40.0 + 20.0 * row as f64);
        writeln!(
            svg,
            "<polygon points=\"{} {}\" fill=\"{color}\" fill-opacity=\"0.35\" \
             stroke=\"{color}\"/>\n\
             <path d=\"M80 {legend}h24\" stroke=\"{color}\" stroke-width=\"8\"/>\
             <text x=\"112\" y=\"{}\" fill=\"#111111\">{}</text>",
            low.join(" "),
            high.join(" "),
            legend + 4.0,
            load.title
        )
        .ok();
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_more_adds_less_and_the_hottest_line_ends_it() {
        let load = &LOADS[0];
        let free = Counts { moves: 0.0, hottest: 0.0 };
        let rate = |counts: &Counts, cores: u32| rate(load, counts, cores, 100.0);
        assert_eq!(rate(&free, 64), 64.0 * rate(&free, 1));
        let counts = Counts { moves: 1.0, hottest: 0.5 };
        assert_eq!(rate(&counts, 1), rate(&free, 1));
        let sixteen = 16.0 / (load.cpu_ns + 100.0) * 1000.0;
        assert_eq!(rate(&Counts { hottest: 0.0, ..counts }, 16), sixteen);
        assert_eq!(rate(&counts, 16), 1000.0 / (0.5 * 100.0));
        assert_eq!((range(1.23, 1.24), range(9.0, 12.0)), ("1.2".into(), "9.0 to 12".into()));
    }

    #[test]
    fn counts_are_those_of_the_named_row() {
        let document = "| a | `get-one` | 9 | 9 | 9 |\n| b | `get` | 1.5 | 0.9 | 0.25 |\n";
        let counts = counts(document, "get").unwrap();
        assert_eq!((counts.moves, counts.hottest), (1.5, 0.25));
    }
}
