//! What belongs to a Lua state, as the functions that Lua calls see it: how much its script may
//! take, and whether that is to end.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use bobbin_resp::Protocol;
use corosensei::Yielder;
use mlua_sys as lua;

use crate::host::{Host, Verdict};
use crate::shebang::ScriptFlags;
use blocks::{Blocks, layout};
use budget::{Budget, CHARGED_BYTES};
use frame::Frame;
use json::JsonOptions;
use pool::MemoryPool;
use raw::{
    LUA_HOOKCOUNT, LUA_MASKCOUNT, LUA_MASKLINE, Raise, Stack, lua_CFunction, lua_Debug, lua_State,
};

mod blocks;
pub(crate) mod budget;
pub(crate) mod frame;
pub(crate) mod hash;
pub(crate) mod json;
pub(crate) mod pool;
pub(crate) mod raw;

/// What a state is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// Scripts, whose keys and arguments are globals.
    Scripts,
    /// A function library.
    Library,
}

/// Which of Lua's functions scripts have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Api {
    /// Those by which a script cannot change what others find.
    Safe,
    /// `getfenv`, `setfenv` and `newproxy` as well.
    Insecure,
}

/// A compiled script, or a function of a library. It is one state's; `Vm::forget` frees it.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct Chunk(pub(crate) c_int);

impl Chunk {
    /// A function that was kept by `Stack::keep`.
    pub(crate) const fn of_kept(reference: c_int) -> Self {
        Self(reference)
    }
}

/// A function that a library registers.
#[derive(Debug, PartialEq, Eq)]
pub struct Registration {
    pub name: Vec<u8>,
    pub description: Option<Vec<u8>>,
    pub flags: ScriptFlags,
    pub function: Chunk,
}

/// Lua's own functions behind those that are wrapped.
#[derive(Clone, Copy)]
pub(crate) struct Base {
    pub(crate) setmetatable: lua_CFunction,
    pub(crate) rawset: lua_CFunction,
    pub(crate) next: lua_CFunction,
    pub(crate) sort: lua_CFunction,
    pub(crate) setn: lua_CFunction,
    pub(crate) resume: lua_CFunction,
    pub(crate) setfenv: lua_CFunction,
}

/// What belongs to a state and is reached from the functions that Lua calls.
///
/// It has many fields, as those functions get one pointer, whatever they need.
pub(crate) struct Core {
    pub(crate) state: Cell<*mut lua_State>,
    /// Bytes that Lua has.
    pub(crate) used: Cell<usize>,
    blocks: Blocks,
    pub(crate) budget: Budget,
    /// Bytes that Lua had after its garbage was last collected as a whole.
    pub(crate) collected: Cell<usize>,
    /// How deep it is in functions of ours: they are not prepared for a lack of memory, and need
    /// little.
    pub(crate) hosted: Cell<u32>,
    pub(crate) host: Cell<Option<NonNull<dyn Host>>>,
    pub(crate) base: Cell<Option<Base>>,
    /// `setresp`: what commands answer in.
    pub(crate) resp3: Cell<bool>,
    /// The host stopped the script: whatever catches the error, it goes on. The text that it fails
    /// with; empty: nobody is told.
    pub(crate) stopping: Cell<Option<&'static str>>,
    /// By which the script that runs can pause.
    pub(crate) yielder: Cell<*const Yielder<(), ()>>,
    pub(crate) status: Cell<c_int>,
    /// What the failed script is answered with.
    pub(crate) failure: RefCell<Option<ScriptFailure>>,
    /// What it returned, if that is a table: as a reply of this protocol.
    pub(crate) protocol: Cell<Protocol>,
    pub(crate) reply: RefCell<Option<Vec<u8>>>,
    /// Memory of commands that are done, for the next.
    pub(crate) buffers: Cell<CallBuffers>,
    /// State of `math.random`.
    pub(crate) random: Cell<u64>,
    pub(crate) profile: Profile,
    pub(crate) api: Api,
    /// Functions of the library that is being loaded.
    pub(crate) registered: RefCell<Option<Vec<Registration>>>,
    pub(crate) kept: Cell<RegistryValues>,
    pub(crate) json: RefCell<JsonOptions>,
}

/// What a failed script is answered with.
pub(crate) struct ScriptFailure {
    pub(crate) text: Vec<u8>,
    pub(crate) counted: bool,
}

/// Values in the registry that every script needs.
#[derive(Clone, Copy, Default)]
pub(crate) struct RegistryValues {
    pub(crate) globals: c_int,
    pub(crate) keys: c_int,
    pub(crate) arguments: c_int,
    pub(crate) handler: c_int,
    /// The field of a status reply, and what is mostly in it.
    pub(crate) ok: c_int,
    pub(crate) ok_text: c_int,
}

/// Memory that a command of a script works in.
#[derive(Default)]
pub(crate) struct CallBuffers {
    pub(crate) reply: Vec<u8>,
    pub(crate) numbers: Vec<u8>,
    pub(crate) args: Vec<&'static [u8]>,
}

/// Garbage of fewer bytes than this is left to Lua, which collects it in passing.
const GARBAGE_KEPT: usize = 1 << 20;
/// KiB of memory that Lua looks at between two looks at the host.
const COLLECTED_KIB: c_int = 64;
/// Buffers that grew beyond this, in bytes, are given back.
const BUFFER_KEPT_MAX: usize = 64 * 1024;

impl Core {
    /// Of a state that is about to be made: functions of ours work on it first.
    pub(crate) fn new(profile: Profile, api: Api, seed: u64, pool: Arc<MemoryPool>) -> Self {
        Self {
            state: Cell::new(std::ptr::null_mut()),
            used: Cell::new(0),
            blocks: Blocks::default(),
            budget: Budget::new(pool),
            collected: Cell::new(0),
            hosted: Cell::new(1),
            host: Cell::new(None),
            base: Cell::new(None),
            resp3: Cell::new(false),
            stopping: Cell::new(None),
            yielder: Cell::new(std::ptr::null()),
            status: Cell::new(lua::LUA_OK),
            failure: RefCell::new(None),
            protocol: Cell::new(Protocol::Resp2),
            reply: RefCell::new(None),
            buffers: Cell::default(),
            random: Cell::new(seed),
            profile,
            api,
            registered: RefCell::new(None),
            kept: Cell::default(),
            json: RefCell::default(),
        }
    }

    /// The host of the running script.
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn host(&self) -> Option<&mut dyn Host> {
        // SAFETY: `Vm::start` and `set_host` ask that the host lives where it is while it is set
        // here. The reference is the only one: each caller uses it for one call of the host, which
        // does not come back to Lua, and only then goes on with Lua.
        self.host.get().map(|mut host| unsafe { host.as_mut() })
    }

    /// Whether the script is to end, whatever it does.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.get().is_some()
    }

    /// Has the script end with an error of this text (empty: nobody is told): from now on each of
    /// its lines raises it.
    pub(crate) fn stop(&self, stack: Stack, text: &'static str) -> Raise {
        let text = self.note_stop(stack.state(), text);
        stack.push_bytes(text.as_bytes());
        Raise
    }

    /// Has the script end as `stop` does, but does not raise the error now: Lua may be in the midst
    /// of anything. Returns the text that was noted first.
    pub(crate) fn note_stop(&self, state: *mut lua_State, text: &'static str) -> &'static str {
        let text = self.stopping.get().unwrap_or(text);
        self.stopping.set(Some(text));
        // A coroutine has a hook of its own.
        for state in [state, self.running(), self.state.get()] {
            // SAFETY: these states are alive: the caller's, the one that runs (see `caught`), and
            // our `Vm`'s. The hook is one for such states.
            unsafe { lua::lua_sethook(state, Some(watch), LUA_MASKCOUNT | LUA_MASKLINE, 1) };
        }
        text
    }

    /// The state that is no coroutine.
    pub(crate) fn main(&self) -> Stack {
        // SAFETY: the state is one of our `Vm`, which closes it before the core goes. The holder of
        // the core is that `Vm`, or a function that it called.
        unsafe { Stack::of(self.state.get()) }
    }

    /// To be called where errors end, with the state or coroutine that goes on. An error jumps over
    /// what was to be done after it: functions of ours do not work any more, and what was resumed
    /// may be freed soon.
    pub(crate) fn caught(&self, state: *mut lua_State) {
        self.hosted.set(0);
        self.set_running(state);
    }

    /// Collects what the script left, if that is much: it must not keep the next from running.
    pub(crate) fn collect_garbage(&self) {
        if self.used.get() > 2 * self.collected.get() + GARBAGE_KEPT {
            if self.reply.borrow().is_some() || self.failure.borrow().is_some() {
                self.main().set_top(0);
            }
            if self.collect(self.main()).is_ok() {
                self.collected.set(self.used.get());
            }
        }
    }

    /// Collects all garbage that there is by now, with looks at the host.
    pub(crate) fn collect(&self, stack: Stack) -> Result<(), ()> {
        // One that was begun may have passed what is garbage since.
        for _ in 0..2 {
            // SAFETY: the state is live. No finalizer runs in between: scripts can have none.
            while unsafe { lua::lua_gc(stack.state(), lua::LUA_GCSTEP, COLLECTED_KIB) } == 0 {
                if !self.look(stack) {
                    return Err(());
                }
            }
        }
        Ok(())
    }

    /// Asks the host whether the script may go on, and lets it pause if that is wanted; `false`: it
    /// is to end, by `raise_stop`.
    pub(crate) fn look(&self, stack: Stack) -> bool {
        if self.is_stopping() {
            return false;
        }
        match self.host().map_or(Verdict::GoOn, |host| host.watch()) {
            Verdict::GoOn => true,
            Verdict::Pause => {
                self.pause();
                !self.is_stopping()
            }
            Verdict::Stop(text) => {
                self.note_stop(stack.state(), text);
                false
            }
        }
    }

    /// Pauses the script that calls this.
    fn pause(&self) {
        let yielder = self.yielder.get();
        if !yielder.is_null() {
            // SAFETY: the fiber that runs this put it there when it began (`Vm::enter`), and takes
            // it out when it ends. It lies on the fiber's own stack, so it lives until then.
            unsafe { (*yielder).suspend(()) };
        }
    }

    pub(crate) fn take_reply(&self) -> Vec<u8> {
        let mut buffers = self.buffers.take();
        let reply = std::mem::take(&mut buffers.reply);
        self.buffers.set(buffers);
        reply
    }

    pub(crate) fn put_reply(&self, reply: Vec<u8>) {
        let buffers = self.buffers.take();
        self.put_buffers(CallBuffers { reply, ..buffers });
    }

    pub(crate) fn take_buffers(&self) -> CallBuffers {
        self.buffers.take()
    }

    pub(crate) fn put_buffers(&self, mut buffers: CallBuffers) {
        if buffers.reply.capacity() + buffers.numbers.capacity() > BUFFER_KEPT_MAX {
            buffers = CallBuffers::default();
        }
        buffers.reply.clear();
        buffers.numbers.clear();
        buffers.args.clear();
        self.buffers.set(buffers);
    }
}

impl Core {
    /// Whether Lua may resize a block, which makes the state use `used` bytes.
    #[cold]
    fn may_grow(&self, old: usize, new: usize, used: usize) -> bool {
        // Functions of ours are not prepared for a lack of it: they ask before they need much.
        new <= old || self.hosted.get() > 0 || self.budget.covers(used)
    }

    /// Whether Lua may have a block that is not small: memory is there, and the script goes on.
    #[cold]
    fn admit(&self, old: usize, new: usize, used: usize) -> bool {
        let fits = used <= self.budget.lease.get() || self.may_grow(old, new, used);
        fits && self.charge_block(old, new)
    }
}

/// Whether it is source, not what `string.dump` made: that is not checked by Lua, and could do
/// anything.
pub(crate) fn is_text(code: &[u8]) -> bool {
    code.first() != Some(&0x1b)
}

/// Lua's allocator: the process's own behind the state's small blocks, counted.
pub(crate) unsafe extern "C" fn allocate(
    core: *mut c_void,
    block: *mut c_void,
    old: usize,
    new: usize,
) -> *mut c_void {
    // SAFETY: Lua passes what it was given with this allocator: the core, which outlives the state
    // and is only ever shared.
    let core = unsafe { &*core.cast::<Core>() };
    debug_assert!(block.is_null() == (old == 0), "{old} bytes at {block:?}");
    let used = core.used.get() - old + new;
    if (old | new) >= CHARGED_BYTES && !core.admit(old, new, used) {
        return std::ptr::null_mut();
    }
    if new == 0 {
        if old > 0 {
            // SAFETY: Lua gives a block back that it got here, and says the size that it had asked
            // for last.
            unsafe { core.blocks.free(block.cast(), old) };
        }
        core.used.set(used);
        return std::ptr::null_mut();
    }
    if used > core.budget.lease.get() && !core.may_grow(old, new, used) {
        return std::ptr::null_mut();
    }
    let moved = if old == 0 {
        core.blocks.allocate(new)
    } else {
        // SAFETY: Lua passes a block that it got here, and the size that it had asked for last.
        unsafe { blocks::resize(block.cast(), old, new) }
    };
    if moved.is_null() {
        std::alloc::handle_alloc_error(layout(new));
    }
    core.used.set(used);
    moved.cast()
}

/// Called by Lua at intervals: asks the host whether the script may go on.
unsafe extern "C-unwind" fn watch(state: *mut lua_State, record: *mut lua_Debug) {
    // SAFETY: Lua calls this with the state that runs. Nothing here has a destructor when an error
    // is raised.
    let frame = unsafe { Frame::of(state) };
    // SAFETY: Lua passes a record that it has filled in, and that lives through the call.
    let event = unsafe { (*record).event };
    let goes_on = match event {
        LUA_HOOKCOUNT => frame.core().look(*frame),
        _ => !frame.core().is_stopping(),
    };
    if !goes_on {
        frame.raise_stop();
    }
}
