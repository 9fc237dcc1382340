//! A library for `LD_PRELOAD` that makes the system's clocks slow, so that a program in QEMU finds
//! as much time in a thousand commands as on a machine with as many cores as it has threads. Else
//! what it does by the clock would be most of what it does.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime as system_clock};

/// How many times slower. A worker in QEMU executes some 20,000 small commands a second, beside 15
/// others on two cores; one with a core of its own some millions.
const SLOWER: u32 = 500;

/// `clock_gettime(2)`; other clocks than the two that are used fail.
///
/// # Safety
/// `time` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int {
    static REALTIME: OnceLock<Duration> = OnceLock::new();
    static MONOTONIC: OnceLock<Duration> = OnceLock::new();
    let (id, start) = match clock {
        // CLOCK_REALTIME and CLOCK_REALTIME_COARSE; then CLOCK_MONOTONIC and its relatives.
        0 | 5 => (ClockId::Realtime, &REALTIME),
        1 | 4 | 6 | 7 => (ClockId::Monotonic, &MONOTONIC),
        _ => return -1,
    };
    let now = since_zero(system_clock(id));
    let start = *start.get_or_init(|| now);
    let slow = start + now.saturating_sub(start) / SLOWER;
    let seconds = slow.as_secs().try_into().expect("clocks show less");
    // SAFETY: by the caller.
    unsafe { time.write(Timespec { tv_sec: seconds, tv_nsec: slow.subsec_nanos().into() }) };
    0
}

/// These clocks do not show times before their zero.
fn since_zero(time: Timespec) -> Duration {
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
