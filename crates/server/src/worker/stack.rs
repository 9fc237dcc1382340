//! What a worker's thread is doing: its stack and its command, as a signal's handler writes them.
//!
//! The watchdog asks a thread for them by a signal; the crash report has them of the thread that
//! crashed. A handler may not allocate or lock, so all is written piece by piece from where it
//! lies.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use super::Batch;
use crate::engine::server::Server;
use crate::engine::telemetry::slowlog;
use crate::system::logging;

/// Frames of the stack that are shown.
const FRAMES_MAX: usize = 64;
/// Arguments of the command that are shown, ...
const ARGUMENTS_MAX: usize = 32;
/// ... and bytes of each.
const ARGUMENT_BYTES_MAX: usize = 128;

/// What a handler finds ready.
struct Shown {
    server: &'static Server,
    /// Where in memory the program begins: addresses are shown relative to it.
    base: usize,
}

static SHOWN: OnceLock<Shown> = OnceLock::new();

thread_local! {
    /// What the calling worker executes from.
    static BATCH: Cell<*const Batch> = const { Cell::new(std::ptr::null()) };
    /// The calling thread has a `SignalStack`.
    static HAS_STACK: Cell<bool> = const { Cell::new(false) };
}

/// The calling worker executes from this batch, for as long as it runs.
///
/// # Safety
/// The batch stays where it is until the thread ends, or this is called with null.
pub unsafe fn show_batch(batch: *const Batch) {
    BATCH.set(batch);
}

/// Whether the calling thread has a [`SignalStack`].
pub(crate) fn has_signal_stack() -> bool {
    HAS_STACK.get()
}

/// Has threads show what they do from now on; see [`show_stack`].
pub(crate) fn install(server: &'static Server) {
    if SHOWN.set(Shown { server, base: program_base() }).is_err() {
        return;
    }
    // The unwinder's first call does what a handler may not.
    let mut frames = Frames { addresses: [0; FRAMES_MAX], count: 0 };
    // SAFETY: as in `write_stack`.
    unsafe { _Unwind_Backtrace(note_frame, (&raw mut frames).cast()) };
    catch(STACK_SIGNAL, stack_wanted, libc::SA_RESTART);
}

/// A stack for the calling thread's handler of faults, large enough for a report; until it is
/// dropped, by the same thread.
pub struct SignalStack {
    start: *mut c_void,
}

impl SignalStack {
    /// `None`: there is no memory; then a fault's report has no stack trace.
    pub fn install() -> Option<Self> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new pages, anywhere.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), SIGNAL_STACK_LEN, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let stack = libc::stack_t { ss_sp: start, ss_flags: 0, ss_size: SIGNAL_STACK_LEN };
        // SAFETY: the pages are ours until they are taken from the kernel again in `drop`.
        unsafe { libc::sigaltstack(&stack, std::ptr::null_mut()) };
        HAS_STACK.set(true);
        Some(Self { start })
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        HAS_STACK.set(false);
        let none =
            libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: the kernel lets go of the pages before they are unmapped.
        unsafe {
            libc::sigaltstack(&none, std::ptr::null_mut());
            libc::munmap(self.start, SIGNAL_STACK_LEN);
        }
    }
}

/// Pages that no code touches before a crash.
const SIGNAL_STACK_LEN: usize = 256 * 1024;

pub(crate) type StackHandler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Has a signal handled so.
pub(crate) fn catch(signal: c_int, handler: StackHandler, flags: c_int) {
    // SAFETY: all zeros are a valid `sigaction`: numbers and pointers that may be null.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | flags;
    // SAFETY: both pointers are to values of ours, or null; the handler has the right type for
    // SA_SIGINFO, and keeps to what handlers may do.
    unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
}

/// Has a thread of ours write its stack to the log, from a signal.
pub fn show_stack(thread: i32) {
    if SHOWN.get().is_some() {
        // SAFETY: a system call about a thread of this process; when it has ended, nothing happens.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, STACK_SIGNAL) };
    }
}

/// Asks a thread for its stack. The server has no other use for it.
const STACK_SIGNAL: c_int = libc::SIGUSR2;

extern "C" fn stack_wanted(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // What was interrupted must find its error number again.
    // SAFETY: the C library's place of this thread's number.
    let error = unsafe { *libc::__errno_location() };
    let out = Out(logging::descriptor());
    out.text("------ STACK OF THAT THREAD ------\n");
    write_stack(out, context);
    out.text("------ ITS COMMAND ------\n");
    write_command(out);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
}

/// The command at work, if the thread is a worker that executes one.
pub(crate) fn write_command(out: Out) {
    let Some(Shown { server, .. }) = SHOWN.get() else { return };
    let batch = BATCH.get();
    // SAFETY: `show_batch` was told that it stays where it is. This thread is the one that changes
    // it, and it is stopped here: what it was about to change may be odd, but a command is read
    // only while one is at work.
    let current = if batch.is_null() { None } else { unsafe { (*batch).at_work() } };
    let Some((command, args)) = current else {
        out.text("none\n");
        return;
    };
    if let Some(command) = command {
        out.text(&command.full_name);
        out.text(", ");
    }
    out.number(args.len() as u64);
    out.text(" words\n");
    if server.config.hide_user_data_from_log() {
        return;
    }
    for (at, arg) in args.iter().enumerate().take(ARGUMENTS_MAX) {
        out.text("argv[");
        out.number(at as u64);
        out.text("]: ");
        let secret = command.is_none_or(|command| slowlog::secrets(command, args)(at)) && at > 0;
        if secret {
            out.bytes(slowlog::REDACTED);
        } else {
            out.printable(&arg[..arg.len().min(ARGUMENT_BYTES_MAX)]);
            if arg.len() > ARGUMENT_BYTES_MAX {
                out.text("... (");
                out.number(arg.len() as u64);
                out.text(" bytes)");
            }
        }
        out.text("\n");
    }
}

/// Where the report goes. Only what a signal's handler may do.
#[derive(Clone, Copy)]
pub(crate) struct Out(c_int);

impl Out {
    pub(crate) const fn new(descriptor: c_int) -> Self {
        Self(descriptor)
    }

    pub(crate) fn bytes(self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            // SAFETY: the pointer and the length are those of a slice.
            let written = unsafe { libc::write(self.0, bytes.as_ptr().cast(), bytes.len()) };
            match usize::try_from(written) {
                Ok(written) if written > 0 => bytes = &bytes[written..],
                _ => return,
            }
        }
    }

    pub(crate) fn text(self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn number(self, number: u64) {
        self.digits(number, 10);
    }

    pub(crate) fn signed(self, number: i64) {
        if number < 0 {
            self.text("-");
        }
        self.number(number.unsigned_abs());
    }

    pub(crate) fn hex(self, number: u64) {
        self.text("0x");
        self.digits(number, 16);
    }

    fn digits(self, mut number: u64, base: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b"0123456789abcdef"[(number % base) as usize];
            number /= base;
            if number == 0 || at == 0 {
                return self.bytes(&digits[at..]);
            }
        }
    }

    /// Bytes as a line can show them.
    pub(crate) fn printable(self, bytes: &[u8]) {
        for &byte in bytes {
            if (b' '..=b'~').contains(&byte) && byte != b'\\' {
                self.bytes(&[byte]);
            } else {
                self.text("\\x");
                self.bytes(&[b"0123456789abcdef"[usize::from(byte >> 4)]]);
                self.bytes(&[b"0123456789abcdef"[usize::from(byte & 15)]]);
            }
        }
    }
}

/// Where the thread was when the signal came.
#[cfg(target_arch = "x86_64")]
fn interrupted_at(context: *mut c_void) -> usize {
    // SAFETY: as in `write_registers`.
    unsafe {
        (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] as usize
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn interrupted_at(_: *mut c_void) -> usize {
    0
}

/// Addresses of the calls that led here, relative to the program.
pub(crate) fn write_stack(out: Out, context: *mut c_void) {
    let base = SHOWN.get().map_or(0, |shown| shown.base);
    let mut frames = Frames { addresses: [0; FRAMES_MAX], count: 0 };
    // SAFETY: the unwinder of the standard library; the callback gets our `Frames` back. It reads
    // tables of the program and takes the loader's lock for that, which is held for moments only,
    // by a thread that starts or ends a library.
    unsafe { _Unwind_Backtrace(note_frame, (&raw mut frames).cast()) };
    let at = interrupted_at(context);
    let frames = &frames.addresses[..frames.count];
    // The handler's own frames come first.
    let first = frames.iter().position(|address| at != 0 && address.abs_diff(at) <= 1).unwrap_or(0);
    for address in &frames[first..] {
        out.hex(address.wrapping_sub(base) as u64);
        out.text("\n");
    }
}

struct Frames {
    addresses: [usize; FRAMES_MAX],
    count: usize,
}

extern "C" fn note_frame(context: *mut c_void, frames: *mut c_void) -> c_int {
    // SAFETY: what `write_stack` passed, which nothing else has.
    let frames = unsafe { &mut *frames.cast::<Frames>() };
    if frames.count == FRAMES_MAX {
        return END_OF_STACK;
    }
    // SAFETY: the unwinder's own context.
    frames.addresses[frames.count] = unsafe { _Unwind_GetIP(context) };
    frames.count += 1;
    0
}

/// `_URC_END_OF_STACK` of the unwinder's interface.
const END_OF_STACK: c_int = 5;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        trace: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

/// Where the loader put the program.
fn program_base() -> usize {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    let function: fn(&'static Server) = install;
    // SAFETY: the pointer is to a `Dl_info` of ours, which is valid with all zeros too.
    unsafe {
        libc::dladdr(function as *const c_void, found.as_mut_ptr());
        found.assume_init().dli_fbase as usize
    }
}
