//! The hash of a key reads nothing beside it. This is tested here since it takes pages that no code
//! may read, for which the store has no need otherwise.

use bobbin_store::hash::Hasher;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

const PAGE: usize = 1 << 16;

/// A page between two that no code may read, for the rest of the process.
fn guarded() -> &'static mut [u8] {
    // SAFETY: nothing else has the mapping, and it never ends. All of the slice may be read and
    // written, and is zero.
    unsafe {
        let start =
            mmap_anonymous(std::ptr::null_mut(), 3 * PAGE, ProtFlags::empty(), MapFlags::PRIVATE);
        let start = start.expect("there is room").cast::<u8>().add(PAGE);
        let access = MprotectFlags::READ | MprotectFlags::WRITE;
        mprotect(start.cast(), PAGE, access).expect("it is ours");
        std::slice::from_raw_parts_mut(start, PAGE)
    }
}

#[test]
fn nothing_beside_a_key_is_read() {
    let (hasher, guarded) = (Hasher::new(7), guarded());
    for len in 0..=512 {
        let key: Vec<u8> = (0..len).map(|i| (i * 151 + len * 7 + i / 3) as u8).collect();
        let hash = hasher.hash(&key);
        for shift in 0..16 {
            for at in [shift, PAGE / 2 - shift, PAGE - len - shift] {
                // What lies around it does not count either.
                guarded[at.saturating_sub(32)..PAGE.min(at + len + 32)].fill(shift as u8 ^ 0x5a);
                guarded[at..at + len].copy_from_slice(&key);
                assert_eq!(hasher.hash(&guarded[at..at + len]), hash, "{len} bytes at {at}");
            }
        }
    }
}
