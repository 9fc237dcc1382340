//! What a process would have threads of their own do, and a driven one leaves to its test.

use std::cell::RefCell;

type Task = Box<dyn FnOnce() + Send>;

thread_local! {
    /// `None`: the calling thread drives nothing, and there are threads.
    static TASKS: RefCell<Option<Vec<(String, Task)>>> = const { RefCell::new(None) };
}

/// Has the calling thread's processes leave their tasks here from now on.
pub fn begin() {
    TASKS.with_borrow_mut(|tasks| {
        tasks.get_or_insert_default();
    });
}

/// Whether the calling thread drives a process.
pub fn is_driven() -> bool {
    TASKS.with_borrow(Option::is_some)
}

/// Leaves a task here, if the calling thread drives a process; else it comes back.
pub fn keep<F: FnOnce() + Send + 'static>(name: &str, task: F) -> Option<F> {
    TASKS.with_borrow_mut(|tasks| match tasks {
        None => Some(task),
        Some(tasks) => {
            // The log is written step by step.
            if name != "bobbin-log" {
                tasks.push((name.to_owned(), Box::new(task)));
            }
            None
        }
    })
}

/// Does the oldest task to its end; its name.
pub fn run_next() -> Option<String> {
    let (name, task) = TASKS.with_borrow_mut(|tasks| {
        tasks.as_mut().filter(|tasks| !tasks.is_empty()).map(|tasks| tasks.remove(0))
    })?;
    task();
    Some(name)
}

/// Forgets all that is left to do: the process is gone.
pub fn forget() {
    TASKS.with_borrow_mut(|tasks| tasks.iter_mut().for_each(Vec::clear));
}
