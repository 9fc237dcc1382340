#![no_main]
//! What searches for patterns, with any pattern and any text: it finds the same by each way.

mod script;

use libfuzzer_sys::fuzz_target;

const CODE: &str = "
    local text, pattern = ARGV[1], ARGV[2]
    local ok, first, last = pcall(string.find, text, pattern)
    -- A pattern ends at a zero, unless it is plain.
    if ok and first and not string.find(pattern, '[()%z]') then
        assert(string.match(text, pattern) == string.sub(text, first, last))
    end
    if ok and pattern:sub(1, 1) ~= '^' then
        local count = 0
        local counted = pcall(function() for _ in string.gmatch(text, pattern) do count = count + 1 end end)
        local fine, _, replaced = pcall(string.gsub, text, pattern, '%0')
        assert(not (counted and fine) or count == replaced, count)
    end
    pcall(string.gsub, text, pattern, text)
    pcall(string.gsub, text, pattern, {})
    assert(#string.rep(pattern, 3) == 3 * #pattern)
    return 1
";

fuzz_target!(|bytes: &[u8]| script::run(CODE, bytes, 16));
