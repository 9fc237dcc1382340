//! The units of INFO's numbers.

/// The unit of a field. Metrics use base units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InfoUnit {
    /// A count, a ratio, or a number that Prometheus gets unchanged.
    Number,
    Bytes,
    Kilobytes,
    Seconds,
    Milliseconds,
    Microseconds,
}

impl InfoUnit {
    /// The suffix of a metric's name.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Number => "",
            Self::Bytes | Self::Kilobytes => "_bytes",
            Self::Seconds | Self::Milliseconds | Self::Microseconds => "_seconds",
        }
    }

    /// The factor to the base unit.
    pub const fn factor(self) -> f64 {
        match self {
            Self::Number | Self::Bytes | Self::Seconds => 1.0,
            Self::Kilobytes => 1024.0,
            Self::Milliseconds => 1e-3,
            Self::Microseconds => 1e-6,
        }
    }
}
