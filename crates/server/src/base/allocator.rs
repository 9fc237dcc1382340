//! What jemalloc says of itself, and what it can be told.

use std::ffi::{CStr, CString, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

use rustix::mm::Advice;
use tikv_jemalloc_ctl::{epoch, raw, stats, stats_print};
use tikv_jemalloc_sys::extent_hooks_t;

use crate::base::cores;
use crate::base::kept::Kept;

/// Bytes, by how near they are to being given back.
#[derive(Clone, Copy, Default, Debug)]
pub struct AllocatorFigures {
    pub allocated: usize,
    /// In pages that hold something.
    pub active: usize,
    /// In pages that the kernel has given.
    pub resident: usize,
    /// In pages that the kernel may take back.
    pub muzzy: usize,
}

/// The figures, not older than a tenth of a second. To take them costs some microseconds for each
/// arena, and more beside a thread that frees much.
pub fn figures() -> AllocatorFigures {
    static LAST: Kept<AllocatorFigures> = Kept::new();
    LAST.or(figures_now)
}

fn figures_now() -> AllocatorFigures {
    // Each fails only if jemalloc was built without statistics; then there is nothing to say.
    epoch::advance().ok();
    // SAFETY: the control is a `size_t`.
    let muzzy_pages =
        unsafe { raw::read::<usize>(c"stats.arenas.4096.pmuzzy".to_bytes_with_nul()) };
    AllocatorFigures {
        allocated: stats::allocated::read().unwrap_or(0),
        active: stats::active::read().unwrap_or(0),
        resident: stats::resident::read().unwrap_or(0),
        muzzy: muzzy_pages.unwrap_or(0) * rustix::param::page_size(),
    }
}

/// Gives pages without content back to the kernel; `false` if jemalloc refused.
pub fn purge() -> bool {
    // 4096 stands for all arenas, as MALLCTL_ARENAS_ALL does.
    act(c"arena.4096.purge")
}

/// Has jemalloc do what a control stands for that takes no value and returns none; `false` if it
/// refused.
fn act(name: &CStr) -> bool {
    // SAFETY: where there is no value all pointers are null. Callers name controls that free what
    // nobody uses.
    let result = unsafe {
        tikv_jemalloc_sys::mallctl(
            name.as_ptr(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            0,
        )
    };
    result == 0
}

/// Has all arenas that there are give pages back to the kernel in short steps, with a core to
/// others in between: as jemalloc does it by itself, many megabytes in one go, a thread that is
/// woken on that core waits for it. To be called when threads have come that have arenas of their
/// own.
pub fn give_back_in_steps() {
    // Which arenas there are is among the figures. If they cannot be renewed, the last ones count.
    epoch::advance().ok();
    let count = control_integer(b"arenas.narenas", None).unwrap_or(0);
    for arena in 0..count {
        if !is_in_use(arena) {
            continue;
        }
        let name = hooks_of(arena);
        // SAFETY: the control is a pointer to a table that lives as long as its arena; those of
        // jemalloc's own and ours live as long as the process.
        let installed = unsafe {
            raw::read::<*mut extent_hooks_t>(name.as_bytes()).and_then(|hooks| {
                let ours = HOOKS.get_or_init(|| extent_hooks_t {
                    purge_forced: Some(purge_in_steps),
                    // As without hooks: address space is kept.
                    dalloc: None,
                    ..*hooks
                });
                let ours = std::ptr::from_ref(ours).cast_mut();
                if hooks == ours { Ok(()) } else { raw::write(name.as_bytes(), ours) }
            })
        };
        if let Err(error) = installed {
            log::debug!("Arena {arena} gives memory back in one go: {error}");
        }
    }
}

fn is_in_use(arena: i64) -> bool {
    control_integer(format!("arena.{arena}.initialized").as_bytes(), None) == Ok(1)
}

fn hooks_of(arena: i64) -> String {
    format!("arena.{arena}.extent_hooks\0")
}

/// jemalloc's own, but for what gives pages back.
static HOOKS: OnceLock<extent_hooks_t> = OnceLock::new();

/// Has the kernel take the content of pages, which are zero when they are touched again; `true` if
/// it refused. No lock is held here for which a thread waits that allocates or frees.
///
/// # Safety
///
/// As jemalloc calls it: the pages are mapped, private, and hold nothing that is needed.
unsafe extern "C" fn purge_in_steps(
    _hooks: *mut extent_hooks_t,
    address: *mut c_void,
    _size: usize,
    offset: usize,
    length: usize,
    _arena: c_uint,
) -> bool {
    let mut done = 0;
    while done < length {
        let step = STEP_BYTES.min(length - done);
        // SAFETY: within the pages that the caller speaks of.
        let taken = unsafe {
            rustix::mm::madvise(address.byte_add(offset + done), step, Advice::LinuxDontNeed)
        };
        if taken.is_err() {
            return true;
        }
        done += step;
        cores::give_way();
    }
    false
}

/// Bytes that are free in runs of small blocks of which others are in use.
pub fn small_waste() -> usize {
    epoch::advance().ok();
    let number = |name: String| control_integer(name.as_bytes(), None).unwrap_or(0);
    // 4096 stands for all arenas, as MALLCTL_ARENAS_ALL does.
    let waste = (0..number("arenas.nbins".into())).map(|bin| {
        let runs = number(format!("stats.arenas.4096.bins.{bin}.curslabs"));
        let used = number(format!("stats.arenas.4096.bins.{bin}.curregs"));
        let blocks = runs * number(format!("arenas.bin.{bin}.nregs"));
        (blocks - used).max(0) * number(format!("arenas.bin.{bin}.size"))
    });
    waste.sum::<i64>() as usize
}

/// Has the calling thread take each block from the arena, and give each back to it: what it frees
/// is not what it gets next. For a thread that moves blocks.
pub fn bypass_thread_cache() -> Result<(), String> {
    // SAFETY: the control is a `bool`.
    unsafe { raw::write(c"thread.tcache.enabled".to_bytes_with_nul(), false) }.map_err(text)
}

/// Asks jemalloc how full the runs are in which small blocks lie.
pub struct Utilization {
    /// The control's name, as jemalloc has looked it up.
    name: [usize; 3],
}

/// What jemalloc answers of a block.
#[repr(C)]
#[derive(Default)]
struct BlockReport {
    /// The run from which its bin takes blocks at present.
    current_run: usize,
    /// Of its run: free blocks, all blocks, bytes.
    run_free: usize,
    run_blocks: usize,
    run_bytes: usize,
    /// Of all runs of its bin.
    bin_free: usize,
    bin_blocks: usize,
}

impl Utilization {
    pub fn new() -> Result<Self, String> {
        let mut name = [0; 3];
        raw::name_to_mib(c"experimental.utilization.query".to_bytes_with_nul(), &mut name)
            .map_err(text)?;
        Ok(Self { name })
    }

    /// Whether a block should move: its run has free blocks, is hardly fuller than those of its bin
    /// are on average, and is not the one that is being filled. Runs that are all alike are moved
    /// as well, as nothing would bring them together otherwise.
    ///
    /// `block` is the beginning of a block that is in use.
    pub fn is_sparse(&self, block: NonNull<u8>) -> bool {
        let mut address = block.as_ptr();
        let mut report = BlockReport::default();
        let mut size = size_of::<BlockReport>();
        // SAFETY: the control takes an address and answers with six words, which `BlockReport` is.
        // The block is in use, as callers say, so jemalloc knows its run.
        let result = unsafe {
            tikv_jemalloc_sys::mallctlbymib(
                self.name.as_ptr(),
                self.name.len(),
                (&raw mut report).cast(),
                &raw mut size,
                (&raw mut address).cast(),
                size_of::<*mut u8>(),
            )
        };
        let run = report.current_run..report.current_run + report.run_bytes;
        result == 0
            && report.run_free > 0
            && !run.contains(&block.addr().get())
            && (report.run_blocks - report.run_free) * report.bin_blocks * 8
                <= (report.bin_blocks - report.bin_free) * report.run_blocks * 9
    }
}

/// jemalloc's own report.
pub fn report() -> String {
    let mut report = Vec::new();
    match stats_print::stats_print(&mut report, stats_print::Options::default()) {
        Ok(()) => String::from_utf8_lossy(&report).into_owned(),
        Err(error) => format!("The allocator does not report: {error}"),
    }
}

/// Reads a control that is a number, after setting it if a value is given; the error is the
/// system's text. The size of the number is found by trying.
pub fn control_integer(name: &[u8], value: Option<i64>) -> Result<i64, String> {
    let name = control_name(name)?;
    let name = name.as_bytes_with_nul();
    // SAFETY: jemalloc compares the size with that of the control, and any bits are a number.
    unsafe {
        if let Some(value) = value {
            let wrote = raw::write::<i64>(name, value)
                .or_else(|_| raw::write::<i32>(name, value as i32))
                .or_else(|_| raw::write::<u8>(name, u8::from(value != 0)));
            wrote.map_err(text)?;
        }
        raw::read::<i64>(name)
            .or_else(|_| raw::read::<i32>(name).map(i64::from))
            .or_else(|_| raw::read::<u8>(name).map(i64::from))
            .map_err(text)
    }
}

/// Has the allocator do what a control stands for that takes no value.
pub fn control_nothing(name: &[u8]) -> Result<(), String> {
    let name = control_name(name)?;
    // Others, such as an arena's `reset`, pull memory away that is in use.
    if !ACTIONS.contains(&&*name) {
        return Err("Invalid argument".into());
    }
    if act(&name) { Ok(()) } else { Err("No such file or directory".into()) }
}

/// Reads a control that is a text.
pub fn control_text(name: &[u8]) -> Result<Vec<u8>, String> {
    let name = control_name(name)?;
    // Only these are texts: reading a number as one would follow it as a pointer.
    let is_text = TEXTS.iter().any(|known| known.to_bytes() == name.as_bytes());
    if !is_text {
        return Err("Invalid argument".into());
    }
    // SAFETY: the listed controls are C strings that live as long as the process.
    let found = unsafe { raw::read::<*const std::ffi::c_char>(name.as_bytes_with_nul()) };
    let pointer = found.map_err(text)?;
    if pointer.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: as above, and it is not null.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_bytes().to_vec())
}

fn control_name(name: &[u8]) -> Result<CString, String> {
    CString::new(name).map_err(|_| "No such file or directory".into())
}

fn text(error: tikv_jemalloc_ctl::Error) -> String {
    let text = error.to_string();
    // Keep what the system calls it.
    if text.contains("unknown") { "No such file or directory" } else { "Invalid argument" }.into()
}

/// Some twenty microseconds of the kernel's time.
const STEP_BYTES: usize = 256 << 10;

/// Controls that free what nobody uses: what a thread keeps for itself, and pages of all arenas.
const ACTIONS: [&CStr; 3] = [c"thread.tcache.flush", c"arena.4096.purge", c"arena.4096.decay"];

/// Controls whose value is a text.
const TEXTS: [&CStr; 6] = [
    c"version",
    c"config.malloc_conf",
    c"opt.metadata_thp",
    c"opt.dss",
    c"opt.percpu_arena",
    c"opt.thp",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_the_allocator() {
        let figures = figures();
        assert!(figures.allocated > 0 && figures.allocated <= figures.active);
        assert!(control_integer(b"arenas.narenas", None).unwrap() > 0);
        assert!(control_integer(b"no.such", None).is_err());
        assert!(control_text(b"version").unwrap().starts_with(b"5."));
        assert!(control_text(b"arenas.narenas").is_err());
        assert!(purge());
        assert!(report().contains("jemalloc"));
    }

    /// Most blocks of a size are freed. Those that are left should move until they lie together.
    #[test]
    fn blocks_among_free_ones_should_move() {
        std::thread::spawn(|| {
            // Other tests have no blocks in this arena.
            let arena = control_integer(b"arenas.create", None).unwrap();
            control_integer(b"thread.arena", Some(arena)).unwrap();
            bypass_thread_cache().unwrap();
            let utilization = Utilization::new().unwrap();
            // A size that nothing else here takes many of.
            let new = || Box::new([7u8; 3000]);
            let address = |block: &[u8; 3000]| NonNull::from(block).cast::<u8>();
            let mut blocks: Vec<_> = (0..4000).map(|_| new()).collect();
            let sparse = |blocks: &[Box<[u8; 3000]>]| {
                blocks.iter().filter(|block| utilization.is_sparse(address(block))).count()
            };
            assert!(sparse(&blocks) < 100, "{} of full runs", sparse(&blocks));
            let mut number = 0;
            blocks.retain(|_| {
                number += 1;
                number % 8 == 0
            });
            assert!(small_waste() > 4_000_000, "{} bytes", small_waste());
            assert!(sparse(&blocks) > 400, "{} of sparse runs", sparse(&blocks));
            for block in &mut blocks {
                if utilization.is_sparse(address(block)) {
                    *block = new();
                }
            }
            assert!(sparse(&blocks) < 50, "{} of runs that were filled", sparse(&blocks));
            // What is large lies in pages of its own.
            assert!(!utilization.is_sparse(NonNull::from(&*vec![0u8; 100_000]).cast()));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn memory_is_given_back_in_steps_and_comes_back_as_zeroes() {
        give_back_in_steps();
        let own = control_integer(b"thread.arena", None).expect("the calling thread has one");
        assert!(is_in_use(own));
        // SAFETY: as in `give_back_in_steps`.
        let hooks = unsafe { raw::read::<*mut extent_hooks_t>(hooks_of(own).as_bytes()) };
        assert_eq!(hooks.unwrap().cast_const(), std::ptr::from_ref(HOOKS.get().unwrap()));
        // Of several steps, and of part of one.
        for bytes in [STEP_BYTES * 3 + 4096, 4096] {
            let layout = std::alloc::Layout::from_size_align(bytes, 4096).unwrap();
            // SAFETY: the block is as large as is said; it is freed with its layout.
            unsafe {
                let block = std::alloc::alloc(layout);
                block.write_bytes(7, bytes);
                let hooks = std::ptr::null_mut();
                assert!(!purge_in_steps(hooks, block.cast(), bytes, 0, bytes, 0));
                let content = std::slice::from_raw_parts(block, bytes);
                assert!(content.iter().all(|byte| *byte == 0));
                block.write_bytes(7, bytes);
                assert!(!purge_in_steps(hooks, block.cast(), bytes, 4096, bytes - 4096, 0));
                let content = std::slice::from_raw_parts(block, bytes);
                let (kept, taken) = content.split_at(4096);
                assert!(kept.iter().all(|byte| *byte == 7));
                assert!(taken.iter().all(|byte| *byte == 0));
                std::alloc::dealloc(block, layout);
            }
        }
        // SAFETY: what is no address of this process is refused.
        let refused = unsafe {
            let hooks = std::ptr::null_mut();
            purge_in_steps(hooks, std::ptr::without_provenance_mut(1 << 62), 4096, 0, 4096, 0)
        };
        assert!(refused);
    }
}
