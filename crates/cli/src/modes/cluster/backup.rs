//! `backup`: an RDB file of each primary, and `nodes.json`.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt, path::Path};

use bobbin_client::error_text;

use super::{
    check::{self, Depth},
    load,
    say::{self, ClusterResult},
};
use crate::{
    modes::rdb::{self, DataPart},
    options::Options,
};

pub fn run(options: &Options, words: &[Vec<u8>]) -> ClusterResult {
    let folder = Path::new(OsStr::from_bytes(&words[1]));
    if !folder.is_dir() {
        return Err(say::fail(&format!("There is no folder '{}'.", folder.display())));
    }
    let mut cluster = load(options, &words[..1])?;
    let verdict = check::check(options, &mut cluster, Depth::Shown);
    let errors = if verdict.is_sound { 0 } else { verdict.problems };
    for member in &mut cluster.members {
        let node = &member.node;
        if node.is_replica() {
            continue;
        }
        let address = node.address();
        // By valkey-cli's names, which scripts that restore look for.
        let name = format!("valkey-node-{}-{}-{}.rdb", node.host, node.port, node.id);
        say::step(&format!("Node {address} -> Saving RDB..."));
        rdb::save(member.client(), DataPart::All, folder.join(name).as_os_str());
    }
    let nodes: Vec<String> =
        cluster.members.iter().map(|member| member.node.json(errors)).collect();
    let path = folder.join("nodes.json");
    say::step(&format!("Saving cluster configuration to: {}", path.display()));
    if let Err(error) = fs::write(&path, format!("[\n{}\n]", nodes.join(",\n"))) {
        let error = error_text(&error);
        return Err(say::fail(&format!("Could not write '{}': {error}", path.display())));
    }
    if errors > 0 {
        say::note("The cluster has problems: have that in mind when you restore from this.");
    }
    say::good(&format!("Backup created into: {}", folder.display()));
    Ok(())
}
