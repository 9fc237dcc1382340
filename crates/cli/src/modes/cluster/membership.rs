//! `add-node` and `del-node`.

use super::{
    check::{self, Depth},
    load,
    members::{Cluster, ClusterMember},
    place,
    say::{self, ClusterResult},
};
use crate::options::Options;

pub fn add(options: &Options, words: &[Vec<u8>]) -> ClusterResult {
    let (known_host, known_port) = place(&words[1..])?;
    let (host, port) = place(&words[..1])?;
    say::step(&format!("Adding node {host}:{port} to cluster {known_host}:{known_port}"));
    let mut cluster = Cluster::load(options, &known_host, known_port)?;
    check::check(options, &mut cluster, Depth::Shown).result()?;
    let primary = choose_primary(options, &cluster)?;
    let mut member = ClusterMember::join(options, &host, port)?;
    member.demand_empty()?;
    if primary.is_none() {
        copy_functions(&mut cluster, &mut member)?;
    }
    say::step(&format!("Send CLUSTER MEET to node {host}:{port} to make it join the cluster."));
    member.meet(options, &cluster.node(0).clone())?;
    if let Some(primary) = primary {
        let node = cluster.node(primary).clone();
        cluster.members.push(member);
        cluster.wait_until_joined()?;
        say::step(&format!("Configure node as replica of {}.", node.address()));
        let member = cluster.members.last_mut().expect("it was pushed");
        member.demand(&["CLUSTER", "REPLICATE", &node.id])?;
    }
    say::good("New node added correctly.");
    Ok(())
}

pub fn delete(options: &Options, words: &[Vec<u8>]) -> ClusterResult {
    let (host, port) = place(&words[..1])?;
    let id = String::from_utf8_lossy(&words[1]).into_owned();
    say::step(&format!("Removing node {id} from cluster {host}:{port}"));
    let mut cluster = load(options, &words[..1])?;
    let leaving = cluster.find(&id).ok_or_else(|| say::fail(&format!("No such node ID {id}")))?;
    let node = cluster.node(leaving);
    if !node.slots.is_empty() {
        let address = node.address();
        return Err(say::fail(&format!("Node {address} is not empty! Move its slots away first.")));
    }
    say::step("Sending CLUSTER FORGET messages to the cluster...");
    let id = node.id.clone();
    for index in 0..cluster.members.len() {
        if index == leaving {
            continue;
        }
        if cluster.node(index).primary_id.as_ref() == Some(&id) {
            let primary = cluster.neediest(Some(leaving));
            let primary = primary.ok_or_else(|| say::fail("No primary would be left."))?;
            let (orphan, other) = (cluster.node(index).address(), cluster.node(primary).clone());
            say::step(&format!("{orphan} as replica of {}", other.address()));
            let member = &mut cluster.members[index];
            member.demand(&["CLUSTER", "REPLICATE", &other.id])?;
            member.node.primary_id = Some(other.id);
        }
        cluster.members[index].demand(&["CLUSTER", "FORGET", &id])?;
    }
    say::step("Sending CLUSTER RESET SOFT to the deleted node.");
    cluster.members[leaving].demand(&["CLUSTER", "RESET", "SOFT"])?;
    Ok(())
}

/// Whose replica the new node becomes, if one.
fn choose_primary(options: &Options, cluster: &Cluster) -> ClusterResult<Option<usize>> {
    if !options.manager.as_replica {
        return Ok(None);
    }
    let nobody = |id: &str| say::fail(&format!("No such primary ID {id}"));
    match &options.manager.primary_id {
        Some(id) => cluster.find(id).map(Some).ok_or_else(|| nobody(id)),
        None => {
            let primary = cluster.neediest(None).ok_or_else(|| nobody("of any"))?;
            let address = cluster.node(primary).address();
            out!("Automatically selected primary {address}\n");
            Ok(Some(primary))
        }
    }
}

/// A new primary needs the functions of the others; a replica gets them from its primary.
fn copy_functions(cluster: &mut Cluster, member: &mut ClusterMember) -> ClusterResult {
    say::step("Getting functions from cluster");
    let dump = match cluster.members[0].ask(&["FUNCTION", "DUMP"]) {
        Ok(dump) => dump,
        Err(text) => {
            say::note(&format!("It has no functions: {text}"));
            return Ok(());
        }
    };
    let address = member.node.address();
    say::step(&format!("Send FUNCTION LIST to {address} to verify there is no functions in it"));
    let list = member.demand(&["FUNCTION", "LIST"])?;
    if list.as_elements().is_some_and(|functions| !functions.is_empty()) {
        return Err(say::fail(
            "The new node has functions of its own: FUNCTION FLUSH removes them.",
        ));
    }
    say::step(&format!("Send FUNCTION RESTORE to {address}"));
    let bytes = dump.as_bytes().unwrap_or_default();
    member.demand(&[&b"FUNCTION"[..], b"RESTORE", bytes]).map(drop)
}
