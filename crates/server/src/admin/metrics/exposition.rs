//! The two forms of text in which Prometheus reads metrics: its own, 0.0.4, and
//! [OpenMetrics](https://prometheus.io/docs/specs/om/open_metrics_spec/) 1.0.

use std::fmt::Write;

/// The form of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MetricsFormat {
    /// The text format 0.0.4.
    Plain,
    /// OpenMetrics 1.0: a counter's family is named without `_total`, units have their own lines,
    /// and the text has an end mark.
    Open,
}

/// The type of a family of metrics.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
    Summary,
}

/// The text while it is made: families, each with its samples behind it.
pub(super) struct Exposition {
    pub text: String,
    format: MetricsFormat,
}

impl MetricsFormat {
    /// The `Content-Type` of the text.
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
            Self::Open => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The name of the family of a counter with this name.
    pub(super) fn family_of_counter(self, name: &str) -> &str {
        match self {
            Self::Plain => name,
            Self::Open => name.strip_suffix(TOTAL).unwrap_or(name),
        }
    }
}

impl MetricKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
        }
    }
}

impl Exposition {
    pub(super) fn new(format: MetricsFormat) -> Self {
        Self { text: String::with_capacity(TEXT_USUAL_BYTES), format }
    }

    pub(super) const fn format(&self) -> MetricsFormat {
        self.format
    }

    /// Begins a family. The name of a counter ends in `_total`.
    pub(super) fn family(&mut self, name: &str, kind: MetricKind, help: &str) {
        let family = match kind {
            MetricKind::Counter => self.format.family_of_counter(name),
            MetricKind::Gauge | MetricKind::Histogram | MetricKind::Summary => name,
        };
        let mut help = help.replace('\\', "\\\\").replace('\n', "\\n");
        if self.format == MetricsFormat::Open {
            help = help.replace('"', "\\\"");
        }
        // Writing to a String cannot fail, here and below.
        write!(self.text, "# HELP {PREFIX}{family} {help}\n# TYPE {PREFIX}{family} ").ok();
        writeln!(self.text, "{}", kind.name()).ok();
        let unit = UNITS
            .iter()
            .find(|unit| family.strip_suffix(**unit).is_some_and(|rest| rest.ends_with('_')));
        if let (MetricsFormat::Open, Some(unit)) = (self.format, unit) {
            writeln!(self.text, "# UNIT {PREFIX}{family} {unit}").ok();
        }
    }

    /// Adds a sample to the last family.
    pub(super) fn sample(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        value: impl std::fmt::Display,
    ) {
        write!(self.text, "{PREFIX}{name}").ok();
        for (at, (label, text)) in labels.iter().enumerate() {
            let open = if at == 0 { '{' } else { ',' };
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(self.text, "{open}{label}=\"{text}\"").ok();
        }
        let close = if labels.is_empty() { "" } else { "}" };
        writeln!(self.text, "{close} {value}").ok();
    }

    /// The whole text.
    pub(super) fn finish(mut self) -> String {
        if self.format == MetricsFormat::Open {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// The prefix of all of Bobbin's own metrics.
pub const PREFIX: &str = "bobbin_";
/// The suffix of a counter's name.
pub(super) const TOTAL: &str = "_total";
/// The units of metrics, which are suffixes of their names.
const UNITS: [&str; 2] = ["bytes", "seconds"];
/// The usual length of the text in bytes.
const TEXT_USUAL_BYTES: usize = 48 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = Exposition::new(MetricsFormat::Plain);
        text.sample("x", &[("a", "q\"b\\s\nn"), ("b", "")], 1.5);
        assert_eq!(text.finish(), "bobbin_x{a=\"q\\\"b\\\\s\\nn\",b=\"\"} 1.5\n");
    }

    #[test]
    fn the_forms_differ_in_names_units_and_the_end() {
        for (format, expected) in [
            (
                MetricsFormat::Plain,
                "# HELP bobbin_busy_seconds_total The \"busy\" time.\n\
                 # TYPE bobbin_busy_seconds_total counter\n\
                 bobbin_busy_seconds_total 2\n\
                 # HELP bobbin_keys_total Keys.\n\
                 # TYPE bobbin_keys_total gauge\n",
            ),
            (
                MetricsFormat::Open,
                "# HELP bobbin_busy_seconds The \\\"busy\\\" time.\n\
                 # TYPE bobbin_busy_seconds counter\n\
                 # UNIT bobbin_busy_seconds seconds\n\
                 bobbin_busy_seconds_total 2\n\
                 # HELP bobbin_keys_total Keys.\n\
                 # TYPE bobbin_keys_total gauge\n\
                 # EOF\n",
            ),
        ] {
            let mut text = Exposition::new(format);
            text.family("busy_seconds_total", MetricKind::Counter, "The \"busy\" time.");
            text.sample("busy_seconds_total", &[], 2);
            text.family("keys_total", MetricKind::Gauge, "Keys.");
            assert_eq!(text.finish(), expected);
        }
    }
}
