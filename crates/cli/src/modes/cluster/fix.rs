//! Mending slots: those that stopped half way between two nodes, those that no node has, and those
//! that several have. What to do with an open slot is decided by [`Remedy::of`], from facts alone.

use bobbin_client::SLOTS;

use super::{
    members::Cluster,
    model::SlotBitmap,
    moving::{Mover, tell},
    say::{self, ClusterResult},
};
use crate::options::Options;

pub struct Fixer<'a> {
    pub options: &'a Options,
    pub cluster: &'a mut Cluster,
}

impl Fixer<'_> {
    /// Mends a slot that is on its way at one end or both.
    pub fn fix_open(&mut self, slot: u16) -> ClusterResult {
        self.refuse_if_unreachable()?;
        say::step(&format!("Fixing open slot {slot}"));
        let facts = self.look_at(slot)?;
        for (state, nodes) in [("migrating", &facts.migrating), ("importing", &facts.importing)] {
            let names: Vec<_> =
                nodes.iter().map(|node| self.cluster.node(*node).address()).collect();
            if !names.is_empty() {
                out!("Set as {state} in: {}\n", names.join(","));
            }
        }
        self.mend(slot, facts)
    }

    /// Leaves a slot one owner, and its keys with that.
    pub fn fix_owners(&mut self, slot: u16) -> ClusterResult {
        say::step(&format!("Fixing multiple owners for slot {slot}..."));
        let facts = self.look_at(slot)?;
        self.mend(slot, facts)
    }

    /// Gives slots that no node has to primaries: where their keys are, if there are any.
    pub fn cover(&mut self, uncovered: &SlotBitmap) -> ClusterResult {
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

    fn refuse_if_unreachable(&self) -> ClusterResult {
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

    fn look_at(&mut self, slot: u16) -> ClusterResult<Facts> {
        let mut facts = Facts::default();
        for index in self.cluster.primaries() {
            let count = self.cluster.members[index].count_keys_in(slot)?;
            let node = self.cluster.node(index);
            if node.slots.contains(slot) {
                facts.owners.push(index);
            } else if count > 0 {
                let address = node.address();
                say::note(&format!("{address} has keys of slot {slot}, which is not its own."));
            }
            facts.keys.push((index, count));
            if let Some(open) = node.migrating.iter().find(|open| open.slot == slot) {
                facts.migrating.push(index);
                facts.target = self.cluster.find(&open.peer_id);
            } else if node.importing.iter().any(|open| open.slot == slot) {
                facts.importing.push(index);
            }
        }
        Ok(facts)
    }

    fn mend(&mut self, slot: u16, mut facts: Facts) -> ClusterResult {
        let owner = match facts.owners.as_slice() {
            [owner] => *owner,
            _ => self.choose_owner(slot, &mut facts)?,
        };
        let name = |node: usize, cluster: &Cluster| cluster.node(node).address();
        let owner_name = name(owner, self.cluster);
        match Remedy::of(owner, &facts) {
            Remedy::Finish { to, close } => {
                let target = name(to, self.cluster);
                say::step(&format!("Moving slot {slot} from {owner_name} to {target}"));
                Mover::mending(self.options, false).move_slot(self.cluster, owner, to, slot)?;
                self.close(slot, &close)
            }
            Remedy::Gather { from, close } => {
                // The owner must take keys instead of sending them on.
                self.close(slot, &close)?;
                if !from.is_empty() {
                    say::step(&format!(
                        "Moving all the {slot} slot keys to its owner {owner_name}"
                    ));
                }
                for node in from {
                    self.draw(slot, node, owner)?;
                }
                Ok(())
            }
        }
    }

    /// Makes one of several owners, or of none, the only one: the node with the most keys.
    ///
    /// A node that hears that a slot of its own has gone to another deletes its keys of it, unless
    /// it is importing the slot. So the others say first that they import it.
    fn choose_owner(&mut self, slot: u16, facts: &mut Facts) -> ClusterResult<usize> {
        say::step("No single clear owner for the slot, selecting an owner by # of keys...");
        let richest = facts.keys.iter().rev().max_by_key(|(_, count)| *count);
        let Some((owner, _)) = richest.copied() else {
            return Err(say::fail("There is no primary that could own it."));
        };
        let id = self.cluster.node(owner).id.clone();
        for other in facts.owners.clone() {
            if other != owner {
                self.cluster.members[other].drop_slot(slot)?;
                tell(self.cluster, other, slot, "importing", &id)?;
                facts.importing.push(other);
            }
        }
        let member = &mut self.cluster.members[owner];
        say::step(&format!("Setting slot {slot} owner: {}", member.node.address()));
        member.close_slot(slot)?;
        member.take_slot(slot, false)?;
        for other in self.cluster.primaries() {
            if other != owner {
                tell(self.cluster, other, slot, "node", &id)?;
            }
        }
        facts.owners = vec![owner];
        facts.migrating.clear();
        facts.importing.retain(|node| *node != owner);
        Ok(owner)
    }

    /// Moves a node's keys of a slot to the slot's owner.
    fn draw(&mut self, slot: u16, from: usize, owner: usize) -> ClusterResult {
        let id = self.cluster.node(owner).id.clone();
        // So that it touches the keys instead of sending us to the owner.
        tell(self.cluster, from, slot, "importing", &id)?;
        Mover::mending(self.options, true).move_slot(self.cluster, from, owner, slot)?;
        self.close(slot, &[from])
    }

    /// No node moves the slot any more, as far as these nodes know.
    fn close(&mut self, slot: u16, nodes: &[usize]) -> ClusterResult {
        for node in nodes {
            let member = &mut self.cluster.members[*node];
            say::step(&format!("Setting {slot} as STABLE in {}", member.node.address()));
            member.close_slot(slot)?;
        }
        Ok(())
    }

    fn cover_with(&mut self, slot: u16, node: usize, close: bool) -> ClusterResult {
        let member = &mut self.cluster.members[node];
        say::step(&format!("Covering slot {slot} with {}", member.node.address()));
        member.take_slot(slot, close)
    }

    /// A slot that no node has, with keys on several nodes.
    fn gather(&mut self, slot: u16, holders: &[(usize, u64)]) -> ClusterResult {
        let richest = holders.iter().rev().max_by_key(|(_, count)| *count);
        let (target, _) = *richest.ok_or_else(|| say::fail("Nobody has keys."))?;
        self.cover_with(slot, target, true)?;
        let id = self.cluster.node(target).id.clone();
        for (source, _) in holders.iter().filter(|(node, _)| *node != target) {
            tell(self.cluster, *source, slot, "node", &id)?;
            self.draw(slot, *source, target)?;
        }
        Ok(())
    }
}

/// Slots that more than one primary owns or has keys of.
pub fn multiple_owners(cluster: &mut Cluster) -> ClusterResult<Vec<(u16, Vec<usize>)>> {
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
    let slots: SlotBitmap = slots.iter().map(|(slot, _)| *slot).collect();
    out!("{what}\n{slots}\n");
    say::confirm(question, false)
}

/// What is known of a slot. All nodes are primaries.
#[derive(Clone, Debug, Default)]
struct Facts {
    /// Whose it is, by their own account.
    owners: Vec<usize>,
    migrating: Vec<usize>,
    importing: Vec<usize>,
    /// Where the node that gives it away wants it to go.
    target: Option<usize>,
    /// How many keys each primary has of it.
    keys: Vec<(usize, u64)>,
}

impl Facts {
    fn has_keys(&self, node: usize) -> bool {
        self.keys.iter().any(|(known, count)| *known == node && *count > 0)
    }
}

/// What mends a slot that has one owner. No keys are lost by either.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Remedy {
    /// Go on with a move that was begun, and close the slot on other nodes.
    Finish { to: usize, close: Vec<usize> },
    /// Close it, and bring the keys that others have to the owner.
    Gather { from: Vec<usize>, close: Vec<usize> },
}

impl Remedy {
    /// A move can be finished where the owner gives the slot away, another takes it, and no third
    /// one has keys of it.
    fn of(owner: usize, facts: &Facts) -> Self {
        let target = facts.target.filter(|target| facts.importing.contains(target));
        let only = match facts.importing.as_slice() {
            [only] => Some(*only),
            _ => None,
        };
        let is_left = |node: usize| node != owner && facts.has_keys(node);
        if facts.migrating.contains(&owner)
            && let Some(to) = target.or(only)
            && !facts.keys.iter().any(|(node, _)| *node != to && is_left(*node))
        {
            let open = facts.migrating.iter().chain(&facts.importing).copied();
            let close = open.filter(|node| *node != owner && *node != to).collect();
            return Self::Finish { to, close };
        }
        Self::Gather {
            from: facts.keys.iter().map(|(node, _)| *node).filter(|node| is_left(*node)).collect(),
            close: facts.migrating.iter().chain(&facts.importing).copied().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(migrating: &[usize], importing: &[usize], target: Option<usize>) -> Facts {
        Facts {
            owners: vec![0],
            migrating: migrating.to_vec(),
            importing: importing.to_vec(),
            target,
            keys: vec![(0, 7), (1, 0), (2, 0)],
        }
    }

    fn finish(to: usize, close: &[usize]) -> Remedy {
        Remedy::Finish { to, close: close.to_vec() }
    }

    fn gather(from: &[usize], close: &[usize]) -> Remedy {
        Remedy::Gather { from: from.to_vec(), close: close.to_vec() }
    }

    #[test]
    fn moves_are_finished() {
        assert_eq!(Remedy::of(0, &facts(&[0], &[1], Some(1))), finish(1, &[]));
        // Whatever the one that takes has already.
        let half = Facts { keys: vec![(0, 7), (1, 5)], ..facts(&[0], &[1], Some(1)) };
        assert_eq!(Remedy::of(0, &half), finish(1, &[]));
        assert_eq!(Remedy::of(0, &facts(&[0], &[1], Some(2))), finish(1, &[]));
        assert_eq!(Remedy::of(0, &facts(&[0], &[1, 2], Some(2))), finish(2, &[1]));
    }

    #[test]
    fn otherwise_the_owner_gets_all() {
        assert_eq!(Remedy::of(0, &facts(&[], &[1, 2], None)), gather(&[], &[1, 2]));
        assert_eq!(Remedy::of(0, &facts(&[0], &[1, 2], None)), gather(&[], &[0, 1, 2]));
        assert_eq!(Remedy::of(0, &facts(&[0], &[], Some(1))), gather(&[], &[0]));
        let elsewhere = Facts { keys: vec![(1, 5), (2, 1)], ..facts(&[0], &[1, 2], Some(2)) };
        assert_eq!(Remedy::of(0, &elsewhere), gather(&[1, 2], &[0, 1, 2]));
        let stray = Facts { keys: vec![(2, 1)], ..facts(&[], &[], None) };
        assert_eq!(Remedy::of(0, &stray), gather(&[2], &[]));
    }
}
