//! Walking through the entries of a stream, in their order and against it.

use super::{Entries, Entry, Log, Node, Records, RecordsBack, StreamId};

/// Entries in their order, without deleted ones.
#[derive(Clone)]
pub struct Range<'a> {
    nodes: Records<'a, Node>,
    entries: Option<Entries<'a>>,
    start: StreamId,
    end: StreamId,
}

impl<'a> Range<'a> {
    #[inline]
    pub(super) fn new(log: &'a Log, start: StreamId, end: StreamId) -> Self {
        let mut nodes = log.nodes.iter_floor(start);
        let mut first = nodes.next();
        if first.is_some_and(|node| node.last() < start) {
            first = nodes.next();
        }
        Self { nodes, entries: first.map(|node| log.entries_of(node)), start, end }
    }
}

impl<'a> Iterator for Range<'a> {
    type Item = Entry<'a>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'a>> {
        loop {
            let Some(entry) = self.entries.as_mut()?.next() else {
                self.entries = self.nodes.next().map(Node::entries);
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

/// Entries against their order, without deleted ones. A node can only be read forwards: its entries
/// are noted first.
pub struct RangeBack<'a> {
    log: &'a Log,
    nodes: RecordsBack<'a, Node>,
    entries: Vec<Entry<'a>>,
    start: StreamId,
    end: StreamId,
}

impl<'a> RangeBack<'a> {
    pub(super) fn new(log: &'a Log, start: StreamId, end: StreamId) -> Self {
        Self { log, nodes: log.nodes.iter_back_from(end), entries: Vec::new(), start, end }
    }
}

impl<'a> Iterator for RangeBack<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        loop {
            if let Some(entry) = self.entries.pop() {
                return Some(entry);
            }
            let node = self.nodes.next()?;
            if node.last() < self.start {
                return None;
            }
            let wanted = |entry: &Entry<'_>| {
                !entry.is_deleted && (self.start..=self.end).contains(&entry.id)
            };
            self.entries.extend(self.log.entries_of(node).filter(wanted));
        }
    }
}
