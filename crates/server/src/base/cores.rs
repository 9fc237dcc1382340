//! How many cores the process may use, and how its threads share them with others.

use std::num::NonZero;
use std::sync::OnceLock;
use std::thread::available_parallelism;

use rustix::thread::{CpuSet, sched_setaffinity};

/// The number of cores that the process may use, by affinity and control groups, as of the first
/// call. Asking the system reads several files.
pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| available_parallelism().map_or(1, NonZero::get))
}

/// Kinds of work that the configuration can assign cores to (`server-cpulist` and similar options).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CoreWork {
    Serving,
    /// Freeing memory, and writing the log to disk.
    Background,
    Rewriting,
    Saving,
}

/// Numbers of cores, as `0-3,8-14:2` lists them: 0, 1, 2, 3, 8, 10, 12 and 14. An empty list means
/// all cores.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct CoreList(Vec<usize>);

impl CoreList {
    /// Parses a list. The error says what is wrong.
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

/// Sets the cores for each kind of work. Only the first call counts, which must come before threads
/// are started.
pub fn assign(lists: [(CoreWork, CoreList); 4]) {
    // The first assignment stays.
    drop(LISTS.set(lists));
}

/// Moves the calling thread, and the threads that it starts later, to the cores for this work.
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

/// How the kernel shares the cores between a thread of the server and all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CoreShare {
    /// In the shortest turns that the kernel has (100 us). A thread that is woken for something
    /// small comes first, and a thread that works long and calls [`give_way`] has the core again as
    /// soon as that is done. The thread's share of the core is the ordinary one.
    ///
    /// Kernels before Linux 6.12 do not let a thread choose this; there it is the same as
    /// [`Ordinary`](Self::Ordinary).
    ShortTurns,
    /// As any other thread.
    Ordinary,
    /// When the thread is woken, it waits until the running thread sleeps.
    Batch,
}

/// Sets how the calling thread shares the cores.
pub fn share(share: CoreShare) {
    let (policy, slice_ns) = match share {
        CoreShare::ShortTurns => (libc::SCHED_OTHER, SLICE_MIN_NS),
        CoreShare::Ordinary => (libc::SCHED_OTHER, 0),
        CoreShare::Batch => (libc::SCHED_BATCH, 0),
    };
    // SAFETY: the call takes only numbers.
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
    // SAFETY: the call is for the calling thread (0), and the attributes live through it.
    let refused = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if refused != 0 {
        let error = std::io::Error::last_os_error();
        log::debug!("Cannot change the scheduling of a thread: {error}");
    }
}

/// Lets another thread have the core, if one waits for it. A thread that works long without
/// sleeping must call this again and again. Otherwise a woken thread, for example a worker with a
/// small command, would wait for milliseconds until the calling thread's time is used up.
pub fn give_way() {
    std::thread::yield_now();
}

/// Makes the calling thread, and the threads that it starts later, leave the cores to the workers
/// as far as those want them. Freeing memory can wait, clients should not.
pub fn step_aside() {
    // SAFETY: the call is for the calling thread (0); Linux applies it to that thread alone.
    let refused = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) } != 0;
    if refused {
        log::debug!("A thread in the background stays as urgent as others");
    }
}

/// A tenth of an ordinary thread's share, if both want the core.
const NICE: libc::c_int = 10;
/// The shortest turn that the kernel accepts.
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
        // Cores that do not exist do not stop a thread from working.
        assert_eq!(there(CoreWork::Rewriting), all.count());
    }
}
