//! Two threads that write one place at the same time. `cargo xtask races` runs this first: a
//! sanitizer that does not see this race would see no other one.

use std::cell::UnsafeCell;

struct Place(UnsafeCell<u64>);

// SAFETY: none. This is the fault that the program is there for.
unsafe impl Sync for Place {}

static PLACE: Place = Place(UnsafeCell::new(0));

fn main() {
    // SAFETY: the place exists. Nothing keeps the threads apart, which is what is looked for.
    let write = |value: u64| unsafe { PLACE.0.get().write_volatile(value) };
    std::thread::scope(|scope| {
        scope.spawn(|| write(1));
        scope.spawn(|| write(2));
    });
}
