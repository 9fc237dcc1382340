//! A plugin for QEMU's user mode that counts the cache lines that move between the threads of a
//! program. `cargo xtask lines` builds and uses it.
//!
//! Every thread has a cache of its own that holds any number of lines; they are kept coherent as by
//! MESI. A line *moves* when a thread uses it that does not have it, or has it no more because
//! another one wrote it. A thread *claims* a line when it writes what it has, and others too: that
//! costs no more than the move before, if the line was prefetched to be written, which QEMU does
//! not tell of. The first use of a line by any thread is neither. So what is counted is
//! communication, and it depends on how finely threads take turns, not on how many cores there are.
//!
//! Arguments: `slice=N`, the instructions after which a thread yields; `out=FILE`, where the report
//! goes when the program ends; `control=FILE`, a file whose first byte says whether to count: `1`
//! or anything else.

mod caches;
mod qemu;
mod report;

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use caches::{Caches, InstructionMoves};
use qemu::{MemoryInfo, PluginId, TranslationBlock};

/// What the plugin knows; there is one program and one plugin.
struct Plugin {
    caches: Caches,
    /// By the address of the instruction. A place is never freed: translated code refers to it.
    places: Mutex<HashMap<u64, &'static InstructionMoves>>,
    slice: u64,
    out: PathBuf,
    control: File,
    is_counting: AtomicBool,
    instructions: AtomicU64,
}

static PLUGIN: OnceLock<Plugin> = OnceLock::new();

thread_local! {
    /// Instructions since this thread last yielded.
    static SINCE_YIELD: Cell<u64> = const { Cell::new(0) };
}

/// The version of QEMU's interface that this plugin uses.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "QEMU's name")]
pub static qemu_plugin_version: c_int = 1;

/// QEMU calls this once, before the program runs.
///
/// # Safety
/// `words` are `count` pointers to strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: PluginId,
    _info: *const c_void,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    // SAFETY: by the caller there are `count` of them, each a string that ends with a zero.
    let words = (0..count as usize).map(|i| unsafe { CStr::from_ptr(*words.add(i)) });
    let plugin = match Plugin::new(words.map(|word| word.to_string_lossy().into_owned())) {
        Ok(plugin) => plugin,
        Err(error) => {
            eprintln!("lines: {error}");
            return -1;
        }
    };
    if PLUGIN.set(plugin).is_err() {
        return -1;
    }
    qemu::on_translation(id, translated);
    qemu::on_exit(id, exited);
    0
}

impl Plugin {
    fn new(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let (mut slice, mut out, mut control) = (2000, None, None);
        for word in words {
            match word.split_once('=') {
                Some(("slice", value)) => {
                    slice = value.parse().map_err(|error| format!("slice: {error}"))?;
                }
                Some(("out", path)) => out = Some(PathBuf::from(path)),
                Some(("control", path)) => {
                    let file = File::open(path).map_err(|error| format!("{path}: {error}"))?;
                    control = Some(file);
                }
                _ => return Err(format!("unknown argument {word}")),
            }
        }
        Ok(Self {
            caches: Caches::new(),
            places: Mutex::default(),
            slice,
            out: out.ok_or("out=FILE is missing")?,
            control: control.ok_or("control=FILE is missing")?,
            is_counting: AtomicBool::new(false),
            instructions: AtomicU64::new(0),
        })
    }

    fn place(&self, address: u64) -> &'static InstructionMoves {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.entry(address).or_insert_with(|| Box::leak(Box::new(InstructionMoves::new(address))))
    }
}

fn plugin() -> &'static Plugin {
    PLUGIN.get().expect("QEMU installs a plugin before it calls it")
}

/// Code was translated: from now on each run of the block counts its instructions, and each of
/// them tells what memory it uses.
extern "C" fn translated(_id: PluginId, block: *mut TranslationBlock) {
    let instructions = qemu::instructions(block);
    qemu::on_run(block, ran, instructions.len());
    for (instruction, address) in instructions {
        qemu::on_access(instruction, accessed, plugin().place(address));
    }
}

extern "C" fn ran(_thread: c_uint, count: *mut c_void) {
    let (plugin, count) = (plugin(), count as u64);
    let since_yield = SINCE_YIELD.get() + count;
    if since_yield < plugin.slice {
        SINCE_YIELD.set(since_yield);
        return;
    }
    SINCE_YIELD.set(0);
    if plugin.is_counting.load(Ordering::Relaxed) {
        plugin.instructions.fetch_add(since_yield, Ordering::Relaxed);
    }
    let mut word = [0];
    let is_counting = plugin.control.read_at(&mut word, 0).is_ok() && word == *b"1";
    plugin.is_counting.store(is_counting, Ordering::Relaxed);
    std::thread::yield_now();
}

extern "C" fn accessed(thread: c_uint, info: MemoryInfo, address: u64, place: *mut c_void) {
    let plugin = plugin();
    // SAFETY: `translated` registered a place, and places are never freed.
    let place = unsafe { &*place.cast_const().cast::<InstructionMoves>() };
    let is_counted = plugin.is_counting.load(Ordering::Relaxed);
    plugin.caches.access(thread, address, qemu::is_store(info), place, is_counted);
}

extern "C" fn exited(_id: PluginId, _data: *mut c_void) {
    let plugin = plugin();
    let places = plugin.places.lock().unwrap_or_else(PoisonError::into_inner);
    let instructions = plugin.instructions.load(Ordering::Relaxed);
    let text = report::text(instructions, qemu::start_of_code(), &places, &plugin.caches);
    if let Err(error) = std::fs::write(&plugin.out, text) {
        eprintln!("lines: {}: {error}", plugin.out.display());
    }
}
