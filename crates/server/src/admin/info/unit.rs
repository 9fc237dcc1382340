//! What INFO's numbers are measured in.

/// What a field is measured in; metrics are in base units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InfoUnit {
    /// It counts things, is a ratio, or is shown to Prometheus as it stands.
    Number,
    Bytes,
    Kilobytes,
    Seconds,
    Milliseconds,
    Microseconds,
}

impl InfoUnit {
    /// What a metric's name ends in.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Number => "",
            Self::Bytes | Self::Kilobytes => "_bytes",
            Self::Seconds | Self::Milliseconds | Self::Microseconds => "_seconds",
        }
    }

    /// How much of the base unit it is.
    pub const fn factor(self) -> f64 {
        match self {
            Self::Number | Self::Bytes | Self::Seconds => 1.0,
            Self::Kilobytes => 1024.0,
            Self::Milliseconds => 1e-3,
            Self::Microseconds => 1e-6,
        }
    }
}
