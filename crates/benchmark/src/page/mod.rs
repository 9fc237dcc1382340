//! Results as one HTML page that needs no network: bars, tables and SVG charts, readable on narrow
//! and wide screens, light and dark.

mod bars;
mod chart;

pub use bars::{Bar, BarGroup, Bars};
pub(crate) use bars::{DOUBT, ERRORS, percent};
pub use chart::{Axis, Chart, ChartLine};

/// A page under construction.
#[derive(Debug, Default)]
pub struct HtmlPage {
    title: String,
    body: String,
}

impl HtmlPage {
    /// `headline` says in a sentence what came out.
    pub fn new(title: &str, headline: &str) -> Self {
        let body = format!("<h1>{}</h1>\n", escape(headline));
        Self { title: title.to_owned(), body }
    }

    pub fn heading(&mut self, text: &str) {
        self.body += &format!("<h2>{}</h2>\n", escape(text));
    }

    pub fn text(&mut self, text: &str) {
        self.body += &format!("<p>{}</p>\n", escape(text));
    }

    /// What a reader must know before believing the rest.
    pub fn warning(&mut self, text: &str) {
        self.body += &format!("<p class=\"warning\">{}</p>\n", escape(text));
    }

    /// Names and what they stand for, such as the machine.
    pub fn definitions(&mut self, lines: &[(String, String)]) {
        self.body += "<dl>\n";
        for (name, value) in lines {
            self.body += &format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value));
        }
        self.body += "</dl>\n";
    }

    /// What follows is shown only when a reader asks for it.
    pub fn begin_details(&mut self, summary: &str) {
        self.body += &format!("<details><summary>{}</summary>\n", escape(summary));
    }

    pub fn end_details(&mut self) {
        self.body += "</details>\n";
    }

    /// The charts that follow stand beside each other where there is room.
    pub fn begin_charts(&mut self) {
        self.body += "<div class=\"charts\">\n";
    }

    pub fn end_charts(&mut self) {
        self.body += "</div>\n";
    }

    pub fn bars(&mut self, bars: &Bars) {
        self.body += &bars.figure();
    }

    pub fn chart(&mut self, chart: &Chart) {
        self.body += &chart.figure();
    }

    /// A table whose first column holds names and whose others hold numbers. On a narrow screen
    /// each row becomes a list with the column's name before each number, so that nothing is cut
    /// off.
    pub fn table(&mut self, head: &[String], rows: &[Vec<String>]) {
        self.body += "<table><thead><tr>";
        for title in head {
            self.body += &format!("<th>{}</th>", escape(title));
        }
        self.body += "</tr></thead><tbody>\n";
        for row in rows {
            self.body += "<tr>";
            for (title, cell) in head.iter().zip(row) {
                self.body += &format!("<td data-name=\"{}\">{}</td>", escape(title), escape(cell));
            }
            self.body += "</tr>\n";
        }
        self.body += "</tbody></table>\n";
    }

    /// The whole document.
    pub fn finish(self) -> String {
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{}</main>\n\
             </body>\n</html>\n",
            escape(&self.title),
            self.body
        )
    }
}

/// Text as HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A number with as many digits as a reader wants: 1234567 is 1.23M.
pub(crate) fn short(number: f64) -> String {
    let (number, unit) = match number.abs() {
        n if n >= 1e9 => (number / 1e9, "G"),
        n if n >= 1e6 => (number / 1e6, "M"),
        n if n >= 1e3 => (number / 1e3, "k"),
        _ => (number, ""),
    };
    let decimals = match number.abs() {
        n if n >= 100.0 || n == 0.0 => 0,
        n if n >= 10.0 => 1,
        n if n >= 0.1 => 2,
        _ => 3,
    };
    let text = format!("{number:.decimals$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{text}{unit}")
}

const STYLE: &str = "\
:root { --ground: #fcfcfb; --ink: #1d1d1b; --soft: #66655f; --rule: #dddbd3;
  --c0: #2563b8; --c1: #c2410c; --c2: #15803d; --c3: #8b31b0; --c4: #a16207; --c5: #0e7490; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #171716; --ink: #ecebe6; --soft: #a3a199; --rule: #3a3935;
    --c0: #7ab0f5; --c1: #fb9a67; --c2: #6bcb8b; --c3: #d59bf0; --c4: #e3bd5c; --c5: #67cbdd; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 72rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 1rem 0 0.5rem; }
h2 { font-size: 1.2rem; margin: 2rem 0 0.5rem; }
p { max-width: 44rem; color: var(--soft); overflow-wrap: anywhere; }
.warning { color: var(--ink); border-left: 0.25rem solid var(--c4); padding-left: 0.75rem; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 0.1rem 1rem;
  font-size: 0.9rem; max-width: 60rem; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
details { margin: 1rem 0; }
summary { cursor: pointer; font-weight: 600; }
.charts { display: grid; gap: 1rem 2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); }
figure { margin: 0 0 1rem; min-width: 0; }
figcaption { font-weight: 600; }
figcaption span { font-weight: 400; color: var(--soft); }
.group { margin-top: 0.4rem; font-size: 0.9rem; color: var(--soft); }
.bar { display: grid; grid-template-columns: 7.5rem minmax(0, 1fr) 7.75rem; gap: 0.5rem;
  align-items: center; font-size: 0.9rem; line-height: 1.35; }
.bar .name { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.bar .value { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.track { position: relative; height: 0.85rem; }
.track i { position: absolute; inset: 0 auto 0 0; border-radius: 0 2px 2px 0; }
.track b { position: absolute; top: calc(50% - 1px); height: 2px; background: var(--ink); }
.track b::before, .track b::after { content: ''; position: absolute; top: -3px; width: 2px;
  height: 8px; background: var(--ink); }
.track b::before { left: 0; }
.track b::after { right: 0; }
svg { width: 100%; max-width: 36rem; height: auto; display: block; }
svg text { fill: var(--soft); font: 14px system-ui, sans-serif; }
.legend { display: flex; flex-wrap: wrap; gap: 0 1rem; font-size: 0.9rem; }
.legend svg { display: inline-block; width: 1.75rem; height: 0.5rem; margin-right: 0.3rem; }
table { border-collapse: collapse; font-size: 0.875rem; font-variant-numeric: tabular-nums;
  margin: 0.5rem 0 1rem; }
th, td { padding: 0.2rem 0.5rem; text-align: right; border-bottom: 1px solid var(--rule); }
th { vertical-align: bottom; }
td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
@media (max-width: 56rem) {
  table, tbody, tr, td { display: block; }
  thead { display: none; }
  tr { border-bottom: 1px solid var(--rule); padding: 0.4rem 0; }
  td { display: flex; justify-content: space-between; gap: 1rem; border: 0; padding: 0.05rem 0;
    white-space: normal; }
  td::before { content: attr(data-name); color: var(--soft); }
  td:first-child { font-weight: 600; }
  td:first-child::before { content: none; }
}
@media (max-width: 30rem) {
  .bar { grid-template-columns: 6.5rem minmax(0, 1fr) 7.75rem; gap: 0.3rem; }
  dl { display: block; }
  dd { margin-bottom: 0.3rem; }
}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (number, text) in [
            (0.0, "0"),
            (1234567.0, "1.23M"),
            (100.0, "100"),
            (150000.0, "150k"),
            (0.25, "0.25"),
            (0.012, "0.012"),
            (20.0, "20"),
            (2000.0, "2k"),
        ] {
            assert_eq!(short(number), text);
        }
    }

    #[test]
    fn a_page_asks_for_nothing_outside() {
        let mut page = HtmlPage::new("A <b> & c", "about");
        page.chart(&Chart {
            title: "rate".into(),
            x: Axis { title: "threads".into(), is_logarithmic: false, ticks: vec![1.0, 2.0] },
            y: Axis { title: "requests per second".into(), is_logarithmic: false, ticks: vec![] },
            lines: vec![ChartLine { name: "x".into(), points: vec![(1.0, 2.0), (2.0, 5.0)] }],
        });
        page.table(&["a".into()], &[vec!["1".into()]]);
        page.definitions(&[("Kernel".into(), "x < y".into())]);
        let text = page.finish();
        assert!(text.contains("A &lt;b&gt; &amp; c") && text.contains("<polyline"));
        assert!(text.contains("<dt>Kernel</dt><dd>x &lt; y</dd>"), "{text}");
        assert!(text.contains("<td data-name=\"a\">1</td>"), "{text}");
        // Only whole numbers of threads are named.
        assert!(text.contains(">1</text>") && !text.contains(">1.2</text>"), "{text}");
        for outside in ["http:", "https:", "src=", "url(", "<script", "@import", "<link"] {
            assert!(!text.contains(outside), "{outside}");
        }
    }
}
