#![no_main]
//! `struct` and `bit` with any format and any bytes: an error is an answer.

mod script;

use libfuzzer_sys::fuzz_target;

const CODE: &str = "
    local format = ARGV[2]
    pcall(struct.size, format)
    pcall(struct.unpack, format, ARGV[1])
    pcall(struct.unpack, format, ARGV[1], #format)
    pcall(struct.unpack, format, ARGV[1], tonumber(format) or 0/0)
    pcall(struct.unpack, ARGV[1], format, 1e300)
    pcall(struct.pack, format, 1, ARGV[1], -2.5, ARGV[1], 1e30)
    pcall(bit.band, ARGV[1], 1)
    pcall(bit.tohex, ARGV[1], ARGV[2])
    pcall(loadstring, ARGV[1])
    return 1
";

fuzz_target!(|bytes: &[u8]| script::run(CODE, bytes, 12));
