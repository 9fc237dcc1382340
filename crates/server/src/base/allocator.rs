//! jemalloc: its figures, and the controls that change what it does.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

use rustix::mm::Advice;
use tikv_jemalloc_ctl::{epoch, raw, stats, stats_print};
use tikv_jemalloc_sys::extent_hooks_t;

use crate::base::cores;
use crate::base::kept::CachedFigure;

/// Bytes of memory, by how close they are to being given back.
#[derive(Clone, Copy, Default, Debug)]
pub struct AllocatorFigures {
    pub allocated: usize,
    /// Bytes in pages that hold at least one block.
    pub active: usize,
    /// Bytes in pages that the kernel has provided.
    pub resident: usize,
    /// Bytes in pages that the kernel may take back.
    pub muzzy: usize,
}

/// The figures, at most a tenth of a second old. Reading them costs some microseconds for each
/// arena, and more while another thread frees much.
pub fn figures() -> AllocatorFigures {
    static LAST: CachedFigure<AllocatorFigures> = CachedFigure::new();
    LAST.or(figures_now)
}

fn figures_now() -> AllocatorFigures {
    // These calls fail only if jemalloc was built without statistics; then the figures are 0.
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

/// Gives unused pages back to the kernel. Returns `false` if jemalloc refuses.
pub fn purge() -> bool {
    // 4096 stands for all arenas, as MALLCTL_ARENAS_ALL does.
    act(c"arena.4096.purge")
}

/// Triggers a control that takes no value and returns none. Returns `false` if jemalloc refuses.
fn act(name: &CStr) -> bool {
    // SAFETY: all pointers are null, as there is no value. Callers name controls that free only
    // unused memory.
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

/// Makes all existing arenas give pages back to the kernel in short steps, and yield the core after
/// each step. jemalloc itself gives many megabytes back in one step, and a thread that is woken on
/// that core waits for it. To be called after threads with arenas of their own have started.
pub fn give_back_in_steps() {
    if cfg!(thread_sanitizer) {
        // The sanitizer does not know jemalloc's own threads, which would execute our code.
        return;
    }
    // The number of arenas is one of the figures. If those cannot be refreshed, the old number is
    // used.
    epoch::advance().ok();
    let count = control_integer(b"arenas.narenas", None).unwrap_or(0);
    for arena in 0..count {
        if !is_in_use(arena) {
            continue;
        }
        let name = hooks_of(arena);
        // SAFETY: the control is a pointer to a table that lives as long as its arena. The tables
        // of jemalloc and of this file live as long as the process.
        let installed = unsafe {
            raw::read::<*mut extent_hooks_t>(name.as_bytes()).and_then(|hooks| {
                let ours = HOOKS.get_or_init(|| extent_hooks_t {
                    purge_forced: Some(purge_in_steps),
                    // As without hooks, address space is kept.
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

/// jemalloc's own hooks, except for the one that gives pages back.
static HOOKS: OnceLock<extent_hooks_t> = OnceLock::new();

/// Lets the kernel take the content of pages, which are zero when they are used again. Returns
/// `true` if the kernel refuses. No lock is held here that other threads need to allocate or free.
///
/// # Safety
///
/// As for jemalloc's calls: the pages are mapped, private, and hold nothing that is needed.
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
        // SAFETY: the range lies within the pages that the caller names.
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

/// What `small_waste` returns, at most a tenth of a second old.
pub fn recent_small_waste() -> usize {
    static LAST: CachedFigure<usize> = CachedFigure::new();
    LAST.or(small_waste)
}

/// Bytes that are free in runs of small blocks whose other blocks are in use.
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

/// Makes the calling thread take each block from its arena and give each back to it, so that it
/// does not get back the blocks that it has just freed. For a thread that moves blocks.
pub fn bypass_thread_cache() -> Result<(), String> {
    // SAFETY: the control is a `bool`.
    unsafe { raw::write(c"thread.tcache.enabled".to_bytes_with_nul(), false) }.map_err(text)
}

/// Asks jemalloc how full the runs are that small blocks lie in. Belongs to a thread.
pub struct Utilization {
    /// The names of controls in the form that jemalloc looked them up.
    query: [usize; 3],
    lookup: [usize; 2],
    thread_arena: [usize; 2],
    /// The arena that the thread takes blocks from; `None` until it is first set.
    arena: Cell<Option<c_uint>>,
}

/// jemalloc's report about a block.
#[repr(C)]
#[derive(Default)]
struct BlockReport {
    /// The run that new blocks of this size come from.
    current_run: usize,
    /// Of the block's run: the free blocks, all blocks, and bytes.
    run_free: usize,
    run_blocks: usize,
    run_bytes: usize,
    /// Of all runs with blocks of this size.
    bin_free: usize,
    bin_blocks: usize,
}

impl Utilization {
    pub fn new() -> Result<Self, String> {
        let (mut query, mut lookup, mut thread_arena) = ([0; 3], [0; 2], [0; 2]);
        for (name, into) in [
            (c"experimental.utilization.query", &mut query[..]),
            (c"arenas.lookup", &mut lookup[..]),
            (c"thread.arena", &mut thread_arena[..]),
        ] {
            raw::name_to_mib(name.to_bytes_with_nul(), into).map_err(text)?;
        }
        Ok(Self { query, lookup, thread_arena, arena: Cell::new(None) })
    }

    /// Whether a block should move. If so, the thread's next blocks come from the arena that the
    /// block lies in: they fill up runs that are in use there, so the memory in use never grows.
    pub fn wants(&self, block: NonNull<u8>) -> bool {
        let wants = self.is_sparse(block);
        if wants {
            self.enter_arena_of(block);
        }
        wants
    }

    /// Costs little while jemalloc has a thread in the background. Without one, leaving an arena
    /// that no other thread uses would give all of its unused pages back.
    fn enter_arena_of(&self, block: NonNull<u8>) {
        // SAFETY: the control takes an address and answers with a number of this type.
        let arena: Option<c_uint> = unsafe { ask_about(block, &self.lookup) };
        let Some(arena) = arena.filter(|arena| self.arena.get() != Some(*arena)) else { return };
        // SAFETY: the control takes a number of this type. Any arena that has blocks will do.
        if unsafe { raw::write_mib(&self.thread_arena, arena) }.is_ok() {
            self.arena.set(Some(arena));
        }
    }

    /// Whether a block should move: its run has free blocks, is hardly fuller than the average run
    /// with blocks of its size, and is not the run that new blocks come from. Runs that are equally
    /// full are emptied too, as nothing else would bring their blocks together.
    ///
    /// The address lies in a block that is in use.
    fn is_sparse(&self, block: NonNull<u8>) -> bool {
        // SAFETY: the control takes an address and answers with six words, which `BlockReport` has.
        // The caller guarantees that the block is in use, so jemalloc knows its run.
        let report: Option<BlockReport> = unsafe { ask_about(block, &self.query) };
        let Some(report) = report else { return false };
        let run = report.current_run..report.current_run + report.run_bytes;
        report.run_free > 0
            && !run.contains(&block.addr().get())
            && (report.run_blocks - report.run_free) * report.bin_blocks * 8
                <= (report.bin_blocks - report.bin_free) * report.run_blocks * 9
    }
}

/// What a control answers about a block; `None` if it has no answer.
///
/// # Safety
/// The control, whose looked up name is given, takes an address and answers with an `Answer`.
unsafe fn ask_about<Answer: Default>(block: NonNull<u8>, control: &[usize]) -> Option<Answer> {
    let mut address = block.as_ptr();
    let mut answer = Answer::default();
    let mut size = size_of::<Answer>();
    // SAFETY: the caller knows the control. The pointers are to local variables of these sizes.
    let result = unsafe {
        tikv_jemalloc_sys::mallctlbymib(
            control.as_ptr(),
            control.len(),
            (&raw mut answer).cast(),
            &raw mut size,
            (&raw mut address).cast(),
            size_of::<*mut u8>(),
        )
    };
    (result == 0).then_some(answer)
}

/// jemalloc's own report as text.
pub fn report() -> String {
    let mut report = Vec::new();
    match stats_print::stats_print(&mut report, stats_print::Options::default()) {
        Ok(()) => String::from_utf8_lossy(&report).into_owned(),
        Err(error) => format!("The allocator does not report: {error}"),
    }
}

/// Reads a control that is a number, after setting it if `value` is given. The error is the text of
/// the system. The size of the number is found by trying.
pub fn control_integer(name: &[u8], value: Option<i64>) -> Result<i64, String> {
    let name = control_name(name)?;
    let name = name.as_bytes_with_nul();
    // SAFETY: jemalloc compares the size with that of the control, and any bits are a valid number.
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

/// Triggers a control that takes no value.
pub fn control_nothing(name: &[u8]) -> Result<(), String> {
    let name = control_name(name)?;
    // Other controls, such as an arena's `reset`, free memory that is in use.
    if !ACTIONS.contains(&&*name) {
        return Err("Invalid argument".into());
    }
    if act(&name) { Ok(()) } else { Err("No such file or directory".into()) }
}

/// Reads a control that is a text.
pub fn control_text(name: &[u8]) -> Result<Vec<u8>, String> {
    let name = control_name(name)?;
    // Only these controls are texts. Reading a number as a text would follow the number as a
    // pointer.
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
    // SAFETY: as above, and the pointer is not null.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_bytes().to_vec())
}

fn control_name(name: &[u8]) -> Result<CString, String> {
    CString::new(name).map_err(|_| "No such file or directory".into())
}

fn text(error: tikv_jemalloc_ctl::Error) -> String {
    let text = error.to_string();
    // Reports the error by the system's name for it.
    if text.contains("unknown") { "No such file or directory" } else { "Invalid argument" }.into()
}

/// Freeing this many bytes takes some twenty microseconds in the kernel.
const STEP_BYTES: usize = 256 << 10;

/// Controls that free only unused memory: a thread's cache, and pages of all arenas.
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

    /// Most blocks of a size are freed. The others should move until they lie together.
    #[test]
    fn blocks_among_free_ones_should_move() {
        std::thread::spawn(|| {
            // Other tests have no blocks in this arena.
            let arena = control_integer(b"arenas.create", None).unwrap();
            control_integer(b"thread.arena", Some(arena)).unwrap();
            bypass_thread_cache().unwrap();
            let utilization = Utilization::new().unwrap();
            // A size of which nothing else in this test takes many blocks.
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
                if utilization.wants(address(block)) {
                    *block = new();
                }
            }
            assert!(sparse(&blocks) < 50, "{} of runs that were filled", sparse(&blocks));
            // Large blocks lie in pages of their own.
            assert!(!utilization.is_sparse(NonNull::from(&*vec![0u8; 100_000]).cast()));
        })
        .join()
        .unwrap();
    }

    /// The blocks of two arenas are moved in any order by a thread of a third one.
    #[test]
    fn runs_do_not_become_more_while_blocks_move() {
        // A size of which nothing else takes many blocks, which have 5120 bytes.
        const SIZE: usize = 5000;
        let fill = || {
            let arena = control_integer(b"arenas.create", None).unwrap();
            control_integer(b"thread.arena", Some(arena)).unwrap();
            bypass_thread_cache().unwrap();
            let blocks: Vec<_> = (0..2000).map(|_| Box::new([7u8; SIZE])).collect();
            let half = blocks.into_iter().enumerate().filter(|(number, _)| number % 2 == 0);
            (arena, half.map(|(_, block)| block).collect::<Vec<_>>())
        };
        let filled = [0, 1].map(|_| std::thread::spawn(fill).join().unwrap());
        let (arenas, mut blocks): (Vec<_>, Vec<_>) = filled.into_iter().unzip();
        std::thread::spawn(move || {
            let own = control_integer(b"arenas.create", None).unwrap();
            control_integer(b"thread.arena", Some(own)).unwrap();
            bypass_thread_cache().unwrap();
            let runs = || {
                epoch::advance().ok();
                let size = 5120;
                let number = |name: String| control_integer(name.as_bytes(), None).unwrap();
                let bin = (0..number("arenas.nbins".into()))
                    .find(|bin| number(format!("arenas.bin.{bin}.size")) == size)
                    .expect("a size of blocks");
                [arenas[0], arenas[1], own]
                    .map(|arena| number(format!("stats.arenas.{arena}.bins.{bin}.curslabs")))
            };
            let before = runs();
            let utilization = Utilization::new().unwrap();
            for at in 0..blocks[0].len() {
                for blocks in &mut blocks {
                    // Neighbours do not follow each other.
                    let at = at * 7 % blocks.len();
                    if utilization.wants(NonNull::from(&*blocks[at]).cast()) {
                        let moved = Box::new([7u8; SIZE]);
                        blocks[at] = moved;
                    }
                }
                if at % 100 == 0 {
                    let now = runs();
                    assert!(now[0] <= before[0] && now[1] <= before[1], "{before:?}, {now:?}");
                }
            }
            let after = runs();
            for arena in 0..2 {
                assert!(after[arena] < before[arena] * 2 / 3, "{before:?}, {after:?}");
            }
            assert_eq!(after[2], 0);
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
        // Of several steps, and of a part of one.
        for bytes in [STEP_BYTES * 3 + 4096, 4096] {
            let layout = std::alloc::Layout::from_size_align(bytes, 4096).unwrap();
            // SAFETY: the block has the size of its layout, and is freed with that layout.
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
        // SAFETY: the kernel refuses an address that is not one of this process.
        let refused = unsafe {
            let hooks = std::ptr::null_mut();
            purge_in_steps(hooks, std::ptr::without_provenance_mut(1 << 62), 4096, 0, 4096, 0)
        };
        assert!(refused);
    }
}
