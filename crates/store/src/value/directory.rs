//! A vector in chunks, which clones share until one changes.

use super::cow::Cow;

/// Elements by index. They are added and removed at the end.
#[derive(Clone)]
pub(crate) struct Directory<T> {
    chunks: Vec<Cow<Vec<T>>>,
    len: usize,
}

impl<T: Clone> Directory<T> {
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }

    /// # Panics
    /// If there is no element with this index.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, index: usize) -> &mut T {
        &mut self.chunks[index / CHUNK_LEN].make_mut()[index % CHUNK_LEN]
    }

    pub(crate) fn push(&mut self, element: T) {
        if self.len.is_multiple_of(CHUNK_LEN) {
            self.chunks.push(Cow::new(Vec::new()));
        }
        let last = self.chunks.last_mut().expect("there is a chunk with room");
        last.make_mut().push(element);
        self.len += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let last = self.chunks.last_mut()?.make_mut();
        let element = last.pop()?;
        if last.is_empty() {
            self.chunks.pop();
        }
        self.len -= 1;
        Some(element)
    }

    /// # Panics
    /// If there is no element with this index.
    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> &T {
        &self.chunks[index / CHUNK_LEN][index % CHUNK_LEN]
    }

    #[inline(always)]
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Calls `f` with the elements from `from` on, as far as no clone shares them, until `f`
    /// returns `false`. Returns how many elements there are up to where it stopped.
    pub(crate) fn change_unshared(
        &mut self,
        from: usize,
        mut f: impl FnMut(&mut T) -> bool,
    ) -> usize {
        let mut index = from;
        while index < self.len {
            let (chunk, at) = (index / CHUNK_LEN, index % CHUNK_LEN);
            let Some(elements) = self.chunks[chunk].get_mut() else {
                index = (chunk + 1) * CHUNK_LEN;
                continue;
            };
            for element in &mut elements[at..] {
                index += 1;
                if !f(element) {
                    return index;
                }
            }
        }
        self.len
    }

    /// Some elements at even distances, at most `max`.
    pub(crate) fn sample(&self, max: usize) -> impl Iterator<Item = &T> {
        let step = self.len.div_ceil(max).max(1);
        (0..self.len).step_by(step).map(|index| self.get(index))
    }
}

const CHUNK_LEN: usize = 256;
