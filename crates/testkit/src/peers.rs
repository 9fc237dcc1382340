//! Where the binaries lie: Bobbin in the build folder, the peers in the cache that
//! `cargo xtask peers` fills.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

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

/// Bobbin's own server: `$BOBBIN_SERVER`, else the newest build. `None` while there is no server
/// that answers `--version`.
pub fn bobbin() -> Option<PathBuf> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOUND.get_or_init(find_bobbin).clone()
}

/// The root of the checkout.
pub fn repository() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("the manifest lies two folders below the root").to_path_buf()
}

fn find_bobbin() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("BOBBIN_SERVER") {
        return Some(path.into());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| repository().join("target"), PathBuf::from);
    let newest = ["debug", "release", "quick"]
        .iter()
        .map(|profile| target.join(profile).join("bobbin-server"))
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .max()?
        .1;
    let version = Command::new(&newest).arg("--version").output().ok()?;
    (version.status.success() && !version.stdout.is_empty()).then_some(newest)
}
