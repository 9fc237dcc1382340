//! One Lua state, with bounds on its memory and a watch on its time.

use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use std::sync::Arc;

use bobbin_resp::{Protocol, Reply};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use mlua_sys as lua;

use crate::convert;
use crate::host::Host;
use crate::sandbox;
use crate::state::budget::{NO_MEMORY, Output};
use crate::state::hash::{self, Chains};
use crate::state::json::JsonOptions;
use crate::state::pool::MemoryPool;
use crate::state::raw::{
    LUA_GLOBALSINDEX, LUA_TBOOLEAN, LUA_TNIL, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, Raise,
    Returned, Stack, lua_Debug, lua_function,
};
use crate::state::{
    Api, Chunk, Core, Profile, Registration, RegistryValues, ScriptFailure, allocate, is_text,
};

/// A Lua state.
pub struct Vm {
    core: NonNull<Core>,
    /// The script that runs, on a stack of its own, so that it can pause wherever it is.
    fiber: Option<Fiber>,
    /// The stack, while nothing runs.
    stack: Option<DefaultStack>,
}

type Fiber = Coroutine<(), (), c_int, DefaultStack>;

/// What became of a script that was started or resumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScriptProgress {
    /// It is over: `Vm::finish` tells how.
    Over,
    /// Its host let it pause: `Vm::resume` has it go on.
    Paused,
}

// SAFETY: a Lua state and its core are bound to no thread, and only the owner of the `Vm` uses
// them. The fiber of a script that pauses may go on in another thread too: what lies on its stack
// are Lua's functions and ours (`look`, `run`), none of which keeps a reference to something of a
// thread across a pause. Its host, which may be a thread's, is named anew by `set_host`, as its
// users promise.
unsafe impl Send for Vm {}

/// How a script ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its reply was appended.
    Replied,
    /// It failed, or answered with an error; the reply without its `-`. `counted`: the error was a
    /// command's, and was counted there.
    Failed { text: Vec<u8>, counted: bool },
    /// Its host stopped it.
    Stopped,
}

/// A script's stack, in bytes of addresses: what two hundred nested calls of C functions take, and
/// a command of ours on top.
const STACK_BYTES: usize = 8 << 20;
impl Vm {
    /// A state for scripts or for a library, with memory of this pool. `seed` decides what
    /// `math.random` gives.
    pub fn new(profile: Profile, api: Api, seed: u64, pool: Arc<MemoryPool>) -> Self {
        let core = Box::new(Core::new(profile, api, seed, pool));
        let core = NonNull::from(Box::leak(core));
        hash::ensure_key();
        // SAFETY: `allocate` does what Lua asks of an allocator. The core that it is given is
        // leaked here and freed by `drop`, after the state is closed.
        let state = unsafe { lua::lua_newstate(allocate, core.as_ptr().cast()) };
        assert!(!state.is_null(), "there is memory for a Lua state");
        let vm = Self { core, fiber: None, stack: None };
        let core = vm.core();
        core.state.set(state);
        vm.set_up();
        core.hosted.set(0);
        core.budget.settle(core.used.get());
        core.collected.set(core.used.get());
        vm
    }

    fn set_up(&self) {
        let (stack, core) = (self.stack(), self.core());
        sandbox::open(stack, core);
        let mut kept = RegistryValues::default();
        stack.copy(LUA_GLOBALSINDEX);
        kept.globals = stack.keep();
        stack.push_bytes(b"KEYS");
        kept.keys = stack.keep();
        stack.push_bytes(b"ARGV");
        kept.arguments = stack.keep();
        stack.push_bytes(b"ok");
        kept.ok = stack.keep();
        stack.push_bytes(b"OK");
        kept.ok_text = stack.keep();
        stack.push_function(handle_error);
        kept.handler = stack.keep();
        core.kept.set(kept);
        sandbox::close(stack);
        stack.set_top(0);
        core.set_running(stack.state());
    }

    fn core(&self) -> &Core {
        // SAFETY: the core was leaked by `new` and is freed by `drop` alone. There are only shared
        // references to it.
        unsafe { self.core.as_ref() }
    }

    fn stack(&self) -> Stack {
        self.core().main()
    }

    /// Whether the pool has memory for another state.
    pub fn has_room(pool: &MemoryPool) -> bool {
        pool.leased() < pool.limit()
    }

    /// Bytes of memory that the state takes.
    pub fn memory(&self) -> usize {
        self.core().used.get()
    }

    /// The most bytes that the state and what was encoded have taken since it was made.
    pub fn memory_peak(&self) -> usize {
        self.core().budget.peak()
    }

    /// How long the chains of the state's hash tables are.
    pub fn longest_chains(&self) -> Chains {
        // SAFETY: the state is alive until `drop`. Nothing uses it: a script runs only while `self`
        // is borrowed exclusively. One that pauses does so between two steps of Lua, or before a
        // block is made or resized; Lua's tables are whole then.
        unsafe { hash::chains(self.stack().state()) }
    }

    /// Compiles a script; the error is Lua's text. `name` is what errors call it, behind `@`.
    pub fn compile(&mut self, code: &[u8], name: &CStr) -> Result<Chunk, Vec<u8>> {
        let stack = self.stack();
        let loaded = is_text(code) && stack.load(code, name);
        self.core().set_running(stack.state());
        let result = if loaded {
            Ok(Chunk(self.hosted(Stack::keep)))
        } else {
            let text = self.hosted(|stack| stack.bytes(-1).map(<[u8]>::to_vec));
            Err(text.unwrap_or_else(|| b"it is not text".to_vec()))
        };
        stack.set_top(0);
        result
    }

    /// Frees what `compile` made.
    pub fn forget(&mut self, chunk: Chunk) {
        self.hosted(|stack| stack.forget(chunk.0));
    }

    /// Starts a script, or a function of a library. Its keys and arguments are copied; its reply
    /// will be in this protocol.
    ///
    /// # Safety
    /// The host lives where it is, and nothing else uses it while the script runs, until the script
    /// is over; or until `set_host` named another, while it pauses.
    pub unsafe fn start(
        &mut self,
        host: NonNull<dyn Host>,
        chunk: Chunk,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        protocol: Protocol,
    ) -> ScriptProgress {
        let (stack, core) = (self.stack(), self.core());
        self.begin(host);
        core.protocol.set(protocol);
        let kept = core.kept.get();
        core.hosted.set(1);
        stack.push_kept(kept.handler);
        stack.push_kept(chunk.0);
        if core.api == Api::Insecure {
            // Another run may have given it an environment of its own.
            stack.copy(LUA_GLOBALSINDEX);
            stack.set_environment(-2);
        }
        let mut count = 0;
        if core.profile == Profile::Scripts {
            stack.push_kept(kept.globals);
            stack.push_kept(kept.keys);
            push_list(stack, keys);
            stack.raw_set(-3);
            stack.push_kept(kept.arguments);
            push_list(stack, arguments);
            stack.raw_set(-3);
            stack.pop(1);
        } else {
            push_list(stack, keys);
            push_list(stack, arguments);
            count = 2;
        }
        core.hosted.set(0);
        self.enter(count, 1)
    }

    /// Has a script go on that paused.
    pub fn resume(&mut self) -> ScriptProgress {
        let Some(fiber) = &mut self.fiber else { return ScriptProgress::Over };
        match fiber.resume(()) {
            CoroutineResult::Yield(()) => ScriptProgress::Paused,
            CoroutineResult::Return(status) => {
                self.stack = self.fiber.take().map(Coroutine::into_stack);
                self.core().status.set(status);
                self.core().yielder.set(std::ptr::null());
                ScriptProgress::Over
            }
        }
    }

    /// Names another host for the script that pauses.
    ///
    /// # Safety
    /// This host lives as `start` asks of the other one.
    pub unsafe fn set_host(&mut self, host: NonNull<dyn Host>) {
        self.core().host.set(Some(host));
    }

    /// How the script ended that is over; its reply is appended unless it failed.
    pub fn finish(&mut self, reply: &mut Reply<'_>) -> Ended {
        let ended = self.end(reply);
        self.stack().set_top(0);
        let core = self.core();
        core.budget.settle_between(core.used.get());
        ended
    }

    /// Ends a script that pauses, without asking its host anything more.
    pub fn abandon(&mut self) {
        if self.fiber.is_some() {
            self.core().host.set(None);
            self.core().note_stop(self.stack().state(), "abandoned");
            while self.resume() == ScriptProgress::Paused {}
            self.end(&mut Reply::new(&mut Vec::new(), Protocol::Resp2));
            self.stack().set_top(0);
        }
    }

    /// Runs a library's code, which registers its functions. The error is a text for the client.
    pub fn load_library(
        &mut self,
        host: &mut dyn Host,
        chunk: Chunk,
    ) -> Result<Vec<Registration>, Vec<u8>> {
        let stack = self.stack();
        *self.core().registered.borrow_mut() = Some(Vec::new());
        // SAFETY: only the lifetime changes. The host is taken out again below, before this
        // returns, and until then it is borrowed.
        self.begin(unsafe {
            std::mem::transmute::<NonNull<dyn Host + '_>, NonNull<dyn Host>>(NonNull::from(host))
        });
        self.hosted(sandbox::begin_loading);
        stack.push_kept(self.core().kept.get().handler);
        stack.push_kept(chunk.0);
        while self.enter(0, 0) == ScriptProgress::Paused {}
        self.hosted(sandbox::end_loading);
        let core = self.core();
        core.host.set(None);
        core.hosted.set(0);
        core.budget.settle(core.used.get());
        let registered = core.registered.borrow_mut().take().unwrap_or_default();
        let failure = core.failure.borrow_mut().take();
        stack.set_top(0);
        if core.status.get() == lua::LUA_OK {
            return Ok(registered);
        }
        Err(failure
            .map_or_else(|| [b"ERR ", NO_MEMORY.as_bytes()].concat(), |failure| failure.text))
    }

    /// Calls the function that lies on the stack above the handler of errors, with the arguments
    /// above it.
    fn enter(&mut self, arguments: c_int, results: c_int) -> ScriptProgress {
        let stack = self.stack.take().unwrap_or_else(|| {
            DefaultStack::new(STACK_BYTES).expect("there is address space for a stack")
        });
        let core = self.core;
        self.fiber = Some(Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            // SAFETY: the core is freed by `drop` alone, which ends the fiber first. There are only
            // shared references to it.
            let core = unsafe { core.as_ref() };
            core.yielder.set(yielder);
            run(core, arguments, results)
        }));
        self.resume()
    }

    fn begin(&self, host: NonNull<dyn Host>) {
        let core = self.core();
        core.host.set(Some(host));
        core.resp3.set(false);
        core.stopping.set(None);
        *core.json.borrow_mut() = JsonOptions::default();
        *core.failure.borrow_mut() = None;
        *core.reply.borrow_mut() = None;
    }

    fn end(&self, reply: &mut Reply<'_>) -> Ended {
        let (stack, core) = (self.stack(), self.core());
        core.host.set(None);
        core.hosted.set(1);
        let stopping = core.stopping.take();
        if stopping.is_some() {
            core.set_running(stack.state());
        }
        let failure = core.failure.borrow_mut().take();
        let converted = core.reply.borrow_mut().take();
        let ended = if stopping == Some("") {
            Ended::Stopped
        } else if let (Some(converted), None) = (converted, stopping) {
            reply.raw(&converted);
            core.put_reply(converted);
            Ended::Replied
        } else if core.status.get() == lua::LUA_OK && stopping.is_none() && failure.is_none() {
            convert::append_simple(stack, core.resp3.get(), reply);
            Ended::Replied
        } else if let Some(ScriptFailure { text, counted }) = failure {
            Ended::Failed { text, counted }
        } else {
            let text = match stopping {
                Some(text) => [b"ERR ", text.as_bytes()].concat(),
                None => [b"ERR ", NO_MEMORY.as_bytes()].concat(),
            };
            Ended::Failed { text, counted: false }
        };
        core.hosted.set(0);
        ended
    }

    /// Calls a function for which memory must not be short.
    fn hosted<R>(&self, work: impl FnOnce(Stack) -> R) -> R {
        self.core().hosted.set(1);
        let result = work(self.stack());
        self.core().hosted.set(0);
        result
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        self.abandon();
        // SAFETY: no script runs any more, and the state is not used afterwards.
        unsafe { lua::lua_close(self.stack().state()) };
        self.core().budget.settle(0);
        // SAFETY: the core was a box, and with the state the last that used it is gone.
        drop(unsafe { Box::from_raw(self.core.as_ptr()) });
    }
}

/// Calls what lies on the stack, and has its result converted and its garbage collected, all of
/// which may pause.
fn run(core: &Core, arguments: c_int, results: c_int) -> c_int {
    let stack = core.main();
    let mut status = stack.protected_call(arguments, results, 1);
    core.set_running(stack.state());
    core.hosted.set(1);
    if status == lua::LUA_OK
        && results == 1
        && !core.is_stopping()
        && stack.kind(-1) == LUA_TTABLE
        && convert_result(core, stack).is_err()
    {
        status = lua::LUA_ERRRUN;
    }
    core.collect_garbage();
    core.hosted.set(0);
    status
}

/// Converts the table on top to a reply, or to what the script failed with.
fn convert_result(core: &Core, stack: Stack) -> Result<(), Raise> {
    if let Some((text, counted)) = convert::error_of(stack) {
        *core.failure.borrow_mut() = Some(ScriptFailure { text, counted });
        return Err(Raise);
    }
    let mut output = Output::reusing(stack, core, core.take_reply());
    let converted =
        convert::append_result(stack, core.resp3.get(), core.protocol.get(), &mut output);
    if let Err(Raise) = converted {
        let text = [b"ERR ", stack.bytes(-1).unwrap_or_default()].concat();
        *core.failure.borrow_mut() = Some(ScriptFailure { text, counted: false });
        return Err(Raise);
    }
    *core.reply.borrow_mut() = Some(output.take());
    Ok(())
}

fn push_list(stack: Stack, values: &[&[u8]]) {
    stack.push_table(values.len(), 0);
    for (index, value) in (1..).zip(values) {
        stack.push_bytes(value);
        stack.raw_set_at(-2, index);
    }
}

lua_function!(handle_error, describe_error);

/// Notes what an error that was not caught is answered with, while the place where it happened is
/// still to be seen.
fn describe_error(stack: Stack) -> Returned {
    let core = stack.core();
    let mut counted = false;
    let mut text = match stack.kind(1) {
        LUA_TTABLE => {
            stack.push_field(1, convert::COUNTED_FIELD);
            counted = stack.boolean(-1);
            stack.push_field(1, b"err");
            match stack.kind(-1) {
                LUA_TSTRING | LUA_TNUMBER => stack.bytes(-1).unwrap_or_default().to_vec(),
                _ => b"ERR unknown error".to_vec(),
            }
        }
        LUA_TNIL => b"ERR nil".to_vec(),
        LUA_TBOOLEAN => format!("ERR {}", stack.boolean(1)).into_bytes(),
        _ => match stack.bytes(1) {
            Some(bytes) => [b"ERR ", bytes].concat(),
            None => format!("ERR {}", stack.kind_name(1)).into_bytes(),
        },
    };
    if let Some((source, line)) = place(stack) {
        text.extend_from_slice(format!(" script: on {source}:{line}.").as_bytes());
    }
    *core.failure.borrow_mut() = Some(ScriptFailure { text, counted });
    stack.copy(1);
    Ok(1)
}

/// Where the error happened: the script's name and line. A function of ours is not the place, but
/// its caller is.
fn place(stack: Stack) -> Option<(String, c_int)> {
    let mut found = None;
    for level in 1..=2 {
        let mut record = MaybeUninit::<lua_Debug>::zeroed();
        // SAFETY: the state is live, and the record is one for Lua to write to.
        if unsafe { lua::lua_getstack(stack.state(), level, record.as_mut_ptr()) } == 0 {
            break;
        }
        // SAFETY: Lua has found the level, and fills in what the letters stand for. All zeros are a
        // record, too: numbers, texts that may be null, and bytes.
        let record = unsafe {
            lua::lua_getinfo(stack.state(), c"Sl".as_ptr(), record.as_mut_ptr());
            record.assume_init()
        };
        // SAFETY: `S` has filled in both texts. They live as long as the function that they are of,
        // which is being called.
        let (source, what) =
            unsafe { (CStr::from_ptr(record.source), CStr::from_ptr(record.what)) };
        found = Some((source.to_string_lossy().into_owned(), record.currentline));
        if what != c"C" {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api;
    use crate::host::{Called, Level, Verdict};

    /// Counts the commands that it carries out.
    struct Counting(u32);

    impl Host for Counting {
        fn call(&mut self, _: &[&[u8]], _: bool, _: usize, reply: &mut Vec<u8>) -> Called {
            self.0 += 1;
            reply.extend_from_slice(b"+OK\r\n");
            Called::Replied
        }
        fn logs(&self, _: Level) -> bool {
            false
        }
        fn log(&mut self, _: Level, _: &[u8]) {}
        fn set_replication(&mut self, _: u8) {}
        fn may_call(&mut self, _: &[&[u8]]) -> Option<bool> {
            None
        }
        fn watch(&mut self) -> Verdict {
            Verdict::GoOn
        }
    }

    /// Functions of C may call others without an instruction of Lua between, at which the script
    /// would end.
    #[test]
    fn a_script_that_is_to_end_runs_no_commands() {
        let vm = Vm::new(Profile::Scripts, Api::Safe, 1, Arc::new(MemoryPool::new(64 << 20)));
        let mut host = Counting(0);
        vm.begin(NonNull::from(&mut host));
        let (stack, core) = (vm.stack(), vm.core());
        let calls = |function| {
            stack.set_top(0);
            stack.push_function(function);
            stack.push_bytes(b"PING");
            stack.protected_call(1, 1, 0)
        };
        assert_eq!([calls(api::call), calls(api::pcall)], [lua::LUA_OK; 2]);
        core.note_stop(stack.state(), "Script killed.");
        for function in [api::call as crate::state::raw::lua_CFunction, api::pcall] {
            assert_eq!(calls(function), lua::LUA_ERRRUN);
            assert_eq!(stack.bytes(-1), Some(&b"Script killed."[..]));
        }
        stack.set_top(0);
        core.host.set(None);
        assert_eq!(host.0, 2, "two commands before it was to end, and none after");
    }

    /// Lua refuses that number of arguments by an error, so `resume` does not return. The coroutine
    /// may be freed then, and what runs is looked at with the next large block.
    #[test]
    fn a_coroutine_that_was_not_resumed_does_not_run() {
        const REFUSED: &str = "
            local arguments = {}
            for i = 1, 7999 do arguments[i] = i end
            local coroutine_refused = coroutine.create(function() end)
            local function resumes()
                return coroutine.resume(coroutine_refused, 0, unpack(arguments))
            end";
        let vm = Vm::new(Profile::Scripts, Api::Safe, 1, Arc::new(MemoryPool::new(64 << 20)));
        let (stack, core) = (vm.stack(), vm.core());
        for catches in [
            "return pcall(resumes)",
            "return xpcall(resumes, function(text) return text end)",
            "return coroutine.resume(coroutine.create(resumes))",
        ] {
            let code = format!("{REFUSED} {catches}");
            assert!(stack.load(code.as_bytes(), c"=test"));
            assert_eq!(stack.protected_call(0, 2, 0), lua::LUA_OK);
            let text = stack.bytes(-1).unwrap_or_default();
            assert!(text.ends_with(b"too many arguments to resume"), "{catches}");
            assert_eq!(core.running(), stack.state(), "{catches}");
            stack.set_top(0);
        }
    }
}
