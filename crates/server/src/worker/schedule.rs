//! How the kernel schedules workers.
//!
//! When there are as many workers as cores, or more, a worker that is woken would push another thread off
//! its core, mostly one that was just about to send us more. As a batch task it waits until that one
//! sleeps, and then finds more to do in one turn. Where cores are idle nothing changes: a woken thread
//! gets one at once. Measured with two cores (`docs/adr/0004-batch-scheduling.md`): at four workers the CPU
//! per operation falls by a third.

use crate::cores::cores;
use crate::server::Server;

/// Schedules the calling worker's thread as fits the number of workers.
pub fn apply(server: &Server) {
    let crowded = cores() > 1 && server.workers.len() >= cores();
    let policy = if crowded { libc::SCHED_BATCH } else { libc::SCHED_OTHER };
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the calling thread (0), and a parameter that lives through the call.
    let refused = unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) } != 0;
    if refused {
        log::debug!(
            "Cannot change the scheduling of a worker: {}",
            std::io::Error::last_os_error()
        );
    }
}
