//! `info`, `check` and `fix`: what a cluster looks like and what is wrong with it.

use std::collections::BTreeSet;

use bobbin_client::SLOTS;

use super::{
    fix::{self, Fixer},
    load,
    members::Cluster,
    model::SlotBitmap,
    say::{self, ClusterResult},
};
use crate::options::Options;

pub fn run(options: &Options, words: &[Vec<u8>]) -> ClusterResult {
    let mut cluster = load(options, words)?;
    show_figures(&mut cluster)?;
    check(options, &mut cluster, Depth::Shown).result()
}

pub fn info(options: &Options, words: &[Vec<u8>]) -> ClusterResult {
    show_figures(&mut load(options, words)?)
}

pub fn fix(options: &Options, words: &[Vec<u8>]) -> ClusterResult {
    let mut cluster = load(options, words)?;
    show_figures(&mut cluster)?;
    check(options, &mut cluster, Depth::Mended).result()
}

/// How far a check goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// It does not show the nodes.
    Quiet,
    Shown,
    /// It mends what it finds.
    Mended,
}

/// What a check found.
#[derive(Clone, Copy, Debug)]
pub struct CheckVerdict {
    /// Nothing is wrong, or nothing any more.
    pub is_sound: bool,
    /// How many things were wrong.
    pub problems: usize,
    /// Something could not be mended.
    has_failed: bool,
}

impl CheckVerdict {
    pub fn result(self) -> ClusterResult {
        if self.is_sound { Ok(()) } else { Err(say::Failed) }
    }

    const fn new() -> Self {
        Self { is_sound: true, problems: 0, has_failed: false }
    }

    fn problem(&mut self) {
        self.problems += 1;
        self.is_sound = false;
    }

    /// Notes what came of mending the problems so far.
    fn mended(&mut self, outcome: ClusterResult) {
        self.has_failed |= outcome.is_err();
        self.is_sound = !self.has_failed;
    }
}

/// Looks whether the nodes agree, for slots on their way and for slots that no node has.
pub fn check(options: &Options, cluster: &mut Cluster, depth: Depth) -> CheckVerdict {
    let mut verdict = CheckVerdict::new();
    say::step(&format!("Performing Cluster Check (using node {})", cluster.node(0).address()));
    if depth != Depth::Quiet {
        for index in 0..cluster.members.len() {
            out!("{}", cluster.describe(index, 0));
        }
    }
    if cluster.agrees() {
        say::good("All nodes agree about slots configuration.");
    } else {
        say::fail("Nodes don't agree about configuration!");
        verdict.problem();
    }
    let mut fixer = Fixer { options, cluster };
    let is_mended = depth == Depth::Mended;
    say::step("Check for open slots...");
    let open = show_open_slots(fixer.cluster, &mut verdict);
    if is_mended && !open.is_empty() {
        verdict.mended(open.iter().try_for_each(|slot| fixer.fix_open(*slot)));
    }
    say::step("Check slots coverage...");
    let uncovered = uncovered(fixer.cluster);
    if uncovered.is_empty() {
        say::good(&format!("All {SLOTS} slots covered."));
    } else {
        say::fail(&format!("Not all {SLOTS} slots are covered by nodes."));
        verdict.problem();
        if is_mended {
            verdict.mended(fixer.cover(&uncovered));
        }
    }
    if options.manager.search_multiple_owners {
        say::step("Check for multiple slot owners...");
        match show_multiple_owners(&mut fixer, is_mended) {
            Ok(0) => say::good("No multiple owners found."),
            Ok(_) | Err(_) => verdict.problem(),
        }
    }
    verdict
}

fn show_figures(cluster: &mut Cluster) -> ClusterResult {
    let (mut primaries, mut total) = (0, 0);
    for index in cluster.primaries() {
        let replicas = cluster.replicas_of(index);
        let member = &mut cluster.members[index];
        let keys = member.demand(&["DBSIZE"])?.as_integer().unwrap_or(0);
        let node = &member.node;
        let id: String = node.id.chars().take(ID_SHOWN_LEN).collect();
        out!(
            "{} ({id}...) -> {keys} keys | {} slots | {replicas} replicas.\n",
            node.address(),
            node.slots.len()
        );
        primaries += 1;
        total += keys;
    }
    say::good(&format!("{total} keys in {primaries} primaries."));
    out!("{:.2} keys per slot on average.\n", total as f64 / f64::from(SLOTS));
    Ok(())
}

/// Says which slots are on their way, and gives them.
fn show_open_slots(cluster: &Cluster, verdict: &mut CheckVerdict) -> BTreeSet<u16> {
    let mut all = BTreeSet::new();
    for member in &cluster.members {
        let node = &member.node;
        for (state, list) in [("migrating", &node.migrating), ("importing", &node.importing)] {
            let slots: Vec<u16> = list.iter().map(|open| open.slot).collect();
            if !slots.is_empty() {
                let slots = listed(&slots);
                let address = node.address();
                say::warn(&format!("Node {address} has slots in {state} state {slots}."));
                verdict.problem();
            }
            all.extend(slots);
        }
    }
    if !all.is_empty() {
        let slots: Vec<u16> = all.iter().copied().collect();
        say::warn(&format!("The following slots are open: {}.", listed(&slots)));
    }
    all
}

fn uncovered(cluster: &Cluster) -> SlotBitmap {
    let members = &cluster.members;
    (0..SLOTS)
        .filter(|slot| !members.iter().any(|member| member.node.slots.contains(*slot)))
        .collect()
}

/// Says which slots are owned by several nodes, or have keys on nodes that do not own them; gives
/// how many of them stay so.
fn show_multiple_owners(fixer: &mut Fixer<'_>, is_mended: bool) -> ClusterResult<usize> {
    let mut left = 0;
    for (slot, owners) in fix::multiple_owners(fixer.cluster)? {
        say::warn(&format!("Slot {slot} has {} owners:", owners.len()));
        for owner in &owners {
            say::complain(&format!("    {}", fixer.cluster.node(*owner).address()));
        }
        left += 1;
        if is_mended {
            fixer.fix_owners(slot)?;
            left -= 1;
        }
    }
    Ok(left)
}

fn listed(slots: &[u16]) -> String {
    slots.iter().map(u16::to_string).collect::<Vec<_>>().join(",")
}

const ID_SHOWN_LEN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_mended_is_not_forgotten() {
        let mut verdict = CheckVerdict::new();
        verdict.problem();
        verdict.mended(Ok(()));
        assert!(verdict.result().is_ok());
        verdict.problem();
        verdict.mended(Err(say::Failed));
        verdict.problem();
        verdict.mended(Ok(()));
        assert!(verdict.result().is_err() && verdict.problems == 3);
    }
}
