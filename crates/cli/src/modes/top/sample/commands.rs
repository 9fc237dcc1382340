//! INFO's sections `commandstats` and `latencystats`: what each command was called and took.

use std::collections::HashMap;

use super::{super::text, NAME_LEN_MAX};
use crate::modes::info::{Info, part};

/// A command, counted since the server started or its counters were reset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CommandSample {
    pub name: String,
    pub calls: u64,
    pub time_us: u64,
    /// Refused before they ran, and failed while they did.
    pub failures: Option<u64>,
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub p999_us: Option<f64>,
}

pub fn read(info: &Info) -> Vec<CommandSample> {
    let percentiles: HashMap<&str, &str> = info.named("latency_percentiles_usec_").collect();
    let named = info.named("cmdstat_").take(COMMANDS_MAX);
    named.map(|(name, value)| command(name, value, percentiles.get(name).copied())).collect()
}

fn command(name: &str, value: &str, percentiles: Option<&str>) -> CommandSample {
    let integer = |name| part(value, name).and_then(|number| number.parse::<u64>().ok());
    let percentile = |name| {
        let us: f64 = part(percentiles?, name)?.parse().ok()?;
        (us.is_finite() && us >= 0.0).then_some(us)
    };
    let failures = match (integer("rejected_calls"), integer("failed_calls")) {
        (None, None) => None,
        (rejected, failed) => Some(rejected.unwrap_or(0).saturating_add(failed.unwrap_or(0))),
    };
    CommandSample {
        name: text::safe(name.as_bytes(), NAME_LEN_MAX),
        calls: integer("calls").unwrap_or(0),
        time_us: integer("usec").unwrap_or(0),
        failures,
        p50_us: percentile("p50"),
        p99_us: percentile("p99"),
        p999_us: percentile("p99.9"),
    }
}

const COMMANDS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::super::tests::of_info;

    #[test]
    fn counts_and_percentiles() {
        let sample = of_info(
            0,
            "cmdstat_config|get:calls=3,usec=48,usec_per_call=16,rejected_calls=1,failed_calls=2\n\
             cmdstat_get:calls=x\n\
             latency_percentiles_usec_config|get:p50=18.421,p99=20,p99.9=inf\n",
        );
        let [config, get] = &sample.commands[..] else { panic!("{:?}", sample.commands) };
        assert_eq!((config.name.as_str(), config.calls, config.time_us), ("config|get", 3, 48));
        assert_eq!(config.failures, Some(3));
        assert_eq!(
            (config.p50_us, config.p99_us, config.p999_us),
            (Some(18.421), Some(20.0), None)
        );
        assert_eq!((get.calls, get.failures, get.p50_us), (0, None, None));
    }
}
