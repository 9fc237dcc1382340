//! Function libraries: what FUNCTION LOAD keeps and FCALL calls.
//!
//! Each library has its own Lua state, as its functions may keep values between calls. One call
//! uses the state at a time: calls of one library wait for each other, calls of different libraries
//! do not. Libraries are added and removed with the gate held.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bobbin_script::{
    Called, Chunk, Host, Level, Profile, Registration, ScriptFlags, Shebang, ShebangError, Verdict,
    Vm, is_name,
};
use bobbin_sync::{Mutex, RwLock};

use super::cache::Learned;
use super::lua::{LuaState, StateSource};
use super::{is_logged, log_message};
use crate::engine::row::Failure;

/// All function libraries.
pub struct Functions {
    known: RwLock<KnownFunctions>,
    /// What the libraries' Lua states are made with.
    states: Arc<StateSource>,
}

/// Libraries by name, and functions by name in lower case.
#[derive(Default, Clone)]
struct KnownFunctions {
    libraries: BTreeMap<Vec<u8>, Arc<Library>>,
    functions: HashMap<Vec<u8>, (Arc<Library>, usize)>,
}

/// A library.
pub struct Library {
    pub name: Vec<u8>,
    pub source: Vec<u8>,
    pub functions: Vec<Function>,
    /// The library's Lua state; `None` while a thread uses it.
    state: Mutex<Option<Box<LuaState>>>,
    /// Whether a client waits for the state.
    is_awaited: AtomicBool,
    /// The memory of the Lua state in bytes.
    memory: AtomicUsize,
}

/// A function of a library.
pub struct Function {
    pub name: Vec<u8>,
    pub description: Option<Vec<u8>>,
    pub flags: ScriptFlags,
    pub chunk: Chunk,
    pub learned: Arc<Learned>,
}

/// How libraries that are added meet libraries that are there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// A library of the same name is an error. For FUNCTION LOAD without REPLACE, and for a library
    /// that a payload of FUNCTION RESTORE holds twice. The other variants are the words of FUNCTION
    /// RESTORE.
    Load,
    Flush,
    Append,
    Replace,
}

impl Functions {
    /// Creates an empty set of libraries, whose Lua states will be made with `states`.
    pub fn new(states: Arc<StateSource>) -> Self {
        Self { known: RwLock::default(), states }
    }

    /// FUNCTION LOAD. Returns the name of the library.
    pub fn load(&self, source: &[u8], replace: bool, seed: u64) -> Result<Vec<u8>, Failure> {
        let mut known = self.known.read().clone();
        let policy = if replace { Policy::Replace } else { Policy::Load };
        let name = known.add(source, policy, seed, &self.states)?;
        *self.known.write() = known;
        Ok(name)
    }

    /// FUNCTION RESTORE: adds all libraries, or none.
    pub fn restore(
        &self,
        sources: &[Vec<u8>],
        policy: Policy,
        mut seed: impl FnMut() -> u64,
    ) -> Result<(), Failure> {
        let mut added = KnownFunctions::default();
        for source in sources {
            added.add(source, Policy::Load, seed(), &self.states)?;
        }
        let mut known = match policy {
            Policy::Flush => KnownFunctions::default(),
            Policy::Load | Policy::Append | Policy::Replace => self.known.read().clone(),
        };
        known.join(added, policy)?;
        *self.known.write() = known;
        Ok(())
    }

    /// FUNCTION DELETE. Returns whether there was such a library.
    pub fn delete(&self, name: &[u8]) -> bool {
        self.known.write().remove(name)
    }

    /// FUNCTION FLUSH.
    pub fn flush(&self) {
        *self.known.write() = KnownFunctions::default();
    }

    /// All libraries, by name.
    pub fn all(&self) -> Vec<Arc<Library>> {
        self.known.read().libraries.values().cloned().collect()
    }

    /// Bytes of memory of the libraries' sources and names.
    pub fn memory(&self) -> usize {
        let known = self.known.read();
        let of = |library: &Arc<Library>| {
            let names = library.functions.iter().map(|f| size_of::<Function>() + f.name.len());
            size_of::<Library>() + library.source.len() + names.sum::<usize>()
        };
        known.libraries.values().map(of).sum()
    }

    /// Bytes of memory of the libraries' Lua states.
    pub fn state_memory(&self) -> usize {
        self.known.read().libraries.values().map(|library| library.memory()).sum()
    }

    /// The numbers of libraries and of functions.
    pub fn counts(&self) -> (usize, usize) {
        let known = self.known.read();
        (known.libraries.len(), known.functions.len())
    }

    /// The flags that a function has declared.
    pub fn flags(&self, name: &[u8]) -> Option<ScriptFlags> {
        let (library, at) = self.find(name)?;
        Some(library.functions[at].flags)
    }

    pub fn find(&self, name: &[u8]) -> Option<(Arc<Library>, usize)> {
        self.known.read().functions.get(&name.to_ascii_lowercase()).cloned()
    }
}

impl KnownFunctions {
    fn add(
        &mut self,
        source: &[u8],
        policy: Policy,
        seed: u64,
        states: &StateSource,
    ) -> Result<Vec<u8>, Failure> {
        let shebang = read_shebang(source)?;
        let name = shebang.name.unwrap_or_default();
        self.make_room(&name, policy)?;
        let library = Arc::new(Library::new(&name, source, shebang.code, seed, states)?);
        self.insert(&library)?;
        Ok(name)
    }

    /// Adds other libraries. First it removes all libraries that they replace, as a new library may
    /// take over a function of an old one.
    fn join(&mut self, others: Self, policy: Policy) -> Result<(), Failure> {
        for name in others.libraries.keys() {
            self.make_room(name, policy)?;
        }
        others.libraries.values().try_for_each(|library| self.insert(library))
    }

    /// Removes the library of this name, if there is one and may be replaced.
    fn make_room(&mut self, name: &[u8], policy: Policy) -> Result<(), Failure> {
        if policy != Policy::Replace && self.libraries.contains_key(name) {
            let name = String::from_utf8_lossy(name);
            // Valkey shows the quotes only for FUNCTION LOAD.
            let name = if policy == Policy::Load { format!("'{name}'") } else { name.into() };
            return Err(Failure::format(format!("ERR Library {name} already exists")));
        }
        self.remove(name);
        Ok(())
    }

    fn insert(&mut self, library: &Arc<Library>) -> Result<(), Failure> {
        for (at, function) in library.functions.iter().enumerate() {
            let place = (Arc::clone(library), at);
            if self.functions.insert(function.name.to_ascii_lowercase(), place).is_some() {
                let name = String::from_utf8_lossy(&function.name);
                return Err(Failure::format(format!("ERR Function {name} already exists")));
            }
        }
        self.libraries.insert(library.name.clone(), Arc::clone(library));
        Ok(())
    }

    fn remove(&mut self, name: &[u8]) -> bool {
        let Some(library) = self.libraries.remove(name) else { return false };
        for function in &library.functions {
            self.functions.remove(&function.name.to_ascii_lowercase());
        }
        true
    }
}

impl Library {
    fn new(
        name: &[u8],
        source: &[u8],
        code: usize,
        seed: u64,
        states: &StateSource,
    ) -> Result<Self, Failure> {
        if !Vm::has_room(&states.memory) {
            return Err(NO_MEMORY);
        }
        let mut state = Box::new(LuaState::new(Profile::Library, seed, states));
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let chunk = state.vm.compile(&source[code..], c"@user_function").map_err(|error| {
            Failure::format(format!("ERR Error compiling function: {}", text(error)))
        })?;
        let registered =
            state.vm.load_library(&mut LibraryLoading { started: Instant::now() }, chunk);
        let registered = registered.map_err(|error| {
            // The text names the place of the error twice; one is enough.
            let error = text(error);
            let error = error.rsplit_once(" script: on ").map_or(&error[..], |(text, _)| text);
            Failure::format(format!("ERR Error registering functions: {error}"))
        })?;
        state.vm.forget(chunk);
        if registered.is_empty() {
            return Err("ERR No functions registered".into());
        }
        let mut functions = Vec::<Function>::new();
        let mut names = HashSet::new();
        for Registration { name, description, flags, function } in registered {
            if !is_name(&name) {
                return Err(BAD_FUNCTION_NAME);
            }
            if !names.insert(name.to_ascii_lowercase()) {
                return Err("ERR Function already exists in the library".into());
            }
            let learned = Arc::default();
            functions.push(Function { name, description, flags, chunk: function, learned });
        }
        let memory = AtomicUsize::new(state.vm.memory());
        let state = Mutex::new(Some(state));
        let is_awaited = AtomicBool::new(false);
        let (name, source) = (name.to_vec(), source.to_vec());
        Ok(Self { name, source, functions, state, is_awaited, memory })
    }

    /// Bytes of memory of the Lua state. While a function runs, the value of its start or its last
    /// pause.
    pub fn memory(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }

    /// Publishes how much memory the state uses.
    pub fn show_memory(&self, state: &LuaState) {
        self.memory.store(state.vm.memory(), Ordering::Relaxed);
    }

    /// Takes the Lua state. Returns `None` if another thread has it.
    pub fn take_state(&self) -> Option<Box<LuaState>> {
        self.state.lock().take()
    }

    /// Notes that a client waits for the state. The caller then looks for the state once more, so
    /// that it cannot miss it.
    pub fn await_state(&self) {
        self.is_awaited.store(true, Ordering::SeqCst);
    }

    /// Puts the Lua state back. Returns whether a client waits for it.
    pub fn give_back(&self, state: Box<LuaState>) -> bool {
        self.show_memory(&state);
        *self.state.lock() = Some(state);
        self.is_awaited.load(Ordering::SeqCst) && self.is_awaited.swap(false, Ordering::SeqCst)
    }
}

/// Reads a library's first line.
fn read_shebang(source: &[u8]) -> Result<Shebang, Failure> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let shebang = Shebang::parse(source, true).map_err(|error| {
        Failure::format(match error {
            ShebangError::Endless | ShebangError::Quote => {
                "ERR Invalid library metadata".to_owned()
            }
            ShebangError::Engine(name) => format!("ERR Engine '{}' not found", text(&name)),
            ShebangError::Option(option) | ShebangError::Flag(option) => {
                format!("ERR Invalid metadata value given: {}", text(&option))
            }
            ShebangError::Double => {
                "ERR Invalid metadata value, name argument was given multiple times".to_owned()
            }
            ShebangError::Nameless => "ERR Library name was not given".to_owned(),
            ShebangError::Name => BAD_LIBRARY_NAME.to_owned(),
        })
    })?;
    if shebang.is_there { Ok(shebang) } else { Err("ERR Missing library metadata".into()) }
}

/// The host that a library's code finds while it is loaded.
struct LibraryLoading {
    started: Instant,
}

impl Host for LibraryLoading {
    fn call(&mut self, _: &[&[u8]], _: bool, _: usize, _: &mut Vec<u8>) -> Called {
        Called::Stop
    }

    fn logs(&self, level: Level) -> bool {
        is_logged(level)
    }

    fn log(&mut self, level: Level, message: &[u8]) {
        log_message(level, message);
    }

    fn set_replication(&mut self, _: u8) {}

    fn may_call(&mut self, _: &[&[u8]]) -> Option<bool> {
        None
    }

    fn watch(&mut self) -> Verdict {
        match self.started.elapsed() > LOADING_MAX {
            true => Verdict::Stop("FUNCTION LOAD timeout"),
            false => Verdict::GoOn,
        }
    }
}

/// How long the code of a library may run while it is loaded.
const LOADING_MAX: Duration = Duration::from_millis(500);

const NO_MEMORY: Failure = Failure::new(&"ERR the library needs more memory than scripts may have");
const BAD_LIBRARY_NAME: &str = "ERR Library names can only contain letters, numbers, or \
     underscores(_) and must be at least one character long";
const BAD_FUNCTION_NAME: Failure = Failure::new(
    &"ERR Function names can only contain letters, numbers, or underscores(_) and must be at least one character long",
);

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &[u8] = b"#!lua name=one\nserver.register_function('f', function() return 1 end)";
    const TWO: &[u8] = b"#!lua name=two\nserver.register_function('F', function() return 2 end)";

    #[test]
    fn libraries_come_whole_or_not_at_all() {
        let functions = Functions::new(Arc::new(StateSource::new(64 << 20)));
        assert_eq!(functions.load(ONE, false, 1), Ok(b"one".to_vec()));
        assert!(functions.load(ONE, false, 1).is_err() && functions.load(ONE, true, 1).is_ok());
        assert!(functions.load(TWO, false, 1).is_err());
        assert!(functions.restore(&[TWO.into()], Policy::Append, || 1).is_err());
        assert_eq!(functions.counts(), (1, 1));
        assert!(functions.restore(&[TWO.into()], Policy::Flush, || 1).is_ok());
        assert_eq!(functions.all()[0].name, b"two");
        assert!(!functions.delete(b"one") && functions.delete(b"two"));
        assert_eq!(functions.counts(), (0, 0));
    }

    #[test]
    fn a_restored_library_may_take_over_a_function_of_another_that_is_replaced() {
        let library = |name: &str, function: &str| {
            let code = format!("server.register_function('{function}', function() return 1 end)");
            format!("#!lua name={name}\n{code}").into_bytes()
        };
        let functions = Functions::new(Arc::new(StateSource::new(64 << 20)));
        let load = |source: &[u8]| functions.load(source, false, 1);
        assert!(load(&library("a", "f")).is_ok() && load(&library("b", "g")).is_ok());
        let swapped = [library("a", "g"), library("b", "f")];
        let error = functions.restore(&swapped, Policy::Append, || 1).unwrap_err();
        assert_eq!(error.text(), "ERR Library a already exists");
        assert!(functions.restore(&swapped, Policy::Replace, || 1).is_ok());
        assert_eq!(functions.find(b"f").unwrap().0.name, b"b");
        // A name of a library that is taken is reported before a name of a function.
        let both = [library("a", "f"), library("c", "f")];
        let error = functions.restore(&both[1..], Policy::Replace, || 1).unwrap_err();
        assert_eq!(error.text(), "ERR Function f already exists");
        let error = functions.restore(&both, Policy::Append, || 1).unwrap_err();
        assert_eq!(error.text(), "ERR Function f already exists");
        assert_eq!(functions.counts(), (2, 2));
    }

    #[test]
    fn names_within_a_library_differ_by_more_than_case() {
        let functions = Functions::new(Arc::new(StateSource::new(64 << 20)));
        let register = |last: &str| {
            let all = "for i = 1, 5000 do server.register_function('F' .. i, print) end";
            let last = format!("server.register_function('{last}', print)");
            format!("#!lua name=l\nlocal print = function() end {all} {last}").into_bytes()
        };
        let error = functions.load(&register("f4999"), false, 1).unwrap_err();
        assert_eq!(error.text(), "ERR Function already exists in the library");
        assert!(functions.load(&register("f5001"), false, 1).is_ok());
        assert_eq!(functions.counts(), (1, 5001));
    }

    #[test]
    fn code_that_never_ends_is_not_loaded() {
        let functions = Functions::new(Arc::new(StateSource::new(64 << 20)));
        let error = functions.load(b"#!lua name=l\nwhile true do end", false, 1);
        assert!(error.is_err_and(|error| error.text().contains("timeout")));
    }
}
