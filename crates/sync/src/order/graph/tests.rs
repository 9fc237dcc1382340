use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::order::Class;
use crate::{Condvar, Mutex, RwLock};

/// These are guarded by the tests' locks. The messages name the locks by them.
#[derive(Default)]
struct First;
#[derive(Default)]
struct Second;
#[derive(Default)]
struct Third;

/// The message with which a new thread panics.
fn fault(work: impl FnOnce() + Send) -> Option<String> {
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| catch_unwind(AssertUnwindSafe(work))).join().unwrap();
        ended.err().map(|panic| *panic.downcast::<String>().unwrap())
    })
}

#[test]
fn two_orders_on_two_threads_are_reported_with_all_places() {
    let (first, second) = (Mutex::new(First), Mutex::new(Second));
    let forth = || {
        let _first = first.lock();
        let _second = second.lock();
    };
    let back = || {
        let _second = second.lock();
        let _first = first.lock();
    };
    assert_eq!(fault(forth), None);
    let text = fault(back).unwrap();
    assert!(text.contains("First (") && text.contains("Second ("), "{text}");
    assert_eq!(text.matches("tests.rs:").count(), 8, "{text}");
    // The order has not changed.
    assert_eq!(fault(forth), None);
    assert!(fault(back).is_some());
}

#[test]
fn a_way_over_a_third_lock_is_one_too() {
    let (first, second, third) = (Mutex::new(First), RwLock::new(Second), Mutex::new(Third));
    assert_eq!(fault(|| drop((first.lock(), second.write()))), None);
    assert_eq!(fault(|| drop((second.read(), third.lock()))), None);
    assert_eq!(fault(|| drop((first.lock(), third.lock()))), None);
    let text = fault(|| drop((third.lock(), first.lock()))).unwrap();
    assert_eq!(text.lines().count(), 2, "the short way: {text}");
    let text = fault(|| drop((third.lock(), second.read()))).unwrap();
    assert!(text.contains("Third (") && text.contains("Second ("), "{text}");
}

#[test]
fn nobody_waits_twice_for_a_class() {
    let lock = RwLock::new(First);
    assert_eq!(fault(|| (drop(lock.read()), drop(lock.read())).0), None);
    assert!(fault(|| drop((lock.read(), lock.read()))).unwrap().contains("First ("));
    let many = [0; 2].map(|_| Mutex::new(Second));
    assert!(fault(|| drop((many[0].lock(), many[1].lock()))).unwrap().contains("Second ("));
    // Locks made elsewhere are of another class.
    let (one, other) = (Mutex::new(Second), Mutex::new(Second));
    assert_eq!(fault(|| drop((one.lock(), other.lock()))), None);
}

#[test]
fn those_with_ranks_are_taken_upwards() {
    let many = [3, 5, 7].map(|rank| Mutex::ranked(First, rank));
    assert_eq!(fault(|| drop((many[0].lock(), many[2].lock()))), None);
    assert_eq!(fault(|| drop((many[1].lock(), many[2].lock()))), None);
    assert!(fault(|| drop((many[2].lock(), many[1].lock()))).is_some());
    // The highest rank counts, not the one taken last.
    let work = || {
        let _high = many[2].lock();
        let _low = many[0].try_lock();
        drop(many[1].lock());
    };
    assert!(fault(work).is_some());
}

#[test]
fn trying_is_no_waiting_but_holds() {
    let (first, second) = (Mutex::new(First), Mutex::new(Second));
    assert_eq!(fault(|| drop((first.lock(), second.try_lock().unwrap()))), None);
    assert_eq!(fault(|| drop((second.try_lock().unwrap(), first.lock()))), None);
    assert!(fault(|| drop((first.lock(), second.lock()))).is_some());
    let held = first.lock();
    assert!(first.try_lock().is_none());
    drop(held);
}

#[test]
fn who_sleeps_gives_up_one_lock_and_waits_for_it_again() {
    let (first, second, bell) = (Mutex::new(First), Mutex::new(Second), Condvar::new());
    let moment = Duration::from_millis(1);
    let alone = || {
        let (slept, is_over) = bell.wait_timeout(first.lock(), moment);
        assert!(is_over);
        // The lock is held again.
        drop((slept, second.lock()));
        // It is not held any more.
        drop(first.lock());
    };
    assert_eq!(fault(alone), None);
    let beneath = || {
        let held = first.lock();
        let _second = second.lock();
        drop(bell.wait_timeout(held, moment));
    };
    assert!(fault(beneath).unwrap().contains("First ("));
    assert_eq!(fault(|| drop(first.lock())), None);
}

#[test]
fn locks_without_room_take_part() {
    static CLASS: Class = Class::of::<Third>(0);
    let first = Mutex::new(First);
    let inside = || {
        CLASS.ranked(1).wait_for();
        CLASS.ranked(1).hold();
        CLASS.ranked(2).wait_for();
        drop(first.lock());
        CLASS.ranked(1).release();
        drop(first.lock());
    };
    assert_eq!(fault(inside), None);
    assert!(fault(|| (first.lock(), CLASS.ranked(9).wait_for()).1).is_some());
    CLASS.release();
}

#[test]
fn a_thread_that_panics_reports_nothing_more() {
    struct Last<'a>(&'a Mutex<First>, &'a Mutex<Second>);
    impl Drop for Last<'_> {
        fn drop(&mut self) {
            drop((self.1.lock(), self.0.lock()));
        }
    }
    let (first, second) = (Mutex::new(First), Mutex::new(Second));
    assert_eq!(fault(|| drop((first.lock(), second.lock()))), None);
    let work = || {
        let _last = Last(&first, &second);
        panic!("{}", "for another reason");
    };
    assert_eq!(fault(work).unwrap(), "for another reason");
}
