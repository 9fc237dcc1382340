//! What was published against the scripts of Redis and Valkey: a test for each, by the advisory's
//! number. `cargo xtask supply` knows the list, and looks for the tests by their names.

mod common;

use common::{failure, failure_for, new_vm, run};

/// Runs scripts of which each says `return 1` in the end, or fails; and then another, which finds
/// all as it was.
fn survive(codes: &[&str]) {
    let mut vm = new_vm(256 << 20);
    for code in codes {
        let (ended, reply) = run(&mut vm, code);
        assert!(reply == ":1\r\n" || reply.is_empty(), "{code}: {ended:?} {reply}");
        assert_eq!(run(&mut vm, "return 7").1, ":7\r\n", "after {code}");
    }
}

fn refuse(codes: &[&str], text: &str) {
    let mut vm = new_vm(256 << 20);
    for code in codes {
        let failure = failure(&mut vm, code);
        assert!(failure.contains(text), "{code}: {failure}");
        assert_eq!(run(&mut vm, "return 7").1, ":7\r\n", "after {code}");
    }
}

/// Functions with many parameters, called where Lua's stack has little room left.
#[test]
fn cve_2014_5461() {
    let function = "local names = {} for i = 1, 190 do names[i] = 'a' .. i end \
        local f f = loadstring('local f f = function(' .. table.concat(names, ',') .. ', ...) return f end return f')() ";
    survive(&[
        &format!(
            "{function} for i = 1, 7000, 50 do local t = {{}} for j = 1, i do t[j] = j end f(unpack(t)) end return 1"
        ),
        &format!(
            "{function} local function deep(n) f(1) if n > 0 then deep(n - 1) end f(1) end deep(5000) return 1"
        ),
        &format!("{function} for i = 1, 1000 do coroutine.wrap(f)(1) end return 1"),
    ]);
}

/// Counts and sizes in formats of `struct` that overflow an integer.
#[test]
fn cve_2015_8080_and_cve_2020_14147() {
    survive(&[
        "struct.pack('>I2147483648', '10') return 1",
        "struct.pack('>I99999999999999999999', 1) return 1",
        "struct.unpack('c4294967295', 'x') return 1",
        "struct.unpack('c18446744073709551615', 'x') return 1",
        "struct.size('c2147483647c2147483647c2147483647') return 1",
        "struct.pack('!2147483648i', 1) return 1",
    ]);
}

/// `cmsgpack` with more values, and deeper ones, than Lua's stack has room for.
#[test]
fn cve_2018_11218() {
    survive(&[
        "cmsgpack.unpack(string.rep('\\1', 1e6)) return 1",
        "cmsgpack.unpack(string.rep('\\145', 1e6)) return 1",
        "cmsgpack.unpack_limit(string.rep('\\1', 1e6), 2147483647) return 1",
        "local t = {} for i = 1, 7000 do t[i] = i end cmsgpack.pack(unpack(t)) return 1",
        "local t = {} for i = 1, 1e5 do t = {t} end cmsgpack.pack(t) return 1",
    ]);
}

/// `struct.unpack` with offsets and sizes whose sum overflows.
#[test]
fn cve_2018_11219() {
    survive(&[
        "struct.unpack('c0', 'x', 9e18) return 1",
        "struct.unpack('bc0', 'x', 1) return 1",
        "struct.unpack('dc0', struct.pack('d', 1.8e19), 1) return 1",
        "struct.unpack('dc0', struct.pack('d', -1), 1) return 1",
        "struct.unpack('i', 'abcd', -2^31) return 1",
        "struct.unpack('i', 'abcd', 2^63) return 1",
        "struct.unpack('i', 'abcd', 0/0) return 1",
    ]);
}

/// Functions that push values without making room for them.
#[test]
fn cve_2021_32626() {
    survive(&[
        "cjson.decode(string.rep('[', 1000) .. string.rep(']', 1000)) return 1",
        "local t = {} for i = 1, 1000 do t = {t} end cjson.encode_max_depth(2000) cjson.encode(t) return 1",
        "struct.unpack(string.rep('b', 1e5), string.rep('x', 1e5)) return 1",
        "local t = {} for i = 1, 7990 do t[i] = i end redis.call('x', unpack(t)) return 1",
        "string.find(string.rep('a', 100), string.rep('(a)', 40)) return 1",
        "local t = {} for i = 1, 1e5 do t[i] = 'x' end return string.byte(table.concat(t), 1, -1)",
    ]);
}

/// What one script leaves in tables that others use.
#[test]
fn cve_2022_24735() {
    let mut vm = new_vm(256 << 20);
    for code in [
        "redis.call = function() return 'mine' end",
        "string.rep = nil",
        "setmetatable(_G, {__index = function() return 1 end})",
        "rawset(math, 'floor', nil)",
        "getmetatable('').__index = function() return 1 end",
        "table.insert(cjson, 1)",
    ] {
        failure(&mut vm, code);
    }
    let seen = "return {type(redis.call), type(string.rep), type(math.floor), #cjson}";
    assert_eq!(
        run(&mut vm, seen).1,
        "*4\r\n$8\r\nfunction\r\n$8\r\nfunction\r\n$8\r\nfunction\r\n:0\r\n"
    );
}

/// Source that the compiler takes apart in places it does not expect. Code that is compiled already
/// is not loaded.
#[test]
fn cve_2022_24736() {
    survive(&[
        "loadstring(string.dump(function() return 1 end)) return 1",
        "loadstring('\\27Lua' .. string.rep('\\0', 100)) return 1",
        "load(function() return '\\27Lua' end) return 1",
        "loadstring('local a <') loadstring('return ...')() loadstring('break') return 1",
        "loadstring('a.b:c = 1') loadstring('goto x') loadstring('return function') return 1",
    ]);
}

/// Encodings whose size, or whose room for growth, overflows an integer.
#[test]
fn cve_2022_24834() {
    let mut vm = new_vm(32 << 20);
    for code in [
        "return cjson.encode(string.rep('\\0', 8e6))",
        "local s = string.rep('\"', 4e6) return cjson.encode({s, s, s, s, s, s})",
        "local s = string.rep('x', 4e6) return cmsgpack.pack(s, s, s, s, s, s)",
        "local t = {} for i = 1, 40 do t = {t, t} end return cjson.encode(t)",
    ] {
        let text = failure_for(&mut vm, code, u32::MAX);
        assert!(text.contains("more memory"), "{code}: {text}");
        assert_eq!(run(&mut vm, "return 7").1, ":7\r\n", "after {code}");
    }
    survive(&["cjson.encode_number_precision(14) cjson.encode(1e308) return 1"]);
}

/// `bit.tohex` with the smallest number of digits, which has no opposite.
#[test]
fn cve_2024_31449() {
    let mut vm = new_vm(256 << 20);
    for (code, text) in [
        ("return bit.tohex(65535, -2147483648)", "$8\r\n0000FFFF\r\n"),
        ("return bit.tohex(65535, 2147483647)", "$8\r\n0000ffff\r\n"),
        ("return bit.tohex(65535, -2)", "$2\r\nFF\r\n"),
    ] {
        assert_eq!(run(&mut vm, code).1, text, "{code}");
    }
}

/// What runs while garbage is collected: there is nothing that a script can have called then.
#[test]
fn cve_2024_46981() {
    refuse(&["newproxy(true)", "return newproxy"], "newproxy");
    survive(&[
        "setmetatable({}, {__gc = function() error('ran') end}) collectgarbage() return 1",
        "local t = setmetatable({}, {__mode = 'kv'}) for i = 1, 1e4 do t[{}] = {} end collectgarbage() return 1",
        "local c = coroutine.wrap(function() collectgarbage() coroutine.yield() end) c() collectgarbage() return 1",
    ]);
}

/// `unpack` with bounds whose difference overflows an integer.
#[test]
fn cve_2025_46817() {
    refuse(
        &[
            "return {unpack({1, 2, 3}, -2, 2147483647)}",
            "return {unpack({1, 2, 3}, 0, 2147483647)}",
            "return {unpack({1, 2, 3}, -2147483648, 2147483647)}",
            "return {unpack({1, 2, 3}, -2147483648, -1)}",
            "return {unpack({1, 2, 3}, 1, 1e6)}",
        ],
        "too many results to unpack",
    );
    survive(&[
        "assert(select('#', unpack({}, 2147483647, -2147483648)) == 0) return 1",
        "assert(select('#', unpack({}, 2147483647, 2147483647)) == 1) return 1",
        "assert(select('#', unpack({}, -2147483648, -2147483648)) == 1) return 1",
        "local a, b = unpack({1, 2, 3}, 2) assert(a == 2 and b == 3) return 1",
    ]);
}

/// Metatables of basic types, which all users share.
#[test]
fn cve_2025_46818() {
    let mut vm = new_vm(256 << 20);
    for code in [
        "getmetatable('').__index = {}",
        "getmetatable('').__add = function() return 1 end",
        "rawset(getmetatable(''), '__call', function() return 1 end)",
        "setmetatable(getmetatable(''), {})",
        "table.insert(getmetatable(''), 1)",
        "getmetatable('').__index.upper = nil",
        "debug.setmetatable(1, {})",
        "debug.setmetatable(nil, {})",
    ] {
        failure(&mut vm, code);
    }
    for code in
        ["return ('a') + 1", "return ('a')()", "return (1).x", "return (nil).x", "return print.x"]
    {
        failure(&mut vm, code);
    }
    assert_eq!(run(&mut vm, "return ('a'):upper()").1, "$1\r\nA\r\n");
}

/// Long brackets whose level does not fit an integer: no source is long enough.
#[test]
fn cve_2025_46819() {
    survive(&[
        "assert(loadstring('return [' .. string.rep('=', 1e6) .. '[x]' .. string.rep('=', 1e6) .. ']')() == 'x') \
         return 1",
        "assert(not loadstring('return [' .. string.rep('=', 1e6))) return 1",
        "assert(not loadstring('--[' .. string.rep('=', 1e6) .. '[')) return 1",
        "assert(not loadstring('return [[' .. string.rep(']=', 1e6))) return 1",
    ]);
    let mut vm = new_vm(256 << 20);
    let long = format!("return [{}", "=".repeat(17 << 20));
    assert_eq!(vm.compile(long.as_bytes(), c"@long"), Err(b"the source is too long".to_vec()));
    let code = "return {loadstring('return [' .. string.rep('=', 2^24))}";
    assert_eq!(run(&mut vm, code).1, "*0\r\n");
}

/// A chunk's name that nothing refers to while the chunk is compiled, and garbage collected.
#[test]
fn cve_2025_49844() {
    let code = "
        for round = 1, 200 do
            local name = '=' .. string.rep('n', 100) .. round
            local parts = {}
            for i = 1, 200 do parts[i] = 'local s' .. i % 100 .. ' = \"' .. string.rep('x', i) .. round .. '\"' end
            local source = 'do ' .. table.concat(parts, ' end do ') .. ' end error()'
            local f = assert(loadstring(source, name))
            name = nil
            collectgarbage('step')
            pcall(f)
            local _, text = loadstring('x = = ' .. round, '=' .. string.rep('m', 40) .. round)
            assert(text:find(string.rep('m', 40) .. round, 1, true), text)
        end
        return 1";
    survive(&[code]);
}

/// Line ends in errors and statuses, which would begin a reply of their own.
#[test]
fn cve_2025_67733() {
    let mut vm = new_vm(256 << 20);
    for (code, text) in [
        ("return {redis.error_reply('ERR a\\r\\n+b')}", "*1\r\n-ERR a  +b\r\n"),
        ("return {redis.status_reply('a\\r\\n+b')}", "*1\r\n+a  +b\r\n"),
        ("return {{err = 'ERR a\\n$1\\r\\nb'}}", "*1\r\n-ERR a $1  b\r\n"),
        ("return {{ok = 'a\\n:1'}}", "*1\r\n+a :1\r\n"),
    ] {
        assert_eq!(run(&mut vm, code).1, text, "{code}");
    }
}
