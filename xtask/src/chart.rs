//! The chart in the README: what an operation costs the server, beside Valkey and Redis. It is
//! drawn from the tables of docs/performance.md, which say how it was measured.
//! `cargo xtask chart` writes it; `cargo xtask tidy` wants it to be what the tables say.

use std::fmt::Write;

use bobbin_testkit::peers::repository;

use crate::shell::{self, TaskResult};

/// Rows of the tables, by the section's heading and the row's first cell. Their cells are
/// microseconds of Bobbin, Valkey and Redis.
const ROWS: [(&str, &str); 6] = [
    ("## CPU per operation", "GET, 50 clients, one at a time"),
    ("## CPU per operation", "SET, -P 16"),
    ("## CPU per operation", "MSET of 10 keys, -P 16"),
    ("## Data types", "ZADD, 1M members"),
    ("## Data types", "XADD, 5 fields"),
    ("## Data types", "LRANGE of 100"),
];
const SERVERS: [(&str, &str); 3] = [("Bobbin", "own"), ("Valkey", "peer"), ("Redis", "other")];

const DOCUMENT: &str = "docs/performance.md";
const CHART: &str = "docs/pictures/performance.svg";

/// Writes the chart anew.
pub(crate) fn write() -> TaskResult {
    shell::write(&repository().join(CHART), &chart()?)
}

/// What is out of date.
pub(crate) fn faults() -> Result<Vec<String>, String> {
    let written = std::fs::read_to_string(repository().join(CHART)).unwrap_or_default();
    let fault = format!("{CHART}: run cargo xtask chart");
    Ok(if written == chart()? { Vec::new() } else { vec![fault] })
}

fn chart() -> Result<String, String> {
    let document = shell::read(&repository().join(DOCUMENT))?;
    let figures = |(section, load): (&str, &str)| {
        figures(&document, section, load)
            .ok_or_else(|| format!("{DOCUMENT}: no figures of {load:?} in {section:?}"))
    };
    let groups = ROWS.map(|row| figures(row).map(|figures| (row.1, figures)));
    Ok(draw(&groups.into_iter().collect::<Result<Vec<_>, _>>()?))
}

/// The first three cells behind a row's name.
fn figures(document: &str, section: &str, load: &str) -> Option<[f64; 3]> {
    let (_, section) = document.split_once(section)?;
    let section = section.split("\n## ").next()?;
    let row = section.lines().find(|line| line.starts_with(&format!("| {load} |")))?;
    let mut cells = row.split('|').skip(2).map(|cell| cell.trim().parse());
    let mut next = || cells.next()?.ok();
    Some([next()?, next()?, next()?])
}

/// A group of bars for each load, each group as wide as its longest bar.
fn draw(groups: &[(&str, [f64; 3])]) -> String {
    const COLUMN: f64 = 360.0;
    const GROUP: f64 = 76.0;
    const BAR: f64 = 15.0;
    const WIDEST: f64 = 210.0;
    let height = 62.0 + GROUP * groups.len().div_ceil(2) as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 {height}\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <title>Processor time of the server for an operation, of Bobbin, Valkey and Redis</title>\n\
         {STYLE}\n<rect class=\"paper\" width=\"720\" height=\"{height}\" rx=\"8\"/>\n\
         <text x=\"16\" y=\"26\" font-size=\"15\">Processor time of the server for an operation, \
         in microseconds: less is better</text>\n"
    );
    for (at, (load, figures)) in groups.iter().enumerate() {
        let (x, y) = (16.0 + COLUMN * (at % 2) as f64, 58.0 + GROUP * (at / 2) as f64);
        // Writing to a String does not fail, here and below.
        writeln!(svg, "<text x=\"{x}\" y=\"{y}\" class=\"load\">{load}</text>").ok();
        let longest = figures.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        for (row, ((server, class), figure)) in SERVERS.iter().zip(figures).enumerate() {
            let (top, width) = (y + 6.0 + BAR * row as f64, WIDEST * figure / longest);
            let (start, base) = (x + 54.0, top + 11.0);
            writeln!(
                svg,
                "<text x=\"{}\" y=\"{base}\" text-anchor=\"end\" class=\"small\">{server}</text>\
                 <rect class=\"{class}\" x=\"{start}\" y=\"{top}\" width=\"{width:.1}\" \
                 height=\"12\"/><text x=\"{:.1}\" y=\"{base}\" class=\"small\">{figure}</text>",
                start - 6.0,
                start + width + 5.0,
            )
            .ok();
        }
    }
    svg.push_str("</svg>\n");
    svg
}

const STYLE: &str = "<style>
text { fill: #1b1f24; }
.load { font-weight: bold; }
.small { font-size: 12px; fill: #505a64; }
.paper { fill: #ffffff; }
.own { fill: #2f7d46; }
.peer { fill: #8aa1bd; }
.other { fill: #c3a27e; }
@media (prefers-color-scheme: dark) {
  text { fill: #e8ebee; }
  .small { fill: #aab4be; }
  .paper { fill: #14181d; }
  .own { fill: #5cb878; }
  .peer { fill: #5f7897; }
  .other { fill: #927554; }
}
</style>";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_section_and_row() {
        let document = "## A\n| GET | 9 | 9 | 9 |\n## B (x)\n| GET | 1.5 | 2 | 3 | 0.5 |\n\n## C\n\
                        | SET | 1 | 2 | 3 |\n| MSET | 1 / 2 | 3 | 4 |\n";
        assert_eq!(figures(document, "## B", "GET"), Some([1.5, 2.0, 3.0]));
        assert_eq!(figures(document, "## B", "SET"), None);
        assert_eq!(figures(document, "## C", "MSET"), None);
    }

    #[test]
    fn a_bar_is_as_long_as_its_figure() {
        let svg = draw(&[("GET", [1.0, 4.0, 2.0])]);
        for width in ["52.5", "210.0", "105.0"] {
            assert!(svg.contains(&format!("width=\"{width}\"")), "{svg}");
        }
    }
}
