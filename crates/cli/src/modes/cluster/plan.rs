//! What to do with the nodes of a cluster, worked out without talking to them. Nodes are numbers:
//! their places in the lists given.

use std::{collections::HashMap, ops::RangeInclusive};

use bobbin_client::SLOTS;

use super::model::SlotBitmap;

/// A new cluster: which node gets which slots, and which is a replica of which.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    pub primaries: Vec<(usize, RangeInclusive<u16>)>,
    /// Replicas with their primaries, in the order of choice.
    pub replicas: Vec<(usize, usize)>,
    /// How many of these make all primaries have what was asked for; the others are left over.
    pub regular: usize,
}

/// Shares the slots among as many primaries as `replicas` for each allow, and gives each replicas,
/// if possible on other hosts than its own. At least one primary must come out of it.
pub fn lay_out(hosts: &[&str], replicas: usize) -> Layout {
    let count = hosts.len() / (replicas + 1);
    debug_assert!(count > 0);
    let order = interleave(hosts);
    let (primaries, others) = order.split_at(count);
    let mut free = others.to_vec();
    // Replicas in the order of the hosts, but not beginning with the first primary's.
    if !free.is_empty() {
        free.rotate_left(1);
    }
    let mut chosen = Vec::new();
    let mut choose = |primary: usize, free: &mut Vec<usize>| {
        if free.is_empty() {
            return;
        }
        let elsewhere = free.iter().position(|node| hosts[*node] != hosts[primary]);
        chosen.push((free.remove(elsewhere.unwrap_or(0)), primary));
    };
    for primary in primaries {
        (0..replicas).for_each(|_| choose(*primary, &mut free));
    }
    let regular = others.len() - free.len();
    while !free.is_empty() {
        primaries.iter().for_each(|primary| choose(*primary, &mut free));
    }
    let shares = primaries.iter().copied().zip(share_slots(count));
    Layout { primaries: shares.collect(), replicas: chosen, regular }
}

/// How badly replicas are placed: 10,000 for each on its primary's host, 1 for each that shares a
/// host with another replica of its primary.
pub fn affinity(hosts: &[&str], primaries: &[usize], replicas: &[(usize, usize)]) -> u64 {
    let mut groups: HashMap<(&str, usize), u64> = HashMap::new();
    for (replica, primary) in replicas {
        *groups.entry((hosts[*replica], *primary)).or_default() += 1;
    }
    let score = |(&(host, primary), &count): (&(&str, usize), &u64)| {
        if primaries.contains(&primary) && hosts[primary] == host {
            SAME_HOST_AS_PRIMARY * count
        } else if count > 1 {
            count
        } else {
            0
        }
    };
    groups.iter().map(score).sum()
}

/// Swaps replicas between primaries until [`affinity`] gets no better. The same question has the
/// same answer.
pub fn improve(hosts: &[&str], primaries: &[usize], replicas: &mut [(usize, usize)]) {
    if hosts.iter().all(|host| *host == hosts[0]) || replicas.len() < 2 {
        return;
    }
    let mut score = affinity(hosts, primaries, replicas);
    let (mut best, mut best_score) = (replicas.to_vec(), score);
    let mut random = SEED;
    for _ in 0..SWAPS_PER_NODE * hosts.len() {
        if best_score == 0 {
            break;
        }
        let (one, other) = (draw(&mut random, replicas.len()), draw(&mut random, replicas.len()));
        let before = (replicas[one].1, replicas[other].1);
        if before.0 == before.1 {
            continue;
        }
        (replicas[one].1, replicas[other].1) = (before.1, before.0);
        let swapped = affinity(hosts, primaries, replicas);
        // Neither better nor worse may be a step on the way.
        if swapped > score {
            (replicas[one].1, replicas[other].1) = before;
            continue;
        }
        score = swapped;
        if score < best_score {
            (best, best_score) = (replicas.to_vec(), score);
        }
    }
    replicas.copy_from_slice(&best);
}

/// Which slots leave which sources so that `count` are taken from all, each giving by what it has.
/// The one that has most gives what rounding leaves.
pub fn reshard(sources: &[(usize, &SlotBitmap)], count: usize) -> Vec<(usize, u16)> {
    let mut sources: Vec<_> = sources.iter().map(|(node, slots)| (*node, *slots)).collect();
    sources.sort_by_key(|(_, slots)| std::cmp::Reverse(slots.len()));
    let total: usize = sources.iter().map(|(_, slots)| slots.len()).sum();
    let mut moves = Vec::new();
    let mut rest = Vec::new();
    for (index, (node, slots)) in sources.iter().enumerate() {
        let share = count as f32 / total as f32 * slots.len() as f32;
        let share = if index == 0 { share.ceil() } else { share.floor() } as usize;
        let share = share.min(count - moves.len());
        let mut slots = slots.iter().map(|slot| (*node, slot));
        moves.extend(slots.by_ref().take(share));
        rest.extend(slots);
    }
    let missing = count - moves.len();
    moves.extend(rest.into_iter().take(missing));
    moves
}

/// A node that takes part in rebalancing.
#[derive(Clone, Copy, Debug)]
pub struct SlotShare {
    pub slots: usize,
    pub weight: f32,
}

/// What makes shares fit.
#[derive(Debug, PartialEq, Eq)]
pub struct Balance {
    /// Nodes with how many slots they have too many, those with the fewest first.
    pub surplus: Vec<(usize, i32)>,
    pub transfers: Vec<SlotMove>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotMove {
    pub from: usize,
    pub to: usize,
    pub slots: usize,
}

/// How slots move so that each node has its share by weight; `None` where all are within
/// `threshold_percent` of it.
pub fn rebalance(nodes: &[SlotShare], threshold_percent: f32) -> Option<Balance> {
    let total: f32 = nodes.iter().map(|node| node.weight).sum();
    let expected = |node: &SlotShare| (f32::from(SLOTS) / total * node.weight) as i32;
    let is_off = |node: &SlotShare| match (node.slots, expected(node)) {
        _ if threshold_percent <= 0.0 => false,
        (0, expected) => expected > 1,
        (slots, expected) => {
            let percent = 100.0 - 100.0 * f64::from(expected) / slots as f64;
            percent.abs() > f64::from(threshold_percent)
        }
    };
    if !nodes.iter().any(is_off) {
        return None;
    }
    let mut surplus: Vec<(usize, i32)> =
        nodes.iter().map(|node| node.slots as i32 - expected(node)).enumerate().collect();
    give_out_rest(&mut surplus);
    surplus.sort_by_key(|(_, surplus)| *surplus);
    let transfers = transfers(&surplus);
    Some(Balance { surplus, transfers })
}

/// Shares are rounded down, so some slots are no node's: one that has none too many takes one more.
fn give_out_rest(surplus: &mut [(usize, i32)]) {
    let mut rest: i32 = surplus.iter().map(|(_, surplus)| surplus).sum();
    while rest > 0 {
        let before = rest;
        for (_, surplus) in surplus.iter_mut().filter(|(_, surplus)| *surplus <= 0) {
            if rest > 0 {
                *surplus -= 1;
                rest -= 1;
            }
        }
        if rest == before {
            return;
        }
    }
}

/// The most needy gets from the richest.
fn transfers(surplus: &[(usize, i32)]) -> Vec<SlotMove> {
    let mut left: Vec<(usize, i32)> = surplus.to_vec();
    let mut transfers = Vec::new();
    let (mut low, mut high) = (0, left.len().saturating_sub(1));
    while low < high {
        let count = (-left[low].1).min(left[high].1);
        if count > 0 {
            let (from, to) = (left[high].0, left[low].0);
            transfers.push(SlotMove { from, to, slots: count as usize });
            left[low].1 += count;
            left[high].1 -= count;
        }
        // One of them has what it should.
        if left[low].1 >= 0 {
            low += 1;
        } else {
            high -= 1;
        }
    }
    transfers
}

/// Nodes in an order that meets all hosts in turn.
fn interleave(hosts: &[&str]) -> Vec<usize> {
    let mut by_host: Vec<(&str, Vec<usize>)> = Vec::new();
    for (node, host) in hosts.iter().enumerate() {
        match by_host.iter_mut().find(|(known, _)| known == host) {
            Some((_, nodes)) => nodes.push(node),
            None => by_host.push((host, vec![node])),
        }
    }
    let longest = by_host.iter().map(|(_, nodes)| nodes.len()).max().unwrap_or(0);
    let rounds = (0..longest)
        .flat_map(|round| by_host.iter().filter_map(move |(_, nodes)| nodes.get(round).copied()));
    rounds.collect()
}

/// All slots in even parts. Rounded as valkey-cli does, so that the same nodes get the same slots.
fn share_slots(count: usize) -> Vec<RangeInclusive<u16>> {
    let each = f32::from(SLOTS) / count as f32;
    let mut cursor = 0.0;
    let mut first = 0;
    let mut share = |index: usize| {
        let last =
            if index + 1 == count { SLOTS - 1 } else { (cursor + each - 1.0).round() as u16 };
        let range = first..=last.max(first);
        first = range.end() + 1;
        cursor += each;
        range
    };
    (0..count).map(&mut share).collect()
}

/// A number below `end`, by xorshift.
fn draw(state: &mut u64, end: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state % end as u64) as usize
}

pub const SAME_HOST_AS_PRIMARY: u64 = 10_000;
const SWAPS_PER_NODE: usize = 500;
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_shared_as_valkey_does() {
        assert_eq!(share_slots(3), [0..=5460, 5461..=10922, 10923..=16383]);
        assert_eq!(share_slots(1), [0..=16383]);
        for count in 1..200 {
            let shares = share_slots(count);
            assert_eq!((*shares[0].start(), *shares[count - 1].end()), (0, 16383));
            assert!(shares.windows(2).all(|pair| pair[0].end() + 1 == *pair[1].start()));
        }
    }

    #[test]
    fn one_host() {
        let layout = lay_out(&["a"; 6], 1);
        assert_eq!(layout.primaries, [(0, 0..=5460), (1, 5461..=10922), (2, 10923..=16383)]);
        // What valkey-cli says of six nodes of one host.
        assert_eq!(layout.replicas, [(4, 0), (5, 1), (3, 2)]);
        assert_eq!(layout.regular, 3);
        let mut replicas = layout.replicas.clone();
        improve(&["a"; 6], &[0, 1, 2], &mut replicas);
        assert_eq!(replicas, layout.replicas);
        assert_eq!(affinity(&["a"; 6], &[0, 1, 2], &replicas), 30_000);
    }

    #[test]
    fn replicas_go_to_other_hosts() {
        let hosts = ["a", "a", "b", "b", "c", "c"];
        let layout = lay_out(&hosts, 1);
        let primaries: Vec<usize> = layout.primaries.iter().map(|(node, _)| *node).collect();
        assert_eq!(primaries, [0, 2, 4]);
        assert_eq!(affinity(&hosts, &primaries, &layout.replicas), 0);
        // Two replicas each, first placed as badly as can be.
        let hosts = ["a", "b", "c", "a", "a", "b", "b", "c", "c"];
        let mut replicas = [(3, 0), (4, 0), (5, 1), (6, 1), (7, 2), (8, 2)];
        assert_eq!(affinity(&hosts, &[0, 1, 2], &replicas), 60_000);
        improve(&hosts, &[0, 1, 2], &mut replicas);
        assert_eq!(affinity(&hosts, &[0, 1, 2], &replicas), 0, "{replicas:?}");
        let per_primary = |primary| replicas.iter().filter(|pair| pair.1 == primary).count();
        assert_eq!([per_primary(0), per_primary(1), per_primary(2)], [2, 2, 2]);
    }

    #[test]
    fn everybody_left_over_becomes_a_replica() {
        let layout = lay_out(&["a"; 8], 5);
        assert_eq!((layout.primaries.len(), layout.replicas.len(), layout.regular), (1, 7, 5));
        let layout = lay_out(&["a", "b", "c"], 0);
        assert_eq!((layout.primaries.len(), layout.replicas.len(), layout.regular), (3, 0, 0));
    }

    #[test]
    fn resharding_takes_by_share_and_as_many_as_asked() {
        let slots: Vec<SlotBitmap> =
            [0..=5460, 5461..=10922, 10923..=16383].map(Iterator::collect).into();
        let sources: Vec<(usize, &SlotBitmap)> = slots.iter().enumerate().collect();
        let moves = reshard(&sources[..2], 100);
        // The larger one first; 50.004 and 49.996 of them.
        assert_eq!(moves.len(), 100);
        assert_eq!(
            (moves[0], moves[50], moves[51], moves[99]),
            ((1, 5461), (1, 5511), (0, 0), (0, 48))
        );
        for count in [1, 2, 7, 100, 16000] {
            let moves = reshard(&sources, count);
            assert_eq!(moves.len(), count);
            let distinct: SlotBitmap = moves.iter().map(|(_, slot)| *slot).collect();
            assert_eq!(distinct.len(), count);
        }
        // No more than there are.
        let few: SlotBitmap = (0..3).collect();
        assert_eq!(reshard(&[(5, &few)], 3), [(5, 0), (5, 1), (5, 2)]);
    }

    fn shares(slots: &[usize], weights: &[f32]) -> Vec<SlotShare> {
        slots.iter().zip(weights).map(|(&slots, &weight)| SlotShare { slots, weight }).collect()
    }

    #[test]
    fn rebalancing() {
        let even = shares(&[5461, 5462, 5461], &[1.0; 3]);
        assert_eq!(rebalance(&even, 2.0), None);
        let one = shares(&[16384, 0], &[1.0, 1.0]);
        let plan = rebalance(&one, 2.0).unwrap();
        assert_eq!(plan.transfers, [SlotMove { from: 0, to: 1, slots: 8192 }]);
        assert_eq!(plan.surplus, [(1, -8192), (0, 8192)]);
        let empty = rebalance(&shares(&[8192, 8192], &[1.0, 0.0]), 2.0).unwrap();
        assert_eq!(empty.transfers, [SlotMove { from: 1, to: 0, slots: 8192 }]);
        let three = rebalance(&shares(&[6461, 5462, 4461], &[1.0; 3]), 2.0).unwrap();
        assert_eq!(
            three.transfers,
            [SlotMove { from: 0, to: 2, slots: 1000 }, SlotMove { from: 1, to: 2, slots: 1 }]
        );
        assert_eq!(rebalance(&three_of(&[1, 2, 3]), 0.0), None);
    }

    fn three_of(slots: &[usize]) -> Vec<SlotShare> {
        shares(slots, &[1.0; 3])
    }

    #[test]
    fn whatever_the_weights_everybody_gets_what_is_his() {
        let mut random = SEED;
        for _ in 0..500 {
            let nodes = 2 + draw(&mut random, 9);
            let mut left = usize::from(SLOTS);
            let mut all = Vec::new();
            for index in 0..nodes {
                let slots = if index + 1 == nodes { left } else { draw(&mut random, left + 1) };
                left -= slots;
                all.push(SlotShare { slots, weight: 1.0 + draw(&mut random, 4) as f32 });
            }
            let Some(plan) = rebalance(&all, 0.001) else { continue };
            let total: f32 = all.iter().map(|share| share.weight).sum();
            let mut slots: Vec<i64> = all.iter().map(|share| share.slots as i64).collect();
            for transfer in &plan.transfers {
                slots[transfer.from] -= transfer.slots as i64;
                slots[transfer.to] += transfer.slots as i64;
            }
            for (slots, share) in slots.iter().zip(&all) {
                let fair = f64::from(SLOTS) / f64::from(total) * f64::from(share.weight);
                assert!((*slots as f64 - fair).abs() <= nodes as f64 + 1.0, "{all:?} {plan:?}");
            }
        }
    }
}
