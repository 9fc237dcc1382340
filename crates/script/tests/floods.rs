//! Strings and numbers that are chosen to collide in Lua's tables do not.

mod common;

use std::ptr::NonNull;

use bobbin_resp::Protocol;
use bobbin_script::{Chains, ScriptProgress, Verdict};

use common::{Echo, new_vm};

/// How many are sent at once: a power of two, so that they fill the table.
const COUNT: u32 = 4096;
/// With `COUNT` keys in as many chains, the longest chain has about six. It is longer than this for
/// only one in 10^12 keys of the process.
const CHAIN_MAX: usize = 18;

/// The longest chains while a script with these arguments runs.
fn chains(arguments: &[String], code: &str) -> Chains {
    let mut vm = new_vm(64 << 20);
    let code = format!("{code} while true do end");
    let chunk = vm.compile(code.as_bytes(), c"@user_script").expect("it compiles");
    let arguments: Vec<&[u8]> = arguments.iter().map(String::as_bytes).collect();
    let mut host = Echo { looks: 1, verdict: Verdict::Pause, left: 0 };
    // SAFETY: the host lives until the script was abandoned.
    let mut progress =
        unsafe { vm.start(NonNull::from(&mut host), chunk, &[], &arguments, Protocol::Resp2) };
    // The table is whole long before.
    for _ in 0..20 {
        assert_eq!(progress, ScriptProgress::Paused);
        progress = vm.resume();
    }
    let chains = vm.longest_chains();
    vm.abandon();
    chains
}

#[test]
fn strings_that_differ_where_lua_does_not_look_are_spread() {
    // Of 96 bytes Lua 5.1 looks at each fourth, from the last on.
    let text = |number: u32| -> String {
        let digits = format!("{number:072}");
        let pieces = digits.as_bytes().chunks(3).map(|three| [three, b"x"].concat());
        String::from_utf8(pieces.collect::<Vec<_>>().concat()).expect("it is text")
    };
    let texts: Vec<String> = (0..COUNT).map(text).collect();
    let found = chains(&texts, "local t = {} for i = 1, #ARGV do t[ARGV[i]] = i end");
    assert!(found.strings <= CHAIN_MAX && found.entries <= CHAIN_MAX, "{found:?}");
}

#[test]
fn numbers_whose_halves_have_one_sum_are_spread() {
    // Lua 5.1 adds the two words of a number.
    let number = |number: u32| {
        let words = [0x4000_0000 + number, number.wrapping_neg()];
        format!("{:e}", f64::from_bits(u64::from(words[0]) << 32 | u64::from(words[1])))
    };
    let texts: Vec<String> = (0..COUNT).map(number).collect();
    let found = chains(&texts, "local t = {} for i = 1, #ARGV do t[ARGV[i] + 0] = i end");
    assert!(found.entries <= CHAIN_MAX, "{found:?}");
}

/// Keys that are the same to a script are found again, whatever their form is.
#[test]
fn equal_keys_are_one_key() {
    let mut vm = new_vm(64 << 20);
    let code = "local t = {} t[-0 * 1] = 'a' t[2 ^ 53] = 'b' t[0.1] = 'c' t[math.huge] = 'd' t[-1] = 'e'
        local z = 0 return {t[0], t[z], t[-z], t[9007199254740992], t[1 / 10], t[10 ^ 999], t[-3 + 2]}";
    let (ended, reply) = common::run(&mut vm, code);
    assert_eq!(ended, bobbin_script::Ended::Replied);
    let values: Vec<&str> = reply.split("\r\n").skip(2).step_by(2).collect();
    assert_eq!(values, ["a", "a", "a", "b", "c", "d", "e"]);
}
