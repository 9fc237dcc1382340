//! The end-to-end tests, three files at a time: much of their time they wait. Those of a file run
//! one after the other, in a process of their own.
//!
//! Servers, clients and disks share a machine, so a test may fail by chance. In CI a file that
//! fails is run twice more, alone. It is *unsteady* if it then succeeds both times: this fails no
//! run, so that one fault does not stop all work, but the summary names it, and what it wrote is
//! above. An unsteady test has found a fault, its own or the server's.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::shell::{self, TaskResult};

/// One file of tests. Many files are one program: to link each of them takes longer than to run it.
struct TestFile {
    /// Its package and its modules: `testkit/replication/link`, `cli/shell`.
    name: String,
    program: PathBuf,
    /// What the program calls the tests.
    tests: Vec<String>,
    /// Where they run: the package's folder.
    folder: PathBuf,
}

/// Runs the tests of all files whose names contain one of these; of all if there are none. They are
/// `#[ignore]`d for a plain `cargo test`, as they need what `cargo xtask peers` installs.
pub(crate) fn run(names: &[&str]) -> TaskResult {
    no_failures(&run_once(named(names)?))
}

/// Builds the tests; fails if none of them has such a name.
pub(crate) fn build(names: &[&str]) -> TaskResult {
    named(names).map(drop)
}

fn named(names: &[&str]) -> Result<Vec<TestFile>, String> {
    let is_wanted =
        |file: &TestFile| names.is_empty() || names.iter().any(|name| file.name.contains(name));
    let files: Vec<TestFile> = files()?.into_iter().filter(is_wanted).collect();
    if files.is_empty() { Err("no file of tests has such a name".to_owned()) } else { Ok(files) }
}

/// Runs all tests, as CI does; returns the names of the files that are unsteady.
pub(crate) fn run_all() -> Result<Vec<String>, String> {
    let (unsteady, failed): (Vec<_>, Vec<_>) =
        run_once(files()?).into_iter().partition(TestFile::is_unsteady);
    no_failures(&failed)?;
    Ok(unsteady.into_iter().map(|file| file.name).collect())
}

fn no_failures(failed: &[TestFile]) -> TaskResult {
    let names: Vec<_> = failed.iter().map(|file| file.name.as_str()).collect();
    if names.is_empty() { Ok(()) } else { Err(format!("failed: {}", names.join(", "))) }
}

/// Runs files of tests, and returns those that fail.
fn run_once(files: Vec<TestFile>) -> Vec<TestFile> {
    let (alone, mut together): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| ALONE.contains(&file.name.as_str()));
    together.sort_by_key(TestFile::rank);
    let mut failed = run_in_lanes(together, LANES);
    failed.extend(run_in_lanes(alone, 1));
    failed
}

/// Runs files of tests, `lanes` of them at a time, and returns those that fail.
fn run_in_lanes(files: Vec<TestFile>, lanes: usize) -> Vec<TestFile> {
    let files = Mutex::new(files.into_iter());
    let next = || files.lock().expect("no lane panics").next();
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| {
                while let Some(file) = next() {
                    if !file.report() {
                        failed.lock().expect("no lane panics").push(file);
                    }
                }
            });
        }
    });
    failed.into_inner().expect("no lane panics")
}

/// Builds all programs of tests, and says which files they are made of. Of the whole workspace, as
/// that is what `cargo xtask test` has built: of fewer packages Cargo would unite fewer features,
/// and build the tests again.
fn files() -> Result<Vec<TestFile>, String> {
    let mut build = shell::cargo(&["test", "--workspace", "--quiet", "--no-run", "--test", "*"]);
    build.args(["--message-format", "json-render-diagnostics"]);
    let messages = shell::output(&mut build)?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut files = Vec::new();
    for program in messages.filter_map(|message| Program::of(&message)) {
        files.extend(program.files()?);
    }
    Ok(files)
}

/// A program of tests.
struct Program {
    name: String,
    path: PathBuf,
    /// The folder of its package.
    folder: PathBuf,
}

impl Program {
    /// The program that a message of Cargo's is about.
    fn of(message: &Value) -> Option<Self> {
        let target = &message["target"];
        let is_test = target["kind"].as_array()?.iter().any(|kind| kind == "test");
        let path = PathBuf::from(message["executable"].as_str().filter(|_| is_test)?);
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
        Some(Self { name: target["name"].as_str()?.to_owned(), path, folder })
    }

    /// Its files that have end-to-end tests.
    fn files(self) -> Result<Vec<TestFile>, String> {
        let list = shell::output(Command::new(&self.path).args(["--list", "--ignored"]))?;
        let package = self.folder.file_name().unwrap_or_default().to_string_lossy();
        let mut files: Vec<TestFile> = Vec::new();
        for test in list.lines().filter_map(|line| line.strip_suffix(": test")) {
            let modules = test.rsplit_once("::").map_or(&*self.name, |(modules, _)| modules);
            let name = format!("{package}/{}", modules.replace("::", "/"));
            match files.iter_mut().find(|file| file.name == name) {
                Some(file) => file.tests.push(test.to_owned()),
                None => files.push(TestFile {
                    name,
                    program: self.path.clone(),
                    tests: vec![test.to_owned()],
                    folder: self.folder.clone(),
                }),
            }
        }
        Ok(files)
    }
}

impl TestFile {
    /// Files of a low rank begin early.
    fn rank(&self) -> usize {
        LONGEST.iter().position(|name| *name == self.name).unwrap_or(LONGEST.len())
    }

    /// Runs it, and says what came of it; whether it succeeds.
    fn report(&self) -> bool {
        let start = Instant::now();
        let outcome = self.run();
        let took = start.elapsed().as_secs_f64();
        match &outcome {
            Ok(summary) => println!("{took:7.1} s  {}: {summary}", self.name),
            Err(error) => println!("{took:7.1} s  {}: FAILED\n{error}", self.name),
        }
        outcome.is_ok()
    }

    /// Whether it succeeds again and again, after it has failed.
    fn is_unsteady(&self) -> bool {
        (0..RUNS_AFTER_FAILURE).all(|_| self.report())
    }

    /// The line that sums its tests up, or all that it wrote.
    fn run(&self) -> Result<String, String> {
        let (status, text) = self.output().map_err(|error| error.to_string())?;
        let summary = text.lines().rev().find_map(|line| line.strip_prefix("test result: "));
        match (status, summary) {
            (Some(status), Some(summary)) if status.success() => Ok(summary.to_owned()),
            (Some(status), _) => Err(format!("{text}\n{status}")),
            (None, _) => Err(format!("{text}\nended, as it took more than {LIMIT:?}")),
        }
    }

    /// Its exit status (none: it was ended, as it took too long), and what it wrote.
    fn output(&self) -> io::Result<(Option<ExitStatus>, String)> {
        // A file, not a pipe: a server that outlives its test would keep that open.
        let mut path = std::env::temp_dir();
        path.push(format!("bobbin-{}-{}", self.name.replace('/', "-"), std::process::id()));
        let file = std::fs::File::create(&path)?;
        let mut child = Command::new(&self.program)
            .args(["--ignored", "--test-threads=1", "--exact"])
            .args(&self.tests)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()?;
        let status = wait(&mut child)?;
        let text = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
        std::fs::remove_file(&path)?;
        Ok((status, text))
    }
}

fn wait(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(POLL);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

const LANES: usize = 3;
const RUNS_AFTER_FAILURE: usize = 2;
/// What needs the machine for itself: it counts how often one client is served while a command of
/// another one runs.
const ALONE: [&str; 1] = ["testkit/latency/heavy"];
/// The files that take longest. They begin first, so that none runs long after the others.
const LONGEST: [&str; 5] = [
    "benchmark/pages",
    "testkit/consistency/history",
    "testkit/latency/slices",
    "benchmark/options",
    "benchmark/connections",
];
const LIMIT: Duration = Duration::from_secs(900);
const POLL: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A file of tests that fails in these of its runs.
    fn file(name: &str, failing: &str) -> TestFile {
        let mut folder = std::env::temp_dir();
        folder.push(format!("bobbin-xtask-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder is made");
        let path = folder.join("program");
        let script = format!(
            "#!/bin/sh\necho run >> runs\necho 'test result: ok'\n\
             case $(wc -l < runs) in {failing}) exit 1;; esac\n"
        );
        std::fs::write(&path, script).expect("it is written");
        let mode = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(&path, mode).expect("it may be run");
        TestFile { name: format!("test/{name}"), program: path, tests: Vec::new(), folder }
    }

    #[test]
    fn what_fails_once_is_unsteady_and_what_fails_again_fails() {
        let files = [("never", "0"), ("once", "1"), ("twice", "1|3"), ("always", "*")];
        let files = files.map(|(name, failing)| file(name, failing));
        let folders: Vec<_> = files.iter().map(|file| file.folder.clone()).collect();
        let failed = run_once(files.into());
        let (unsteady, failed): (Vec<_>, Vec<_>) =
            failed.into_iter().partition(TestFile::is_unsteady);
        folders.iter().for_each(|folder| std::fs::remove_dir_all(folder).expect("it goes"));
        let mut names: Vec<_> = failed.iter().map(|file| file.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["test/always", "test/twice"]);
        assert_eq!(unsteady.iter().map(|file| &*file.name).collect::<Vec<_>>(), ["test/once"]);
        assert!(no_failures(&failed).is_err());
        assert!(no_failures(&[]).is_ok());
    }
}
