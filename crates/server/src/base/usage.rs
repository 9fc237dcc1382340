//! Processor time of the process and of the calling thread.

/// Processor time in seconds.
#[derive(Clone, Copy, Default, Debug)]
pub struct ProcessorUsage {
    pub system_s: f64,
    pub user_s: f64,
    pub thread_system_s: f64,
    pub thread_user_s: f64,
}

impl ProcessorUsage {
    /// The times until now.
    pub fn now() -> Self {
        let (process, thread) = (usage(libc::RUSAGE_SELF), usage(libc::RUSAGE_THREAD));
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Self {
            system_s: seconds(process.ru_stime),
            user_s: seconds(process.ru_utime),
            thread_system_s: seconds(thread.ru_stime),
            thread_user_s: seconds(thread.ru_utime),
        }
    }
}

fn usage(who: i32) -> libc::rusage {
    // SAFETY: all zeros are a valid `rusage`, as it has only numbers.
    let mut usage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a local `rusage`. The call fails only for an unknown `who`.
    unsafe { libc::getrusage(who, &mut usage) };
    usage
}
