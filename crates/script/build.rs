//! Compiles Lua 5.1 from the sources that the crate `lua-src` carries. It does arithmetic on signed integers which
//! scripts choose, so they wrap: C leaves open what an overflow does, and compilers make use of that.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = env::var("TARGET").expect("Cargo sets it");
    let name = format!("CFLAGS_{target}");
    // Where the C compiler's flags are looked for; the first that is there holds.
    let names = [&name, &format!("CFLAGS_{}", target.replace('-', "_")), "TARGET_CFLAGS", "CFLAGS"];
    let flags = names.iter().find_map(|name| env::var(name).ok()).unwrap_or_default();
    // SAFETY: this program has one thread.
    unsafe { env::set_var(&name, format!("{flags} -fwrapv")) };
    // Optimised whatever the profile is, as what others wrote.
    lua_src::Build::new().opt_level("3").build(lua_src::Lua51).print_cargo_metadata();
}
