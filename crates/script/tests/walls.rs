//! Scripts that loop, eat memory, recurse or look for a way out: they fail, and the next one finds
//! all as it was.

mod common;

use std::ptr::NonNull;
use std::sync::Arc;

use bobbin_resp::{Protocol, Reply};
use bobbin_script::{Api, Ended, MemoryPool, Profile, ScriptProgress, Verdict, Vm};

use common::{Echo, SLOW_CALLS, failure, failure_for, new_vm, new_vm_with, run};

#[test]
fn what_never_ends_is_ended_whatever_it_catches() {
    let mut vm = new_vm(512 << 20);
    for code in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "while true do xpcall(function() while true do end end, function() while true do end end) end",
        "local function f() return f() end return f()",
        "local c = coroutine.wrap(function() while true do end end) while true do pcall(c) end",
        "while true do coroutine.resume(coroutine.create(function() while true do redis.pcall('x') end end)) end",
        "table.sort({3,2,1}, function() while true do end end)",
        "string.gsub('x', '.', function() while true do end end)",
        "string.find(string.rep('a', 40), string.rep('a?', 40) .. string.rep('a', 40) .. 'b')",
        "local s = string.rep('a', 1e6) pcall(string.gsub, s, '.-.-.-.-b', '')",
        "for x in string.gmatch(string.rep('(', 1e6), '%b()') do end",
        "local t = {} for i = 1, 3e6 do t[i] = 3e6 - i end while true do pcall(table.sort, t) end",
    ] {
        assert!(failure(&mut vm, code).contains("Script killed."), "{code}");
        assert_eq!(run(&mut vm, "return 7"), (Ended::Replied, ":7\r\n".into()), "after {code}");
    }
}

/// What Lua's own library, or an encoder, would work on for hours in one call.
#[test]
fn what_takes_long_in_one_call_is_ended() {
    const LOOKS: u32 = 40;
    const DOUBLED: &str = "local t = {1} for i = 1, 60 do t = {t, t} end ";
    let mut vm = new_vm(512 << 20);
    for code in [
        "while true do table.insert({}, -1048576, 1) end",
        "local t = {} while true do pcall(table.insert, t, -1048576, 1) end",
        "local t = {} for i = 1, 1e5 do t[i] = 1 end while true do table.insert(t, 1, 1) table.remove(t, 1) end",
        "local t = {} for i = 1, 1e5 do t[i] = '' end while true do table.concat(t) end",
        "local t = {} for i = 1, 1e5 do t[i] = 1 end while true do table.foreachi(t, rawequal) end",
        "local t = {} for i = 1, 1e5 do t[i] = 1 end while true do table.maxn(t) end",
        "local t = {} for i = 1, 1e5 do t[i] = i % 7 end while true do pcall(table.sort, t, rawequal) end",
        "local s = string.rep('x', 2e6) while true do local t = s .. 'y' end",
        "local s, t = string.rep('x', 2e6) .. 'y', string.rep('x', 2e6) .. 'z' while true do local u = s < t end",
        "local s = string.rep('x', 1e6) while true do s:upper() s:byte(1, 10) s:reverse() end",
        "string.find(string.rep('a', 1e5), '(' .. string.rep('a', 1e4) .. ')%1%1%1%1%1.-%1b')",
        "string.find(string.rep('b', 1e5), '[' .. string.rep('a', 1e5) .. ']')",
        "string.gsub(string.rep('a', 1e6), 'a', string.rep('%%', 1e6))",
        "while true do coroutine.wrap(function() for i = 1, 1e4 do end end)() end",
        "local t = {} for i = 1, 2e5 do t[i] = {} end while true do collectgarbage() end",
        "while true do redis.call('x') end",
        "while true do struct.pack(string.rep('x', 1e6)) struct.size(string.rep(' ', 1e6)) end",
        "while true do redis.sha1hex(string.rep('x', 1e7)) end",
        "while true do loadstring('local a = 1 ' .. string.rep('if a then ', 1e4)) end",
    ] {
        let text = failure_for(&mut vm, code, LOOKS);
        assert!(text.contains("Script killed."), "{code}: {text}");
        assert_eq!(run(&mut vm, "return 7"), (Ended::Replied, ":7\r\n".into()), "after {code}");
    }
    for rest in [
        "return t",
        "return {map = t}",
        "return {set = {[t] = 1}}",
        "return {err = 1, t}",
        "cjson.encode(t)",
        "while true do pcall(cjson.encode, t) end",
        "while true do cmsgpack.pack(t) end",
    ] {
        let text = failure_for(&mut vm, &format!("{DOUBLED}{rest}"), LOOKS);
        assert!(text.contains("Script killed."), "{rest}: {text}");
        assert_eq!(run(&mut vm, "return 7"), (Ended::Replied, ":7\r\n".into()), "after {rest}");
    }
}

/// What is so far below a table that Lua would work on it for a minute is refused.
#[test]
fn places_far_below_a_table_are_refused() {
    let mut vm = new_vm(64 << 20);
    for at in ["-2147483648", "-1048577"] {
        let text = failure(&mut vm, &format!("table.insert({{}}, {at}, 1)"));
        let expected = "bad argument #2 to 'insert' (position out of bounds)";
        assert!(text.contains(expected), "{at}: {text}");
    }
    let code = "local t = {'a', 'b'} table.insert(t, -1048576, 'c') table.insert(t, -1, 'd') \
                return {tostring(t[1]), t[2], t[3], t[-1048576], t[-1], #t}";
    let reply = run(&mut vm, code).1;
    // As in Lua 5.1: what was in the table is two places further, behind an element that is not
    // there.
    assert_eq!(reply, "*6\r\n$3\r\nnil\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\nd\r\n:0\r\n");
}

/// A script that pauses wherever it is goes on as if it had not, and one that pauses can be given
/// up.
#[test]
fn what_takes_long_pauses_in_one_call() {
    let mut vm = new_vm(512 << 20);
    for (code, expected) in [
        ("local t = {} for i = 1, 2e5 do t[i] = i end return #cjson.encode(t)", ":1288896\r\n"),
        (
            "local t = {} for i = 1, 2e5 do t[i] = 'x' end return #table.concat(t, ',')",
            ":399999\r\n",
        ),
        (
            "local t = {} for i = 1, 2e5 do t[i] = i end return #cmsgpack.unpack(cmsgpack.pack(t))",
            ":200000\r\n",
        ),
        (
            "local t = {} for i = 1, 2e5 do t[i] = i end table.sort(t, function(a, b) return a > b end) return t[1]",
            ":200000\r\n",
        ),
        (
            "local t = {} for i = 1, 2e5 do table.insert(t, i) end collectgarbage() return #t",
            ":200000\r\n",
        ),
        (
            "local f = coroutine.wrap(function() for i = 1, 1e5 do coroutine.yield(i) end end) local n = 0 \
          for i = 1, 1e5 do n = n + f() end return n",
            ":5000050000\r\n",
        ),
        ("return #('x'):rep(1e7):upper():gsub('X', 'yy')", ":20000000\r\n"),
    ] {
        for gives_up in [true, false] {
            let chunk = vm.compile(code.as_bytes(), c"@user_script").expect("it compiles");
            let mut host = Echo { looks: 1, verdict: Verdict::Pause, left: 0 };
            let mut out = Vec::new();
            let mut pauses = 0;
            // SAFETY: the host lives until the script is over.
            let mut progress =
                unsafe { vm.start(NonNull::from(&mut host), chunk, &[], &[], Protocol::Resp2) };
            while progress == ScriptProgress::Paused && !(gives_up && pauses == 10) {
                pauses += 1;
                progress = vm.resume();
            }
            assert!(pauses >= 10, "{code}: {pauses} pauses");
            if gives_up {
                vm.abandon();
            } else {
                let ended = vm.finish(&mut Reply::new(&mut out, Protocol::Resp2));
                assert_eq!((ended, &*String::from_utf8_lossy(&out)), (Ended::Replied, expected));
            }
            vm.forget(chunk);
            assert_eq!(run(&mut vm, "return 7").1, ":7\r\n", "after {code}");
        }
    }
}

/// Lengths that data claims allocate nothing; what does, counts.
#[test]
fn claims_allocate_nothing() {
    let mut vm = new_vm(16 << 20);
    for code in [
        "return cmsgpack.unpack(string.rep('\\221\\255\\255\\255\\255', 900) .. string.rep('\\0', 70000))",
        "return cmsgpack.unpack(string.rep('\\223\\255\\255\\255\\255', 900) .. string.rep('\\0', 70000))",
        "return cmsgpack.unpack('\\219\\255\\255\\255\\255')",
        "return struct.unpack('c2147483647', 'x')",
    ] {
        let text = failure_for(&mut vm, code, u32::MAX);
        assert!(!text.contains("memory"), "{code}: {text}");
        assert!(vm.memory_peak() < 8 << 20, "{code}: {} bytes", vm.memory_peak());
    }
    for code in [
        "local t = {} for i = 1, 60 do t = {t, t} end return t",
        "local t = {} for i = 1, 60 do t = {t, t} end return cjson.encode(t)",
        "return cjson.decode('[' .. string.rep('[],', 1e6) .. '1]')",
        "return cmsgpack.unpack('\\221\\0\\15\\255\\255' .. string.rep('\\144', 1e6))",
        "return string.rep('x', 2^31 - 1)",
        "local s = string.rep('x', 1e6) return table.concat({s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s}, s)",
        "local s = string.rep('x', 3e6) return string.gsub(s, 'x', 'xxxxxxxx')",
    ] {
        let text = failure_for(&mut vm, code, u32::MAX);
        assert!(text.contains("more memory"), "{code}: {text}");
        assert!(vm.memory_peak() < 48 << 20, "{code}: {} bytes", vm.memory_peak());
        assert_eq!(run(&mut vm, "return 7").1, ":7\r\n", "after {code}");
    }
}

/// A message is the script's memory while it is made; one that no log takes is not made.
#[test]
fn a_message_for_the_log_is_paid_for() {
    let mut vm = new_vm(16 << 20);
    let log = |level: &str| {
        let words = ["s"; 30].join(", ");
        format!("local s = string.rep('x', 1e6) redis.log(redis.{level}, {words}) return 1")
    };
    let text = failure_for(&mut vm, &log("LOG_NOTICE"), u32::MAX);
    assert!(text.contains("more memory"), "{text}");
    assert_eq!(run(&mut vm, &log("LOG_VERBOSE")).1, ":1\r\n");
    assert_eq!(run(&mut vm, "redis.log(redis.LOG_NOTICE, '', 'x', 1) return 7").1, ":7\r\n");
}

/// The fuzz target `script_calls` in short, with fixed choices.
#[test]
fn any_calls_are_survived() {
    const MEMORY: usize = 32 << 20;
    let code = include_str!("calls.lua");
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for round in 0..150 {
        let choices: Vec<u8> = (0..400)
            .map(|_| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                (random >> 32) as u8
            })
            .collect();
        let mut vm = new_vm(MEMORY);
        let chunk = vm.compile(code.as_bytes(), c"@calls").expect("it compiles");
        let mut host = Echo { looks: 300, verdict: Verdict::Stop("Script killed."), left: 0 };
        let mut out = Vec::new();
        // SAFETY: the host lives until the script is over, which never pauses.
        unsafe { vm.start(NonNull::from(&mut host), chunk, &[], &[&choices], Protocol::Resp2) };
        vm.finish(&mut Reply::new(&mut out, Protocol::Resp2));
        assert!(vm.memory_peak() < 3 * MEMORY, "{round}: {} bytes", vm.memory_peak());
        assert_eq!(run(&mut vm, "return 7").1, ":7\r\n", "after {round}");
    }
}

#[test]
fn memory_and_stacks_are_bounded() {
    let mut vm = new_vm(8 << 20);
    for code in [
        "local t = {} for i = 1, 1e9 do t[i] = i end",
        "local s = 'x' while true do s = s .. s end",
        "return string.rep('x', 1e9)",
        "local t = {} while true do t[#t + 1] = function() return t end end",
        "return cjson.encode(string.rep('x', 1e9))",
    ] {
        let text = failure_for(&mut vm, code, u32::MAX);
        assert!(text.contains("memory"), "{code}: {text}");
        assert!(vm.memory() < 4 << 20, "{code}: {} bytes", vm.memory());
    }
    let mut vm = new_vm(256 << 20);
    for code in [
        "local function f() return 1 + f() end return f()",
        "local function f(n) return (string.gsub('x', 'x', function() return f(n + 1) end)) end f(0)",
        "local t = setmetatable({}, {__index = function(t, k) return t[k] end}) return t.x",
        "local function f() return pcall(f) end local x = f() error('done')",
        "local function f() return coroutine.wrap(f)() end return f()",
        "return cjson.decode(string.rep('[', 100000))",
        "return string.find(string.rep('a', 1e6), string.rep('a?', 1e5))",
        "return string.rep('', -1, {}) .. string.rep('x', 2^31 - 1)",
        "local t = {} for i = 1, 2e5 do t = {t} end return #cjson.encode(t)",
    ] {
        failure_for(&mut vm, code, u32::MAX);
        assert_eq!(run(&mut vm, "return 7").1, ":7\r\n", "after {code}");
    }
    let deep = "local t = {} for i = 1, 2e5 do t = {t} end return t";
    assert!(run(&mut vm, deep).1.contains("reached lua stack limit"));
}

#[test]
fn nothing_that_is_shared_can_be_changed() {
    let mut vm = new_vm(512 << 20);
    for code in [
        "foo = 1",
        "_G.foo = 1",
        "rawset(_G, 'foo', 1)",
        "setmetatable(_G, {})",
        "redis.call = 1",
        "rawset(redis, 'call', 1)",
        "table.insert(redis, 1)",
        "table.insert(string, 1, 2)",
        "table.sort(_G)",
        "table.remove(redis)",
        "getmetatable(_G).__index = 1",
        "getmetatable('').__index = 1",
        "rawset(getmetatable(''), '__index', 1)",
        "local f, t = pairs(redis) t.call = 1",
        "cjson.encode = 1",
        "return load(string.dump(function() end))()",
        "return loadstring('\\27Lua')()",
        "getfenv(1)",
        "newproxy(true)",
        "io.open('x')",
        "require('x')",
        "dofile('x')",
        "string.x = 1",
        "os.execute('x')",
    ] {
        failure(&mut vm, code);
    }
    let seen = "local n = 0 for k, v in pairs(_G) do n = n + 1 end return {n > 20 and 1, type(redis.call), \
                #redis, rawget(_G, 'string') == string and 1, next(redis) and 1}";
    assert_eq!(run(&mut vm, seen).1, "*5\r\n:1\r\n$8\r\nfunction\r\n:0\r\n:1\r\n:1\r\n");
}

/// With what `lua-enable-insecure-api` allows, the walls stand nevertheless.
#[test]
fn environments_can_be_changed_but_not_what_others_find() {
    let mut vm = new_vm_with(Api::Insecure, 64 << 20);
    for (code, result) in [
        ("setfenv(1, {x = 1}) return x", ":1\r\n"),
        ("return getfenv(1) == _G and getfenv() == _G and 1", ":1\r\n"),
        ("return getfenv(redis.call) == _G and getfenv(0) == _G and 1", ":1\r\n"),
        ("return next(getfenv(load)) == nil and 1", ":1\r\n"),
        ("setfenv(load, {}) return load(function() return nil end) and 1", ":1\r\n"),
        ("local f = function() return y end setfenv(f, {y = 5}) return f()", ":5\r\n"),
        (
            "local p = newproxy(true) getmetatable(p).__len = function() return 7 end return #p",
            ":7\r\n",
        ),
        ("return type(newproxy()) == 'userdata' and 1", ":1\r\n"),
        (
            "for _ = 1, 100 do getmetatable(newproxy(true)).__gc = function() error('no') end end \
             collectgarbage() return 1",
            ":1\r\n",
        ),
    ] {
        assert_eq!(run(&mut vm, code), (Ended::Replied, result.to_owned()), "{code}");
    }
    for code in [
        "getfenv(1).x = 1",
        "getfenv(load).x = 1 return x",
        "setfenv(0, {})",
        "setfenv('0', {})",
        "setfenv(redis.call, {})",
        "setfenv(coroutine.running, {})",
        "coroutine.wrap(function() setfenv(0, {}) end)()",
    ] {
        failure(&mut vm, code);
    }
    // What one run does to a script is undone before the next.
    let code = "local before = getfenv(1) == _G setfenv(1, {}) return before and 1 or 0";
    let chunk = vm.compile(code.as_bytes(), c"@user_script").expect("it compiles");
    for _ in 0..3 {
        let (mut host, mut out) =
            (Echo { looks: 200, verdict: Verdict::GoOn, left: 0 }, Vec::new());
        // SAFETY: the host lives until the script is over, which never pauses.
        let progress =
            unsafe { vm.start(NonNull::from(&mut host), chunk, &[], &[], Protocol::Resp2) };
        assert_eq!(progress, ScriptProgress::Over);
        vm.finish(&mut Reply::new(&mut out, Protocol::Resp2));
        assert_eq!(out, b":1\r\n");
    }
    vm.forget(chunk);
}

#[test]
fn a_script_pauses_anywhere_and_goes_on() {
    let mut vm = new_vm(512 << 20);
    let code = "local n = 0 pcall(function() string.gsub('x', 'x', function() for i = 1, 1e6 do n = n + 1 end end) \
                end) return n";
    let chunk = vm.compile(code.as_bytes(), c"@user_script").expect("it compiles");
    let mut host = Echo { looks: 1, verdict: Verdict::Pause, left: 0 };
    let mut out = Vec::new();
    // SAFETY: the host lives until the script is over.
    let mut progress =
        unsafe { vm.start(NonNull::from(&mut host), chunk, &[], &[], Protocol::Resp2) };
    let mut pauses = 0;
    while progress == ScriptProgress::Paused {
        pauses += 1;
        progress = vm.resume();
    }
    assert!(pauses > 10, "{pauses} pauses");
    assert_eq!(vm.finish(&mut Reply::new(&mut out, Protocol::Resp2)), Ended::Replied);
    assert_eq!(out, b":1000000\r\n");
    // SAFETY: the host lives until the script was abandoned.
    let progress = unsafe { vm.start(NonNull::from(&mut host), chunk, &[], &[], Protocol::Resp2) };
    assert_eq!(progress, ScriptProgress::Paused);
    vm.abandon();
    assert_eq!(
        run(&mut vm, "return redis.call('a', 1.5, KEYS[1])").1,
        "*3\r\n$1\r\na\r\n$3\r\n1.5\r\n$1\r\nk\r\n"
    );
}

#[test]
fn a_script_pauses_in_a_slow_command() {
    let mut vm = new_vm(512 << 20);
    let code = "return {redis.call('slow', KEYS[1]), redis.call('echo', KEYS[1])}";
    let chunk = vm.compile(code.as_bytes(), c"@user_script").expect("it compiles");
    let mut host = Echo { looks: 1, verdict: Verdict::Pause, left: 0 };
    let keys: &[&[u8]] = &[b"k"];
    // SAFETY: the host lives until the script is over.
    let mut progress =
        unsafe { vm.start(NonNull::from(&mut host), chunk, keys, &[], Protocol::Resp2) };
    for _ in 0..SLOW_CALLS {
        assert_eq!(progress, ScriptProgress::Paused);
        progress = vm.resume();
    }
    let mut out = Vec::new();
    assert_eq!(vm.finish(&mut Reply::new(&mut out, Protocol::Resp2)), Ended::Replied);
    assert_eq!(out, b"*2\r\n+done\r\n*2\r\n$4\r\necho\r\n$1\r\nk\r\n");
    // It may be killed there, and no `pcall` keeps it.
    for code in ["redis.pcall('slow')", "pcall(redis.call, 'slow')"] {
        let code = format!("for i = 1, 9 do {code} end return 1");
        let failure = failure_for(&mut vm, &code, 2);
        assert!(failure.contains("Script killed."), "{code}: {failure}");
    }
    // Its host may be gone when it is abandoned there.
    let mut host = Echo { looks: 1, verdict: Verdict::Pause, left: 0 };
    // SAFETY: the host lives until the script was abandoned.
    let progress = unsafe { vm.start(NonNull::from(&mut host), chunk, keys, &[], Protocol::Resp2) };
    assert_eq!(progress, ScriptProgress::Paused);
    vm.abandon();
    assert_eq!(run(&mut vm, "return redis.call('slow')").1, "+done\r\n");
}

#[test]
fn a_host_that_stops_a_script_stops_it() {
    let mut vm = new_vm(512 << 20);
    for code in [
        "redis.call('stop') return 1",
        "redis.pcall('stop') return 1",
        "pcall(redis.call, 'stop') return 1",
        "while true do pcall(redis.call, 'stop') end",
    ] {
        assert_eq!(run(&mut vm, code).0, Ended::Stopped, "{code}");
    }
    assert_eq!(failure(&mut vm, "redis.call('fail')"), "ERR failed script: on @user_script:1.");
    assert_eq!(run(&mut vm, "return redis.call('null')").1, "$-1\r\n");
}

/// What Lua 5.1 itself answers.
#[test]
fn searching_and_replacing_is_as_in_lua() {
    let mut vm = new_vm(512 << 20);
    for (code, expected) in [
        ("{('hello world'):find('o w')}", "5 7"),
        ("{('hello'):find('l+')}", "3 4"),
        ("{('hello'):find('')}", "1 0"),
        ("{('hello'):find('', 10)}", "6 5"),
        ("{('hello'):find('xyz')}", ""),
        ("{('a.b'):find('.', 1, true)}", "2 2"),
        ("{('a.b'):find('%.', -2)}", "2 2"),
        ("{('key = value'):find('(%w+)%s*=%s*(%w+)')}", "1 11 key value"),
        ("{('hello'):match('h(.)l')}", "e"),
        ("{('hello'):match('()ll()')}", "3 5"),
        ("{('  x '):match('^%s*(.-)%s*$')}", "x"),
        ("{('2026-11-21'):match('(%d+)-(%d+)-(%d+)')}", "2026 11 21"),
        ("{('abc'):match('^b')}", ""),
        ("{('THE (quick) fox'):find('%((%a+)%)')}", "5 11 quick"),
        ("{('hello world'):gsub('o', '0')}", "hell0 w0rld 2"),
        ("{('hello'):gsub('', '-')}", "-h-e-l-l-o- 6"),
        ("{('hello world'):gsub('(%w+)', '<%1>', 1)}", "<hello> world 1"),
        ("{('abc'):gsub('%w', '%0%0')}", "aabbcc 3"),
        ("{('abc'):gsub('^a', 'x')}", "xbc 1"),
        ("{('$name is $age'):gsub('%$(%w+)', {name = 'x', age = 7})}", "x is 7 2"),
        ("{('abc'):gsub('%w', function(c) if c == 'b' then return 'X' end end)}", "aXc 3"),
        ("{('x^2'):gsub('%^', '%%')}", "x%2 1"),
        ("{('a,b,,c'):gsub(',', ';', 2)}", "a;b;,c 2"),
        (
            "(function() local t = {} for k, v in ('a=1, b=2'):gmatch('(%w+)=(%w+)') do t[#t+1] = k .. v end return t           end)()",
            "a1 b2",
        ),
        (
            "(function() local t = {} for w in ('one two'):gmatch('%a*') do t[#t+1] = '<' .. w .. '>' end return t           end)()",
            "<one> <> <two> <>",
        ),
        ("{('ab'):rep(3)}", "ababab"),
        ("{('x'):rep(0), ('x'):rep(-1)}", " "),
        ("{#('x'):rep(100000)}", "100000"),
        ("{select(2, pcall(string.find, 'a', '[a'))}", "malformed pattern (missing ']')"),
        ("{select(2, pcall(string.gsub, 'abc', '%w', '%2'))}", "invalid capture index"),
        ("{select(2, pcall(string.gsub, 'abc', '(', '%1'))}", "unfinished capture"),
        (
            "{select(2, pcall(string.gsub, 'abc', 'a', function() return {} end))}",
            "invalid replacement value (a table)",
        ),
        (
            "{select(2, pcall(string.gsub, 'abc', 'a'))}",
            "bad argument #3 to '?' (string/function/table expected)",
        ),
        (
            "{select(2, pcall(string.rep))}",
            "bad argument #1 to '?' (string expected, got no value)",
        ),
    ] {
        let code = format!(
            "local t = {code} for i = 1, #t do t[i] = tostring(t[i]) end return table.concat(t, ' ')"
        );
        let (ended, reply) = run(&mut vm, &code);
        assert_eq!(ended, Ended::Replied, "{code}");
        let text = reply.split_once("\r\n").map_or("", |(_, text)| text.trim_end_matches("\r\n"));
        assert_eq!(text, expected, "{code}");
    }
}

/// The pool's count is on a line that all threads write.
#[test]
fn a_state_that_is_used_again_and_again_asks_the_pool_for_nothing() {
    let pool = Arc::new(MemoryPool::new(64 << 20));
    let mut vm = Vm::new(Profile::Scripts, Api::Safe, 1, Arc::clone(&pool));
    let new = pool.leased();
    let mut lease_behind = |code| {
        run(&mut vm, code);
        pool.leased()
    };
    let mut leases: Vec<_> =
        (0..3000).map(|_| lease_behind("return {1, 'x' .. KEYS[1]}")).collect();
    leases.drain(..1000);
    leases.dedup();
    assert_eq!(leases.len(), 1, "{leases:?}");
    assert!(lease_behind("local t = {} for i = 1, 1e5 do t[i] = {} end") > 8 * new);
    // What that one left is collected, and given back.
    let after = (0..3000).map(|_| lease_behind("return {1, 'x' .. KEYS[1]}")).last();
    assert!(after <= leases.pop(), "{after:?}");
}
