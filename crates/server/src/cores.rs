//! How many cores this process may use, and how its threads share them with others.

use std::num::NonZero;
use std::sync::OnceLock;
use std::thread::available_parallelism;

/// As the system says at the first call (affinity and control groups included); asking reads several files.
pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| available_parallelism().map_or(1, NonZero::get))
}

/// How the kernel shares the cores between a thread of ours and all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// In turns as short as the kernel has them (100 us): who is woken for something small comes first, and who works
    /// long, and calls [`give_way`], has the core again as soon as that is done. The share as such is the ordinary one.
    ///
    /// Kernels before Linux 6.12 do not let a thread choose: there it is [`Ordinary`](Self::Ordinary).
    ShortTurns,
    /// As any other thread.
    Ordinary,
    /// Who is woken waits until the thread that has the core sleeps.
    Batch,
}

/// Has the calling thread share the cores in this way.
pub fn share(share: Share) {
    let (policy, slice_ns) = match share {
        Share::ShortTurns => (libc::SCHED_OTHER, SLICE_MIN_NS),
        Share::Ordinary => (libc::SCHED_OTHER, 0),
        Share::Batch => (libc::SCHED_BATCH, 0),
    };
    // SAFETY: nothing but numbers.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: policy as u32,
        sched_flags: 0,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: slice_ns,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the calling thread (0), and attributes that live through the call.
    let refused = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if refused != 0 {
        let error = std::io::Error::last_os_error();
        log::debug!("Cannot change the scheduling of a thread: {error}");
    }
}

/// Lets another thread have the core, if one waits for it. To be called again and again by whoever has long work to do
/// and never sleeps: who is woken meanwhile, a worker with a small command say, would wait until the time of the
/// calling thread is used up, milliseconds.
pub fn give_way() {
    std::thread::yield_now();
}

/// Has the calling thread, and those that it starts, leave the cores to the workers, as far as they want them: memory
/// that is to be freed may wait, clients should not.
pub fn step_aside() {
    // SAFETY: for the calling thread (0), to which Linux applies it alone.
    let refused = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) } != 0;
    if refused {
        log::debug!("A thread in the background stays as urgent as others");
    }
}

/// A tenth of an ordinary thread's share of a core that both want.
const NICE: libc::c_int = 10;
/// What the kernel takes for the shortest turn.
const SLICE_MIN_NS: u64 = 100_000;
