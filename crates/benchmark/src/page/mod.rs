//! Results as one HTML page that needs no network: tables and SVG charts, readable on narrow and
//! wide screens, light and dark.

mod chart;

pub use chart::{Axis, Chart, Line};

/// A page under construction.
#[derive(Debug, Default)]
pub struct Page {
    title: String,
    body: String,
}

impl Page {
    pub fn new(title: &str, about: &str) -> Self {
        let body = format!("<h1>{}</h1>\n<p>{}</p>\n", escape(title), escape(about));
        Self { title: title.to_owned(), body }
    }

    pub fn heading(&mut self, text: &str) {
        self.body += &format!("<h2>{}</h2>\n", escape(text));
    }

    pub fn text(&mut self, text: &str) {
        self.body += &format!("<p>{}</p>\n", escape(text));
    }

    /// The charts that follow stand beside each other where there is room.
    pub fn begin_charts(&mut self) {
        self.body += "<div class=\"charts\">\n";
    }

    pub fn end_charts(&mut self) {
        self.body += "</div>\n";
    }

    pub fn chart(&mut self, chart: &Chart) {
        self.body += &chart.figure();
    }

    /// A table whose first column holds names and whose others hold numbers.
    pub fn table(&mut self, head: &[String], rows: &[Vec<String>]) {
        let cells = |cells: &[String], tag: &str| -> String {
            cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect()
        };
        self.body += &format!("<div class=\"wide\"><table><tr>{}</tr>\n", cells(head, "th"));
        for row in rows {
            self.body += &format!("<tr>{}</tr>\n", cells(row, "td"));
        }
        self.body += "</table></div>\n";
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
.charts { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); }
figure { margin: 0 0 1rem; }
figcaption { font-weight: 600; }
svg { width: 100%; max-width: 36rem; height: auto; display: block; }
svg text { fill: var(--soft); font: 13px system-ui, sans-serif; }
.legend { display: flex; flex-wrap: wrap; gap: 0 1rem; font-size: 0.9rem; }
.legend svg { display: inline-block; width: 1.75rem; height: 0.5rem; margin-right: 0.3rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 0.6rem; text-align: right; border-bottom: 1px solid var(--rule);
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0;
  background: var(--ground); }
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
        let mut page = Page::new("A <b> & c", "about");
        page.chart(&Chart {
            title: "rate".into(),
            x: Axis { title: "threads".into(), is_logarithmic: false },
            y: Axis { title: "requests per second".into(), is_logarithmic: false },
            lines: vec![Line { name: "x".into(), points: vec![(1.0, 2.0), (2.0, 5.0)] }],
        });
        page.table(&["a".into()], &[vec!["1".into()]]);
        let text = page.finish();
        assert!(text.contains("A &lt;b&gt; &amp; c") && text.contains("<polyline"));
        for outside in ["http:", "https:", "src=", "url(", "<script", "@import", "<link"] {
            assert!(!text.contains(outside), "{outside}");
        }
    }
}
