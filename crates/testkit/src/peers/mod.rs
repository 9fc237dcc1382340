//! Where the binaries lie: Bobbin in the build folder, the peers in the cache that
//! `cargo xtask peers` fills.

pub mod java;

use std::path::{Path, PathBuf};

/// `$BOBBIN_CACHE`, else `$XDG_CACHE_HOME/bobbin`, else `~/.cache/bobbin`.
pub fn cache_folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("BOBBIN_CACHE") {
        return folder.into();
    }
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    base.unwrap_or_else(std::env::temp_dir).join("bobbin")
}

/// A peer's program, `valkey-server` say; it need not exist.
pub fn peer(name: &str) -> PathBuf {
    cache_folder().join("peers/bin").join(name)
}

/// The Python that has redis-py.
pub fn python() -> PathBuf {
    cache_folder().join("python/bin/python3")
}

/// The folder with Jedis and what it needs.
pub fn jedis_libraries() -> PathBuf {
    cache_folder().join("jedis")
}

/// The program that uses go-redis; it need not exist.
pub fn go_redis_failover() -> PathBuf {
    cache_folder().join("go-redis/failover")
}

/// Bobbin's own server: `$BOBBIN_SERVER`, else the one that was built as the running test was, else
/// the newest build, which need not exist.
pub fn bobbin() -> PathBuf {
    if let Some(path) = std::env::var_os("BOBBIN_SERVER") {
        return absolute(path.into());
    }
    if let Some(path) = beside_this_test() {
        return path;
    }
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| repository().join("target"), |folder| absolute(folder.into()));
    let built = |profile: &str| target.join(profile).join("bobbin-server");
    let modified = |path: &PathBuf| path.metadata().and_then(|data| data.modified()).ok();
    let newest = ["debug", "release", "quick"].map(built).into_iter().max_by_key(modified);
    newest.unwrap_or_else(|| built("debug"))
}

/// The server in the folder of this test's profile. A server of another profile may be newer and
/// lack the assertions that tests rely on.
fn beside_this_test() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let folder = test.parent().filter(|folder| folder.ends_with("deps"))?;
    Some(folder.with_file_name("bobbin-server")).filter(|path| path.exists())
}

/// The root of the checkout.
pub fn repository() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("the manifest lies two folders below the root").to_path_buf()
}

/// Tests run in their crate's folder: a relative path is meant from the checkout's root.
fn absolute(path: PathBuf) -> PathBuf {
    repository().join(path)
}
