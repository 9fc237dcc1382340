//! Merges sorted runs.

use std::ops::Range;

/// Sorted runs of elements, which are merged. An element is identified by its index.
#[derive(Default)]
pub(super) struct Runs {
    /// The unfinished runs, as a heap: the run with the first element is at the top.
    heap: Vec<Range<usize>>,
}

impl Runs {
    /// Adds a run. `is_before` says which of two elements comes first.
    pub(super) fn push(&mut self, run: Range<usize>, is_before: impl Fn(usize, usize) -> bool) {
        if run.start == run.end {
            return;
        }
        let mut at = self.heap.len();
        self.heap.push(run);
        while at > 0 {
            let parent = (at - 1) / 2;
            if !is_before(self.heap[at].start, self.heap[parent].start) {
                return;
            }
            self.heap.swap(at, parent);
            at = parent;
        }
    }

    /// Removes the first of all elements.
    pub(super) fn next(&mut self, is_before: impl Fn(usize, usize) -> bool) -> Option<usize> {
        let first = self.heap.first_mut()?;
        let element = first.next();
        if first.start == first.end {
            self.heap.swap_remove(0);
        }
        let mut at = 0;
        loop {
            let mut top = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len()
                    && is_before(self.heap[child].start, self.heap[top].start)
                {
                    top = child;
                }
            }
            if top == at {
                return element;
            }
            self.heap.swap(at, top);
            at = top;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_any_lengths_are_merged() {
        let elements = [3, 4, 9, 1, 5, 7, 8, 2, 0, 6, 6];
        let is_before = |one: usize, other: usize| (elements[one], one) < (elements[other], other);
        let mut runs = Runs::default();
        for run in [0..3, 3..7, 7..7, 7..8, 8..10, 10..11] {
            runs.push(run, is_before);
        }
        let merged: Vec<_> = std::iter::from_fn(|| runs.next(is_before)).collect();
        assert_eq!(merged, [8, 3, 7, 0, 1, 4, 9, 10, 5, 6, 2]);
    }
}
