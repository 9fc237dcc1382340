//! How many cores this process may use, and how its threads share them with others.

use std::num::NonZero;
use std::sync::OnceLock;
use std::thread::available_parallelism;

use rustix::thread::{CpuSet, sched_setaffinity};

/// As the system says at the first call (affinity and control groups included); asking reads
/// several files.
pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| available_parallelism().map_or(1, NonZero::get))
}

/// Work to which the configuration can give cores of its own (`server-cpulist` and similar
/// options).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CoreWork {
    Serving,
    /// Freeing memory, and getting the log to disk.
    Background,
    Rewriting,
    Saving,
}

/// Cores by their numbers, as `0-3,8-14:2` names them: 0, 1, 2, 3, 8, 10, 12 and 14. Without a
/// number: all.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct CoreList(Vec<usize>);

impl CoreList {
    /// The error says what is wrong.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let mut numbers = Vec::new();
        for part in text.split(|byte| *byte == b',').filter(|_| !text.is_empty()) {
            let Some((first, last, step)) = range(part) else {
                return Err("argument must be numbers of cores, like 0-3,8-14:2".into());
            };
            if last >= CpuSet::MAX_CPU {
                return Err(format!("the numbers of cores must be below {}", CpuSet::MAX_CPU));
            }
            numbers.extend((first..=last).step_by(step));
        }
        Ok(Self(numbers))
    }
}

fn range(text: &[u8]) -> Option<(usize, usize, usize)> {
    let text = str::from_utf8(text).ok()?;
    let (range, step) = text.split_once(':').unwrap_or((text, "1"));
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let number = |digits: &str| digits.parse::<u32>().ok().map(|number| number as usize);
    let (first, last, step) = (number(first)?, number(last)?, number(step)?);
    (first <= last && step > 0).then_some((first, last, step))
}

/// Keeps what cores each kind of work has. Counts once, and before threads are started.
pub fn assign(lists: [(CoreWork, CoreList); 4]) {
    // What was assigned first stays.
    drop(LISTS.set(lists));
}

/// Makes the calling thread, and the threads that it starts, run on the cores for this work.
pub fn go_to(work: CoreWork) {
    let lists = LISTS.get().into_iter().flatten();
    let Some((_, list)) = lists.into_iter().find(|(own, _)| *own == work) else { return };
    if list.0.is_empty() {
        return;
    }
    let mut set = CpuSet::new();
    list.0.iter().for_each(|number| set.set(*number));
    if let Err(error) = sched_setaffinity(None, &set) {
        log::warn!("Can't run on the cores {:?} ({work:?}): {error}", list.0);
    }
}

static LISTS: OnceLock<[(CoreWork, CoreList); 4]> = OnceLock::new();

/// How the kernel shares the cores between a thread of ours and all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// In turns as short as the kernel has them (100 us): a thread that is woken for something
    /// small comes first, and one that works long, and calls [`give_way`], has the core again as
    /// soon as that is done. The share as such is the ordinary one.
    ///
    /// Kernels before Linux 6.12 do not let a thread choose: there it is
    /// [`Ordinary`](Self::Ordinary).
    ShortTurns,
    /// As any other thread.
    Ordinary,
    /// A thread that is woken waits until the thread that has the core sleeps.
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

/// Lets another thread have the core, if one waits for it. To be called again and again by a thread
/// that has long work to do and never sleeps: one that is woken meanwhile, a worker with a small
/// command say, would wait until the time of the calling thread is used up, milliseconds.
pub fn give_way() {
    std::thread::yield_now();
}

/// Makes the calling thread, and the threads that it starts, leave the cores to the workers as far
/// as they want them. Freeing memory can wait, clients should not.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_named_by_numbers_and_ranges() {
        let parse = |text: &str| CoreList::parse(text.as_bytes()).map(|list| list.0);
        assert_eq!(parse(""), Ok(vec![]));
        assert_eq!(parse("3"), Ok(vec![3]));
        assert_eq!(parse("0-2,8-14:3,5"), Ok(vec![0, 1, 2, 8, 11, 14, 5]));
        for wrong in [",", "1,", "a", "1-", "-1", "2-1", "1-2:0", "1 ", "0-9999"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_thread_goes_where_its_work_is_done() {
        let all = rustix::thread::sched_getaffinity(None).expect("it may be asked");
        let first = (0..CpuSet::MAX_CPU).find(|number| all.is_set(*number)).expect("it runs");
        let list = |text: &str| CoreList::parse(text.as_bytes()).expect("a list");
        assign([
            (CoreWork::Serving, list("")),
            (CoreWork::Background, list(&first.to_string())),
            (CoreWork::Rewriting, list("1000")),
            (CoreWork::Saving, list("")),
        ]);
        let there = |work| {
            let go = move || {
                go_to(work);
                rustix::thread::sched_getaffinity(None).expect("it may be asked").count()
            };
            std::thread::spawn(go).join().expect("it ends")
        };
        assert_eq!(there(CoreWork::Serving), all.count());
        assert_eq!(there(CoreWork::Background), 1);
        // What there is not is no reason not to work.
        assert_eq!(there(CoreWork::Rewriting), all.count());
    }
}
