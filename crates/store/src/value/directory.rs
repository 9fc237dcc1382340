//! A vector in chunks, which clones share until one changes.

use super::cow::Cow;
use super::defrag::{Defragmenter, Movable};

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

    /// Some elements at even distances, at most `max`.
    pub(crate) fn sample(&self, max: usize) -> impl Iterator<Item = &T> {
        let step = self.len.div_ceil(max).max(1);
        (0..self.len).step_by(step).map(|index| self.get(index))
    }
}

impl<T: Clone + Movable> Directory<T> {
    /// Moves blocks of the elements from `from` on, and those that the elements lie in, as far as
    /// no clone shares them. Returns the element to continue with, or the number of elements at the
    /// end.
    pub(crate) fn defragment(&mut self, from: usize, defragmenter: &mut Defragmenter<'_>) -> usize {
        if from == 0 {
            defragmenter.vector(&mut self.chunks);
        }
        let mut index = from;
        while index < self.len {
            let (chunk, at) = (index / CHUNK_LEN, index % CHUNK_LEN);
            let chunk = &mut self.chunks[chunk];
            let Some(elements) = chunk.defragment(at, defragmenter) else {
                index += CHUNK_LEN - at;
                continue;
            };
            if at == 0 {
                defragmenter.vector(elements);
            }
            for element in &mut elements[at..] {
                element.defragment(defragmenter);
                index += 1;
                if defragmenter.is_spent() {
                    return index;
                }
            }
        }
        self.len
    }
}

const CHUNK_LEN: usize = 256;
