#![no_main]
//! `cjson` with any bytes: an error is an answer, and what was read is written and read again as
//! the same.

mod script;

use libfuzzer_sys::fuzz_target;

const CODE: &str = "
    local ok, value = pcall(cjson.decode, ARGV[1])
    if ok and type(value) == 'table' then
        local fine, again = pcall(cjson.encode, value)
        if fine then
            assert(cjson.encode(cjson.decode(again)) == cjson.encode(cjson.decode(again)))
        end
    end
    assert(cjson.decode(cjson.encode({ARGV[1]}))[1] == ARGV[1])
    return 1
";

fuzz_target!(|bytes: &[u8]| script::run(CODE, bytes, 0));
