//! Numbers as text, as Redis reads and writes them: in requests, in replies and inside values.

#![forbid(unsafe_code)]

mod float;
mod parse;

pub use float::{FloatText, append_f64, format_f64, format_f64_as_digits};
pub use parse::{parse_f64, parse_i64};
