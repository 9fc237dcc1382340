//! `--cluster` and what its sub-commands are told.

use bobbin_client::SLOTS;

use super::{
    Mode,
    table::{CommandLineOption, OptionSection, number, switch, text, value, words},
};

/// What the cluster manager is asked to do: a field for each option.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    pub command: Vec<u8>,
    pub arguments: Vec<Vec<u8>>,
    pub assume_yes: bool,
    /// Of each primary, for a new cluster.
    pub replicas: usize,
    /// The new node becomes a replica.
    pub as_replica: bool,
    pub primary_id: Option<String>,
    /// Nodes that give slots, with commas between; or the server that keys are imported from.
    pub from: Option<String>,
    pub from_user: Option<Vec<u8>>,
    pub from_password: Option<Vec<u8>>,
    pub ask_from_password: bool,
    pub to: Option<String>,
    pub slots: Option<usize>,
    /// By the beginnings of nodes' ids.
    pub weights: Vec<(String, f32)>,
    pub threshold_percent: f32,
    pub use_empty_primaries: bool,
    pub simulate: bool,
    pub timeout_ms: u64,
    /// Keys in one MIGRATE.
    pub pipeline: u64,
    pub replace: bool,
    pub copy: bool,
    /// Slots move by CLUSTER MIGRATESLOTS instead of key by key.
    pub atomic: bool,
    pub search_multiple_owners: bool,
    pub fix_with_unreachable: bool,
    pub only_primaries: bool,
    pub only_replicas: bool,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            arguments: Vec::new(),
            assume_yes: false,
            replicas: 0,
            as_replica: false,
            primary_id: None,
            from: None,
            from_user: None,
            from_password: None,
            ask_from_password: false,
            to: None,
            slots: None,
            weights: Vec::new(),
            threshold_percent: 2.0,
            use_empty_primaries: false,
            simulate: false,
            timeout_ms: 60_000,
            pipeline: 10,
            replace: false,
            copy: false,
            atomic: false,
            search_multiple_owners: false,
            fix_with_unreachable: false,
            only_primaries: false,
            only_replicas: false,
        }
    }
}

use OptionSection::Cluster;

pub static FLAGS: &[CommandLineOption] = &[
    words(
        Cluster,
        &["--cluster"],
        "command",
        "Manage a cluster: create, check, info, fix, reshard, rebalance, add-node, del-node, call, \
         set-timeout, import, backup. Words up to the next option are its arguments; '--cluster \
         help' shows them.",
        |options, words| {
            if options.mode == Some(Mode::Cluster) {
                return Err("--cluster can be given once.".to_owned());
            }
            let taken = words.iter().take_while(|word| !word.starts_with(b"-")).count().max(1);
            options.manager.command.clone_from(&words[0]);
            options.manager.arguments = words[1..taken].to_vec();
            options.choose(Mode::Cluster);
            Ok(taken)
        },
    ),
    switch(Cluster, &["--cluster-yes"], "Let create and reshard ask nothing.", |options| {
        options.manager.assume_yes = true;
    }),
    value(
        Cluster,
        &["--cluster-replicas"],
        "number",
        "create: replicas of each primary (0).",
        |options, value| {
            let replicas = number(value).map_err(|()| "--cluster-replicas is a number.")?;
            options.manager.replicas = replicas;
            Ok(())
        },
    ),
    switch(
        Cluster,
        &["--cluster-replica", "--cluster-slave"],
        "add-node: make the node a replica.",
        |options| options.manager.as_replica = true,
    ),
    value(
        Cluster,
        &["--cluster-primary-id", "--cluster-master-id"],
        "id",
        "add-node: a replica of this node, not of the one with the fewest.",
        |options, value| {
            options.manager.primary_id = Some(text(value)?);
            Ok(())
        },
    ),
    value(
        Cluster,
        &["--cluster-from"],
        "nodes",
        "reshard: ids of nodes that give slots, with commas between, or 'all'. import: host:port of \
         the server that has the keys.",
        |options, value| {
            options.manager.from = Some(text(value)?);
            Ok(())
        },
    ),
    value(
        Cluster,
        &["--cluster-from-user"],
        "name",
        "import: authenticate there as this user.",
        |options, value| {
            options.manager.from_user = Some(value.to_vec());
            Ok(())
        },
    ),
    value(
        Cluster,
        &["--cluster-from-pass"],
        "password",
        "import: with this password.",
        |options, value| {
            options.manager.from_password = Some(value.to_vec());
            Ok(())
        },
    ),
    switch(Cluster, &["--cluster-from-askpass"], "import: ask for that password.", |options| {
        options.manager.ask_from_password = true;
    }),
    value(
        Cluster,
        &["--cluster-to"],
        "id",
        "reshard: the node that gets the slots.",
        |options, value| {
            options.manager.to = Some(text(value)?);
            Ok(())
        },
    ),
    value(
        Cluster,
        &["--cluster-slots"],
        "number",
        "reshard: how many slots move.",
        |options, value| {
            let slots = number(value).ok().filter(|slots| (1..=usize::from(SLOTS)).contains(slots));
            let wrong = || format!("--cluster-slots is a number from 1 to {SLOTS}.");
            options.manager.slots = Some(slots.ok_or_else(wrong)?);
            Ok(())
        },
    ),
    words(
        Cluster,
        &["--cluster-weight"],
        "node=weight ...",
        "rebalance: how much of the slots a node is to have, against 1 of the others. Nodes by the \
         beginnings of their ids.",
        |options, words| {
            if !options.manager.weights.is_empty() {
                return Err("--cluster-weight can be given once, with several weights.".to_owned());
            }
            for word in words {
                let word = text(word)?;
                let Some((node, weight)) = word.split_once('=').filter(|_| !word.starts_with("--"))
                else {
                    break;
                };
                let wrong =
                    || format!("The weight of a node is a number from 0 on, not '{weight}'.");
                let weight = weight.parse().ok().filter(|weight: &f32| *weight >= 0.0);
                let weight = weight.filter(|weight| weight.is_finite()).ok_or_else(wrong)?;
                options.manager.weights.push((node.to_owned(), weight));
            }
            match options.manager.weights.len() {
                0 => Err("--cluster-weight wants node=weight, one or several.".to_owned()),
                taken => Ok(taken),
            }
        },
    ),
    value(
        Cluster,
        &["--cluster-threshold"],
        "percent",
        "rebalance: do nothing while all nodes are within so much of their share (2).",
        |options, value| {
            let percent = number(value).ok().filter(|percent: &f32| percent.is_finite());
            let percent = percent.ok_or("--cluster-threshold is a percentage.")?;
            options.manager.threshold_percent = percent;
            Ok(())
        },
    ),
    switch(
        Cluster,
        &["--cluster-use-empty-primaries", "--cluster-use-empty-masters"],
        "rebalance: give slots to primaries that have none, too.",
        |options| options.manager.use_empty_primaries = true,
    ),
    switch(Cluster, &["--cluster-simulate"], "rebalance: only show what would move.", |options| {
        options.manager.simulate = true;
    }),
    value(
        Cluster,
        &["--cluster-timeout"],
        "ms",
        "reshard, rebalance, import: what a MIGRATE may take (60000).",
        |options, value| {
            let timeout = number(value).map_err(|()| "--cluster-timeout is a number of ms.")?;
            options.manager.timeout_ms = timeout;
            Ok(())
        },
    ),
    value(
        Cluster,
        &["--cluster-pipeline"],
        "number",
        "reshard, rebalance: keys in one MIGRATE (10).",
        |options, value| {
            let keys = number(value).ok().filter(|keys| (1..=PIPELINE_MAX).contains(keys));
            let wrong = || format!("--cluster-pipeline is a number from 1 to {PIPELINE_MAX}.");
            options.manager.pipeline = keys.ok_or_else(wrong)?;
            Ok(())
        },
    ),
    switch(
        Cluster,
        &["--cluster-use-atomic-slot-migration"],
        "reshard, rebalance: move ranges of slots by CLUSTER MIGRATESLOTS (Valkey 9), not key by \
         key.",
        |options| options.manager.atomic = true,
    ),
    switch(
        Cluster,
        &["--cluster-replace"],
        "fix, reshard, rebalance, import: replace keys that are there already.",
        |options| options.manager.replace = true,
    ),
    switch(Cluster, &["--cluster-copy"], "import: leave the keys where they were.", |options| {
        options.manager.copy = true;
    }),
    switch(
        Cluster,
        &["--cluster-search-multiple-owners"],
        "check, fix: look for slots of more than one node.",
        |options| options.manager.search_multiple_owners = true,
    ),
    switch(
        Cluster,
        &["--cluster-fix-with-unreachable-primaries", "--cluster-fix-with-unreachable-masters"],
        "fix: go on though primaries cannot be reached. What they have is lost.",
        |options| options.manager.fix_with_unreachable = true,
    ),
    switch(
        Cluster,
        &["--cluster-only-primaries", "--cluster-only-masters"],
        "call: only on primaries.",
        |options| options.manager.only_primaries = true,
    ),
    switch(Cluster, &["--cluster-only-replicas"], "call: only on replicas.", |options| {
        options.manager.only_replicas = true;
    }),
];

/// So many keys of a slot are named in one reply and in one MIGRATE.
const PIPELINE_MAX: u64 = 1_000_000;
