//! A disk in memory that can be full, fail, and lose its power.
//!
//! It stands in the place of the system's for the thread that has put it there ([`Disk::put_in`]).
//! What was written and not forced to disk may be there after a power cut or not, in part or as
//! zeros; and each change of a name on its own.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bobbin_sync::{Mutex, MutexGuard};
use rustix::io::Errno;

use crate::base::files::system;
use crate::base::random::Random;

thread_local! {
    static CURRENT: RefCell<Option<Disk>> = const { RefCell::new(None) };
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Default)]
pub struct Disk(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    files: Vec<Content>,
    /// What the process sees.
    names: BTreeMap<PathBuf, Node>,
    /// Where the process works, from the root on.
    working: PathBuf,
    /// What a power cut leaves for certain.
    kept: BTreeMap<PathBuf, Node>,
    /// What happened to names since.
    unkept: Vec<Change>,
    faults: Faults,
    /// After this many more changes, what a power cut would leave is stored in `left`.
    cut: Option<(usize, Random)>,
    left: Option<Disk>,
}

/// What goes wrong from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The number of bytes that still fit; `None`: there is no limit.
    pub room: Option<usize>,
    /// How often forcing data to disk succeeds before it fails as often as `failing_syncs` says.
    pub good_syncs: usize,
    /// How often forcing data to disk fails. What it was about is lost, although it can be read.
    pub failing_syncs: usize,
    /// It says that it has forced to disk what it has not. No server can make up for that.
    pub lies: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Node {
    Directory,
    File(usize),
}

/// The bytes of a file.
#[derive(Default)]
struct Content {
    bytes: Vec<u8>,
    /// As a power cut leaves them.
    kept: Vec<u8>,
    /// What the disk lost, as it said.
    lost: Vec<Range<usize>>,
}

#[derive(Clone)]
enum Change {
    Made { path: PathBuf, node: Node },
    Moved { from: PathBuf, to: PathBuf, node: Node },
    Removed { path: PathBuf },
}

/// A file of the disk that is in place, or of the system.
pub enum File {
    System(std::fs::File),
    Simulated { disk: Disk, number: usize, position: AtomicUsize },
}

impl Disk {
    /// Has the calling thread use this disk from now on; `None`: the system's.
    pub fn put_in(disk: Option<Self>) {
        CURRENT.set(disk);
    }

    fn current() -> Option<Self> {
        CURRENT.with_borrow(Clone::clone)
    }

    pub fn set_faults(&self, faults: Faults) {
        self.0.lock().faults = faults;
    }

    pub fn faults(&self) -> Faults {
        self.0.lock().faults
    }

    /// What a power cut leaves at this moment.
    pub fn after_power_cut(&self, random: &mut Random) -> Self {
        self.0.lock().after_power_cut(random)
    }

    /// Cuts the power after `changes` more changes, for [`Self::left_by_power_cut`]. The disk
    /// itself goes on working.
    pub fn cut_power_after(&self, changes: usize, random: Random) {
        self.0.lock().cut = Some((changes, random));
    }

    /// What that left, if it came to that.
    pub fn left_by_power_cut(&self) -> Option<Self> {
        let mut state = self.0.lock();
        state.cut = None;
        state.left.take()
    }

    /// The disk, before something is changed.
    fn to_change(&self) -> MutexGuard<'_, State> {
        super::hands::may_hang();
        let mut state = self.0.lock();
        if let Some((left, mut random)) = state.cut.take() {
            match left.checked_sub(1) {
                Some(left) => state.cut = Some((left, random)),
                None => state.left = Some(state.after_power_cut(&mut random)),
            }
        }
        state
    }

    /// What there is now: a process was killed, and the power stayed.
    pub fn after_kill(&self) -> Self {
        let state = self.0.lock();
        let whole = |file: &Content| Content::of(file.bytes.clone());
        let (files, names) = (state.files.iter().map(whole).collect(), state.names.clone());
        Self(Arc::new(Mutex::new(State { files, kept: names.clone(), names, ..State::default() })))
    }

    /// Has this disk hold what another one holds.
    pub fn be(&self, other: &Self) {
        let state = std::mem::take(&mut *other.after_kill().0.lock());
        *self.0.lock() = state;
    }

    /// The names of all files, with their sizes.
    pub fn list(&self) -> Vec<(String, usize)> {
        let state = self.0.lock();
        let size = |node: &Node| match node {
            Node::Directory => 0,
            Node::File(number) => state.files[*number].bytes.len(),
        };
        state.names.iter().map(|(path, node)| (path.display().to_string(), size(node))).collect()
    }

    /// Has the process work in this directory.
    pub fn enter(&self, directory: &str) {
        let directory = self.resolve(Path::new(directory));
        self.0.lock().working = directory;
    }

    /// The name from the root on.
    fn resolve(&self, path: &Path) -> PathBuf {
        let path = self.0.lock().working.join(path);
        path.strip_prefix("/").map_or_else(|_| path.clone(), Path::to_owned)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        let path = self.resolve(path);
        match self.0.lock().names.get(&path) {
            Some(&Node::File(number)) => Ok(self.handle(number)),
            Some(Node::Directory) => Err(Errno::ISDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    fn handle(&self, number: usize) -> File {
        File::Simulated { disk: self.clone(), number, position: AtomicUsize::new(0) }
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        let path = &self.resolve(path);
        let mut state = self.to_change();
        if state.names.contains_key(path) {
            return Err(Errno::EXIST.into());
        }
        state.check_directory_of(path)?;
        state.check_room()?;
        let number = state.files.len();
        state.files.push(Content::default());
        state.change(Change::Made { path: path.to_owned(), node: Node::File(number) });
        drop(state);
        Ok(self.handle(number))
    }
}

impl State {
    fn after_power_cut(&self, random: &mut Random) -> Disk {
        let mut names = self.kept.clone();
        for change in &self.unkept {
            if random.next_u32().is_multiple_of(2) {
                change.apply(&mut names);
            }
        }
        let known = names.clone();
        names.retain(|path, _| {
            directory_of(path).is_none_or(|directory| known.contains_key(&directory))
        });
        let files = self.files.iter().map(|file| file.after_power_cut(random)).collect();
        let new = Self { files, kept: names.clone(), names, ..Self::default() };
        Disk(Arc::new(Mutex::new(new)))
    }

    fn check_directory_of(&self, path: &Path) -> io::Result<()> {
        match directory_of(path) {
            Some(directory) if self.names.get(&directory) != Some(&Node::Directory) => {
                Err(Errno::NOENT.into())
            }
            _ => Ok(()),
        }
    }

    /// A full disk takes no new names either.
    fn check_room(&self) -> io::Result<()> {
        if self.faults.room == Some(0) { Err(Errno::NOSPC.into()) } else { Ok(()) }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.names);
        self.unkept.push(change);
    }

    fn write(&mut self, number: usize, bytes: &[u8]) -> io::Result<usize> {
        let len = self.faults.room.map_or(bytes.len(), |room| bytes.len().min(room));
        if len == 0 && !bytes.is_empty() {
            return Err(Errno::NOSPC.into());
        }
        self.faults.room = self.faults.room.map(|room| room - len);
        self.files[number].bytes.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn sync(&mut self, number: usize) -> io::Result<()> {
        let fails = self.fails_to_sync();
        if self.faults.lies {
            return Ok(());
        }
        let file = &mut self.files[number];
        if fails {
            file.lost.push(file.kept.len()..file.bytes.len());
            return Err(Errno::IO.into());
        }
        file.keep();
        Ok(())
    }

    fn fails_to_sync(&mut self) -> bool {
        if self.faults.good_syncs > 0 {
            self.faults.good_syncs -= 1;
            return false;
        }
        let fails = self.faults.failing_syncs > 0;
        self.faults.failing_syncs -= usize::from(fails);
        fails
    }
}

impl Content {
    fn of(bytes: Vec<u8>) -> Self {
        Self { kept: bytes.clone(), bytes, lost: Vec::new() }
    }

    /// The bytes from `start` on as the disk would have them.
    fn on_disk(&self, start: usize) -> Vec<u8> {
        let mut bytes = self.bytes[start.min(self.bytes.len())..].to_vec();
        for lost in &self.lost {
            let range = lost.start.max(start)..lost.end.min(self.bytes.len());
            if !range.is_empty() {
                bytes[range.start - start..range.end - start].fill(0);
            }
        }
        bytes
    }

    fn keep(&mut self) {
        self.kept.truncate(self.bytes.len());
        let rest = self.on_disk(self.kept.len());
        self.kept.extend_from_slice(&rest);
        self.lost.clear();
    }

    fn after_power_cut(&self, random: &mut Random) -> Self {
        let mut bytes = self.kept.clone();
        let mut rest = self.on_disk(bytes.len());
        rest.truncate(random.next_u32() as usize % (rest.len() + 1));
        if random.next_u32().is_multiple_of(4) {
            // It got longer before its bytes were there.
            let from = random.next_u32() as usize % (rest.len() + 1);
            rest[from..].fill(0);
        }
        bytes.append(&mut rest);
        Self::of(bytes)
    }
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<PathBuf, Node>) {
        match self {
            Self::Made { path, node } => drop(names.insert(path.clone(), *node)),
            Self::Moved { from, to, node } => {
                if names.get(from) == Some(node) {
                    names.remove(from);
                }
                names.insert(to.clone(), *node);
            }
            Self::Removed { path } => drop(names.remove(path)),
        }
    }

    fn directory(&self) -> Option<PathBuf> {
        match self {
            Self::Made { path, .. } | Self::Removed { path } => directory_of(path),
            // Both ends: what moves between directories is kept as soon as one of them is forced to
            // disk.
            Self::Moved { to, .. } => directory_of(to),
        }
    }
}

/// `None`: the working directory.
fn directory_of(path: &Path) -> Option<PathBuf> {
    let parent = path.parent().unwrap_or_else(|| Path::new(""));
    let is_working = parent.as_os_str().is_empty() || parent == Path::new(".");
    (!is_working).then(|| parent.to_owned())
}

impl File {
    pub fn sync_data(&self) -> io::Result<()> {
        match self {
            Self::System(file) => file.sync_data(),
            Self::Simulated { disk, number, .. } => disk.to_change().sync(*number),
        }
    }

    pub fn sync_all(&self) -> io::Result<()> {
        match self {
            Self::System(file) => file.sync_all(),
            Self::Simulated { .. } => self.sync_data(),
        }
    }

    fn system(&self) -> &std::fs::File {
        match self {
            Self::System(file) => file,
            Self::Simulated { .. } => panic!("a simulated disk knows no owners and modes"),
        }
    }

    pub fn metadata(&self) -> io::Result<std::fs::Metadata> {
        self.system().metadata()
    }

    pub fn set_permissions(&self, permissions: std::fs::Permissions) -> io::Result<()> {
        self.system().set_permissions(permissions)
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.system().as_fd()
    }
}

impl Read for &File {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            File::System(file) => (&mut &*file).read(into),
            File::Simulated { disk, number, position } => {
                let state = disk.0.lock();
                let bytes = &state.files[*number].bytes;
                let start = position.load(Ordering::Relaxed).min(bytes.len());
                let len = into.len().min(bytes.len() - start);
                into[..len].copy_from_slice(&bytes[start..start + len]);
                position.store(start + len, Ordering::Relaxed);
                Ok(len)
            }
        }
    }
}

impl Read for File {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&mut &*self).read(into)
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match (self, to) {
            (Self::System(file), to) => file.seek(to),
            (Self::Simulated { position, .. }, SeekFrom::Start(at)) => {
                position.store(at as usize, Ordering::Relaxed);
                Ok(at)
            }
            _ => Err(Errno::INVAL.into()),
        }
    }
}

impl Write for &File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            File::System(file) => (&mut &*file).write(bytes),
            File::Simulated { disk, number, .. } => disk.to_change().write(*number, bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&mut &*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// What `files::system` has, for the disk that is in place.

pub fn here(path: &Path) -> PathBuf {
    Disk::current()
        .map_or_else(|| system::here(path), |disk| Path::new("/").join(disk.resolve(path)))
}

pub fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    match Disk::current() {
        Some(disk) => disk.create(path),
        None => system::create_new(path, mode).map(File::System),
    }
}

pub fn is_plain(path: &Path) -> io::Result<Option<bool>> {
    match Disk::current() {
        Some(disk) => {
            let path = disk.resolve(path);
            Ok(disk.0.lock().names.get(&path).map(|node| *node != Node::Directory))
        }
        None => system::is_plain(path),
    }
}

pub fn names(directory: &Path) -> io::Result<Vec<OsString>> {
    let Some(disk) = Disk::current() else { return system::names(directory) };
    let directory = disk.resolve(directory);
    let state = disk.0.lock();
    if state.names.get(&directory) != Some(&Node::Directory) {
        return Err(Errno::NOENT.into());
    }
    let inside = state.names.keys().filter(|path| path.parent() == Some(&directory));
    Ok(inside.filter_map(|path| path.file_name().map(OsString::from)).collect())
}

pub fn append_to(path: &Path, mode: u32) -> io::Result<File> {
    match Disk::current() {
        Some(disk) => disk.open(path).or_else(|_| disk.create(path)),
        None => system::append_to(path, mode).map(File::System),
    }
}

pub fn truncate(path: &Path, len: u64) -> io::Result<()> {
    let Some(disk) = Disk::current() else { return system::truncate(path, len) };
    let File::Simulated { number, .. } = disk.open(path)? else { return Ok(()) };
    let mut state = disk.to_change();
    state.files[number].bytes.truncate(len as usize);
    state.sync(number)
}

pub fn open(path: &Path) -> io::Result<File> {
    match Disk::current() {
        Some(disk) => disk.open(path),
        None => system::open(path).map(File::System),
    }
}

pub fn length(file: &File) -> io::Result<u64> {
    match file {
        File::System(file) => system::length(file),
        File::Simulated { disk, number, .. } => Ok(disk.0.lock().files[*number].bytes.len() as u64),
    }
}

pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    let Some(disk) = Disk::current() else { return system::read(path) };
    let mut bytes = Vec::new();
    disk.open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    let Some(disk) = Disk::current() else { return system::create_dir(path) };
    let path = &disk.resolve(path);
    let mut state = disk.to_change();
    if state.names.contains_key(path) {
        return Err(Errno::EXIST.into());
    }
    state.check_room()?;
    state.change(Change::Made { path: path.to_owned(), node: Node::Directory });
    Ok(())
}

pub fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    let Some(disk) = Disk::current() else { return system::remove_file(path) };
    let path = &disk.resolve(path);
    let mut state = disk.to_change();
    if !state.names.contains_key(path) {
        return Err(Errno::NOENT.into());
    }
    state.change(Change::Removed { path: path.to_owned() });
    Ok(())
}

pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    let Some(disk) = Disk::current() else { return system::rename(from, to) };
    let (from, to) = (disk.resolve(from), disk.resolve(to));
    let mut state = disk.to_change();
    state.check_directory_of(&to)?;
    let node = *state.names.get(&from).ok_or(Errno::NOENT)?;
    state.change(Change::Moved { from, to, node });
    Ok(())
}

pub fn sync_directory(path: &Path) -> io::Result<()> {
    let Some(disk) = Disk::current() else { return system::sync_directory(path) };
    let path = disk.resolve(path);
    let mut state = disk.to_change();
    if state.fails_to_sync() {
        return Err(Errno::IO.into());
    }
    let directory = directory_of(&path.join("x"));
    let State { kept, unkept, .. } = &mut *state;
    unkept.retain(|change| {
        let is_here = change.directory() == directory;
        if is_here {
            change.apply(kept);
        }
        !is_here
    });
    Ok(())
}

#[cfg(test)]
mod tests;
