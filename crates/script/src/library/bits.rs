//! `bit`: operations on 32-bit integers, as LuaBitOp defines them (bitop.luajit.org).

use crate::state::raw::{Raise, Returned, Stack, lua_CFunction, lua_function};

/// Pushes the table.
pub(crate) fn push_table(stack: Stack) {
    stack.push_table(0, FUNCTIONS.len());
    for (name, function) in FUNCTIONS {
        stack.push_function(*function);
        stack.set_field(stack.top() - 1, name.as_bytes());
    }
}

const FUNCTIONS: &[(&str, lua_CFunction)] = &[
    ("tobit", tobit),
    ("bnot", bnot),
    ("band", band),
    ("bor", bor),
    ("bxor", bxor),
    ("lshift", lshift),
    ("rshift", rshift),
    ("arshift", arshift),
    ("rol", rol),
    ("ror", ror),
    ("bswap", bswap),
    ("tohex", tohex),
];

/// A function of one number and maybe a second.
macro_rules! operation {
    ($shell:ident, $inner:ident, $name:literal, |$a:ident| $result:expr) => {
        lua_function!($shell, $inner);
        fn $inner(stack: Stack) -> Returned {
            let $a = argument(stack, 1, $name)?;
            returned(stack, $result)
        }
    };
    ($shell:ident, $inner:ident, $name:literal, |$a:ident, $b:ident| $result:expr) => {
        lua_function!($shell, $inner);
        fn $inner(stack: Stack) -> Returned {
            let $a = argument(stack, 1, $name)?;
            let $b = argument(stack, 2, $name)? as u32 & 31;
            returned(stack, $result)
        }
    };
}

/// A function that combines any number of numbers.
macro_rules! combination {
    ($shell:ident, $inner:ident, $name:literal, $operator:tt) => {
        lua_function!($shell, $inner);
        fn $inner(stack: Stack) -> Returned {
            let mut all = argument(stack, 1, $name)?;
            // From the last on: of several that are no numbers the error names that one.
            for at in (2..=stack.top()).rev() {
                all $operator argument(stack, at, $name)?;
            }
            returned(stack, all)
        }
    };
}

operation!(tobit, tobit_of, "tobit", |a| a);
operation!(bnot, bnot_of, "bnot", |a| !a);
operation!(bswap, bswap_of, "bswap", |a| a.swap_bytes());
operation!(lshift, lshift_of, "lshift", |a, by| a << by);
operation!(rshift, rshift_of, "rshift", |a, by| (a as u32 >> by) as i32);
operation!(arshift, arshift_of, "arshift", |a, by| a >> by);
operation!(rol, rol_of, "rol", |a, by| a.rotate_left(by));
operation!(ror, ror_of, "ror", |a, by| a.rotate_right(by));
combination!(band, band_of, "band", &=);
combination!(bor, bor_of, "bor", |=);
combination!(bxor, bxor_of, "bxor", ^=);
lua_function!(tohex, tohex_of);

fn tohex_of(stack: Stack) -> Returned {
    let value = argument(stack, 1, "tohex")?;
    let digits = if stack.has(2) { argument(stack, 2, "tohex")? } else { 8 };
    let text = if digits < 0 { format!("{value:08X}") } else { format!("{value:08x}") };
    let count = (digits.unsigned_abs() as usize).min(8);
    stack.push_bytes(&text.as_bytes()[8 - count..]);
    Ok(1)
}

/// An argument as an integer, rounded to the nearest and cut to 32 bits.
fn argument(stack: Stack, at: i32, function: &str) -> Result<i32, Raise> {
    // Adding this puts the integer into the low bits of the double.
    const SHIFTER: f64 = 6_755_399_441_055_744.0;
    let number = stack.check_number(at, function)?;
    Ok((number + SHIFTER).to_bits() as i32)
}

fn returned(stack: Stack, value: i32) -> Returned {
    stack.push_number(f64::from(value));
    Ok(1)
}
