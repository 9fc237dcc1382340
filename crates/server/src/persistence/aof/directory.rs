//! The directory of the log's files, and how the manifest on disk is replaced.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bobbin_io::error_text;

use super::manifest::{AofFile, Manifest};
use crate::base::files::{self, DATA_MODE, File, disk};
use crate::config::Config;

/// The directory of the log's files. The path is absolute when it is made, so a task that begins in
/// one directory also ends there if the server changes its working directory.
#[derive(Clone, Debug)]
pub struct AofDirectory {
    path: PathBuf,
    /// The prefix of the files' names.
    prefix: String,
}

impl AofDirectory {
    pub fn of(config: &Config) -> Self {
        Self {
            path: disk::here(Path::new(OsStr::from_bytes(&config.appenddirname()))),
            prefix: String::from_utf8_lossy(&config.appendfilename()).into_owned(),
        }
    }

    /// The directory and prefix that a manifest's path implies.
    pub fn of_manifest(path: &Path) -> Self {
        let name = path.file_name().map_or_else(Default::default, OsStr::to_string_lossy);
        let prefix = name.strip_suffix(MANIFEST_SUFFIX).unwrap_or(&name).to_owned();
        Self { path: path.parent().unwrap_or_else(|| Path::new("")).to_owned(), prefix }
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub fn manifest(&self) -> PathBuf {
        self.file(&format!("{}{MANIFEST_SUFFIX}", self.prefix))
    }

    /// The path of the increment until there is a base.
    pub fn temporary_increment(&self) -> PathBuf {
        self.file(&format!("temp-{}.incr", self.prefix))
    }

    /// The path of the next base while it is written.
    pub fn temporary_base(&self) -> PathBuf {
        self.path.with_file_name(format!("temp-rewriteaof-bg-{}.aof", std::process::id()))
    }

    /// Makes the directory if it does not exist, and syncs its parent: otherwise a power cut could
    /// lose the directory with all synced files in it.
    pub fn create(&self) -> io::Result<()> {
        match disk::create_dir(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            // The directory may exist but not be synced, if the process that made it was killed.
            _ => files::sync_directory_of(&self.path),
        }
    }

    /// Makes the directory, and a manifest that lists no files if there is none. So a file of the
    /// log never lies in the directory without a manifest, wherever the process ends. Fails if such
    /// files are there already: they may be all that is left of somebody's data.
    pub fn begin(&self) -> io::Result<()> {
        self.create()?;
        if self.has_manifest()? {
            return Ok(());
        }
        self.check_unlisted().map_err(io::Error::other)?;
        self.persist(&Manifest::default())
    }

    /// Checks that no manifest is missing: that there is one, or no file of a log with contents.
    pub fn check_unlisted(&self) -> Result<(), String> {
        let mut unlisted = self.unlisted().map_err(|error| {
            format!(
                "Can't look for files of a log in {}: {}",
                self.path.display(),
                error_text(&error)
            )
        })?;
        if unlisted.is_empty() {
            return Ok(());
        }
        let parts = unlisted.parts().chain(&unlisted.history);
        let names: Vec<_> = parts.map(|part| part.name.clone()).collect();
        unlisted.history.clear();
        // One line, because the server's log shows each message in one.
        let lines = String::from_utf8_lossy(&unlisted.text()).replace('\n', "\\n");
        let (folder, manifest) = (self.path.display(), self.manifest());
        let manifest = manifest.display();
        Err(format!(
            "There are files of a log in {folder}, but no manifest that says which of them count: {}. \
             Put {manifest} back. If it is lost and all of them count, make a backup of them, and \
             write it: printf '{lines}' > {manifest}. To begin without these data, move the files \
             away.",
            names.join(", "),
        ))
    }

    /// The files of a log that have contents, if there is no manifest that could list them.
    fn unlisted(&self) -> io::Result<Manifest> {
        let mut unlisted = Manifest::default();
        if self.has_manifest()? {
            return Ok(unlisted);
        }
        let names = match disk::names(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(unlisted),
            names => names?,
        };
        for name in names.iter().filter_map(|name| name.to_str()) {
            let path = self.file(name);
            if disk::is_plain(&path)? == Some(true)
                && disk::open(&path).and_then(|file| disk::length(&file))? > 0
            {
                unlisted.add_named(&self.prefix, name);
            }
        }
        Ok(unlisted)
    }

    fn has_manifest(&self) -> io::Result<bool> {
        disk::is_plain(&self.manifest()).map(|found| found.is_some())
    }

    /// Makes the directory, and checks that the log's files can be made in it.
    pub fn prepare(&self) -> io::Result<()> {
        self.begin()?;
        for path in [self.temporary_increment(), self.temporary_base()] {
            files::create_anew(&path, DATA_MODE)?;
            disk::remove_file(&path)?;
        }
        Ok(())
    }

    /// The manifest on disk, if there is one that lists files. The error says what is wrong.
    pub fn load(&self) -> Result<Option<Manifest>, String> {
        self.parse(disk::read(self.manifest()))
    }

    /// The manifest on disk, for a server that can do without its log. What cannot be reached or is
    /// no file is no manifest, as in Valkey.
    pub fn find(&self) -> Result<Option<Manifest>, String> {
        let path = self.manifest();
        match disk::read(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound && !path.is_file() => {
                log::warn!(
                    "{} is taken for no AOF manifest file: {}",
                    path.display(),
                    error_text(&error)
                );
                Ok(None)
            }
            read => self.parse(read),
        }
    }

    fn parse(&self, read: io::Result<Vec<u8>>) -> Result<Option<Manifest>, String> {
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(format!(
                    "Fatal error: can't open the AOF manifest file {} for reading: {}",
                    self.manifest().display(),
                    error_text(&error)
                ));
            }
        };
        let parsed = Manifest::parse(&bytes);
        let listing = parsed.map(|manifest| (!manifest.is_empty()).then_some(manifest));
        listing.map_err(|fault| format!("*** FATAL AOF MANIFEST FILE ERROR ***\n{fault}"))
    }

    /// Replaces the manifest on disk in one step. The directory is synced first, because the names
    /// of the files that the manifest lists must be on disk before it.
    pub fn persist(&self, manifest: &Manifest) -> io::Result<()> {
        let temporary = self.file(&format!("temp-{}{MANIFEST_SUFFIX}", self.prefix));
        let mut file = files::create_anew(&temporary, DATA_MODE)?;
        file.write_all(&manifest.text())?;
        self.sync()?;
        files::publish(&file, &temporary, &self.manifest())
    }

    /// Keeps a log that another one replaces, which begins with `base`. Its manifest gets another
    /// name; the caller syncs the directory. Returns the names of all that is kept.
    pub fn keep(&self, log: &Manifest, base: &str) -> io::Result<String> {
        let path = self.file(&format!("before-{base}{MANIFEST_SUFFIX}"));
        let mut file = files::create_anew(&path, DATA_MODE)?;
        file.write_all(&log.text())?;
        file.sync_all()?;
        let names: Vec<_> = log.parts().map(|part| part.name.as_str()).collect();
        Ok(format!("{} with {}", path.display(), names.join(", ")))
    }

    /// Cleans up after a manifest that could not be persisted. The files that only it lists are
    /// deleted at once. If that manifest may be on disk nevertheless, they become history of the
    /// `known` manifest instead, and are deleted once that one is on disk again.
    pub fn give_up(&self, given_up: &Manifest, known: &mut Manifest) {
        // If the manifest cannot be read, it may be on disk.
        let may_count = self
            .load()
            .map_or(true, |found| found.is_some_and(|found| found.parts().eq(given_up.parts())));
        let is_new = |part: &&AofFile| known.parts().all(|kept| kept.name != part.name);
        let new: Vec<_> = given_up.parts().filter(is_new).cloned().collect();
        if may_count {
            known.history.extend(new);
            return;
        }
        for part in new {
            if let Err(error) = disk::remove_file(self.file(&part.name)) {
                log::debug!(
                    "Can't remove {}, which is of no use: {}",
                    part.name,
                    error_text(&error)
                );
            }
        }
    }

    /// Syncs the directory, so that changed names are on disk.
    pub fn sync(&self) -> io::Result<()> {
        disk::sync_directory(&self.path)
    }

    /// Opens a file of the log for appending. With `new` the file is created anew; otherwise it
    /// keeps its contents.
    pub fn open(&self, name: &str, new: bool) -> io::Result<File> {
        let path = self.file(name);
        if new {
            return files::create_anew(&path, DATA_MODE);
        }
        disk::append_to(&path, DATA_MODE)
    }

    /// Deletes the files of the history, and writes the manifest without them.
    pub fn delete_history(&self, manifest: &mut Manifest) -> io::Result<()> {
        if manifest.history.is_empty() {
            return Ok(());
        }
        for part in std::mem::take(&mut manifest.history) {
            if manifest.parts().any(|kept| kept.name == part.name) {
                log::warn!("The history file {} is part of the log, and is kept", part.name);
                continue;
            }
            log::info!("Removing the history file {} in the background", part.name);
            match disk::remove_file(self.file(&part.name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    log::warn!(
                        "Can't remove the history file {}: {}",
                        part.name,
                        error_text(&error)
                    );
                }
                _ => {}
            }
        }
        self.persist(manifest)
    }

    /// Whether a manifest was written to take over a log of a single file, and the process ended
    /// before that file was moved.
    pub fn awaits_single_file(&self, manifest: &Manifest) -> bool {
        *manifest == Manifest::of_single_file(&self.prefix)
            && !self.file(&self.prefix).exists()
            && self.single_file().is_file()
    }

    /// Where servers before version 7 had the log: beside the directory.
    fn single_file(&self) -> PathBuf {
        self.path.with_file_name(&self.prefix)
    }

    /// Takes over a log of a single file in the working directory, if there is one and no manifest.
    pub fn take_over_single_file(&self) -> Result<Option<Manifest>, String> {
        self.check_unlisted()?;
        let (single, new) = (self.single_file(), self.file(&self.prefix));
        if !single.is_file() {
            return Ok(None);
        }
        if new.exists() {
            // Either may be the one that counts.
            return Err(format!(
                "There is an old log {} and a file {}, but no manifest that says which one counts. \
                 Move one of them away.",
                single.display(),
                new.display()
            ));
        }
        let manifest = Manifest::of_single_file(&self.prefix);
        let moved = self
            .create()
            .and_then(|()| self.persist(&manifest))
            .and_then(|()| disk::rename(&single, &new))
            .and_then(|()| self.sync())
            .and_then(|()| files::sync_directory_of(&self.path));
        moved.map_err(|error| {
            format!("Can't take over the old log {}: {}", self.prefix, error_text(&error))
        })?;
        log::info!(
            "Successfully migrated an old-style AOF configuration ({}) into the AOF directory ({}).",
            self.prefix,
            self.path.file_name().unwrap_or_default().display()
        );
        Ok(Some(manifest))
    }
}

/// The path that the names of all files begin with.
impl std::fmt::Display for AofDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.file(&self.prefix).display().fmt(f)
    }
}

const MANIFEST_SUFFIX: &str = ".manifest";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_reached_is_no_log_for_a_server_without_one() {
        let folder = std::env::temp_dir().join(format!("bobbin-no-log-{}", std::process::id()));
        let directory = AofDirectory { path: folder.join("logs"), prefix: "a.aof".to_owned() };
        std::fs::create_dir_all(directory.manifest()).unwrap();
        assert_eq!(directory.find(), Ok(None), "the manifest is a directory");
        assert!(directory.load().is_err());
        std::fs::remove_dir_all(&directory.path).unwrap();
        std::fs::write(&directory.path, "").unwrap();
        assert_eq!(directory.find(), Ok(None), "the directory is a file");
        assert!(directory.load().is_err());
        std::fs::remove_file(&directory.path).unwrap();
        assert_eq!(directory.find(), Ok(None), "there is nothing");
        std::fs::create_dir(&directory.path).unwrap();
        std::fs::write(directory.manifest(), "nonsense").unwrap();
        assert!(directory.find().is_err(), "it is damaged");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_old_log_is_taken_over_or_told_of() {
        let folder = std::env::temp_dir().join(format!("bobbin-logs-{}", std::process::id()));
        let directory = AofDirectory { path: folder.join("logs"), prefix: "a.aof".to_owned() };
        std::fs::create_dir_all(&directory.path).unwrap();
        assert_eq!(directory.take_over_single_file(), Ok(None));
        let (single, new) = (folder.join("a.aof"), directory.file("a.aof"));
        for path in [&single, &new] {
            std::fs::write(path, "").unwrap();
        }
        let error = directory.take_over_single_file().unwrap_err();
        for path in [&single, &new] {
            assert!(error.contains(path.to_str().unwrap()), "{error}");
            assert!(path.exists());
        }
        std::fs::remove_file(&new).unwrap();
        let manifest = Manifest::of_single_file("a.aof");
        assert_eq!(directory.take_over_single_file(), Ok(Some(manifest.clone())));
        assert_eq!(directory.load(), Ok(Some(manifest)));
        assert!(new.exists() && !single.exists());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
