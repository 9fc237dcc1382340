#![no_main]
//! `cjson`, `cmsgpack`, `struct` and `bit`, as a script calls them with any bytes: an error is an answer, and what was
//! read is written and read again as the same.

use std::cell::RefCell;
use std::ptr::NonNull;

use bobbin_resp::{Protocol, Reply};
use bobbin_script::{Called, Chunk, Ended, Host, Level, Profile, Verdict, Vm};
use libfuzzer_sys::fuzz_target;

const CODE: &[u8] = b"
    local bytes, format = ARGV[1], ARGV[2]
    local ok, value = pcall(cjson.decode, bytes)
    if ok and type(value) == 'table' then
        local again = cjson.encode(value)
        assert(cjson.encode(cjson.decode(again)) == cjson.encode(cjson.decode(again)))
    end
    local ok, value = pcall(cmsgpack.unpack, bytes)
    if ok then cmsgpack.pack(value) end
    pcall(cmsgpack.unpack_limit, bytes, 3, 1)
    pcall(struct.size, format)
    pcall(struct.unpack, format, bytes)
    pcall(struct.pack, format, 1, bytes, -2.5, bytes, 1e30)
    pcall(bit.band, bytes, 1)
    pcall(loadstring, bytes)
    return {cjson.encode(bytes), cmsgpack.unpack(cmsgpack.pack(bytes)) == bytes}
";

struct Nobody;

impl Host for Nobody {
    fn call(&mut self, _: &[&[u8]], _: bool, reply: &mut Vec<u8>) -> Called {
        reply.extend_from_slice(b"+OK\r\n");
        Called::Replied
    }
    fn log(&mut self, _: Level, _: &[u8]) {}
    fn set_replication(&mut self, _: u8) {}
    fn may_call(&mut self, _: &[&[u8]]) -> Option<bool> {
        Some(true)
    }
    fn watch(&mut self) -> Verdict {
        Verdict::GoOn
    }
}

thread_local! {
    static STATE: RefCell<(Vm, Chunk)> = RefCell::new({
        let mut vm = Vm::new(Profile::Scripts, 1);
        let chunk = vm.compile(CODE, c"@fuzz").expect("the script is right");
        (vm, chunk)
    });
}

fuzz_target!(|bytes: &[u8]| {
    STATE.with_borrow_mut(|(vm, chunk)| {
        let (format, data) = bytes.split_at(bytes.len().min(12));
        let (mut host, mut out) = (Nobody, Vec::new());
        // SAFETY: the host lives until the script is over, which never pauses.
        unsafe { vm.start(NonNull::from(&mut host), *chunk, &[], &[data, format]) };
        let ended = vm.finish(&mut Reply::new(&mut out, Protocol::Resp2));
        assert_eq!(ended, Ended::Replied);
        assert!(out.ends_with(b":1\r\n"));
    });
});
