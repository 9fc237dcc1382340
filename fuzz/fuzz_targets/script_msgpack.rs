#![no_main]
//! `cmsgpack` with any bytes: an error is an answer, and what was read can be written.

mod script;

use libfuzzer_sys::fuzz_target;

const CODE: &str = "
    local ok, value = pcall(cmsgpack.unpack, ARGV[1])
    if ok then
        -- What lies too deep is packed as nil, and is no key then.
        local fine, again = pcall(cmsgpack.unpack, cmsgpack.pack(value))
        assert(not fine or cmsgpack.pack(again) ~= nil)
    end
    pcall(cmsgpack.unpack_one, ARGV[1], #ARGV[1] / 2)
    pcall(cmsgpack.unpack_limit, ARGV[1], 3, 1)
    pcall(cmsgpack.unpack_limit, ARGV[1], tonumber(ARGV[1]) or 0/0, tonumber(ARGV[1]) or 1e300)
    assert(cmsgpack.unpack(cmsgpack.pack(ARGV[1])) == ARGV[1])
    return 1
";

fuzz_target!(|bytes: &[u8]| script::run(CODE, bytes, 0));
