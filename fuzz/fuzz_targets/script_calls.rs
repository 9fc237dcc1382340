#![no_main]
//! Scripts of random calls of library functions, with extreme numbers, shared and cyclic tables:
//! each ends by itself, or when it is stopped, and takes no more memory than it may.

mod script;

use libfuzzer_sys::fuzz_target;

const CODE: &str = include_str!("../../crates/script/tests/calls.lua");

fuzz_target!(|bytes: &[u8]| script::survive(CODE, bytes));
