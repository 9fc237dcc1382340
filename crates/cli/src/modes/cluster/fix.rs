//! Mending slots: those that stopped half way between two nodes, those that nobody has, and those
//! that several have. What to do with an open slot is decided by [`Remedy::of`], from facts alone.

use bobbin_client::SLOTS;

use super::{
    members::Cluster,
    model::Slots,
    moving::{Mover, tell},
    say::{self, Outcome},
};
use crate::options::Options;

pub struct Fixer<'a> {
    pub options: &'a Options,
    pub cluster: &'a mut Cluster,
}

impl Fixer<'_> {
    /// Mends a slot that is on its way at one end or both.
    pub fn fix_open(&mut self, slot: u16) -> Outcome {
        self.refuse_if_unreachable()?;
        say::step(&format!("Fixing open slot {slot}"));
        let mut facts = self.look_at(slot)?;
        let shown = |nodes: &[usize], cluster: &Cluster| {
            nodes.iter().map(|node| cluster.node(*node).address()).collect::<Vec<_>>().join(",")
        };
        for (state, nodes) in [("migrating", &facts.migrating), ("importing", &facts.importing)] {
            if !nodes.is_empty() {
                out!("Set as {state} in: {}\n", shown(nodes, self.cluster));
            }
        }
        let owner = match facts.owner() {
            Some(owner) => owner,
            None => self.choose_owner(slot, &mut facts)?,
        };
        for other in facts.claiming.clone() {
            if other != owner {
                self.make_importing(slot, other, owner)?;
                facts.migrating.retain(|node| *node != other);
                if !facts.importing.contains(&other) {
                    facts.importing.push(other);
                }
            }
        }
        match Remedy::of(owner, &facts) {
            Some(remedy) => self.apply(slot, owner, remedy),
            None => Err(say::fail(&format!(
                "No safe way is known to mend slot {slot}: migrating in {}, importing in {}, owner {}.",
                shown(&facts.migrating, self.cluster),
                shown(&facts.importing, self.cluster),
                self.cluster.node(owner).address()
            ))),
        }
    }

    /// Gives slots that nobody has to primaries: where their keys are, if there are any.
    pub fn cover(&mut self, uncovered: &Slots) -> Outcome {
        self.refuse_if_unreachable()?;
        say::step("Fixing slots coverage...");
        let slots: Vec<u16> = uncovered.iter().collect();
        let primaries = self.cluster.primaries();
        let mut holders: Vec<Vec<(usize, u64)>> = vec![Vec::new(); slots.len()];
        for primary in &primaries {
            let counts = self.cluster.members[*primary].count_keys(&slots)?;
            for (holders, count) in holders.iter_mut().zip(counts).filter(|(_, count)| *count > 0) {
                holders.push((*primary, count));
            }
        }
        let with = |wanted: fn(usize) -> bool| -> Vec<(u16, Vec<(usize, u64)>)> {
            let all = slots.iter().copied().zip(holders.iter().cloned());
            all.filter(|(_, holders)| wanted(holders.len())).collect()
        };
        let (none, one, several) =
            (with(|len| len == 0), with(|len| len == 1), with(|len| len > 1));
        let mut is_whole = true;
        if !none.is_empty() {
            is_whole &= asked(
                "The following uncovered slots have no keys across the cluster:",
                &none,
                "Give them to the primaries with the fewest slots?",
            );
            for (slot, _) in none.iter().take_while(|_| is_whole) {
                let poorest = *primaries
                    .iter()
                    .min_by_key(|primary| self.cluster.node(**primary).slots.len())
                    .ok_or_else(|| say::fail("There is no primary."))?;
                self.cover_with(*slot, poorest, false)?;
            }
        }
        if !one.is_empty() {
            let agreed = asked(
                "The following uncovered slots have keys in just one node:",
                &one,
                "Give them to these nodes?",
            );
            for (slot, holders) in one.iter().take_while(|_| agreed) {
                self.cover_with(*slot, holders[0].0, false)?;
            }
            is_whole &= agreed;
        }
        if !several.is_empty() {
            let agreed = asked(
                "The following uncovered slots have keys in multiple nodes:",
                &several,
                "Give each to the node with the most keys, and move the others' there?",
            );
            for (slot, holders) in several.iter().take_while(|_| agreed) {
                self.gather(*slot, holders)?;
            }
            is_whole &= agreed;
        }
        if is_whole { Ok(()) } else { Err(say::Failed) }
    }

    /// Makes the node with the most keys the only owner, and moves the others' keys to it.
    pub fn fix_owners(&mut self, slot: u16, owners: &[usize]) -> Outcome {
        say::step(&format!("Fixing multiple owners for slot {slot}..."));
        let owner = self.with_most_keys(slot, owners)?;
        say::step(&format!("Setting slot {slot} owner: {}", self.cluster.node(owner).address()));
        self.cluster.members[owner].take_slot(slot, false)?;
        let id = self.cluster.node(owner).id.clone();
        for other in self.cluster.primaries() {
            if other == owner {
                continue;
            }
            let count = self.cluster.members[other].count_keys_in(slot)?;
            self.cluster.members[other].drop_slot(slot)?;
            tell(self.cluster, other, slot, "node", &id)?;
            if count > 0 {
                // So that it touches the keys instead of sending us to the owner.
                tell(self.cluster, other, slot, "importing", &id)?;
                Mover::mending(self.options, true).move_slot(self.cluster, other, owner, slot)?;
                self.cluster.members[other].close_slot(slot)?;
            }
        }
        Ok(())
    }

    fn refuse_if_unreachable(&self) -> Outcome {
        let unreachable = self.cluster.unreachable;
        if unreachable == 0 || self.options.manager.fix_with_unreachable {
            return Ok(());
        }
        say::note(&format!(
            "{unreachable} primaries cannot be reached. Their slots would be given to others, and \
             what they have would be lost. If that is wanted, say \
             --cluster-fix-with-unreachable-primaries."
        ));
        Err(say::Failed)
    }

    fn look_at(&mut self, slot: u16) -> Outcome<Facts> {
        let mut facts = Facts::default();
        for index in self.cluster.primaries() {
            let count = self.cluster.members[index].count_keys_in(slot)?;
            let node = self.cluster.node(index);
            let owns = node.slots.contains(slot);
            if !owns && count > 0 {
                let address = node.address();
                say::note(&format!("{address} has keys of slot {slot}, which is not its own."));
            }
            if owns || count > 0 {
                facts.claiming.push(index);
            }
            facts.keys.push((index, count));
            if let Some(open) = node.migrating.iter().find(|open| open.slot == slot) {
                facts.migrating.push(index);
                facts.target = self.cluster.find(&open.peer_id);
            } else if node.importing.iter().any(|open| open.slot == slot) {
                facts.importing.push(index);
            }
        }
        // Who has keys and neither owns nor opened the slot must give them away, too.
        let owner = facts.owner();
        for (index, count) in &facts.keys {
            let is_open = facts.migrating.contains(index) || facts.importing.contains(index);
            if *count > 0 && !is_open && owner != Some(*index) {
                facts.importing.push(*index);
            }
        }
        Ok(facts)
    }

    fn choose_owner(&mut self, slot: u16, facts: &mut Facts) -> Outcome<usize> {
        say::step("No single clear owner for the slot, selecting an owner by # of keys...");
        let primaries = self.cluster.primaries();
        let owner = self.with_most_keys(slot, &primaries)?;
        let member = &mut self.cluster.members[owner];
        say::note(&format!("Configuring {} as the slot owner", member.node.address()));
        member.close_slot(slot)?;
        member.take_slot(slot, false)?;
        facts.migrating.retain(|node| *node != owner);
        facts.importing.retain(|node| *node != owner);
        Ok(owner)
    }

    /// Whoever else claims the slot gives its keys to the owner.
    fn make_importing(&mut self, slot: u16, node: usize, owner: usize) -> Outcome {
        let id = self.cluster.node(owner).id.clone();
        self.cluster.members[node].drop_slot(slot)?;
        tell(self.cluster, node, slot, "node", &id)?;
        tell(self.cluster, node, slot, "importing", &id)
    }

    fn apply(&mut self, slot: u16, owner: usize, remedy: Remedy) -> Outcome {
        let name = |node: usize, cluster: &Cluster| cluster.node(node).address();
        match remedy {
            Remedy::Finish { from, to, close } => {
                let (source, target) = (name(from, self.cluster), name(to, self.cluster));
                say::step(&format!("Moving slot {slot} from {source} to {target}"));
                Mover::mending(self.options, false).move_slot(self.cluster, from, to, slot)?;
                self.close(slot, &close)
            }
            Remedy::Gather { from } => {
                let target = name(owner, self.cluster);
                say::step(&format!("Moving all the {slot} slot keys to its owner {target}"));
                for node in from {
                    Mover::mending(self.options, true).move_slot(
                        self.cluster,
                        node,
                        owner,
                        slot,
                    )?;
                    let source = name(node, self.cluster);
                    say::step(&format!("Setting {slot} as STABLE in {source}"));
                    self.close(slot, &[node])?;
                }
                let id = self.cluster.node(owner).id.clone();
                for other in self.cluster.primaries() {
                    if other != owner {
                        tell(self.cluster, other, slot, "node", &id)?;
                    }
                }
                Ok(())
            }
            Remedy::Close(nodes) => {
                for node in &nodes {
                    say::step(&format!("Closing slot {slot} on {}", name(*node, self.cluster)));
                }
                self.close(slot, &nodes)
            }
        }
    }

    fn close(&mut self, slot: u16, nodes: &[usize]) -> Outcome {
        nodes.iter().try_for_each(|node| self.cluster.members[*node].close_slot(slot))
    }

    fn cover_with(&mut self, slot: u16, node: usize, close: bool) -> Outcome {
        let member = &mut self.cluster.members[node];
        say::step(&format!("Covering slot {slot} with {}", member.node.address()));
        member.take_slot(slot, close)
    }

    /// A slot that nobody has, with keys on several nodes.
    fn gather(&mut self, slot: u16, holders: &[(usize, u64)]) -> Outcome {
        let richest = holders.iter().rev().max_by_key(|(_, count)| *count);
        let (target, _) = *richest.ok_or_else(|| say::fail("Nobody has keys."))?;
        self.cover_with(slot, target, true)?;
        let id = self.cluster.node(target).id.clone();
        for (source, _) in holders.iter().filter(|(node, _)| *node != target) {
            tell(self.cluster, *source, slot, "node", &id)?;
            // So that it touches the keys instead of sending us to the owner.
            tell(self.cluster, *source, slot, "importing", &id)?;
            Mover::mending(self.options, true).move_slot(self.cluster, *source, target, slot)?;
            self.close(slot, &[*source])?;
        }
        Ok(())
    }

    /// Of nodes with equally many the first.
    fn with_most_keys(&mut self, slot: u16, nodes: &[usize]) -> Outcome<usize> {
        let mut best = None;
        for node in nodes {
            let count = self.cluster.members[*node].count_keys_in(slot)?;
            if best.is_none_or(|(_, most)| count > most) {
                best = Some((*node, count));
            }
        }
        best.map(|(node, _)| node)
            .ok_or_else(|| say::fail("Can't select a slot owner. Impossible to fix."))
    }
}

/// Slots that more than one primary owns or has keys of.
pub fn multiple_owners(cluster: &mut Cluster) -> Outcome<Vec<(u16, Vec<usize>)>> {
    let all: Vec<u16> = (0..SLOTS).collect();
    let mut owners: Vec<Vec<usize>> = vec![Vec::new(); usize::from(SLOTS)];
    for index in cluster.primaries() {
        let member = &mut cluster.members[index];
        let counts = member.count_keys(&all)?;
        for (slot, count) in all.iter().zip(counts) {
            if count > 0 || member.node.slots.contains(*slot) {
                owners[usize::from(*slot)].push(index);
            }
        }
    }
    Ok(all.into_iter().zip(owners).filter(|(_, owners)| owners.len() > 1).collect())
}

/// Fixing asks, whatever `--cluster-yes` says: it decides about data.
fn asked(what: &str, slots: &[(u16, Vec<(usize, u64)>)], question: &str) -> bool {
    let slots: Slots = slots.iter().map(|(slot, _)| *slot).collect();
    out!("{what}\n{slots}\n");
    say::confirm(question, false)
}

/// What is known of an open slot. All nodes are primaries.
#[derive(Clone, Debug, Default)]
struct Facts {
    /// Who owns it by its own account, or has keys of it.
    claiming: Vec<usize>,
    migrating: Vec<usize>,
    /// These and who else has keys to give to the owner.
    importing: Vec<usize>,
    /// Where the node that gives it away wants it to go.
    target: Option<usize>,
    keys: Vec<(usize, u64)>,
}

impl Facts {
    /// The obvious owner.
    fn owner(&self) -> Option<usize> {
        match self.claiming.as_slice() {
            [owner] => Some(*owner),
            _ => None,
        }
    }

    fn has_keys(&self, node: usize) -> bool {
        self.keys.iter().any(|(known, count)| *known == node && *count > 0)
    }
}

/// What mends an open slot.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Remedy {
    /// Go on with the move, and close the slot on other nodes.
    Finish { from: usize, to: usize, close: Vec<usize> },
    /// Move what these have to the owner.
    Gather { from: Vec<usize> },
    /// Nothing has to move.
    Close(Vec<usize>),
}

impl Remedy {
    /// Nothing where no remedy is safe.
    fn of(owner: usize, facts: &Facts) -> Option<Self> {
        match (facts.migrating.as_slice(), facts.importing.as_slice()) {
            ([from], [to]) => Some(Self::Finish { from: *from, to: *to, close: Vec::new() }),
            ([], importing) if !importing.is_empty() => {
                Some(Self::Gather { from: without(importing, owner) })
            }
            ([from], importing) if !importing.is_empty() => {
                if importing.iter().any(|node| facts.has_keys(*node)) {
                    return None;
                }
                match facts.target.filter(|target| importing.contains(target)) {
                    Some(to) => {
                        Some(Self::Finish { from: *from, to, close: without(importing, to) })
                    }
                    None => Some(Self::Close([&[*from], importing].concat())),
                }
            }
            // A reshard that was stopped before it began.
            ([from], []) if *from == owner || !facts.has_keys(*from) => {
                Some(Self::Close(vec![*from]))
            }
            _ => None,
        }
    }
}

fn without(nodes: &[usize], one: usize) -> Vec<usize> {
    nodes.iter().copied().filter(|node| *node != one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(migrating: &[usize], importing: &[usize], target: Option<usize>) -> Facts {
        Facts {
            claiming: vec![0],
            migrating: migrating.to_vec(),
            importing: importing.to_vec(),
            target,
            keys: Vec::new(),
        }
    }

    #[test]
    fn remedies() {
        let finish =
            |from, to, close: &[usize]| Some(Remedy::Finish { from, to, close: close.to_vec() });
        assert_eq!(Remedy::of(0, &facts(&[0], &[1], Some(1))), finish(0, 1, &[]));
        assert_eq!(
            Remedy::of(0, &facts(&[], &[0, 1, 2], None)),
            Some(Remedy::Gather { from: vec![1, 2] })
        );
        assert_eq!(Remedy::of(0, &facts(&[0], &[1, 2], Some(2))), finish(0, 2, &[1]));
        assert_eq!(
            Remedy::of(0, &facts(&[0], &[1, 2], Some(3))),
            Some(Remedy::Close(vec![0, 1, 2]))
        );
        let with_keys = Facts { keys: vec![(1, 5)], ..facts(&[0], &[1, 2], Some(2)) };
        assert_eq!(Remedy::of(0, &with_keys), None);
        assert_eq!(Remedy::of(0, &facts(&[0], &[], Some(1))), Some(Remedy::Close(vec![0])));
        let elsewhere = Facts { keys: vec![(1, 5)], ..facts(&[1], &[], Some(2)) };
        assert_eq!(Remedy::of(0, &elsewhere), None);
        assert_eq!(Remedy::of(0, &facts(&[1], &[], Some(2))), Some(Remedy::Close(vec![1])));
        assert_eq!(Remedy::of(0, &facts(&[], &[], None)), None);
        assert_eq!(Remedy::of(0, &facts(&[1, 2], &[0], None)), None);
    }
}
