//! A tree of leaves in an order, each with a count. It finds a leaf by the separators between
//! leaves, or by the number of elements before it.
//!
//! The tree does not look into leaves. Code that changes a leaf tells the tree by how much its
//! count changes, and splits, merges and removes leaves itself. The tree keeps the counts along the
//! path, and splits its own nodes. Clones share all nodes until one changes.
//!
//! The depth has a bound, because these rules hold:
//! - *Filled*: a node has at least `FANOUT_MIN` children, unless it is the root or the first or the
//!   last node of its level. A full node leaves its new neighbour with one child only at the ends
//!   of a level, where elements come in order. All others are split in halves. A removal that
//!   leaves a node with fewer merges it with a sibling, or they share their children.
//! - *Wide*: if the root has only two nodes below it, one of them has at least `FANOUT_MIN`
//!   children. A split leaves at least half of a node on one side, and a removal sees to the node
//!   that it left with fewer.
//!
//! So a root with nodes below it has at least one *filled* child, the level below that at least
//! `FANOUT_MIN` nodes, all of them filled but two, and each further level almost `FANOUT_MIN` times
//! as many. See `DEPTH_MAX`.

use super::cow::Cow;
use super::defrag::{Defragmenter, Movable};

/// `L` is a leaf. `S` is a separator between two leaves: a lower bound of everything that the right
/// one may hold.
#[derive(Clone)]
pub(crate) struct Tree<L, S> {
    root: Cow<Inner<L, S>>,
    depth: u8,
    leaves: usize,
    len: usize,
}

/// The path from the root to a leaf: the child at each level. Valid until leaves are added or
/// removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Path {
    indices: [u8; DEPTH_MAX],
    depth: u8,
}

#[derive(Clone)]
struct Inner<L, S> {
    children: Vec<Child<L, S>>,
}

#[derive(Clone)]
struct Child<L, S> {
    /// The number of elements in all leaves below.
    count: usize,
    /// Has no meaning for the first child of a node.
    separator: S,
    node: TreeNode<L, S>,
}

#[derive(Clone)]
enum TreeNode<L, S> {
    Inner(Cow<Inner<L, S>>),
    Leaf(L),
}

/// At which ends of its level a node is.
#[derive(Clone, Copy)]
struct Ends {
    first: bool,
    last: bool,
}

/// On which side of a leaf another one is inserted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Before,
    After,
}

impl<L: Clone, S: Clone + Default> Tree<L, S> {
    /// A tree with one leaf that has `count` elements.
    pub(crate) fn new(leaf: L, count: usize) -> Self {
        let child = Child { count, separator: S::default(), node: TreeNode::Leaf(leaf) };
        Self { root: Cow::new(Inner { children: vec![child] }), depth: 1, leaves: 1, len: count }
    }

    /// Whether one is a clone of the other, and neither has changed since.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.root.is_same(&other.root)
    }

    /// The leaf at the end of a path, for changing. Its count changes by `change`.
    pub(crate) fn leaf_mut(&mut self, path: &Path, change: isize) -> &mut L {
        self.len = self.len.checked_add_signed(change).expect("counts are right");
        let mut node = &mut self.root;
        for &index in path.inner() {
            let child = &mut node.make_mut().children[usize::from(index)];
            child.count = child.count.wrapping_add_signed(change);
            let TreeNode::Inner(inner) = &mut child.node else {
                unreachable!("leaves are at the bottom")
            };
            node = inner;
        }
        let child = &mut node.make_mut().children[path.last_index()];
        child.count = child.count.wrapping_add_signed(change);
        let TreeNode::Leaf(leaf) = &mut child.node else {
            unreachable!("no leaf where the path ends")
        };
        leaf
    }

    /// Changes only the count of a leaf.
    pub(crate) fn add(&mut self, path: &Path, change: isize) {
        self.leaf_mut(path, change);
    }

    /// Inserts a leaf with `count` elements beside another one. The separator lies between the two.
    /// A leaf may be inserted before another one only if separators do not matter.
    pub(crate) fn insert(&mut self, path: &Path, side: Side, separator: S, leaf: L, count: usize) {
        self.len += count;
        self.leaves += 1;
        let child = Child { count, separator, node: TreeNode::Leaf(leaf) };
        let ends = Ends { first: true, last: true };
        let Some(right) = Self::insert_below(&mut self.root, path.all(), ends, side, child) else {
            return;
        };
        assert!(usize::from(self.depth) < DEPTH_MAX, "a tree of depth {DEPTH_MAX}");
        let left = Child {
            count: self.root.count(),
            separator: S::default(),
            node: TreeNode::Inner(self.root.clone()),
        };
        self.root = Cow::new(Inner { children: vec![left, right] });
        self.depth += 1;
    }

    /// Returns the new node behind this one, if this one was split. `ends` says at which ends of
    /// its level the node is.
    fn insert_below(
        node: &mut Cow<Inner<L, S>>,
        path: &[u8],
        ends: Ends,
        side: Side,
        child: Child<L, S>,
    ) -> Option<Child<L, S>> {
        let inner = node.make_mut();
        let index = usize::from(path[0]);
        if path.len() == 1 {
            return inner.insert(index + usize::from(side == Side::After), ends, child);
        }
        let ends_below = Ends {
            first: ends.first && index == 0,
            last: ends.last && index + 1 == inner.children.len(),
        };
        let below = &mut inner.children[index];
        below.count += child.count;
        let TreeNode::Inner(node) = &mut below.node else {
            unreachable!("leaves are at the bottom")
        };
        let right = Self::insert_below(node, &path[1..], ends_below, side, child)?;
        below.count -= right.count;
        inner.insert(index + 1, ends, right)
    }

    /// Removes a leaf. All other paths become invalid.
    pub(crate) fn remove(&mut self, path: &Path) -> L {
        let (leaf, count) = Self::remove_below(&mut self.root, path.all());
        self.len -= count;
        self.leaves -= 1;
        while self.depth > 1 && self.root.children.len() == 1 {
            let TreeNode::Inner(only) = &self.root.children[0].node else {
                unreachable!("depth > 1")
            };
            let only = only.clone();
            self.root = only;
            self.depth -= 1;
        }
        if self.root.children.is_empty() {
            self.depth = 1;
        }
        leaf
    }

    fn remove_below(node: &mut Cow<Inner<L, S>>, path: &[u8]) -> (L, usize) {
        let inner = node.make_mut();
        let index = usize::from(path[0]);
        if path.len() == 1 {
            let Child { count, node: TreeNode::Leaf(leaf), .. } = inner.children.remove(index)
            else {
                unreachable!("no leaf where the path ends")
            };
            return (leaf, count);
        }
        let child = &mut inner.children[index];
        let TreeNode::Inner(below) = &mut child.node else {
            unreachable!("leaves are at the bottom")
        };
        let (leaf, count) = Self::remove_below(below, &path[1..]);
        child.count -= count;
        if below.children.is_empty() {
            inner.children.remove(index);
        } else if below.children.len() < FANOUT_MIN {
            inner.fill(index);
        }
        (leaf, count)
    }

    /// The number of elements in all leaves.
    #[inline(always)]
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The number of leaves.
    pub(crate) const fn leaves(&self) -> usize {
        self.leaves
    }

    #[inline]
    pub(crate) fn leaf(&self, path: &Path) -> &L {
        match &self.parent(path).children[path.last_index()].node {
            TreeNode::Leaf(leaf) => leaf,
            TreeNode::Inner(_) => unreachable!("no leaf where the path ends"),
        }
    }

    /// The number of elements in a leaf.
    pub(crate) fn leaf_count(&self, path: &Path) -> usize {
        self.parent(path).children[path.last_index()].count
    }

    /// The last leaf whose separator satisfies `reaches`, which says whether the sought element may
    /// lie to the right of a separator. It must be true for all separators up to some point, and
    /// false behind it.
    #[inline]
    pub(crate) fn seek(&self, reaches: impl Fn(&S) -> bool) -> Path {
        self.descend(|children| {
            (children[1..].partition_point(|child| reaches(&child.separator)), 0)
        })
        .0
    }

    /// Finds the same leaf as `seek`. Also returns how many elements the leaves before it have.
    pub(crate) fn seek_counting(&self, reaches: impl Fn(&S) -> bool) -> (Path, usize) {
        self.descend(|children| {
            let index = children[1..].partition_point(|child| reaches(&child.separator));
            (index, children[..index].iter().map(|child| child.count).sum())
        })
    }

    /// The leaf with the element of this rank, and how many elements are before it in the leaf. A
    /// rank past the end leads to the last leaf.
    pub(crate) fn seek_rank(&self, rank: usize) -> (Path, usize) {
        let mut rest = rank;
        let (path, _) = self.descend(|children| {
            let mut index = 0;
            while index + 1 < children.len() && rest >= children[index].count {
                rest -= children[index].count;
                index += 1;
            }
            (index, 0)
        });
        (path, rest)
    }

    pub(crate) fn first(&self) -> Path {
        self.descend(|_| (0, 0)).0
    }

    pub(crate) fn last(&self) -> Path {
        self.descend(|children| (children.len().saturating_sub(1), 0)).0
    }

    /// How many elements come before a leaf.
    pub(crate) fn rank(&self, path: &Path) -> usize {
        let mut indices = path.all().iter();
        self.descend(|children| {
            let index =
                usize::from(*indices.next().expect("a path is as long as the tree is deep"));
            (index, children[..index].iter().map(|child| child.count).sum())
        })
        .1
    }

    pub(crate) fn next(&self, path: &Path) -> Option<Path> {
        let (mut next, mut node, mut turn) = (*path, &*self.root, None);
        for (level, &index) in path.all().iter().enumerate() {
            if usize::from(index) + 1 < node.children.len() {
                turn = Some(level);
            }
            if let TreeNode::Inner(inner) = &node.children[usize::from(index)].node {
                node = inner;
            }
        }
        let turn = turn?;
        next.indices[turn] += 1;
        next.indices[turn + 1..usize::from(self.depth)].fill(0);
        Some(next)
    }

    pub(crate) fn previous(&self, path: &Path) -> Option<Path> {
        let turn = path.all().iter().rposition(|&index| index > 0)?;
        let mut previous = *path;
        previous.indices[turn] -= 1;
        let mut node = &*self.root;
        for level in 0..usize::from(self.depth) {
            if level > turn {
                previous.indices[level] = (node.children.len() - 1) as u8;
            }
            if let TreeNode::Inner(inner) =
                &node.children[usize::from(previous.indices[level])].node
            {
                node = inner;
            }
        }
        Some(previous)
    }

    /// The next leaf, if it has the same parent. Only such leaves may be merged, because the
    /// separators above then stay right.
    pub(crate) fn next_sibling(&self, path: &Path) -> Option<Path> {
        let mut sibling = *path;
        sibling.indices[usize::from(self.depth) - 1] += 1;
        (path.last_index() + 1 < self.parent(path).children.len()).then_some(sibling)
    }

    pub(crate) fn previous_sibling(&self, path: &Path) -> Option<Path> {
        let mut sibling = *path;
        let last = &mut sibling.indices[usize::from(self.depth) - 1];
        *last = last.checked_sub(1)?;
        Some(sibling)
    }

    /// Bytes of memory of the nodes, approximately.
    pub(crate) const fn memory(&self) -> usize {
        // Nodes are about two thirds full on average. 16 bytes are the block's counters.
        self.leaves * size_of::<Child<L, S>>() * 3 / 2 + 16 + size_of::<Inner<L, S>>()
    }

    /// Descends as `choose` says: the child, and a number to sum up.
    #[inline(always)]
    fn descend(&self, mut choose: impl FnMut(&[Child<L, S>]) -> (usize, usize)) -> (Path, usize) {
        let mut path = Path { indices: [0; DEPTH_MAX], depth: self.depth };
        let (mut node, mut sum) = (&*self.root, 0);
        for slot in &mut path.indices[..usize::from(self.depth)] {
            let (index, add) = choose(&node.children);
            *slot = index as u8;
            sum += add;
            match node.children.get(index).map(|child| &child.node) {
                Some(TreeNode::Inner(inner)) => node = inner,
                _ => break,
            }
        }
        (path, sum)
    }

    /// The parent of a leaf.
    #[inline]
    fn parent(&self, path: &Path) -> &Inner<L, S> {
        let mut node = &*self.root;
        for &index in path.inner() {
            match &node.children[usize::from(index)].node {
                TreeNode::Inner(inner) => node = inner,
                TreeNode::Leaf(_) => unreachable!("leaves are at the bottom"),
            }
        }
        node
    }

    #[cfg(test)]
    pub(crate) fn check(&self) {
        assert_eq!(self.root.check(usize::from(self.depth)), (self.len, self.leaves));
        let mut level = vec![&*self.root];
        for depth in 1..self.depth {
            level = level.iter().flat_map(|node| node.inner_nodes()).collect();
            let filled = |node: &&&Inner<L, S>| node.children.len() >= FANOUT_MIN;
            let inside = level.get(1..level.len() - 1).unwrap_or_default();
            assert_eq!(inside.iter().filter(filled).count(), inside.len(), "level {depth}");
            assert!(level.len() > 1 && level.iter().any(|node| filled(&node)), "level {depth}");
        }
    }
}

impl<L: Movable, S: Movable> Tree<L, S> {
    /// Moves blocks of leaves, separators and nodes, from the leaf with this element on, except
    /// what a clone shares. Returns the element to continue with; 0 at the end.
    pub(crate) fn defragment(&mut self, from: usize, defragmenter: &mut Defragmenter<'_>) -> usize {
        let at = Inner::defragment(&mut self.root, from, self.len, defragmenter);
        if at < self.len { at } else { 0 }
    }
}

impl<L: Movable, S: Movable> Inner<L, S> {
    /// Moves blocks of a node with `count` elements, and of those below. Returns the element to
    /// continue with.
    fn defragment(
        node: &mut Cow<Self>,
        from: usize,
        count: usize,
        defragmenter: &mut Defragmenter<'_>,
    ) -> usize {
        let Some(inner) = node.defragment(from, defragmenter) else { return count };
        if from == 0 {
            defragmenter.vector(&mut inner.children);
        }
        let mut start = 0;
        for child in &mut inner.children {
            let end = start + child.count;
            if from < end {
                let from = from.saturating_sub(start);
                if from == 0 {
                    child.separator.defragment(defragmenter);
                }
                start = match &mut child.node {
                    TreeNode::Inner(below) => {
                        start + Self::defragment(below, from, child.count, defragmenter)
                    }
                    TreeNode::Leaf(leaf) => {
                        leaf.defragment(defragmenter);
                        end
                    }
                };
                if defragmenter.is_spent() {
                    return start;
                }
            }
            start = end;
        }
        start
    }
}

impl<L: Clone, S: Clone + Default> Inner<L, S> {
    fn count(&self) -> usize {
        self.children.iter().map(|child| child.count).sum()
    }

    /// Inserts a child. Returns the new node behind this one, if there was no room.
    fn insert(&mut self, index: usize, ends: Ends, child: Child<L, S>) -> Option<Child<L, S>> {
        if self.children.len() < FANOUT {
            self.children.insert(index, child);
            return None;
        }
        // Elements that are added in order, at either end of the tree, leave full nodes behind.
        let at = match index {
            FANOUT if ends.last => FANOUT,
            0 if ends.first => 0,
            _ => FANOUT / 2,
        };
        let mut right = self.children.split_off(at);
        if index < at || at == 0 {
            self.children.insert(index, child);
        } else {
            right.insert(index - at, child);
        }
        let separator = std::mem::take(&mut right[0].separator);
        let right = Self { children: right };
        Some(Child { count: right.count(), separator, node: TreeNode::Inner(Cow::new(right)) })
    }

    /// Merges a child node that has few children with a sibling. If the result would be nearly
    /// full, the two share their children instead. An only child has no sibling: then this node is
    /// filled next.
    fn fill(&mut self, index: usize) {
        let left = index.min(self.children.len().saturating_sub(2));
        let Some([to_child, from_child]) = self.children.get_mut(left..left + 2) else { return };
        let (TreeNode::Inner(to), TreeNode::Inner(from)) =
            (&mut to_child.node, &mut from_child.node)
        else {
            unreachable!("leaves are at the bottom")
        };
        let (to, from) = (to.make_mut(), from.make_mut());
        let (to_len, total) = (to.children.len(), to.children.len() + from.children.len());
        let kept = if total <= FANOUT * 3 / 4 { total } else { total / 2 };
        // The separator between the two moves down to where they meet now.
        let separator = std::mem::take(&mut from_child.separator);
        from.children[0].separator = separator;
        if kept > to_len {
            to.children.extend(from.children.drain(..kept - to_len));
        } else {
            from.children.splice(..0, to.children.drain(kept..));
        }
        let count = to_child.count + from_child.count;
        if let Some(first) = from.children.first_mut() {
            from_child.separator = std::mem::take(&mut first.separator);
            from_child.count = from.count();
            to_child.count = count - from_child.count;
        } else {
            to_child.count = count;
            self.children.remove(left + 1);
        }
    }

    #[cfg(test)]
    fn inner_nodes(&self) -> impl Iterator<Item = &Self> {
        self.children.iter().filter_map(|child| match &child.node {
            TreeNode::Inner(inner) => Some(&**inner),
            TreeNode::Leaf(_) => None,
        })
    }

    #[cfg(test)]
    fn check(&self, depth: usize) -> (usize, usize) {
        let (mut sum, mut leaves) = (0, 0);
        for child in &self.children {
            match &child.node {
                TreeNode::Inner(inner) => {
                    let (below, leaves_below) = inner.check(depth - 1);
                    assert_eq!(below, child.count);
                    assert!(!inner.children.is_empty() && inner.children.len() <= FANOUT);
                    leaves += leaves_below;
                }
                TreeNode::Leaf(_) => {
                    assert_eq!(depth, 1);
                    leaves += 1;
                }
            }
            sum += child.count;
        }
        (sum, leaves)
    }
}

impl Path {
    #[inline(always)]
    fn all(&self) -> &[u8] {
        &self.indices[..usize::from(self.depth)]
    }

    /// The path to the leaf's parent.
    #[inline(always)]
    fn inner(&self) -> &[u8] {
        &self.indices[..usize::from(self.depth) - 1]
    }

    #[inline(always)]
    fn last_index(&self) -> usize {
        usize::from(self.indices[usize::from(self.depth) - 1])
    }
}

/// The most children of a node.
const FANOUT: usize = 64;
/// The least children of a node that is *filled*.
const FANOUT_MIN: usize = FANOUT / 4;
/// No tree gets deeper. By the rules above a tree of depth d >= 3 has at least
/// 13 * `FANOUT_MIN`^(d-2) leaves: 14 filled nodes of the second level have 16 children each, and
/// all but two nodes of each further level are filled. With depth 15 these would be 2^55 leaves,
/// more than an address space has blocks of 64 bytes.
const DEPTH_MAX: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Model = Vec<(u32, usize)>;

    fn leaves(tree: &Tree<u32, ()>) -> Model {
        let mut found = Vec::new();
        let mut path = (tree.leaves() > 0).then(|| tree.first());
        let mut rank = 0;
        while let Some(here) = path {
            let count = tree.leaf_count(&here);
            assert_eq!(tree.rank(&here), rank);
            found.push((*tree.leaf(&here), count));
            rank += count;
            path = tree.next(&here);
            if let Some(next) = &path {
                assert_eq!(tree.previous(next), Some(here));
            }
        }
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 64 }, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn behaves_like_a_vec_of_leaves(
            steps in proptest::collection::vec((0..10u8, any::<u32>(), 1..20usize), 1..if cfg!(miri) { 80 } else { 600 }),
            prefer_removal in any::<bool>(),
        ) {
            let mut tree = Tree::new(0, 1);
            let mut model: Model = vec![(0, 1)];
            let mut clones = Vec::new();
            for (number, (what, at, count)) in steps.into_iter().enumerate() {
                let total: usize = model.iter().map(|&(_, count)| count).sum();
                let (path, offset) = tree.seek_rank(at as usize % total);
                let mut rest = at as usize % total;
                let index = model
                    .iter()
                    .position(|&(_, count)| { if rest < count { true } else { rest -= count; false } })
                    .unwrap();
                prop_assert_eq!(rest, offset);
                prop_assert_eq!(*tree.leaf(&path), model[index].0);
                let removal = if prefer_removal && number > 300 { 2 } else { 8 };
                match what {
                    0 => clones.push((tree.clone(), model.clone())),
                    1 => {
                        *tree.leaf_mut(&path, count as isize) = at;
                        model[index] = (at, model[index].1 + count);
                    }
                    _ if what >= removal => {
                        if model.len() > 1 {
                            prop_assert_eq!(tree.remove(&path), model.remove(index).0);
                        }
                    }
                    _ if at % 2 == 0 => {
                        tree.insert(&path, Side::After, (), at, count);
                        model.insert(index + 1, (at, count));
                    }
                    _ => {
                        tree.insert(&path, Side::Before, (), at, count);
                        model.insert(index, (at, count));
                    }
                }
            }
            tree.check();
            prop_assert_eq!(leaves(&tree), model);
            for (clone, model) in clones {
                clone.check();
                prop_assert_eq!(leaves(&clone), model);
            }
        }
    }

    /// Inserts leaves behind ones that are last in full nodes. A split that left only the new leaf
    /// in the new node, wherever it is, would make a path of such nodes.
    fn insert_behind_full_nodes(
        insert: &mut impl FnMut(usize) -> usize,
        after: usize,
        height: usize,
    ) -> usize {
        let last =
            if height == 1 { after } else { insert_behind_full_nodes(insert, after, height - 1) };
        let next = insert(last);
        for _ in 0..62 {
            insert(last);
        }
        if height == 1 { next } else { insert_behind_full_nodes(insert, next, height - 1) }
    }

    #[test]
    fn no_order_of_insertions_makes_a_tree_of_few_leaves_deep() {
        // The leaves in the order of their insertion: the leaf that each comes after, then the rank
        // of each. A rank is the separator, too.
        let (mut parents, mut next) = (vec![0], vec![None]);
        let height = if cfg!(miri) { 3 } else { 8 };
        let mut insert = |after: usize| {
            parents.push(after);
            next.push(next[after]);
            next[after] = Some(next.len() - 1);
            next.len() - 1
        };
        insert_behind_full_nodes(&mut insert, 0, height);
        let mut ranks = vec![0; next.len()];
        let order = std::iter::successors(Some(0), |&leaf| next[leaf]);
        order.enumerate().for_each(|(rank, leaf)| ranks[leaf] = rank as u32);
        let mut tree: Tree<u32, u32> = Tree::new(0, 1);
        for (&rank, &after) in ranks.iter().zip(&parents).skip(1) {
            let path = tree.seek(|&separator| separator <= rank);
            assert_eq!(*tree.leaf(&path), ranks[after]);
            tree.insert(&path, Side::After, rank, rank, 1);
        }
        tree.check();
        assert_eq!(tree.len(), ranks.len());
        assert!(tree.depth <= 3, "{} leaves lie {} deep", tree.len(), tree.depth);
        for rank in 0..ranks.len() {
            let path = tree.seek(|&separator| separator <= rank as u32);
            assert_eq!((*tree.leaf(&path), tree.rank(&path)), (rank as u32, rank));
        }
    }

    #[test]
    fn no_removal_leaves_a_node_nearly_empty() {
        let many = if cfg!(miri) { 700 } else { 10_000 };
        // One end grows, or both do. Then one leaf of some stays, from either end on.
        for (fronts, stays, forward) in
            [(0, 2, true), (1, 40, false), (2, 64, true), (1, 1000, true), (2, 1000, false)]
        {
            let mut tree: Tree<u32, ()> = Tree::new(0, 1);
            for number in 1..many {
                let (path, side) = if number % 2 < fronts {
                    (tree.first(), Side::Before)
                } else {
                    (tree.last(), Side::After)
                };
                tree.insert(&path, side, (), number, 1);
            }
            let mut expected = leaves(&tree);
            for at in (0..many as usize).filter(|at| !at.is_multiple_of(stays)) {
                let rank = if forward { at.div_ceil(stays) } else { many as usize - 1 - at };
                assert_eq!(tree.remove(&tree.seek_rank(rank).0), expected.remove(rank).0);
                if at % 101 == 1 {
                    tree.check();
                }
            }
            tree.check();
            assert_eq!(leaves(&tree), expected);
        }
    }

    #[test]
    fn grows_in_order_at_either_end_and_shrinks_to_nothing() {
        let mut tree: Tree<u32, ()> = Tree::new(0, 1);
        for number in 1..if cfg!(miri) { 600 } else { 20_000 } {
            let (path, side) = match number % 2 {
                0 => (tree.first(), Side::Before),
                _ => (tree.last(), Side::After),
            };
            tree.insert(&path, side, (), number, 1);
        }
        tree.check();
        assert!(tree.depth <= 4, "{}", tree.depth);
        while tree.leaves() > 0 {
            let path = tree.seek_rank(tree.len() / 2).0;
            tree.remove(&path);
        }
        assert_eq!(tree.len(), 0);
    }
}
