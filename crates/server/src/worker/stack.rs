//! Shows what a thread is doing: its stack and its command, written by a signal handler.
//!
//! The watchdog asks a thread for them by a signal. The crash report shows those of the thread that
//! crashed. A signal handler must not allocate or lock, so it writes each piece from where it lies.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use super::Batch;
use crate::engine::server::Server;
use crate::engine::telemetry::slowlog;
use crate::system::logging;

/// How many frames of a stack are shown.
const FRAMES_MAX: usize = 64;
/// How many arguments of the command are shown ...
const ARGUMENTS_MAX: usize = 32;
/// ... and how many bytes of each.
const ARGUMENT_BYTES_MAX: usize = 128;

/// What is prepared for the signal handler.
struct Shown {
    server: &'static Server,
    /// The address where the program begins. Addresses are shown relative to it.
    base: usize,
}

static SHOWN: OnceLock<Shown> = OnceLock::new();

thread_local! {
    /// The batch that the calling worker executes.
    static BATCH: Cell<*const Batch> = const { Cell::new(std::ptr::null()) };
    /// Whether the calling thread has a `SignalStack`.
    static HAS_STACK: Cell<bool> = const { Cell::new(false) };
}

/// Tells the signal handler which batch the calling worker executes.
///
/// # Safety
/// The batch must stay in place until the thread ends, or until this is called with null.
pub unsafe fn show_batch(batch: *const Batch) {
    BATCH.set(batch);
}

/// Whether the calling thread has a [`SignalStack`].
pub(crate) fn has_signal_stack() -> bool {
    HAS_STACK.get()
}

/// Makes [`show_stack`] work from now on.
pub(crate) fn install(server: &'static Server) {
    if SHOWN.set(Shown { server, base: program_base() }).is_err() {
        return;
    }
    // The unwinder's first call does things that a signal handler must not do.
    let mut frames = Frames { addresses: [0; FRAMES_MAX], count: 0 };
    // SAFETY: as in `write_stack`.
    unsafe { _Unwind_Backtrace(note_frame, (&raw mut frames).cast()) };
    catch(STACK_SIGNAL, stack_wanted, libc::SA_RESTART);
}

/// A separate stack for fault handlers of the calling thread, large enough for a report. The same
/// thread must drop it.
pub struct SignalStack {
    start: *mut c_void,
}

impl SignalStack {
    /// `None`: there is no memory, and a fault's report will have no stack trace.
    pub fn install() -> Option<Self> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: these are new pages at an address that the kernel chooses.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), SIGNAL_STACK_LEN, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let stack = libc::stack_t { ss_sp: start, ss_flags: 0, ss_size: SIGNAL_STACK_LEN };
        // SAFETY: the pages stay mapped until `drop` takes them from the kernel again.
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
        // SAFETY: the kernel stops using the pages before they are unmapped.
        unsafe {
            libc::sigaltstack(&none, std::ptr::null_mut());
            libc::munmap(self.start, SIGNAL_STACK_LEN);
        }
    }
}

/// In bytes. No page of it is touched before a crash.
const SIGNAL_STACK_LEN: usize = 256 * 1024;

pub(crate) type StackHandler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Installs a handler for a signal.
pub(crate) fn catch(signal: c_int, handler: StackHandler, flags: c_int) {
    // SAFETY: all zeros are a valid `sigaction`: it has numbers, and pointers that may be null.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | flags;
    // SAFETY: each pointer is null or points to a value of ours. The handler has the type that
    // SA_SIGINFO demands, and does only what handlers may do.
    unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
}

/// Makes a thread of this process write its stack to the log, by sending it a signal.
pub fn show_stack(thread: i32) {
    if SHOWN.get().is_some() {
        // SAFETY: the system call names a thread of this process. If it has ended, nothing happens.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, STACK_SIGNAL) };
    }
}

/// The signal that asks for a stack. The server does not use it otherwise.
const STACK_SIGNAL: c_int = libc::SIGUSR2;

extern "C" fn stack_wanted(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // The interrupted code must find its error number unchanged.
    // SAFETY: this is the thread's own place in the C library.
    let error = unsafe { *libc::__errno_location() };
    let out = Out(logging::descriptor());
    out.text("------ STACK OF THAT THREAD ------\n");
    write_stack(out, context);
    out.text("------ ITS COMMAND ------\n");
    write_command(out);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
}

/// Writes the command at work, if the thread is a worker that executes one.
pub(crate) fn write_command(out: Out) {
    let Some(Shown { server, .. }) = SHOWN.get() else { return };
    let batch = BATCH.get();
    // SAFETY: the caller of `show_batch` keeps the batch in place. Only this thread changes it, and
    // the handler has interrupted this thread. A change may be half done, but a command is read
    // only while it is being executed.
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

/// Writes a report to a descriptor. Does only what a signal handler may do.
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

    /// Writes bytes so that they fit one line.
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

/// The address that the signal interrupted.
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

/// Writes the addresses of the calls that led here, relative to the program.
pub(crate) fn write_stack(out: Out, context: *mut c_void) {
    let base = SHOWN.get().map_or(0, |shown| shown.base);
    let mut frames = Frames { addresses: [0; FRAMES_MAX], count: 0 };
    // SAFETY: this is the standard library's unwinder, and the callback gets our `Frames` back. The
    // unwinder reads the program's tables. For that it takes the loader's lock, which a thread that
    // loads or unloads a library holds only for moments.
    unsafe { _Unwind_Backtrace(note_frame, (&raw mut frames).cast()) };
    let at = interrupted_at(context);
    let frames = &frames.addresses[..frames.count];
    // The handler's own frames come first; leave them out.
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
    // SAFETY: this is the pointer that `write_stack` passed, and nothing else has it.
    let frames = unsafe { &mut *frames.cast::<Frames>() };
    if frames.count == FRAMES_MAX {
        return END_OF_STACK;
    }
    // SAFETY: the context is the unwinder's own.
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

/// The address where the loader put the program.
fn program_base() -> usize {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    let function: fn(&'static Server) = install;
    // SAFETY: the pointer is to our own `Dl_info`, which may be all zeros.
    unsafe {
        libc::dladdr(function as *const c_void, found.as_mut_ptr());
        found.assume_init().dli_fbase as usize
    }
}
