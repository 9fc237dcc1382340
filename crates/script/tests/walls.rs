//! Scripts that loop, eat memory, recurse or look for a way out: they fail, and the next one finds all as it was.

use std::ptr::NonNull;

use bobbin_resp::{Protocol, Reply};
use bobbin_script::{Called, Ended, Host, Level, Profile, Progress, Verdict, Vm};

/// Answers each command with its own words, and lets scripts run for so many looks.
struct Echo {
    looks: u32,
    verdict: Verdict,
}

impl Host for Echo {
    fn call(&mut self, args: &[&[u8]], resp3: bool, reply: &mut Vec<u8>) -> Called {
        let protocol = if resp3 { Protocol::Resp3 } else { Protocol::Resp2 };
        let mut reply = Reply::new(reply, protocol);
        match args[0] {
            b"fail" => reply.error("ERR failed"),
            b"stop" => return Called::Stop,
            b"null" => reply.null(),
            _ => {
                reply.array(args.len());
                args.iter().for_each(|arg| reply.bulk(arg));
            }
        }
        Called::Replied
    }
    fn log(&mut self, _: Level, _: &[u8]) {}
    fn set_replication(&mut self, _: u8) {}
    fn may_call(&mut self, _: &[&[u8]]) -> Option<bool> {
        Some(true)
    }
    fn watch(&mut self) -> Verdict {
        self.looks = self.looks.saturating_sub(1);
        if self.looks == 0 { self.verdict } else { Verdict::GoOn }
    }
}

fn run(vm: &mut Vm, code: &str) -> (Ended, String) {
    let chunk = vm.compile(code.as_bytes(), c"@user_script").expect("it compiles");
    let mut host = Echo { looks: 200, verdict: Verdict::Stop("Script killed.") };
    let mut out = Vec::new();
    // SAFETY: the host lives until the script is over, which never pauses.
    let progress = unsafe { vm.start(NonNull::from(&mut host), chunk, &[b"k"], &[b"1", b"2"]) };
    assert_eq!(progress, Progress::Over);
    let ended = vm.finish(&mut Reply::new(&mut out, Protocol::Resp2));
    vm.forget(chunk);
    (ended, String::from_utf8_lossy(&out).into_owned())
}

fn failure(vm: &mut Vm, code: &str) -> String {
    match run(vm, code) {
        (Ended::Failed { text, .. }, _) => String::from_utf8_lossy(&text).into_owned(),
        other => panic!("{code}: {other:?}"),
    }
}

#[test]
fn what_never_ends_is_ended_whatever_it_catches() {
    let mut vm = Vm::new(Profile::Scripts, 1);
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

#[test]
fn memory_and_stacks_are_bounded() {
    let mut vm = Vm::new(Profile::Scripts, 1);
    vm.limit_memory(8 << 20);
    for code in [
        "local t = {} for i = 1, 1e9 do t[i] = i end",
        "local s = 'x' while true do s = s .. s end",
        "return string.rep('x', 1e9)",
        "local t = {} while true do t[#t + 1] = function() return t end end",
        "return cjson.encode(string.rep('x', 1e9))",
    ] {
        let text = failure(&mut vm, code);
        assert!(text.contains("memory"), "{code}: {text}");
        run(&mut vm, "collectgarbage()");
        assert!(vm.memory() < 4 << 20, "{code}: {} bytes", vm.memory());
    }
    vm.limit_memory(256 << 20);
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
        failure(&mut vm, code);
        assert_eq!(run(&mut vm, "return 7").1, ":7\r\n", "after {code}");
    }
    let deep = "local t = {} for i = 1, 2e5 do t = {t} end return t";
    assert!(run(&mut vm, deep).1.contains("reached lua stack limit"));
}

#[test]
fn nothing_that_is_shared_can_be_changed() {
    let mut vm = Vm::new(Profile::Scripts, 1);
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

#[test]
fn a_script_pauses_anywhere_and_goes_on() {
    let mut vm = Vm::new(Profile::Scripts, 1);
    let code = "local n = 0 pcall(function() string.gsub('x', 'x', function() for i = 1, 1e6 do n = n + 1 end end) \
                end) return n";
    let chunk = vm.compile(code.as_bytes(), c"@user_script").expect("it compiles");
    let mut host = Echo { looks: 1, verdict: Verdict::Pause };
    let mut out = Vec::new();
    // SAFETY: the host lives until the script is over.
    let mut progress = unsafe { vm.start(NonNull::from(&mut host), chunk, &[], &[]) };
    let mut pauses = 0;
    while progress == Progress::Paused {
        pauses += 1;
        progress = vm.resume();
    }
    assert!(pauses > 10, "{pauses} pauses");
    assert_eq!(vm.finish(&mut Reply::new(&mut out, Protocol::Resp2)), Ended::Replied);
    assert_eq!(out, b":1000000\r\n");
    // SAFETY: as above.
    let progress = unsafe { vm.start(NonNull::from(&mut host), chunk, &[], &[]) };
    assert_eq!(progress, Progress::Paused);
    vm.abandon();
    assert_eq!(
        run(&mut vm, "return redis.call('a', 1.5, KEYS[1])").1,
        "*3\r\n$1\r\na\r\n$3\r\n1.5\r\n$1\r\nk\r\n"
    );
}

#[test]
fn a_host_that_stops_a_script_stops_it() {
    let mut vm = Vm::new(Profile::Scripts, 1);
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
    let mut vm = Vm::new(Profile::Scripts, 1);
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
