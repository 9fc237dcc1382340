//! What a disk may hold after the power went, by the calls that were made until then.
//!
//! What a file holds is safe once an `fsync` of it that began later is over; names are, once one of
//! their folder is. Of the rest anything may be there: it is what POSIX leaves open, and less than
//! any file system with a journal promises, save that a rename never loses the file. (After the
//! manner of ALICE, OSDI 2014, and CrashMonkey, OSDI 2018.)

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use super::trace::SystemCall;
use crate::random::TestRandom;

/// All that was done to a folder.
#[derive(Debug, Default)]
pub struct DiskTrace {
    nodes: Vec<Node>,
    /// The lines at which what may be there changes, in their order.
    moments: Vec<usize>,
}

/// Files by their paths within the folder; folders have no contents.
pub type FileTree = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// What a folder held before anything was done to it.
#[derive(Debug, Default, Clone)]
pub struct Before {
    pub tree: FileTree,
    /// Of files that were written to and not forced to disk: how many bytes are safe. Of others
    /// all.
    pub safe: BTreeMap<PathBuf, usize>,
}

impl From<FileTree> for Before {
    fn from(tree: FileTree) -> Self {
        Self { tree, safe: BTreeMap::new() }
    }
}

/// Which of the things that may be there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Luck {
    /// None.
    Least,
    /// All.
    Most,
    /// Some: each name by itself, and of a file the first bytes.
    Some,
    /// Some, as above, but a file may have got longer and hold zeros in place of the missing bytes.
    Zeros,
}

/// A file or a folder. The first one is the folder that all lie in.
#[derive(Debug, Default)]
struct Node {
    is_folder: bool,
    names: BTreeMap<OsString, usize>,
    bytes: Vec<u8>,
    steps: Vec<Step>,
    /// The step that gave a folder its name, unless it had it before.
    made_by: Option<(usize, usize)>,
}

#[derive(Debug)]
struct Step {
    began: usize,
    ended: usize,
    /// The line from which on it is safe.
    safe: usize,
    /// Others that are there if this one is, each by its folder and its place there: what a file
    /// was moved to.
    needs: Vec<(usize, usize)>,
    change: Change,
}

#[derive(Debug)]
enum Change {
    /// Names come to stand for other things, or for nothing, all at once.
    Names(Vec<(OsString, Option<usize>)>),
    Write {
        at: usize,
        bytes: Vec<u8>,
    },
    Resize(usize),
}

impl DiskTrace {
    /// What calls did to a folder that held `before`.
    pub fn new(folder: &Path, before: &Before, calls: &[SystemCall]) -> Result<Self, String> {
        let root = Node { is_folder: true, ..Node::default() };
        let disk = Self { nodes: vec![root], moments: Vec::new() };
        let mut reader = Reader {
            disk,
            folder,
            current: PathBuf::new(),
            names: HashMap::from([(PathBuf::new(), 0)]),
            lengths: HashMap::new(),
            open: HashMap::new(),
        };
        for (path, bytes) in &before.tree {
            reader.was_there(path, bytes.as_deref(), before.safe.get(path).copied());
        }
        for call in calls {
            reader.follow(call).map_err(|error| format!("line {}: {error}", call.began))?;
        }
        let mut disk = reader.disk;
        let last = calls.iter().map(|call| if call.returned() { call.ended } else { call.began });
        disk.moments.extend(last.max().map(|last| last + 1));
        disk.moments.sort_unstable();
        disk.moments.dedup();
        Ok(disk)
    }

    /// The moments at which it makes a difference whether the power goes: all before that line is
    /// done. The last one is behind all.
    pub fn moments(&self) -> &[usize] {
        &self.moments
    }

    /// Those at which a name changes, or just has.
    pub fn moments_of_names(&self) -> Vec<usize> {
        let folders = self.nodes.iter().filter(|node| node.is_folder);
        let steps = folders.flat_map(|node| &node.steps);
        let lines = steps.flat_map(|step| [step.began, step.ended, step.safe]);
        let mut at: Vec<_> =
            lines.filter_map(|line| self.moments.binary_search(&line).ok()).collect();
        at.extend(at.clone().iter().map(|at| at + 1).filter(|&at| at < self.moments.len()));
        at.sort_unstable();
        at.dedup();
        at.into_iter().map(|at| self.moments[at]).collect()
    }

    /// What is there after the power went at a line.
    pub fn after(
        &self,
        moment: usize,
        names: Luck,
        contents: Luck,
        random: &mut TestRandom,
    ) -> FileTree {
        let there = self.steps_of_names(moment, names, random);
        let mut tree = FileTree::new();
        let mut folders = vec![(PathBuf::new(), 0)];
        while let Some((path, node)) = folders.pop() {
            for (name, node) in self.names(node, &there) {
                let path = path.join(name);
                if self.nodes[node].is_folder {
                    tree.insert(path.clone(), None);
                    folders.push((path, node));
                } else {
                    tree.insert(path, Some(self.bytes(node, moment, contents, random)));
                }
            }
        }
        tree
    }

    /// The changes of names that are there, each by its folder and its place among that one's
    /// steps.
    fn steps_of_names(
        &self,
        moment: usize,
        luck: Luck,
        random: &mut TestRandom,
    ) -> HashSet<(usize, usize)> {
        let mut there = HashSet::new();
        let folders = self.nodes.iter().enumerate().filter(|(_, node)| node.is_folder);
        for (number, folder) in folders {
            // With some luck they get to disk one after the other, or each for itself.
            let (in_order, mut goes_on) = (random.below(2) == 0, true);
            let begun = folder.steps.iter().enumerate().filter(|(_, step)| step.began < moment);
            for (index, step) in begun {
                let is_there = match luck {
                    _ if step.safe < moment => true,
                    Luck::Least => false,
                    Luck::Most => true,
                    Luck::Some | Luck::Zeros if in_order => goes_on && random.below(3) > 0,
                    Luck::Some | Luck::Zeros => random.below(2) == 0,
                };
                goes_on &= is_there;
                if is_there {
                    there.insert((number, index));
                    there.extend(&step.needs);
                }
            }
        }
        there
    }

    fn names(&self, number: usize, there: &HashSet<(usize, usize)>) -> BTreeMap<OsString, usize> {
        let node = &self.nodes[number];
        let mut names = node.names.clone();
        for (index, step) in node.steps.iter().enumerate() {
            let Change::Names(changes) = &step.change else { continue };
            for (name, stands_for) in changes.iter().filter(|_| there.contains(&(number, index))) {
                match stands_for {
                    Some(node) => names.insert(name.clone(), *node),
                    None => names.remove(name),
                };
            }
        }
        names
    }

    fn bytes(&self, node: usize, moment: usize, luck: Luck, random: &mut TestRandom) -> Vec<u8> {
        let node = &self.nodes[node];
        let mut bytes = node.bytes.clone();
        let safe = node.steps.partition_point(|step| step.safe < moment);
        let begun: Vec<_> = node.steps.iter().filter(|step| step.began < moment).collect();
        let kept = match luck {
            Luck::Least => safe,
            Luck::Most => begun.len(),
            Luck::Some | Luck::Zeros => safe + random.below(begun.len() - safe + 1),
        };
        begun[..safe].iter().for_each(|step| step.change.apply(&mut bytes));
        let safe_length = bytes.len();
        begun[safe..kept].iter().for_each(|step| step.change.apply(&mut bytes));
        if luck == Luck::Some
            && let Some(Step { change: Change::Write { at, bytes: new }, .. }) = begun.get(kept)
        {
            let torn = new[..random.below(new.len() + 1)].to_vec();
            Change::Write { at: *at, bytes: torn }.apply(&mut bytes);
        }
        if luck == Luck::Zeros && bytes.len() > safe_length {
            let from = safe_length + random.below(bytes.len() - safe_length);
            let page = if random.below(2) == 0 { from / PAGE_BYTES * PAGE_BYTES } else { from };
            bytes[page.max(safe_length)..].fill(0);
        }
        bytes
    }
}

impl Change {
    fn apply(&self, file: &mut Vec<u8>) {
        match self {
            Self::Names(_) => {}
            Self::Write { at, bytes } => {
                let end = at + bytes.len();
                file.resize(file.len().max(end), 0);
                file[*at..end].copy_from_slice(bytes);
            }
            Self::Resize(length) => file.resize(*length, 0),
        }
    }
}

/// Follows the calls, with the folder as the process sees it.
struct Reader<'a> {
    disk: DiskTrace,
    folder: &'a Path,
    /// Where the process is.
    current: PathBuf,
    names: HashMap<PathBuf, usize>,
    lengths: HashMap<usize, usize>,
    open: HashMap<i64, Open>,
}

struct Open {
    node: usize,
    appends: bool,
    at: usize,
}

impl Reader<'_> {
    fn was_there(&mut self, path: &Path, bytes: Option<&[u8]>, safe: Option<usize>) {
        let number = self.add_node(bytes.is_none());
        let bytes = bytes.unwrap_or_default();
        let (safe, rest) = bytes.split_at(safe.unwrap_or(bytes.len()));
        let node = &mut self.disk.nodes[number];
        node.bytes = safe.to_vec();
        if !rest.is_empty() {
            let change = Change::Write { at: safe.len(), bytes: rest.to_vec() };
            node.steps.push(Step {
                began: 0,
                ended: 0,
                safe: usize::MAX,
                needs: Vec::new(),
                change,
            });
        }
        self.lengths.insert(number, bytes.len());
        let (parent, name) = self.place(path).expect("a tree names folders before what is in them");
        self.disk.nodes[parent].names.insert(name, number);
        self.names.insert(path.to_owned(), number);
    }

    fn follow(&mut self, call: &SystemCall) -> Result<(), String> {
        let returned = call.returned();
        match call.name.as_str() {
            "chdir" if returned => self.current = call.path(0, &self.current),
            "openat" if returned => return self.opened(call),
            "write" | "writev" | "pwrite64" => return self.wrote(call),
            "ftruncate" => {
                let Some(node) = self.node_of(call) else { return Ok(()) };
                let length = call.words.get(1).and_then(|word| word.parse().ok());
                let length = length.ok_or("no length")?;
                self.lengths.insert(node, length);
                self.step(node, call, Change::Resize(length));
            }
            "fsync" | "fdatasync" if returned => {
                let Some(node) = self.node_of(call) else { return Ok(()) };
                for step in &mut self.disk.nodes[node].steps {
                    if step.ended < call.began {
                        step.safe = step.safe.min(call.ended);
                    }
                }
                self.disk.moments.extend([call.began, call.ended]);
            }
            "fsync" | "fdatasync" | "chdir" | "openat" | "sync_file_range" | "sendto"
            | "sendmsg" => {}
            "mkdir" => {
                let Some(path) = self.inside(&call.path(0, &self.current)) else { return Ok(()) };
                let node = self.add_node(true);
                self.name(&path, node, call)?;
                let (parent, _) = self.place(&path).ok_or("there is no such folder")?;
                self.disk.nodes[node].made_by =
                    Some((parent, self.disk.nodes[parent].steps.len() - 1));
            }
            "unlink" => {
                let Some(path) = self.inside(&call.path(0, &self.current)) else { return Ok(()) };
                let (parent, name) = self.place(&path).ok_or("there is no such folder")?;
                self.names.remove(&path);
                self.step(parent, call, Change::Names(vec![(name, None)]));
            }
            "rename" => return self.renamed(call),
            other => {
                let is_near = |path: &PathBuf| self.inside(path).is_some();
                let paths = (0..call.strings.len()).map(|index| call.path(index, &self.current));
                if paths.chain(call.stands_for.clone()).any(|path| is_near(&path)) {
                    return Err(format!("{other} is not understood"));
                }
            }
        }
        Ok(())
    }

    fn opened(&mut self, call: &SystemCall) -> Result<(), String> {
        self.open.remove(&call.result);
        let Some(path) = self.inside(&call.path(0, &self.current)) else { return Ok(()) };
        let flags: Vec<_> =
            call.words.get(2).map_or_else(Vec::new, |word| word.split('|').collect());
        let node = match self.names.get(&path) {
            Some(&node) => {
                if flags.contains(&"O_TRUNC") && self.lengths.insert(node, 0) != Some(0) {
                    self.step(node, call, Change::Resize(0));
                }
                node
            }
            None if flags.contains(&"O_CREAT") => {
                let node = self.add_node(false);
                self.name(&path, node, call)?;
                node
            }
            None => return Err(format!("{} is not known", path.display())),
        };
        let open = Open { node, appends: flags.contains(&"O_APPEND"), at: 0 };
        self.open.insert(call.result, open);
        Ok(())
    }

    fn wrote(&mut self, call: &SystemCall) -> Result<(), String> {
        let Some(node) = self.node_of(call) else { return Ok(()) };
        let bytes = call.bytes();
        if bytes.is_empty() {
            return Ok(());
        }
        let length = self.lengths.entry(node).or_default();
        let open = call.descriptor().and_then(|number| self.open.get_mut(&number));
        let open = open.ok_or("it is not open")?;
        let at = match call.name.as_str() {
            "pwrite64" => {
                call.words.last().and_then(|word| word.parse().ok()).ok_or("no offset")?
            }
            _ if open.appends => *length,
            _ => open.at,
        };
        open.at = at + bytes.len();
        *length = (*length).max(open.at);
        self.step(node, call, Change::Write { at, bytes });
        Ok(())
    }

    fn renamed(&mut self, call: &SystemCall) -> Result<(), String> {
        let [from, to] = [0, 1].map(|index| self.inside(&call.path(index, &self.current)));
        let (Some(from), Some(to)) = (from, to) else {
            return Err("renamed into the folder, or out of it".to_owned());
        };
        let node = self.names.remove(&from).ok_or("renamed what is not known")?;
        self.names.insert(to.clone(), node);
        let (old, old_name) = self.place(&from).ok_or("there is no such folder")?;
        let (new, new_name) = self.place(&to).ok_or("there is no such folder")?;
        if self.disk.nodes[node].is_folder {
            return Err("a folder was renamed".to_owned());
        }
        if old == new {
            self.step(new, call, Change::Names(vec![(new_name, Some(node)), (old_name, None)]));
        } else {
            self.step(new, call, Change::Names(vec![(new_name, Some(node))]));
            self.step(old, call, Change::Names(vec![(old_name, None)]));
            let added = (new, self.disk.nodes[new].steps.len() - 1);
            let needs = self.disk.nodes[new].made_by.into_iter().chain([added]).collect();
            self.disk.nodes[old].steps.last_mut().expect("just added").needs = needs;
        }
        Ok(())
    }

    fn name(&mut self, path: &Path, node: usize, call: &SystemCall) -> Result<(), String> {
        let (parent, name) = self.place(path).ok_or("there is no such folder")?;
        self.names.insert(path.to_owned(), node);
        self.step(parent, call, Change::Names(vec![(name, Some(node))]));
        Ok(())
    }

    fn step(&mut self, node: usize, call: &SystemCall, change: Change) {
        let (began, ended) = (call.began, call.ended);
        self.disk.nodes[node].steps.push(Step {
            began,
            ended,
            safe: usize::MAX,
            needs: Vec::new(),
            change,
        });
        self.disk.moments.push(began);
        if ended != usize::MAX {
            self.disk.moments.push(ended);
        }
    }

    fn add_node(&mut self, is_folder: bool) -> usize {
        self.disk.nodes.push(Node { is_folder, ..Node::default() });
        self.disk.nodes.len() - 1
    }

    /// What the call's descriptor stands for, if that lies in the folder.
    fn node_of(&self, call: &SystemCall) -> Option<usize> {
        self.inside(call.stands_for.as_deref()?)?;
        self.open.get(&call.descriptor()?).map(|open| open.node)
    }

    /// The folder that a path leads to, and the name in it.
    fn place(&self, path: &Path) -> Option<(usize, OsString)> {
        Some((*self.names.get(path.parent()?)?, path.file_name()?.to_owned()))
    }

    /// A path as seen from the folder, if it lies in there.
    fn inside(&self, path: &Path) -> Option<PathBuf> {
        let path = path.strip_prefix(self.folder).ok()?;
        Some(path.components().filter(|part| matches!(part, Component::Normal(_))).collect())
    }
}

/// What gets to disk at once, or not at all.
const PAGE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::super::trace::parse;
    use super::*;

    const BEGIN: &str = "1 chdir(\"/d\") = 0\n";

    /// What a protocol leaves, for every moment and corner: the contents of the file `a`, if it is
    /// there.
    fn left(before: &[(&str, &[u8])], protocol: &str) -> Vec<Option<String>> {
        let text: String = format!("{BEGIN}{protocol}");
        let before = before.iter().map(|(name, bytes)| (PathBuf::from(name), Some(bytes.to_vec())));
        let calls = parse(&text).unwrap();
        let before = Before::from(before.collect::<FileTree>());
        let disk = DiskTrace::new(Path::new("/d"), &before, &calls).unwrap();
        let mut all = Vec::new();
        let mut random = TestRandom::new(1);
        for moment in disk.moments().iter().copied().chain([usize::MAX - 1]) {
            for (names, contents) in [
                (Luck::Least, Luck::Least),
                (Luck::Most, Luck::Most),
                (Luck::Most, Luck::Least),
                (Luck::Least, Luck::Most),
                (Luck::Some, Luck::Some),
            ] {
                let tree = disk.after(moment, names, contents, &mut random);
                let text = tree
                    .get(Path::new("a"))
                    .map(|bytes| String::from_utf8(bytes.clone().unwrap()).unwrap());
                if !all.contains(&text) {
                    all.push(text);
                }
            }
        }
        all.sort();
        all
    }

    const CREATE: &str = "1 openat(AT_FDCWD</d>, \"t\", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3</d/t>\n\
                          1 write(3</d/t>, \"new\", 3) = 3\n";
    const SYNC: &str = "1 fsync(3</d/t>) = 0\n";
    const RENAME: &str = "1 rename(\"t\", \"a\") = 0\n";

    #[test]
    fn a_file_that_is_replaced() {
        let some = |text: &str| Some(text.to_owned());
        let right = left(&[("a", b"old")], &format!("{CREATE}{SYNC}{RENAME}"));
        assert_eq!(right, [some("new"), some("old")]);
        let wrong = left(&[("a", b"old")], &format!("{CREATE}{RENAME}"));
        assert!(wrong.contains(&some("")), "{wrong:?}");
        // Too late.
        let wrong = left(&[("a", b"old")], &format!("{CREATE}{RENAME}{SYNC}"));
        assert!(wrong.contains(&some("")), "{wrong:?}");
    }

    #[test]
    fn what_is_safe_stays() {
        let append = |text: &str| {
            format!(
                "1 write(4</d/a>, \"{text}\", {0}) = {0}\n1 fdatasync(4</d/a>) = 0\n",
                text.len()
            )
        };
        let open = "1 openat(AT_FDCWD</d>, \"a\", O_WRONLY|O_APPEND) = 4</d/a>\n";
        let calls = parse(&format!("{BEGIN}{open}{}{}", append("1"), append("23"))).unwrap();
        let before = FileTree::from([(PathBuf::from("a"), Some(b"0".to_vec()))]);
        let disk = DiskTrace::new(Path::new("/d"), &before.into(), &calls).unwrap();
        let mut random = TestRandom::new(1);
        let mut at = |moment, luck| {
            let tree = disk.after(moment, luck, luck, &mut random);
            String::from_utf8(tree[Path::new("a")].clone().unwrap()).unwrap()
        };
        let lines = [(2, "0"), (3, "0"), (4, "01"), (5, "01"), (6, "0123")];
        for (moment, least) in lines {
            assert_eq!(at(moment, Luck::Least), least, "{moment}");
        }
        assert_eq!(at(3, Luck::Most), "01");
        assert_eq!(at(5, Luck::Most), "0123");
        let torn: HashSet<_> = (0..50).map(|_| at(5, Luck::Some)).collect();
        assert_eq!(torn, HashSet::from(["01", "012", "0123"].map(str::to_owned)));
        let zeros: HashSet<_> = (0..50).map(|_| at(5, Luck::Zeros)).collect();
        assert!(zeros.contains("012\0") && zeros.contains("01\0\0"), "{zeros:?}");
    }

    #[test]
    fn a_file_that_is_moved_is_somewhere() {
        let text = format!("{BEGIN}1 mkdir(\"f\", 0777) = 0\n1 rename(\"a\", \"f/a\") = 0\n");
        let calls = parse(&text).unwrap();
        let before = FileTree::from([(PathBuf::from("a"), Some(b"0".to_vec()))]);
        let disk = DiskTrace::new(Path::new("/d"), &before.into(), &calls).unwrap();
        let mut random = TestRandom::new(1);
        let trees: Vec<_> =
            (0..50).map(|_| disk.after(9, Luck::Some, Luck::Some, &mut random)).collect();
        let holds = |tree: &FileTree, name: &str| tree.contains_key(Path::new(name));
        assert!(trees.iter().any(|tree| holds(tree, "f/a")));
        assert!(trees.iter().any(|tree| !holds(tree, "f")));
        assert!(trees.iter().any(|tree| holds(tree, "f/a") && holds(tree, "a")));
        assert!(trees.iter().all(|tree| holds(tree, "a") || holds(tree, "f/a")));
    }
}
