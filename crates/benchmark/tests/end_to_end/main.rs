//! bobbin-benchmark as its users run it, against servers of the tests' own. They need what
//! `cargo xtask peers` installs.

mod common;
mod connections;
mod interruptions;
mod options;
mod pages;
