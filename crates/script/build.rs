//! Compiles Lua 5.1 from the sources in `lua`. It does arithmetic on signed integers which scripts
//! choose, so they wrap: C leaves open what an overflow does, and compilers make use of that.

fn main() {
    let mut build = cc::Build::new();
    // Optimised whatever the profile is, as what others wrote. Lua's warnings are not ours.
    build.opt_level(3).warnings(false).flag("-fwrapv").flag_if_supported("-fno-common");
    build.define("LUA_USE_POSIX", None);
    if cfg!(debug_assertions) {
        // Calls of Lua's functions are checked.
        build.define("LUA_USE_APICHECK", None);
    }
    println!("cargo::rerun-if-changed={SOURCES}");
    let mut files: Vec<_> = std::fs::read_dir(SOURCES)
        .expect("the folder of sources is there")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    // The order of the object files must not be the file system's.
    files.sort();
    build.include(SOURCES).files(files).compile("lua5.1");
}

const SOURCES: &str = "lua";
