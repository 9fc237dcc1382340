//! bobbin-cli as its users run it, against servers of the tests' own.

mod cluster;
mod common;
mod formats;
mod migrate;
mod modes;
mod options;
mod pages;
mod pasting;
mod shell;
mod tls;
mod top;
