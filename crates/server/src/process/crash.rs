//! The crash report (`crash-log-enabled`): what is logged when a signal is about to end the
//! process.
//!
//! The handler does only what a signal handler may do: it writes the registers, the stack's
//! addresses and the command at work piece by piece, without allocating or locking. INFO and the
//! list of clients need both. So a thread that has waited since the start writes them. The handler
//! waits for that thread for a limited time, because the crashed thread may hold a lock. Then the
//! signal has its normal effect, including a core dump.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::admin::info::{self, Snapshot};
use crate::engine::client::describe;
use crate::engine::server::Server;
use crate::system::logging;
use crate::worker::stack::{self, Out, catch, has_signal_stack};
use crate::worker::watchdog;

/// The signals that mean a crash.
const SIGNALS: [(c_int, &str); 5] = [
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGABRT, "SIGABRT"),
];
/// How long the handler waits for the rest of the report.
const REPORT_MS: c_int = 3000;

/// What is prepared for the handler.
struct Reporter {
    server: &'static Server,
    /// Wakes the thread that writes the rest. `done` tells when that is finished.
    wake: OwnedFd,
    done: OwnedFd,
}

static REPORTER: OnceLock<Reporter> = OnceLock::new();
/// There is only one report: a crash within it ends the process.
static IS_REPORTING: AtomicBool = AtomicBool::new(false);
/// The thread that crashed.
static CRASHED: AtomicI32 = AtomicI32::new(0);

/// Reports crashes from now on, while `crash-log-enabled` is set.
pub fn install(server: &'static Server) -> std::io::Result<()> {
    let (woken, wake) = std::io::pipe()?;
    let (done, finished) = std::io::pipe()?;
    let reporter = Reporter { server, wake: wake.into(), done: done.into() };
    if REPORTER.set(reporter).is_err() {
        return Ok(());
    }
    let rest = move || {
        write_rest(server, File::from(OwnedFd::from(woken)), File::from(OwnedFd::from(finished)));
    };
    std::thread::Builder::new().name("bobbin-crash".into()).spawn(rest)?;
    stack::install(server);
    for (signal, _) in SIGNALS {
        // The fault may mean that the stack has overflowed.
        let own_stack = if is_fault(signal) { libc::SA_ONSTACK } else { 0 };
        catch(signal, crashed, libc::SA_RESETHAND | libc::SA_NODEFER | own_stack);
    }
    Ok(())
}

const fn is_fault(signal: c_int) -> bool {
    signal == libc::SIGSEGV || signal == libc::SIGBUS
}

extern "C" fn crashed(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let reporter = REPORTER.get().filter(|reporter| reporter.server.config.crash_log_enabled());
    if let Some(reporter) = reporter
        && !IS_REPORTING.swap(true, Ordering::SeqCst)
    {
        // SAFETY: the kernel passes a valid pointer.
        let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
        report(reporter, signal, code, address, context);
    } else if reporter.is_some()
        && CRASHED.load(Ordering::SeqCst) != rustix::thread::gettid().as_raw_nonzero().get()
    {
        // Another thread is writing its report, and ends the process after that.
        pause_ms(REPORT_MS * 2);
    }
    // The default handler is restored, so the signal ends the process as usual.
    // SAFETY: the system calls concern only this thread.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

fn report(reporter: &Reporter, signal: c_int, code: c_int, address: usize, context: *mut c_void) {
    CRASHED.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::SeqCst);
    let out = Out::new(logging::descriptor());
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
    if !is_fault(signal) || has_signal_stack() {
        stack::write_stack(out, context);
    } else {
        out.text("(this thread has too little of a stack for it)\n");
    }
    out.text("\n------ CURRENT COMMAND ------\n");
    stack::write_command(out);
    // SAFETY: this writes one byte of ours to a pipe of ours.
    unsafe { libc::write(reporter.wake.as_raw_fd(), b"x".as_ptr().cast(), 1) };
    let mut done = libc::pollfd { fd: reporter.done.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: there is one `pollfd`, which is ours.
    if unsafe { libc::poll(&mut done, 1, REPORT_MS) } != 1 {
        out.text("\n(The rest could not be written: something that it needs is held.)\n");
    }
    out.text("\n=== BOBBIN BUG REPORT END. Lines of the stack are for addr2line -Cfie PROGRAM ADDRESS... ===\n\n");
}

/// Waits for a crash, and writes the part of its report that needs a sound stack.
fn write_rest(server: &'static Server, mut woken: File, mut finished: File) {
    if woken.read_exact(&mut [0]).is_err() {
        return;
    }
    let out = Out::new(logging::descriptor());
    let crashed = CRASHED.load(Ordering::SeqCst);
    for worker in server.workers.all() {
        if worker.watch.thread() == crashed {
            out.text(&format!("worker {}: {}\n", worker.id, watchdog::describe(server, &worker)));
        }
    }
    out.text("\n------ CLIENT LIST OUTPUT ------\n");
    for client in server.clients.all().iter().take(CLIENTS_MAX) {
        out.text(&describe::line_for_log(server, client, server.clock.now_ms()));
        out.text("\n");
    }
    out.text("\n------ INFO OUTPUT ------\n");
    // The shards are not read, because the crashed thread may hold them.
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
    out.text("\n------ CONFIG OUTPUT (what is not at its default) ------\n");
    for (name, value) in server.config.changed() {
        out.text(&format!("{name} {}\n", String::from_utf8_lossy(&value)));
    }
    // This fails if the crashed thread has given up waiting and is gone.
    drop(finished.write_all(b"x"));
}

/// How many clients are listed.
const CLIENTS_MAX: usize = 1000;

fn pause_ms(ms: c_int) {
    // SAFETY: without descriptors the call only sleeps.
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
