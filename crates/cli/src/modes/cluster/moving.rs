//! Moving slots and their keys from node to node.

use std::{
    collections::HashSet,
    ops::RangeInclusive,
    thread,
    time::{Duration, Instant},
};

use bobbin_client::Value;

use super::{
    members::{Cluster, ClusterMember},
    model,
    say::{self, ClusterResult},
};
use crate::{modes::progress::Progress, options::Options};

/// How slots are moved.
pub struct Mover<'a> {
    pub options: &'a Options,
    /// What the nodes say of their slots stays as it is: only keys move.
    pub cold: bool,
    /// A slot that no node serves is given to the receiver.
    pub fixes: bool,
    pub shown: Shown,
}

/// What is said of the moves.
pub enum Shown {
    /// A line for each slot, a dot for each key.
    Lines,
    /// A `#` for each slot.
    Marks,
    /// A bar on a terminal, and how many slots it has counted.
    Bar(Progress, u64),
}

impl Shown {
    /// On a terminal a bar, elsewhere what scripts expect.
    pub fn for_slots(total: usize, otherwise: Self) -> Self {
        if crate::terminal::shows_progress() {
            Self::Bar(Progress::towards(total as u64, "slots"), 0)
        } else {
            otherwise
        }
    }

    pub fn finish(&self) {
        if let Self::Bar(progress, _) = self {
            progress.finish();
        }
    }

    fn moved(&mut self, slots: u64) {
        match self {
            Self::Lines => {}
            Self::Marks => out!("{}", "#".repeat(slots as usize)),
            Self::Bar(progress, done) => {
                *done += slots;
                progress.set(*done);
            }
        }
    }
}

impl<'a> Mover<'a> {
    /// For what fixing moves.
    pub fn mending(options: &'a Options, cold: bool) -> Self {
        Self { options, cold, fixes: true, shown: Shown::Lines }
    }

    /// Moves slots of one node, one after the other, or by ranges where that is asked for.
    pub fn move_slots(
        &mut self,
        cluster: &mut Cluster,
        from: usize,
        to: usize,
        slots: &[u16],
    ) -> ClusterResult {
        if self.options.manager.atomic {
            for range in model::ranges(slots.iter().copied()) {
                self.move_range(cluster, from, to, range)?;
            }
            return Ok(());
        }
        for slot in slots {
            self.move_slot(cluster, from, to, *slot)?;
        }
        Ok(())
    }

    /// Moves a slot: opens it at both ends, sends its keys, and tells all primaries of its new
    /// owner.
    pub fn move_slot(
        &mut self,
        cluster: &mut Cluster,
        from: usize,
        to: usize,
        slot: u16,
    ) -> ClusterResult {
        let is_lines = matches!(self.shown, Shown::Lines);
        if is_lines {
            let (source, target) = (cluster.node(from).address(), cluster.node(to).address());
            out!("Moving slot {slot} from {source} to {target}: ");
        }
        let (source_id, target_id) = (cluster.node(from).id.clone(), cluster.node(to).id.clone());
        if !self.cold {
            tell(cluster, to, slot, "importing", &source_id)?;
            tell(cluster, from, slot, "migrating", &target_id)?;
        }
        let migrated = self.migrate_keys(cluster, from, to, slot);
        if is_lines {
            out!("\n");
        }
        migrated?;
        if !self.cold {
            give(cluster, from, to, slot)?;
        }
        cluster.members[from].node.slots.remove(slot);
        cluster.members[to].node.slots.insert(slot);
        self.shown.moved(1);
        Ok(())
    }

    /// Lets the nodes themselves move a range (Valkey 9) and waits until they have.
    fn move_range(
        &mut self,
        cluster: &mut Cluster,
        from: usize,
        to: usize,
        range: RangeInclusive<u16>,
    ) -> ClusterResult {
        let name = format!("{}-{}", range.start(), range.end());
        if matches!(self.shown, Shown::Lines) {
            let (source, target) = (cluster.node(from).address(), cluster.node(to).address());
            out!("Moving slot range {name} from {source} to {target} via atomic slot migration: ");
        }
        let target_id = cluster.node(to).id.clone();
        let moved = migrate_range(&mut cluster.members[from], &range, &target_id, &mut self.shown);
        if matches!(self.shown, Shown::Lines) {
            out!("\n");
        }
        moved?;
        for slot in range.clone() {
            cluster.members[from].node.slots.remove(slot);
            cluster.members[to].node.slots.insert(slot);
        }
        self.shown.moved(range.count() as u64);
        Ok(())
    }

    fn migrate_keys(
        &mut self,
        cluster: &mut Cluster,
        from: usize,
        to: usize,
        slot: u16,
    ) -> ClusterResult {
        let count = self.options.manager.pipeline;
        loop {
            let reply = cluster.members[from]
                .demand_line(&format!("CLUSTER GETKEYSINSLOT {slot} {count}"))?;
            let keys: Vec<Vec<u8>> = reply
                .as_elements()
                .unwrap_or_default()
                .iter()
                .filter_map(|key| key.as_bytes().map(<[u8]>::to_vec))
                .collect();
            if keys.is_empty() {
                return Ok(());
            }
            let start = Instant::now();
            let mut sent = self.migrate(cluster, from, to, &keys, false);
            // A slot that was covered a moment ago is not known everywhere yet.
            while sent.as_ref().is_err_and(|text| text.contains("CLUSTERDOWN"))
                && start.elapsed() < DOWN_WAIT_MAX
            {
                thread::sleep(DOWN_POLL);
                sent = self.migrate(cluster, from, to, &keys, false);
            }
            if let Err(text) = sent {
                self.try_again(cluster, from, to, slot, &keys, &text)?;
            }
            if matches!(self.shown, Shown::Lines) {
                out!("{}", ".".repeat(keys.len()));
            }
        }
    }

    /// What can be done where MIGRATE failed.
    fn try_again(
        &self,
        cluster: &mut Cluster,
        from: usize,
        to: usize,
        slot: u16,
        keys: &[Vec<u8>],
        text: &str,
    ) -> ClusterResult {
        let is_there = text.contains("BUSYKEY");
        if is_there {
            say::note("Keys are there already.");
            if !self.options.manager.replace {
                demand_equal(cluster, from, to, keys)?;
            }
            say::note("Replacing them.");
        } else if !is_served(&mut cluster.members[from], slot)? {
            let target = cluster.node(to).id.clone();
            if self.fixes {
                let address = cluster.node(to).address();
                say::note(&format!("Nobody serves the slot: it is given to {address}."));
                tell(cluster, from, slot, "node", &target)?;
            }
        } else {
            return Err(cluster.members[from].replied_with_error(text));
        }
        let again = self.migrate(cluster, from, to, keys, is_there);
        again.map_err(|text| cluster.members[from].replied_with_error(&text))
    }

    fn migrate(
        &self,
        cluster: &mut Cluster,
        from: usize,
        to: usize,
        keys: &[Vec<u8>],
        replace: bool,
    ) -> Result<(), String> {
        let target = cluster.node(to);
        let mut words = migrate_words(self.options, &target.host, target.port, b"");
        if replace {
            words.push(b"REPLACE".to_vec());
        }
        words.push(b"KEYS".to_vec());
        words.extend_from_slice(keys);
        cluster.members[from].ask(&words).map(drop)
    }
}

/// MIGRATE up to its key and options, with the password that the receiver wants.
pub fn migrate_words(options: &Options, host: &str, port: u16, key: &[u8]) -> Vec<Vec<u8>> {
    let timeout = options.manager.timeout_ms.to_string();
    let mut words: Vec<Vec<u8>> =
        [&b"MIGRATE"[..], host.as_bytes(), port.to_string().as_bytes(), key, b"0"]
            .map(<[u8]>::to_vec)
            .into();
    words.push(timeout.into_bytes());
    let target = &options.target;
    match (&target.user, &target.password) {
        (Some(user), Some(password)) => {
            words.extend([b"AUTH2".to_vec(), user.clone(), password.clone()]);
        }
        (None, Some(password)) => words.extend([b"AUTH".to_vec(), password.clone()]),
        (_, None) => {}
    }
    words
}

/// Makes a node the owner of a slot, by telling it, then the one that had it, then all other
/// primaries. In another order the slot could be lost with the new owner.
fn give(cluster: &mut Cluster, from: usize, to: usize, slot: u16) -> ClusterResult {
    let id = cluster.node(to).id.clone();
    tell(cluster, to, slot, "node", &id)?;
    if let Err(text) = cluster.members[from].set_slot(slot, "node", &id)
        && !BECAME_REPLICA.iter().any(|known| text.starts_with(known))
    {
        return Err(cluster.members[from].replied_with_error(&text));
    }
    for other in cluster.primaries() {
        if other != from && other != to {
            tell(cluster, other, slot, "node", &id)?;
        }
    }
    Ok(())
}

pub fn tell(cluster: &mut Cluster, node: usize, slot: u16, how: &str, id: &str) -> ClusterResult {
    let member = &mut cluster.members[node];
    member.set_slot(slot, how, id).map_err(|text| member.replied_with_error(&text))
}

/// Keys that two nodes have may be overwritten where their values are equal.
fn demand_equal(cluster: &mut Cluster, from: usize, to: usize, keys: &[Vec<u8>]) -> ClusterResult {
    say::note("Comparing the values on both nodes.");
    let mut words = vec![b"DEBUG".to_vec(), b"DIGEST-VALUE".to_vec()];
    words.extend_from_slice(keys);
    let mut digests = |node: usize| -> ClusterResult<Vec<Vec<u8>>> {
        match cluster.members[node].ask(&words) {
            Ok(reply) => Ok(reply
                .as_elements()
                .unwrap_or_default()
                .iter()
                .map(|digest| digest.as_bytes().unwrap_or_default().to_vec())
                .collect()),
            Err(text) => {
                cluster.members[node].replied_with_error(&text);
                Err(say::fail(
                    "Values cannot be compared without DEBUG (enable-debug-command). With \
                     --cluster-replace they are overwritten.",
                ))
            }
        }
    };
    let (ours, theirs) = (digests(from)?, digests(to)?);
    let there = |digest: &[u8]| digest.iter().any(|byte| *byte != b'0');
    let pairs = keys.iter().zip(ours.iter().zip(&theirs));
    let different: Vec<&Vec<u8>> = pairs
        .filter(|(_, (ours, theirs))| there(ours) && there(theirs) && ours != theirs)
        .map(|(key, _)| key)
        .collect();
    if different.is_empty() && ours.len() == keys.len() && theirs.len() == keys.len() {
        return Ok(());
    }
    let (source, target) = (cluster.node(from).address(), cluster.node(to).address());
    say::complain(&format!(
        "*** {} key(s) have other values on {target} than on {source}:",
        different.len()
    ));
    for key in different {
        say::complain(&format!("    - {}", String::from_utf8_lossy(key)));
    }
    Err(say::fail("Mend them by hand, or overwrite them with --cluster-replace."))
}

/// Whether the node knows an owner of the slot.
fn is_served(member: &mut ClusterMember, slot: u16) -> ClusterResult<bool> {
    let slots = member.demand(&["CLUSTER", "SLOTS"])?;
    let slot = i64::from(slot);
    Ok(slots.as_elements().unwrap_or_default().iter().any(|range| {
        match range.as_elements().unwrap_or_default() {
            [Value::Integer(first), Value::Integer(last), ..] => (*first..=*last).contains(&slot),
            _ => false,
        }
    }))
}

fn migrate_range(
    member: &mut ClusterMember,
    range: &RangeInclusive<u16>,
    target_id: &str,
    shown: &mut Shown,
) -> ClusterResult {
    let before: HashSet<String> =
        migrations(member)?.into_iter().map(|migration| migration.name).collect();
    let (first, last) = (range.start(), range.end());
    member
        .demand_line(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE {first} {last} NODE {target_id}"))?;
    let start = Instant::now();
    loop {
        let found = migrations(member)?.into_iter().find(|one| !before.contains(&one.name));
        let Some(migration) = found else {
            return Err(say::fail("The node has forgotten the migration."));
        };
        match migration.state.as_str() {
            "success" => return Ok(()),
            "failed" | "cancelled" | "canceled" => {
                let Migration { state, message, .. } = migration;
                return Err(say::fail(&format!("Atomic slot migration: {state} {message}")));
            }
            _ if start.elapsed() > RANGE_WAIT_MAX => {
                return Err(say::fail("Atomic slot migration takes for ever; it goes on."));
            }
            _ => {
                if matches!(shown, Shown::Lines) {
                    out!(".");
                }
                thread::sleep(RANGE_POLL);
            }
        }
    }
}

/// An entry of CLUSTER GETSLOTMIGRATIONS.
#[derive(Default)]
struct Migration {
    name: String,
    state: String,
    message: String,
}

fn migrations(member: &mut ClusterMember) -> ClusterResult<Vec<Migration>> {
    let reply = member.demand(&["CLUSTER", "GETSLOTMIGRATIONS"])?;
    let entries = reply.as_elements().unwrap_or_default();
    Ok(entries.iter().map(Migration::read).collect())
}

impl Migration {
    fn read(entry: &Value) -> Self {
        let mut migration = Self::default();
        for pair in entry.as_elements().unwrap_or_default().chunks_exact(2) {
            let text = |value: &Value| {
                String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned()
            };
            match pair[0].as_bytes().unwrap_or_default() {
                b"name" => migration.name = text(&pair[1]),
                b"state" => migration.state = text(&pair[1]),
                b"message" => migration.message = text(&pair[1]),
                _ => {}
            }
        }
        migration
    }
}

/// A primary that gave its last slot away may have become a replica meanwhile: then it refuses, and
/// knows already.
const BECAME_REPLICA: [&str; 4] = [
    "ERR Please use SETSLOT only with masters.",
    "ERR Please use SETSLOT only with primaries.",
    "UNBLOCKED",
    "NOREPLICAS",
];
const DOWN_POLL: Duration = Duration::from_millis(100);
const DOWN_WAIT_MAX: Duration = Duration::from_secs(10);
const RANGE_POLL: Duration = Duration::from_millis(20);
const RANGE_WAIT_MAX: Duration = Duration::from_secs(24 * 3600);
