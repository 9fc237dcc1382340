//! What a process would have threads of their own do, and a driven one leaves to its test.

use std::cell::RefCell;

/// What a thread would do.
pub struct Task {
    pub name: String,
    pub run: Box<dyn FnOnce() + Send>,
}

thread_local! {
    /// `None`: the calling thread drives nothing, and there are threads.
    static TASKS: RefCell<Option<Vec<Task>>> = const { RefCell::new(None) };
}

/// Has the calling thread's processes leave their tasks here from now on.
pub fn begin() {
    super::ticks::begin();
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
                tasks.push(Task { name: name.to_owned(), run: Box::new(task) });
            }
            None
        }
    })
}

/// The oldest task.
pub fn take_next() -> Option<Task> {
    TASKS.with_borrow_mut(|tasks| {
        tasks.as_mut().filter(|tasks| !tasks.is_empty()).map(|tasks| tasks.remove(0))
    })
}

/// Does the oldest task to its end; its name.
pub fn run_next() -> Option<String> {
    let Task { name, run } = take_next()?;
    run();
    Some(name)
}

/// Whether there are any.
pub fn are_there() -> bool {
    TASKS.with_borrow(|tasks| tasks.as_ref().is_some_and(|tasks| !tasks.is_empty()))
}

/// Forgets all that is left to do: the process is gone.
pub fn forget() {
    TASKS.with_borrow_mut(|tasks| tasks.iter_mut().for_each(Vec::clear));
}
