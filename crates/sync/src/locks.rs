//! The locks of the whole server. They are the standard library's or shuttle's, and they are
//! checked to be taken in one order (`order`).
//!
//! It is no problem here if a thread panics while it holds a lock, since release builds abort. So
//! locking cannot fail.

use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

use super::order::{Class, Held};
use super::primitive;

/// In release builds nothing more than a `std::sync::Mutex`.
pub struct Mutex<T> {
    class: Class,
    lock: primitive::Mutex<T>,
}

/// A mutex that is held. Dropping this unlocks it.
pub struct MutexGuard<'a, T> {
    guard: primitive::MutexGuard<'a, T>,
    held: Held,
}

/// In release builds nothing more than a `std::sync::RwLock`. A thread that reads must not read
/// again before it is done: if a writer came in between, both would wait for ever.
pub struct RwLock<T> {
    class: Class,
    lock: primitive::RwLock<T>,
}

pub struct RwLockReadGuard<'a, T> {
    guard: primitive::RwLockReadGuard<'a, T>,
    _held: Held,
}

pub struct RwLockWriteGuard<'a, T> {
    guard: primitive::RwLockWriteGuard<'a, T>,
    _held: Held,
}

/// Where threads sleep that hold a mutex. While they sleep they do not hold it.
#[derive(Default)]
pub struct Condvar(primitive::Condvar);

impl<T> Mutex<T> {
    #[cfg_attr(debug_assertions, track_caller)]
    pub const fn new(value: T) -> Self {
        Self::ranked(value, 0)
    }

    /// A mutex of several that are made in the same place. They may be held together if they are
    /// locked in the order of rising ranks.
    #[cfg_attr(debug_assertions, track_caller)]
    pub const fn ranked(value: T, rank: u32) -> Self {
        Self { class: Class::of::<T>(rank), lock: primitive::Mutex::new(value) }
    }

    /// For something that is held in the same way as this mutex, but without a guard.
    #[inline(always)]
    pub const fn class(&self) -> &Class {
        &self.class
    }

    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.class.wait_for();
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        MutexGuard { guard, held: self.class.held() }
    }

    /// Returns `None` if another thread holds it. This does not wait, so it may be called in any
    /// order.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = match self.lock.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { guard, held: self.class.held() })
    }
}

impl<T> RwLock<T> {
    #[cfg_attr(debug_assertions, track_caller)]
    pub const fn new(value: T) -> Self {
        Self { class: Class::of::<T>(0), lock: primitive::RwLock::new(value) }
    }

    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.class.wait_for();
        let guard = self.lock.read().unwrap_or_else(PoisonError::into_inner);
        RwLockReadGuard { guard, _held: self.class.held() }
    }

    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.class.wait_for();
        let guard = self.lock.write().unwrap_or_else(PoisonError::into_inner);
        RwLockWriteGuard { guard, _held: self.class.held() }
    }
}

impl Condvar {
    pub const fn new() -> Self {
        Self(primitive::Condvar::new())
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Sleeps until a thread notifies. May return early.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let MutexGuard { guard, held } = guard;
        let guard = held.give_up_while(|| self.0.wait(guard));
        MutexGuard { guard: guard.unwrap_or_else(PoisonError::into_inner), held }
    }

    /// Sleeps while `condition` is true. `condition` must take no locks.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let MutexGuard { guard, held } = guard;
        let guard = held.give_up_while(|| self.0.wait_while(guard, condition));
        MutexGuard { guard: guard.unwrap_or_else(PoisonError::into_inner), held }
    }

    /// Sleeps until a thread notifies or the given time is over. Returns also whether the time is
    /// over.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        let MutexGuard { guard, held } = guard;
        let waited = held.give_up_while(|| self.0.wait_timeout(guard, timeout));
        let (guard, result) = waited.unwrap_or_else(PoisonError::into_inner);
        (MutexGuard { guard, held }, result.timed_out())
    }

    /// Sleeps while `condition` is true, but at most for the given time. `condition` must take no
    /// locks. Returns also whether the time is over.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> (MutexGuard<'a, T>, bool) {
        let MutexGuard { guard, held } = guard;
        let waited = held.give_up_while(|| self.0.wait_timeout_while(guard, timeout, condition));
        let (guard, result) = waited.unwrap_or_else(PoisonError::into_inner);
        (MutexGuard { guard, held }, result.timed_out())
    }
}

impl<T: Default> Default for Mutex<T> {
    #[cfg_attr(debug_assertions, track_caller)]
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Default> Default for RwLock<T> {
    #[cfg_attr(debug_assertions, track_caller)]
    fn default() -> Self {
        Self::new(T::default())
    }
}

macro_rules! deref {
    ($guard:ident) => {
        impl<T> Deref for $guard<'_, T> {
            type Target = T;
            #[inline(always)]
            fn deref(&self) -> &T {
                &self.guard
            }
        }
    };
}

macro_rules! deref_mut {
    ($guard:ident) => {
        deref!($guard);
        impl<T> DerefMut for $guard<'_, T> {
            #[inline(always)]
            fn deref_mut(&mut self) -> &mut T {
                &mut self.guard
            }
        }
    };
}

deref_mut!(MutexGuard);
deref!(RwLockReadGuard);
deref_mut!(RwLockWriteGuard);

/// Without the checks of debug builds, these types are as large as those they are made of.
#[cfg(not(debug_assertions))]
const _: () = {
    assert!(size_of::<Mutex<u64>>() == size_of::<primitive::Mutex<u64>>());
    assert!(size_of::<MutexGuard<u64>>() == size_of::<primitive::MutexGuard<u64>>());
    assert!(size_of::<RwLock<u64>>() == size_of::<primitive::RwLock<u64>>());
    assert!(size_of::<RwLockReadGuard<u64>>() == size_of::<primitive::RwLockReadGuard<u64>>());
};
