//! Folders that go away, and disks that fail: full ones, hanging ones, ones that lose what they
//! took.
//!
//! Disks are mounted, which takes root and loop devices. Where that is not to be had the functions
//! answer `None` and say so; a test then passes over that part.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A folder of a test's own, removed when this is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    #[expect(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("bobbin-folder-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// As an option's value.
    pub fn text(&self) -> &str {
        text_of(&self.0)
    }

    /// Where a server keeps its log.
    pub fn log(&self) -> PathBuf {
        self.0.join("appendonlydir")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A disk in memory with room for little.
#[derive(Debug)]
pub struct SmallDisk {
    mounted: Mounted,
    _folder: Folder,
}

impl SmallDisk {
    /// `size` as mount wants it, `1m` say.
    pub fn new(size: &str) -> Option<Self> {
        let folder = Folder::new();
        let path = folder.path().join("disk");
        fs::create_dir(&path).expect("a folder");
        let mounted = Mounted::new(&["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"], path)?;
        Some(Self { mounted, _folder: folder })
    }

    pub fn path(&self) -> &Path {
        &self.mounted.0
    }

    /// As an option's value.
    pub fn text(&self) -> &str {
        text_of(self.path())
    }

    /// Changes how it is mounted: `size=64m`, `ro`, `rw`.
    pub fn remount(&self, options: &str) {
        let done =
            run(Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(self.path()));
        assert!(done, "remount,{options}");
    }
}

/// A real file system in a file that lies on a [`SmallDisk`]: it can hang, and, as it believes to
/// have more room than the file can get, it takes bytes that it then fails to keep: `fsync` says
/// so.
#[derive(Debug)]
pub struct FragileDisk {
    mounted: Mounted,
    below: SmallDisk,
    frozen: AtomicBool,
}

impl FragileDisk {
    /// `room`: what the file can get, as mount wants it. The file system believes to have 256 MiB.
    pub fn new(room: &str) -> Option<Self> {
        let below = SmallDisk::new(room)?;
        let image = below.path().join("image");
        File::create(&image).and_then(|file| file.set_len(BELIEVED_BYTES)).ok()?;
        let features = ["-q", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard"];
        if !run(Command::new("mkfs.ext4").args(features).arg(&image)) {
            println!("no mkfs.ext4: not tested");
            return None;
        }
        let path = below.path().with_file_name("fragile");
        fs::create_dir(&path).expect("a folder");
        let mounted = Mounted::new(&["-o", "loop", text_of(&image)], path)?;
        Some(Self { mounted, below, frozen: AtomicBool::new(false) })
    }

    pub fn path(&self) -> &Path {
        &self.mounted.0
    }

    /// As an option's value.
    pub fn text(&self) -> &str {
        text_of(self.path())
    }

    /// From now on each process that writes to it hangs, until `thaw`.
    pub fn freeze(&self) -> bool {
        let frozen = run(Command::new("fsfreeze").arg("-f").arg(self.path()));
        self.frozen.store(frozen, Ordering::Relaxed);
        frozen
    }

    pub fn thaw(&self) {
        if self.frozen.swap(false, Ordering::Relaxed) {
            let _ = run(Command::new("fsfreeze").arg("-u").arg(self.path()));
        }
    }

    /// Takes it away and brings it back: what it did not keep is gone.
    pub fn replug(&self) -> bool {
        let image = self.below.path().join("image");
        let unmounted = run(Command::new("umount").arg(self.path()));
        unmounted && run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(self.path()))
    }

    /// Changes the room that there is really.
    pub fn give(&self, room: &str) {
        self.below.remount(&format!("size={room}"));
    }
}

impl Drop for FragileDisk {
    fn drop(&mut self) {
        self.thaw();
    }
}

/// Something that is mounted somewhere.
#[derive(Debug)]
struct Mounted(PathBuf);

impl Mounted {
    fn new(what: &[&str], path: PathBuf) -> Option<Self> {
        if run(Command::new("mount").args(what).arg(&path)) {
            return Some(Self(path));
        }
        println!("no right to mount a disk: not tested");
        None
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg("-l").arg(&self.0));
    }
}

/// Makes a named pipe.
pub fn make_pipe(path: &Path) -> io::Result<()> {
    if run(Command::new("mkfifo").arg(path)) { Ok(()) } else { Err(io::Error::other("mkfifo")) }
}

fn run(command: &mut Command) -> bool {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

const BELIEVED_BYTES: u64 = 256 << 20;

fn text_of(path: &Path) -> &str {
    path.to_str().expect("a path of ours")
}
