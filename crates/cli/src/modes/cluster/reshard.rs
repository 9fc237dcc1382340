//! `reshard`: moves a number of slots from some nodes to one.

use bobbin_client::SLOTS;

use super::{
    check::{self, Depth},
    load,
    members::Cluster,
    model::{self, SlotBitmap},
    moving::{Mover, Shown},
    plan,
    say::{self, ClusterResult},
};
use crate::options::Options;

pub fn run(options: &Options, words: &[Vec<u8>]) -> ClusterResult {
    let mut cluster = load(options, words)?;
    if check::check(options, &mut cluster, Depth::Shown).problems > 0 {
        complain!("*** Please fix your cluster problems before resharding");
        return Err(say::Failed);
    }
    let wanted = &options.manager;
    let count = match wanted.slots {
        Some(count) => count,
        None => ask_count()?,
    };
    let target = match &wanted.to {
        Some(id) => primary(&cluster, id)?,
        None => primary(&cluster, &demand_answer("What is the receiving node ID? ")?)?,
    };
    let sources = match &wanted.from {
        Some(ids) => sources(&cluster, ids.split(','), target)?,
        None => ask_sources(&cluster, target)?,
    };
    if sources.is_empty() {
        complain!("*** No source nodes given, operation aborted.");
        return Err(say::Failed);
    }
    let owned: usize = sources.iter().map(|node| cluster.node(*node).slots.len()).sum();
    let count = count.min(owned);
    let moves = {
        let given: Vec<(usize, &SlotBitmap)> =
            sources.iter().map(|node| (*node, &cluster.node(*node).slots)).collect();
        if owned == 0 { Vec::new() } else { plan::reshard(&given, count) }
    };
    show(&cluster, target, &sources, &moves, count);
    let question = "Do you want to proceed with the proposed reshard plan (yes/no)? ";
    if !wanted.assume_yes && say::ask(question).as_deref() != Some("yes") {
        return Err(say::Failed);
    }
    let shown = Shown::for_slots(moves.len(), Shown::Lines);
    let mut mover = Mover { options, cold: false, fixes: false, shown };
    let mut moved = Ok(());
    for (source, slots) in by_source(&moves) {
        moved = moved.and_then(|()| mover.move_slots(&mut cluster, source, target, &slots));
    }
    mover.shown.finish();
    moved
}

fn show(cluster: &Cluster, target: usize, sources: &[usize], moves: &[(usize, u16)], count: usize) {
    out!("\nReady to move {count} slots.\n  Source nodes:\n");
    for source in sources {
        out!("{}", cluster.describe(*source, 4));
    }
    out!("  Destination node:\n{}  Resharding plan:\n", cluster.describe(target, 4));
    for (source, slots) in by_source(moves) {
        for range in model::ranges(slots) {
            let (id, first, last) = (&cluster.node(source).id, range.start(), range.end());
            out!("    Moving slot range {first}-{last} from {id}\n");
        }
    }
}

/// In the order of the plan. What rounding left comes last, and may be of a source that was there
/// before.
fn by_source(moves: &[(usize, u16)]) -> Vec<(usize, Vec<u16>)> {
    let runs = moves.chunk_by(|one, next| one.0 == next.0);
    runs.map(|run| (run[0].0, run.iter().map(|(_, slot)| *slot).collect())).collect()
}

fn ask_count() -> ClusterResult<usize> {
    loop {
        let question = format!("How many slots do you want to move (from 1 to {SLOTS})? ");
        let answer = demand_answer(&question)?;
        match answer.parse() {
            Ok(count) if (1..=usize::from(SLOTS)).contains(&count) => return Ok(count),
            _ => {}
        }
    }
}

fn ask_sources(cluster: &Cluster, target: usize) -> ClusterResult<Vec<usize>> {
    out!(
        "Please enter all the source node IDs.\n  Type 'all' for all other primaries.\n  Type \
         'done' behind the last one.\n"
    );
    let mut ids = Vec::new();
    loop {
        let answer = demand_answer(&format!("Source node #{}: ", ids.len() + 1))?;
        match answer.as_str() {
            "done" => break,
            "all" => return sources(cluster, ["all"].into_iter(), target),
            _ => {}
        }
        // A mistake is said at once.
        if !sources(cluster, [answer.as_str()].into_iter(), target)?.is_empty() {
            ids.push(answer);
        }
    }
    sources(cluster, ids.iter().map(String::as_str), target)
}

fn sources<'a>(
    cluster: &Cluster,
    ids: impl Iterator<Item = &'a str>,
    target: usize,
) -> ClusterResult<Vec<usize>> {
    let mut sources = Vec::new();
    for id in ids.filter(|id| !id.is_empty()) {
        if id == "all" {
            let all = cluster.primaries().into_iter().filter(|node| *node != target);
            return Ok(all.collect());
        }
        match primary(cluster, id)? {
            node if node == target => {
                say::complain("*** The node that gets the slots cannot give them.");
            }
            node if sources.contains(&node) => {}
            node => sources.push(node),
        }
    }
    Ok(sources)
}

fn primary(cluster: &Cluster, id: &str) -> ClusterResult<usize> {
    let node = cluster.find(id).filter(|node| !cluster.node(*node).is_replica());
    node.ok_or_else(|| {
        say::complain(&format!(
            "*** The specified node ({id}) is not known or not a primary, please retry."
        ));
        say::Failed
    })
}

/// Without anybody who answers there is nothing to do.
fn demand_answer(question: &str) -> ClusterResult<String> {
    say::ask(question).ok_or_else(|| {
        out!("\n");
        say::fail("The input ended before all was asked.")
    })
}
