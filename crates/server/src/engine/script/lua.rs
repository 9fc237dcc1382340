//! A worker's Lua state, and the scripts that it has compiled.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bobbin_script::{Api, Chunk, MemoryPool, Profile, Vm};
use bobbin_store::{KeyHash, Keyspace};
use bobbin_sync::OwnLine;

use super::cache::{Habits, Script, Scripts, Sha};
use crate::engine::acl::Rights;
use crate::engine::client::Client;
use crate::engine::clients::ClientInfo;
use crate::engine::command::{Data, Failure};
use crate::engine::server::Server;

/// What Lua states are made with.
pub struct StateSource {
    /// The memory that all Lua states share.
    pub memory: Arc<MemoryPool>,
    /// The value of `lua-enable-insecure-api`, for states that are made from now on.
    is_insecure: AtomicBool,
}

/// A Lua state, and the client that runs its commands.
pub struct LuaState {
    pub vm: Vm,
    pub client: Client,
}

impl StateSource {
    /// All states together may use at most `memory_max` bytes.
    pub fn new(memory_max: usize) -> Self {
        let memory = Arc::new(MemoryPool::new(memory_max));
        Self { memory, is_insecure: AtomicBool::new(false) }
    }

    /// Sets whether new states have the insecure functions. Returns whether that is a change.
    pub fn allow_insecure(&self, is_insecure: bool) -> bool {
        self.is_insecure.swap(is_insecure, Ordering::SeqCst) != is_insecure
    }

    fn api(&self) -> Api {
        if self.is_insecure.load(Ordering::SeqCst) { Api::Insecure } else { Api::Safe }
    }
}

impl LuaState {
    pub fn new(profile: Profile, seed: u64, source: &StateSource) -> Self {
        let info = ClientInfo::new(0, -1, "lua".into(), "lua".into(), false, 0);
        Self {
            vm: Vm::new(profile, source.api(), seed, Arc::clone(&source.memory)),
            client: Client::new(Arc::new(info), Rights::unlimited()),
        }
    }
}

/// A Lua state and its compiled scripts.
pub struct Lua {
    pub state: LuaState,
    /// `Scripts::generation` when the state was made.
    generation: u64,
    compiled: Vec<Arc<Compiled>>,
    /// The place in `compiled` of the script that was looked up last. Most calls run that script,
    /// and comparing sources costs less than hashing.
    recent: usize,
    by_source: HashMap<u64, usize, BuildHasherDefault<Hashed>>,
    by_sha: HashMap<Sha, usize>,
    /// Bytes of the sources of all compiled scripts. When they reach `sweep_at`, forgotten scripts
    /// are freed.
    source_bytes: usize,
    sweep_at: usize,
    /// `Scripts::evicted` when forgotten scripts were last freed.
    swept: u64,
    /// `Scripts::replaced` when copies of scripts were last taken.
    exchanged: u64,
    /// The memory of the state in bytes, for other threads to read.
    memory: Arc<OwnLine<AtomicUsize>>,
}

/// A script and its compiled form in this worker's state. Each run counts a reference, so the
/// counter lies on cache lines that no other worker writes.
#[repr(align(128))]
pub struct Compiled {
    pub script: Arc<Script>,
    pub chunk: Chunk,
}

/// The most scripts of a state. Beyond that, a new state replaces it.
const COMPILED_MAX: usize = 4096;
/// How many bytes of sources of forgotten scripts a state may keep, beside a quarter of the bytes
/// of known ones.
const FORGOTTEN_BYTES: usize = 1 << 20;

/// The most idle states that a worker keeps. It needs more than one while scripts go on in slices.
pub const STATES_KEPT: usize = 4;

impl Lua {
    fn new(server: &Server, seed: u64) -> Self {
        Self {
            generation: server.scripts.generation(),
            state: LuaState::new(Profile::Scripts, seed, server.scripts.state_source()),
            compiled: Vec::new(),
            recent: 0,
            by_source: HashMap::default(),
            by_sha: HashMap::new(),
            source_bytes: 0,
            sweep_at: FORGOTTEN_BYTES,
            swept: server.scripts.evicted(),
            exchanged: server.scripts.replaced(),
            memory: server.scripts.add_state(),
        }
    }

    /// Takes an idle state of the worker, or makes one. The state knows of SCRIPT FLUSH.
    pub fn of_worker(server: &Server, data: &mut Data) -> Box<Self> {
        match data.lua.pop() {
            Some(mut lua) => {
                lua.refresh(server, || data.random.next_u64());
                lua
            }
            None => Box::new(Self::new(server, data.random.next_u64())),
        }
    }

    /// Gives the state back to a worker. It is dropped if the worker has `STATES_KEPT` of them.
    pub fn give_back(self: Box<Self>, data: &mut Data) {
        self.show_memory();
        if data.lua.len() < STATES_KEPT {
            data.lua.push(self);
        }
    }

    /// Publishes how much memory the state uses.
    pub fn show_memory(&self) {
        let memory = self.state.vm.memory();
        if self.memory.0.load(Ordering::Relaxed) != memory {
            self.memory.0.store(memory, Ordering::Relaxed);
        }
    }

    /// Frees the scripts of a worker's idle states that were forgotten or replaced since the last
    /// call.
    pub fn tidy(server: &Server, data: &mut Data) {
        let (generation, evicted) = (server.scripts.generation(), server.scripts.evicted());
        let replaced = server.scripts.replaced();
        data.lua.retain_mut(|lua| {
            if lua.swept != evicted {
                lua.swept = evicted;
                lua.sweep();
            }
            if lua.exchanged != replaced {
                lua.exchanged = replaced;
                lua.exchange(&server.scripts);
            }
            lua.generation == generation
        });
    }

    /// Frees the compiled scripts that were forgotten to make room for others.
    #[cold]
    fn sweep(&mut self) {
        let mut places = Vec::with_capacity(self.compiled.len());
        let mut kept = 0;
        self.compiled.retain(|compiled| {
            let is_kept = !compiled.script.is_evicted();
            places.push(is_kept.then_some(kept));
            kept += usize::from(is_kept);
            if !is_kept {
                self.source_bytes -= compiled.script.source.len();
                self.state.vm.forget(compiled.chunk);
            }
            is_kept
        });
        let follow = |at: &mut usize| places[*at].map(|place| *at = place).is_some();
        self.by_source.retain(|_, at| follow(at));
        self.by_sha.retain(|_, at| follow(at));
        self.recent = 0;
        self.sweep_at = self.source_bytes + self.source_bytes / 4 + FORGOTTEN_BYTES;
    }

    /// Takes the copies of scripts that were replaced, so that their memory is given back.
    #[cold]
    fn exchange(&mut self, scripts: &Scripts) {
        for compiled in &mut self.compiled {
            if compiled.script.is_replaced()
                && let Some(script) = scripts.find(&compiled.script.sha)
            {
                *compiled = Arc::new(Compiled { script, chunk: compiled.chunk });
            }
        }
    }

    /// Replaces the state after SCRIPT FLUSH, or if it has too many scripts.
    fn refresh(&mut self, server: &Server, seed: impl FnOnce() -> u64) {
        if self.generation != server.scripts.generation() || self.compiled.len() >= COMPILED_MAX {
            *self = Self::new(server, seed());
        }
    }

    /// The place in `compiled` of the script with this source. The script is compiled if it is new.
    #[inline]
    pub fn of_source(
        &mut self,
        server: &Server,
        keyspace: &Keyspace,
        source: &[u8],
    ) -> Result<usize, Failure> {
        self.recent = match self.find_source(keyspace, source) {
            Some(at) if self.is_known(server, at) => at,
            _ => self.add_source(server, source, keyspace.hash(source))?,
        };
        Ok(self.recent)
    }

    /// Whether the script at this place, which is about to be used, was not forgotten.
    #[inline]
    fn is_known(&self, server: &Server, at: usize) -> bool {
        let script = &self.compiled[at].script;
        script.note_use(&server.scripts);
        !script.is_evicted()
    }

    #[inline]
    fn find_source(&self, keyspace: &Keyspace, source: &[u8]) -> Option<usize> {
        let is_at = |&at: &usize| {
            self.compiled.get(at).is_some_and(|compiled| *compiled.script.source == *source)
        };
        Some(self.recent)
            .filter(is_at)
            .or_else(|| self.by_source.get(&keyspace.hash(source).0).copied().filter(is_at))
    }

    #[inline]
    fn find_sha(&self, sha: &[u8]) -> Option<usize> {
        let is_recent = |compiled: &Arc<Compiled>| compiled.script.sha.eq_ignore_ascii_case(sha);
        if self.compiled.get(self.recent).is_some_and(is_recent) {
            return Some(self.recent);
        }
        let sha = <Sha>::try_from(sha).ok()?.map(|byte| byte.to_ascii_lowercase());
        self.by_sha.get(&sha).copied()
    }

    #[cold]
    fn add_source(
        &mut self,
        server: &Server,
        source: &[u8],
        hash: KeyHash,
    ) -> Result<usize, Failure> {
        let script = Script::parse(source)?;
        let at = match self.by_sha.get(&script.sha) {
            Some(&at) if self.is_known(server, at) => at,
            _ => {
                let chunk = self.compile(&script)?;
                let script = server.scripts.add(script, false);
                self.keep(script, chunk)
            }
        };
        self.by_source.insert(hash.0, at);
        Ok(at)
    }

    /// The place in `compiled` of the script with this SHA-1; `None` if there is no such script.
    #[inline]
    pub fn of_sha(&mut self, server: &Server, sha: &[u8]) -> Result<Option<usize>, Failure> {
        self.recent = match self.find_sha(sha) {
            Some(at) if self.is_known(server, at) => at,
            _ => {
                let Ok(sha) = <Sha>::try_from(sha) else { return Ok(None) };
                let sha = sha.map(|byte| byte.to_ascii_lowercase());
                let Some(script) = server.scripts.find(&sha) else { return Ok(None) };
                script.note_use(&server.scripts);
                let chunk = self.compile(&script)?;
                self.keep(script, chunk)
            }
        };
        Ok(Some(self.recent))
    }

    /// Whether the script of a command of this name is known to use only the keys that it declares.
    pub fn keeps_to_keys(&self, command: &str, script: &[u8], keyspace: &Keyspace) -> bool {
        let at = match command {
            "eval" | "eval_ro" => self.find_source(keyspace, script),
            "evalsha" | "evalsha_ro" => self.find_sha(script),
            // A function waits for the state of its library, and must not hold shards meanwhile.
            _ => None,
        };
        at.is_some_and(|at| self.compiled[at].script.learned.habits() == Habits::Declared)
    }

    /// SCRIPT LOAD.
    pub fn load(&mut self, server: &Server, source: &[u8]) -> Result<Sha, Failure> {
        let script = Script::parse(source)?;
        let chunk = self.compile(&script)?;
        let script = server.scripts.add(script, true);
        let sha = script.sha;
        self.keep(script, chunk);
        Ok(sha)
    }

    fn compile(&mut self, script: &Script) -> Result<Chunk, Failure> {
        self.state.vm.compile(script.code(), c"@user_script").map_err(|text| {
            let text = String::from_utf8_lossy(&text);
            Failure::format(format!("ERR Error compiling script (new function): {text}"))
        })
    }

    fn keep(&mut self, script: Arc<Script>, chunk: Chunk) -> usize {
        if self.source_bytes >= self.sweep_at {
            self.sweep();
        }
        let (at, sha) = (self.compiled.len(), script.sha);
        self.source_bytes += script.source.len();
        let compiled = Arc::new(Compiled { script, chunk });
        if let Some(&old) = self.by_sha.get(&sha) {
            // The script was forgotten and has come back. Its old compiled form is freed.
            let replaced = std::mem::replace(&mut self.compiled[old], compiled);
            self.source_bytes -= replaced.script.source.len();
            self.state.vm.forget(replaced.chunk);
            return old;
        }
        self.by_sha.insert(sha, at);
        self.compiled.push(compiled);
        at
    }

    /// A compiled script by its place. No other worker shares its reference count, so the count
    /// stays in the cache of one core.
    pub fn compiled(&self, at: usize) -> Arc<Compiled> {
        Arc::clone(&self.compiled[at])
    }
}

/// A hasher for keys that are hashes already.
#[derive(Default)]
pub struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        debug_assert!(false, "only hashes are hashed: {bytes:?}");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use bobbin_store::Defragmenter;

    use super::*;
    use crate::config::Config;
    use crate::embedded::Embedded;

    #[test]
    fn an_idle_state_gives_up_scripts_that_were_replaced() {
        let mut embedded = Embedded::new(Config::new(), 1).expect("it starts");
        let mut session = embedded.connect();
        for number in 0..3 {
            let source = format!("return {number}");
            let request = format!("EVAL \"{source}\" 0\r\n");
            let reply = embedded.feed(&mut session, request.as_bytes());
            assert_eq!(reply, format!(":{number}\r\n").as_bytes());
        }
        let server = embedded.server();
        let sha = crate::engine::script::cache::sha_of(b"return 1");
        let mut is_sparse = |_: NonNull<u8>| true;
        let mut step = Defragmenter::new(64, &mut is_sparse);
        server.scripts.defragment(&[sha], &mut step);
        let is_known = |data: &Data| {
            let script = &data.lua[0].compiled[1].script;
            Arc::ptr_eq(script, &server.scripts.find(&sha).expect("it is known"))
        };
        assert!(!is_known(embedded.data()));
        Lua::tidy(server, embedded.data());
        assert!(is_known(embedded.data()));
        assert_eq!(embedded.feed(&mut session, b"EVAL \"return 1\" 0\r\n"), b":1\r\n");
        assert_eq!(embedded.data().lua[0].compiled.len(), 3);
    }
}
