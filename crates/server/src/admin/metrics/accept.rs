//! Chooses the form of the metrics from the `Accept` field of a request (RFC 9110, 12.5.1).

use super::exposition::MetricsFormat;

/// The form of the metrics that a scraper prefers. It gets OpenMetrics only if it names that.
pub(super) fn wanted_format(accept: &str) -> MetricsFormat {
    let mut open = 0.0f32;
    // The weights of `text/plain`, `text/*` and `*/*`. The most specific one counts.
    let mut plain = [None; 3];
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let parameters = parts.filter_map(|part| part.split_once('='));
        let (mut quality, mut version) = (1.0f32, None);
        for (name, value) in parameters {
            match &*name.trim().to_ascii_lowercase() {
                "q" => quality = value.trim().parse().unwrap_or(0.0),
                "version" => version = Some(value.trim().trim_matches('"')),
                _ => {}
            }
        }
        match &*kind {
            "application/openmetrics-text" if version.is_none_or(|version| version == "1.0.0") => {
                open = open.max(quality);
            }
            "text/plain" if version.is_none_or(|version| version == "0.0.4") => {
                plain[0] = Some(quality);
            }
            "text/*" => plain[1] = Some(quality),
            "*/*" => plain[2] = Some(quality),
            _ => {}
        }
    }
    let plain = plain.into_iter().flatten().next().unwrap_or(0.0);
    if open > 0.0 && open >= plain { MetricsFormat::Open } else { MetricsFormat::Plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scraper_gets_the_form_that_it_asks_for() {
        for (accept, expected) in [
            ("", MetricsFormat::Plain),
            ("*/*", MetricsFormat::Plain),
            ("application/*", MetricsFormat::Plain),
            ("text/html,application/xhtml+xml,*/*;q=0.8", MetricsFormat::Plain),
            ("application/openmetrics-text", MetricsFormat::Open),
            ("Application/OpenMetrics-Text; Version=1.0.0; charset=utf-8", MetricsFormat::Open),
            ("application/openmetrics-text;version=0.0.1", MetricsFormat::Plain),
            ("application/openmetrics-text;q=0", MetricsFormat::Plain),
            ("application/openmetrics-text;q=x", MetricsFormat::Plain),
            ("application/openmetrics-text;q=0.4,text/plain;q=0.5", MetricsFormat::Plain),
            ("application/openmetrics-text;q=0.4,text/plain;q=0.3,*/*;q=0.5", MetricsFormat::Open),
            // Prometheus 2.42, and 3.
            (
                "application/openmetrics-text;version=1.0.0,\
                 application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                MetricsFormat::Open,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                 application/openmetrics-text;version=0.0.1;q=0.4,\
                 text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
                 text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                MetricsFormat::Open,
            ),
            // A possible configuration of Prometheus.
            (
                "text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5",
                MetricsFormat::Plain,
            ),
        ] {
            assert_eq!(wanted_format(accept), expected, "{accept}");
        }
    }
}
