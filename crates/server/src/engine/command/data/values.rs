//! Values on their way in: large arguments are copied before the shards of their command are
//! locked.

use bobbin_store::entry::{INLINE_MAX, SharedString};
use bobbin_store::trim::{Trim, kept_max};

use super::super::Values;
use super::Data;

/// Values that were made before the shards of their command are locked.
#[derive(Default)]
pub(super) struct IncomingValues {
    /// The large arguments of the current command by index, ascending; `None` if the handler has
    /// taken it.
    prepared: Vec<(usize, Option<SharedString>)>,
    /// Large arguments that were received in blocks that can become values.
    offered: OfferedValues,
}

/// Arguments that need not be copied, sorted by the address of their first bytes. There may be a
/// hundred thousand, and each is looked for.
#[derive(Default)]
pub struct OfferedValues(Vec<(usize, SharedString)>);

impl IncomingValues {
    /// Gives memory back that a rare command needed.
    pub(super) fn rest(&mut self) {
        self.prepared.trim(kept_max::<(usize, Option<SharedString>)>());
    }
}

impl OfferedValues {
    pub fn new<'a>(arguments: impl Iterator<Item = &'a SharedString>) -> Self {
        let mut offered = Self::default();
        offered.replace(arguments);
        offered
    }

    fn replace<'a>(&mut self, arguments: impl Iterator<Item = &'a SharedString>) {
        self.0.clear();
        self.0.shrink_to(OFFERED_KEPT_MAX);
        self.0
            .extend(arguments.map(|shared| (shared.as_ptr().addr(), SharedString::clone(shared))));
        self.0.sort_unstable_by_key(|(address, _)| *address);
    }

    fn find(&self, argument: &[u8]) -> Option<&SharedString> {
        let address = argument.as_ptr().addr();
        let found = self.0.binary_search_by_key(&address, |(address, _)| *address).ok()?;
        let (_, shared) = &self.0[found];
        std::ptr::eq(shared.as_slice(), argument).then_some(shared)
    }
}

impl Data {
    /// Copies the arguments that become values and are too long to lie in an entry. Nothing is
    /// locked meanwhile, as a large copy may take long in the kernel.
    #[inline(always)]
    pub fn prepare(&mut self, values: Values, args: &[&[u8]]) {
        let long = |at: usize| args.get(at).is_some_and(|arg| arg.len() > INLINE_MAX);
        if values.step == 0 {
            if long(values.first) {
                self.prepare_one(values.first, args[values.first]);
            }
            return;
        }
        for at in (values.first..args.len()).step_by(values.step) {
            if long(at) {
                self.prepare_one(at, args[at]);
            }
        }
    }

    #[cold]
    fn prepare_one(&mut self, at: usize, argument: &[u8]) {
        self.release();
        let shared = self.shared(argument);
        self.values.prepared.push((at, Some(shared)));
    }

    /// The argument as a value, if it need not be copied.
    pub fn offered(&self, argument: &[u8]) -> Option<SharedString> {
        self.values.offered.find(argument).cloned()
    }

    /// The argument as bytes that outlive the command.
    pub fn shared(&self, argument: &[u8]) -> SharedString {
        self.offered(argument).unwrap_or_else(|| SharedString::new(argument.to_vec()))
    }

    /// Offers arguments of the next commands that need not be copied. They may stay shared as long
    /// as any slice of them is in use.
    pub fn offer<'a>(&mut self, arguments: impl Iterator<Item = &'a SharedString>) {
        self.values.offered.replace(arguments);
    }

    /// Offers these arguments, and returns in `offered` those that were offered before.
    pub const fn swap_offered(&mut self, offered: &mut OfferedValues) {
        std::mem::swap(&mut self.values.offered, offered);
    }

    /// The prepared copy of the argument at `at`, if there is one.
    pub fn take_prepared(&mut self, at: usize) -> Option<SharedString> {
        let prepared = &mut self.values.prepared;
        let found = prepared.binary_search_by_key(&at, |(index, _)| *index).ok()?;
        prepared[found].1.take()
    }

    /// Drops the copies that the handler did not take.
    #[inline(always)]
    pub fn end_prepared(&mut self) {
        if !self.values.prepared.is_empty() {
            self.values.prepared.clear();
        }
    }
}

/// The most offered arguments that memory is kept for.
const OFFERED_KEPT_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Random;

    #[test]
    fn what_is_offered_is_found_by_where_it_lies() {
        let mut random = Random::new(0x0ffe);
        let mut next = || SharedString::new(vec![b'x'; 1 + random.below(10_000) as usize]);
        let others: Vec<SharedString> = (0..100).map(|_| next()).collect();
        for count in [0, 1, 2, 3, 100, 3000] {
            let shared: Vec<SharedString> = (0..count).map(|_| next()).collect();
            let mut offered = OfferedValues::new(others.iter());
            offered.replace(shared.iter());
            for shared in &shared {
                let found = offered.find(shared).expect("it is offered");
                assert!(SharedString::ptr_eq(found, shared));
                assert_eq!(SharedString::strong_count(shared), 2);
                assert!(offered.find(&shared[..shared.len() - 1]).is_none(), "a part of it");
                assert!(offered.find(&shared[1..]).is_none(), "a part of it");
                assert!(offered.find(&shared.to_vec()).is_none(), "a copy of it");
            }
            for other in &others {
                assert!(offered.find(other).is_none());
                assert_eq!(SharedString::strong_count(other), 1);
            }
            assert!(offered.find(b"").is_none());
            offered.replace(std::iter::empty());
            assert!(shared.iter().all(|shared| SharedString::strong_count(shared) == 1));
            assert!(offered.0.capacity() <= OFFERED_KEPT_MAX);
        }
    }
}
