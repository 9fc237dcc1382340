//! Walks through the entries of a stream, in order and in reverse.

use super::{Entries, IdMapIter, RecordsBack, StreamEntry, StreamId, StreamLog, StreamNode};

/// Entries in order, without deleted ones.
#[derive(Clone)]
pub struct Range<'a> {
    nodes: IdMapIter<'a, StreamNode>,
    entries: Option<Entries<'a>>,
    start: StreamId,
    end: StreamId,
}

impl<'a> Range<'a> {
    #[inline]
    pub(super) fn new(log: &'a StreamLog, start: StreamId, end: StreamId) -> Self {
        let mut nodes = log.nodes.iter_floor(start);
        let mut first = nodes.next();
        if first.is_some_and(|node| node.last() < start) {
            first = nodes.next();
        }
        Self { nodes, entries: first.map(|node| log.entries_of(node)), start, end }
    }
}

impl<'a> Iterator for Range<'a> {
    type Item = StreamEntry<'a>;

    #[inline]
    fn next(&mut self) -> Option<StreamEntry<'a>> {
        loop {
            let Some(entry) = self.entries.as_mut()?.next() else {
                self.entries = self.nodes.next().map(StreamNode::entries);
                continue;
            };
            if entry.id > self.end {
                self.entries = None;
                return None;
            }
            if entry.id >= self.start && !entry.is_deleted {
                return Some(entry);
            }
        }
    }
}

/// Entries in reverse order, without deleted ones. Except for a node's last entry, entries can only
/// be read forwards, so they are noted first.
pub struct RangeBack<'a> {
    log: &'a StreamLog,
    nodes: RecordsBack<'a, StreamNode>,
    /// The node of which only the last entry was returned.
    begun: Option<&'a StreamNode>,
    entries: Vec<StreamEntry<'a>>,
    start: StreamId,
    end: StreamId,
}

impl<'a> RangeBack<'a> {
    pub(super) fn new(log: &'a StreamLog, start: StreamId, end: StreamId) -> Self {
        let (nodes, entries) = (log.nodes.iter_back_from(end), Vec::new());
        Self { log, nodes, begun: None, entries, start, end }
    }

    fn wants(&self, entry: &StreamEntry<'_>) -> bool {
        !entry.is_deleted && (self.start..=self.end).contains(&entry.id)
    }

    /// Notes the wanted entries of a node.
    fn note(&mut self, node: &'a StreamNode) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.reserve(node.live());
        entries.extend(self.log.entries_of(node).filter(|entry| self.wants(entry)));
        self.entries = entries;
    }
}

impl<'a> Iterator for RangeBack<'a> {
    type Item = StreamEntry<'a>;

    fn next(&mut self) -> Option<StreamEntry<'a>> {
        loop {
            if let Some(entry) = self.entries.pop() {
                return Some(entry);
            }
            if let Some(node) = self.begun.take() {
                self.note(node);
                // This entry was returned already.
                self.entries.pop();
                continue;
            }
            let node = self.nodes.next()?;
            if node.last() < self.start {
                return None;
            }
            match node.last_entry().filter(|entry| self.wants(entry)) {
                Some(entry) => {
                    self.begun = Some(node);
                    return Some(entry);
                }
                None => self.note(node),
            }
        }
    }
}
