//! The crash report (`crash-log-enabled`): what the log gets when a signal is about to end the
//! process.
//!
//! The handler itself does only what a handler may: it writes registers, the stack's addresses and
//! the command at work from where they lie, piece by piece, with nothing allocated and nothing
//! locked. INFO and the list of clients need both; so they are written by a thread that has waited
//! for this since the start, and the handler waits for it for a bounded time: the crash may have
//! left a lock behind. Then the signal does what it always does, core dump included.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::admin::info::{self, Snapshot};
use crate::engine::client::describe;
use crate::engine::server::Server;
use crate::engine::slowlog;
use crate::system::logging;
use crate::worker::Batch;

/// Signals that mean a crash.
const SIGNALS: [(c_int, &str); 5] = [
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGABRT, "SIGABRT"),
];
/// How long the handler waits for the rest of the report.
const REPORT_MS: c_int = 3000;
/// Frames of the stack that are shown.
const FRAMES_MAX: usize = 64;
/// Arguments of the command that are shown, ...
const ARGUMENTS_MAX: usize = 32;
/// ... and bytes of each.
const ARGUMENT_BYTES_MAX: usize = 128;

/// What the handler finds ready.
struct Reporter {
    server: &'static Server,
    /// Wakes the thread that writes the rest, and tells when it has.
    wake: OwnedFd,
    done: OwnedFd,
    /// Where in memory the program begins: addresses are shown relative to it.
    base: usize,
}

static REPORTER: OnceLock<Reporter> = OnceLock::new();
/// One report is enough: a crash within it ends the process.
static IS_REPORTING: AtomicBool = AtomicBool::new(false);
/// The thread that crashed.
static CRASHED: AtomicI32 = AtomicI32::new(0);

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

/// Reports crashes from now on, as long as `crash-log-enabled` says so.
pub fn install(server: &'static Server) -> std::io::Result<()> {
    let (woken, wake) = std::io::pipe()?;
    let (done, finished) = std::io::pipe()?;
    let base = program_base();
    let reporter = Reporter { server, wake: wake.into(), done: done.into(), base };
    if REPORTER.set(reporter).is_err() {
        return Ok(());
    }
    let rest = move || {
        write_rest(server, File::from(OwnedFd::from(woken)), File::from(OwnedFd::from(finished)));
    };
    std::thread::Builder::new().name("bobbin-crash".into()).spawn(rest)?;
    // The unwinder's first call does what a handler may not.
    let mut frames = Frames { addresses: [0; FRAMES_MAX], count: 0 };
    // SAFETY: as in `write_stack`.
    unsafe { _Unwind_Backtrace(note_frame, (&raw mut frames).cast()) };
    for (signal, _) in SIGNALS {
        // A fault may mean that the stack is at its end.
        let own_stack = if is_fault(signal) { libc::SA_ONSTACK } else { 0 };
        catch(signal, crashed, libc::SA_RESETHAND | libc::SA_NODEFER | own_stack);
    }
    catch(STACK_SIGNAL, stack_wanted, libc::SA_RESTART);
    Ok(())
}

const fn is_fault(signal: c_int) -> bool {
    signal == libc::SIGSEGV || signal == libc::SIGBUS
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

/// Pages that nobody touches before a crash.
const SIGNAL_STACK_LEN: usize = 256 * 1024;

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

fn catch(signal: c_int, handler: Handler, flags: c_int) {
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
    if REPORTER.get().is_some() {
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
    if let Some(reporter) = REPORTER.get() {
        let out = Out(logging::descriptor());
        out.text("------ STACK OF THAT THREAD ------\n");
        write_stack(out, reporter, context);
        out.text("------ ITS COMMAND ------\n");
        write_command(out, reporter.server);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
}

extern "C" fn crashed(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let reporter = REPORTER.get().filter(|reporter| reporter.server.config.crash_log_enabled());
    if let Some(reporter) = reporter
        && !IS_REPORTING.swap(true, Ordering::SeqCst)
    {
        // SAFETY: the kernel passes a valid one.
        let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
        report(reporter, signal, code, address, context);
    } else if reporter.is_some()
        && CRASHED.load(Ordering::SeqCst) != rustix::thread::gettid().as_raw_nonzero().get()
    {
        // Another thread is at it, and ends the process when it is done.
        pause_ms(REPORT_MS * 2);
    }
    // The handler is back to the default, so that this ends the process with the signal's own mark.
    // SAFETY: system calls about this very thread.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

fn report(reporter: &Reporter, signal: c_int, code: c_int, address: usize, context: *mut c_void) {
    CRASHED.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::SeqCst);
    let out = Out(logging::descriptor());
    out.text("\n\n=== BOBBIN BUG REPORT START: what follows belongs together ===\n");
    out.text("Bobbin ");
    out.text(crate::engine::server::VERSION);
    out.text(" crashed by signal: ");
    out.number(signal as u64);
    let name = SIGNALS.iter().find(|(number, _)| *number == signal).map_or("?", |(_, name)| name);
    out.text(" (");
    out.text(name);
    out.text("), si_code: ");
    out.signed(i64::from(code));
    if is_fault(signal) {
        out.text(if code > 0 { "\nAccessing address: " } else { "\nSent by a process, address: " });
        out.hex(address as u64);
    }
    out.text("\nThread: ");
    out.number(CRASHED.load(Ordering::Relaxed) as u64);
    out.text("\n\n------ REGISTERS ------\n");
    write_registers(out, context);
    out.text("\n------ STACK TRACE ------\n");
    if !is_fault(signal) || HAS_STACK.get() {
        write_stack(out, reporter, context);
    } else {
        out.text("(this thread has too little of a stack for it)\n");
    }
    out.text("\n------ CURRENT COMMAND ------\n");
    write_command(out, reporter.server);
    // SAFETY: a write of one byte of ours to a pipe of ours.
    unsafe { libc::write(reporter.wake.as_raw_fd(), b"x".as_ptr().cast(), 1) };
    let mut done = libc::pollfd { fd: reporter.done.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one `pollfd` of ours.
    if unsafe { libc::poll(&mut done, 1, REPORT_MS) } != 1 {
        out.text("\n(The rest could not be written: something that it needs is held.)\n");
    }
    out.text("\n=== BOBBIN BUG REPORT END. Lines of the stack are for addr2line -Cfie PROGRAM ADDRESS... ===\n\n");
}

/// The command at work, if the thread is a worker that executes one.
fn write_command(out: Out, server: &Server) {
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

/// Waits for a crash, and writes the part of its report for which there has to be a sound stack.
fn write_rest(server: &'static Server, mut woken: File, mut finished: File) {
    if woken.read_exact(&mut [0]).is_err() {
        return;
    }
    let out = Out(logging::descriptor());
    let crashed = CRASHED.load(Ordering::SeqCst);
    for worker in server.workers.all() {
        if worker.watch.thread() == crashed {
            out.text(&format!(
                "worker {}: {}\n",
                worker.id,
                crate::process::watchdog::describe(server, &worker)
            ));
        }
    }
    out.text("\n------ CLIENT LIST OUTPUT ------\n");
    for client in server.clients.all().iter().take(CLIENTS_MAX) {
        out.text(&describe::line(server, client, server.clock.now_ms(), None));
    }
    out.text("\n------ INFO OUTPUT ------\n");
    // The shards are left alone: the one that crashed may hold them.
    let snapshot = Snapshot::gathered(server, Default::default(), (0, 0));
    let sections: [&[u8]; 8] = [
        b"server",
        b"clients",
        b"memory",
        b"persistence",
        b"stats",
        b"replication",
        b"cpu",
        b"threads",
    ];
    out.text(&info::write(&snapshot, &sections).replace("\r\n", "\n"));
    let _ = finished.write_all(b"x");
}

/// Clients that are listed.
const CLIENTS_MAX: usize = 1000;

/// Where the report goes. Only what a signal's handler may do.
#[derive(Clone, Copy)]
struct Out(c_int);

impl Out {
    fn bytes(self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            // SAFETY: the pointer and the length are those of a slice.
            let written = unsafe { libc::write(self.0, bytes.as_ptr().cast(), bytes.len()) };
            match usize::try_from(written) {
                Ok(written) if written > 0 => bytes = &bytes[written..],
                _ => return,
            }
        }
    }

    fn text(self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn number(self, number: u64) {
        self.digits(number, 10);
    }

    fn signed(self, number: i64) {
        if number < 0 {
            self.text("-");
        }
        self.number(number.unsigned_abs());
    }

    fn hex(self, number: u64) {
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
    fn printable(self, bytes: &[u8]) {
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

fn pause_ms(ms: c_int) {
    // SAFETY: no descriptors: it sleeps.
    unsafe { libc::poll(std::ptr::null_mut(), 0, ms) };
}

#[cfg(target_arch = "x86_64")]
fn write_registers(out: Out, context: *mut c_void) {
    const NAMES: [(&str, c_int); 18] = [
        ("RAX", libc::REG_RAX),
        ("RBX", libc::REG_RBX),
        ("RCX", libc::REG_RCX),
        ("RDX", libc::REG_RDX),
        ("RSI", libc::REG_RSI),
        ("RDI", libc::REG_RDI),
        ("RBP", libc::REG_RBP),
        ("RSP", libc::REG_RSP),
        ("R8", libc::REG_R8),
        ("R9", libc::REG_R9),
        ("R10", libc::REG_R10),
        ("R11", libc::REG_R11),
        ("R12", libc::REG_R12),
        ("R13", libc::REG_R13),
        ("R14", libc::REG_R14),
        ("R15", libc::REG_R15),
        ("RIP", libc::REG_RIP),
        ("EFL", libc::REG_EFL),
    ];
    // SAFETY: with SA_SIGINFO the kernel passes a context of this type.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    for (at, (name, index)) in NAMES.iter().enumerate() {
        out.text(name);
        out.text(":");
        out.hex(registers[*index as usize] as u64);
        out.text(if at % 4 == 3 { "\n" } else { " " });
    }
    out.text("\n");
}

#[cfg(not(target_arch = "x86_64"))]
fn write_registers(out: Out, _: *mut c_void) {
    out.text("(not known for this processor)\n");
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
fn write_stack(out: Out, reporter: &Reporter, context: *mut c_void) {
    let mut frames = Frames { addresses: [0; FRAMES_MAX], count: 0 };
    // SAFETY: the unwinder of the standard library; the callback gets our `Frames` back. It reads
    // tables of the program and takes the loader's lock for that, which is held for moments only,
    // by who starts or ends a library.
    unsafe { _Unwind_Backtrace(note_frame, (&raw mut frames).cast()) };
    let at = interrupted_at(context);
    let frames = &frames.addresses[..frames.count];
    // The handler's own frames come first.
    let first = frames.iter().position(|address| at != 0 && address.abs_diff(at) <= 1).unwrap_or(0);
    for address in &frames[first..] {
        out.hex(address.wrapping_sub(reporter.base) as u64);
        out.text("\n");
    }
}

struct Frames {
    addresses: [usize; FRAMES_MAX],
    count: usize,
}

extern "C" fn note_frame(context: *mut c_void, frames: *mut c_void) -> c_int {
    // SAFETY: what `write_stack` passed, which nobody else has.
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
    let function: fn(&'static Server) -> std::io::Result<()> = install;
    // SAFETY: the pointer is to a `Dl_info` of ours, which is valid with all zeros too.
    unsafe {
        libc::dladdr(function as *const c_void, found.as_mut_ptr());
        found.assume_init().dli_fbase as usize
    }
}
