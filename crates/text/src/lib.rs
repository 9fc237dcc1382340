//! Numbers as text, as Redis reads and writes them: in requests, in replies and inside values. And
//! the system's errors as text, bytes in base 16, which known word a mistyped one stands for, and
//! text in lines.

#![forbid(unsafe_code)]

mod error;
mod float;
mod hex;
mod nearest;
mod parse;
mod wrap;

pub use error::error_text;
pub use float::{FloatText, append_f64, format_f64, format_f64_as_digits};
pub use hex::hex;
pub use nearest::nearest;
pub use parse::{parse_f64, parse_i64};
pub use wrap::wrapped;
