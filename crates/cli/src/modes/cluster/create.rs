//! `create`: a cluster of empty nodes.

use super::{
    members::{Cluster, ClusterMember},
    place,
    plan::{self, Layout},
    say::{self, ClusterResult},
};
use crate::{
    modes::cluster::check::{self, Depth},
    options::Options,
};

pub fn run(options: &Options, words: &[Vec<u8>]) -> ClusterResult {
    let mut members = Vec::new();
    for word in words {
        let (host, port) = place(std::slice::from_ref(word))?;
        let mut member = ClusterMember::join(options, &host, port)?;
        member.demand_empty()?;
        members.push(member);
    }
    let mut cluster = Cluster { members, unreachable: 0 };
    let (replicas, yes) = (options.manager.replicas, options.manager.assume_yes);
    let primaries = words.len() / replicas.saturating_add(1);
    if primaries == 0 {
        return Err(say::fail(&format!(
            "{} nodes are too few for a primary with {replicas} replicas.",
            words.len()
        )));
    }
    if primaries < PRIMARIES_MIN {
        out!("{primaries} primaries with {replicas} replicas each were asked for.\n");
        let question = "Failover wants at least 3 primaries. Go on without?";
        if !say::confirm(question, yes) {
            return Err(say::Failed);
        }
    }
    let layout = arrange(&cluster, replicas);
    for (index, range) in &layout.primaries {
        cluster.members[*index].node.slots = range.clone().collect();
    }
    show(&cluster, &layout);
    if !say::confirm("Can I set the above configuration?", yes) {
        // As valkey-cli: nothing was done, and nothing failed.
        return Ok(());
    }
    set_up(options, &mut cluster, &layout)?;
    let first = cluster.node(0);
    let (host, port) = (first.host.clone(), first.port);
    check::check(options, &mut Cluster::load(options, &host, port)?, Depth::Shown);
    Ok(())
}

/// Chooses which nodes become primaries and replicas, and reports each step.
fn arrange(cluster: &Cluster, replicas: usize) -> Layout {
    let count = cluster.members.len();
    say::step(&format!("Performing hash slots allocation on {count} node(s)..."));
    let hosts: Vec<&str> = cluster.members.iter().map(|member| member.node.host.as_str()).collect();
    let mut layout = plan::lay_out(&hosts, replicas);
    for (number, (_, range)) in layout.primaries.iter().enumerate() {
        out!("Primary[{number}] -> Slots {} - {}\n", range.start(), range.end());
    }
    for (number, (replica, primary)) in layout.replicas.iter().enumerate() {
        if number == layout.regular {
            out!("Adding extra replicas...\n");
        }
        let (replica, primary) =
            (cluster.node(*replica).address(), cluster.node(*primary).address());
        out!("Adding replica {replica} to {primary}\n");
    }
    let primaries: Vec<usize> = layout.primaries.iter().map(|(index, _)| *index).collect();
    if plan::affinity(&hosts, &primaries, &layout.replicas) > 0 {
        say::step("Trying to optimize replicas allocation for anti-affinity");
        plan::improve(&hosts, &primaries, &mut layout.replicas);
        match plan::affinity(&hosts, &primaries, &layout.replicas) {
            0 => say::good("Perfect anti-affinity obtained!"),
            plan::SAME_HOST_AS_PRIMARY.. => {
                say::warn("Some replicas are in the same host as their primary");
            }
            _ => say::warn("Some replicas of the same primary are in the same host"),
        }
    }
    layout
}

fn show(cluster: &Cluster, layout: &Layout) {
    for index in 0..cluster.members.len() {
        let node = cluster.node(index);
        match layout.replicas.iter().find(|(replica, _)| *replica == index) {
            Some((_, primary)) => {
                let primary = &cluster.node(*primary).id;
                out!("S: {} {}\n   replicates {primary}\n", node.id, node.address());
            }
            None => out!("{}", node.describe(0, 0)),
        }
    }
}

fn set_up(options: &Options, cluster: &mut Cluster, layout: &Layout) -> ClusterResult {
    for (index, range) in &layout.primaries {
        let line = format!("CLUSTER ADDSLOTSRANGE {} {}", range.start(), range.end());
        let member = &mut cluster.members[*index];
        if let Err(text) = member.ask_line(&line) {
            // Servers before 7.0 take slots one by one.
            let is_old = text.to_ascii_lowercase().contains("unknown subcommand");
            if !is_old {
                return Err(member.replied_with_error(&text));
            }
            let slots = range.clone().map(|slot| slot.to_string());
            let words: Vec<String> =
                ["CLUSTER".to_owned(), "ADDSLOTS".to_owned()].into_iter().chain(slots).collect();
            member.demand(&words)?;
        }
    }
    say::step("Nodes configuration updated");
    say::step("Assign a different config epoch to each node");
    for (index, member) in cluster.members.iter_mut().enumerate() {
        // A node that has one keeps it; epochs that collide are settled by the nodes.
        drop(member.ask_line(&format!("CLUSTER SET-CONFIG-EPOCH {}", index + 1)));
    }
    say::step("Sending CLUSTER MEET messages to join the cluster");
    let first = cluster.node(0).clone();
    for member in &mut cluster.members[1..] {
        member.meet(options, &first)?;
    }
    cluster.wait_until_joined()?;
    for (replica, primary) in &layout.replicas {
        let id = cluster.node(*primary).id.clone();
        cluster.members[*replica].demand(&["CLUSTER", "REPLICATE", &id])?;
    }
    Ok(())
}

const PRIMARIES_MIN: usize = 3;
