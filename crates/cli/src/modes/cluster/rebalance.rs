//! `rebalance`: as many slots for each primary as its weight says.

use super::{
    check::{self, Depth},
    load,
    members::Cluster,
    moving::{Mover, Shown},
    plan::{self, SlotShare},
    say::{self, ClusterResult},
};
use crate::options::Options;

pub fn run(options: &Options, words: &[Vec<u8>]) -> ClusterResult {
    let mut cluster = load(options, words)?;
    let shares = shares(options, &cluster)?;
    if check::check(options, &mut cluster, Depth::Quiet).problems > 0 {
        say::complain("*** Please fix your cluster problems before rebalancing");
        return Err(say::Failed);
    }
    let total: f32 = shares.iter().map(|(_, share)| share.weight).sum();
    if total <= 0.0 {
        return Err(say::fail("All weights are 0: nobody would have the slots."));
    }
    let threshold = options.manager.threshold_percent;
    let weighed: Vec<SlotShare> = shares.iter().map(|(_, share)| *share).collect();
    let Some(balance) = plan::rebalance(&weighed, threshold) else {
        say::note(&format!(
            "No rebalancing needed! All nodes are within the {threshold:.2}% threshold."
        ));
        return Ok(());
    };
    let nodes = shares.len();
    say::step(&format!("Rebalancing across {nodes} nodes. Total weight = {total:.2}"));
    if options.verbose {
        for (share, surplus) in &balance.surplus {
            let address = cluster.node(shares[*share].0).address();
            out!("{address} balance is {surplus} slots\n");
        }
    }
    let slots: usize = balance.transfers.iter().map(|transfer| transfer.slots).sum();
    let shown = Shown::for_slots(slots, Shown::Marks);
    let mut mover = Mover { options, cold: false, fixes: false, shown };
    let mut moved = Ok(());
    for transfer in &balance.transfers {
        let (from, to) = (shares[transfer.from].0, shares[transfer.to].0);
        moved =
            moved.and_then(|()| transfer_slots(&mut mover, &mut cluster, from, to, transfer.slots));
    }
    mover.shown.finish();
    moved
}

fn transfer_slots(
    mover: &mut Mover<'_>,
    cluster: &mut Cluster,
    from: usize,
    to: usize,
    count: usize,
) -> ClusterResult {
    let (source, target) = (cluster.node(from).address(), cluster.node(to).address());
    let line = format!("Moving {count} slots from {source} to {target}\n");
    match &mover.shown {
        Shown::Bar(progress, _) => progress.print(&line),
        _ => out!("{line}"),
    }
    let moves = plan::reshard(&[(from, &cluster.node(from).slots)], count);
    let slots: Vec<u16> = moves.into_iter().map(|(_, slot)| slot).collect();
    let moved = if mover.options.manager.simulate {
        out!("{}", "#".repeat(count));
        for slot in &slots {
            cluster.members[from].node.slots.remove(*slot);
            cluster.members[to].node.slots.insert(*slot);
        }
        Ok(())
    } else {
        mover.move_slots(cluster, from, to, &slots)
    };
    if !matches!(mover.shown, Shown::Bar(..)) || mover.options.manager.simulate {
        out!("\n");
    }
    moved
}

/// The primaries that take part, with what they have and what they should.
fn shares(options: &Options, cluster: &Cluster) -> ClusterResult<Vec<(usize, SlotShare)>> {
    let wanted = &options.manager;
    let mut weights = vec![1.0; cluster.members.len()];
    for (start, weight) in &wanted.weights {
        let start = start.to_ascii_lowercase();
        let node = cluster
            .primaries()
            .into_iter()
            .find(|index| cluster.node(*index).id.starts_with(&start));
        let Some(node) = node else {
            say::complain(&format!("*** No such primary node {start}"));
            return Err(say::Failed);
        };
        weights[node] = *weight;
    }
    let taking_part = cluster
        .primaries()
        .into_iter()
        .filter(|index| wanted.use_empty_primaries || !cluster.node(*index).slots.is_empty());
    Ok(taking_part
        .map(|index| {
            let slots = cluster.node(index).slots.len();
            (index, SlotShare { slots, weight: weights[index] })
        })
        .collect())
}
