//! `import`: the keys of a single server into a cluster.

use bobbin_client::{RespClient, SLOTS, ServerAddress, Value, error_text, key_slot};

use super::{
    check::{self, Depth},
    load,
    members::{self, Cluster, receive},
    moving, place,
    say::{self, ClusterResult},
};
use crate::{modes::progress::Progress, options::Options, repl, terminal};

pub fn run(options: &Options, words: &[Vec<u8>]) -> ClusterResult {
    let wanted = &options.manager;
    let Some(from) = &wanted.from else {
        complain!("[ERR] import wants --cluster-from: host:port of the server that has the keys.");
        return Err(say::Failed);
    };
    let (host, port) = place(&[from.as_bytes().to_vec()])?;
    let named = String::from_utf8_lossy(&words[0]);
    say::step(&format!("Importing data from {host}:{port} to cluster {named}"));
    let mut cluster = load(options, words)?;
    check::check(options, &mut cluster, Depth::Shown).result()?;
    let mut source = Source::connect(options, host, port)?;
    let info = source.demand(&["INFO"])?;
    if members::info_field(&info, "cluster_enabled") == Some(1) {
        return Err(say::fail("The source node should not be a cluster node."));
    }
    let count = source.demand(&["DBSIZE"])?.as_integer().unwrap_or(0);
    say::note(&format!("Importing {count} keys from DB 0"));
    let progress = Progress::towards(count.try_into().unwrap_or(0), "keys");
    let imported = import(options, &cluster, &mut source, &progress);
    progress.finish();
    imported
}

fn import(
    options: &Options,
    cluster: &Cluster,
    source: &mut Source,
    progress: &Progress,
) -> ClusterResult {
    let owners: Vec<Option<usize>> = (0..SLOTS)
        .map(|slot| {
            cluster.primaries().into_iter().find(|index| cluster.node(*index).slots.contains(slot))
        })
        .collect();
    let mut cursor = b"0".to_vec();
    let mut done = 0;
    loop {
        let reply = source.demand(&[&b"SCAN"[..], &cursor, b"COUNT", SCAN_COUNT.as_bytes()])?;
        let Some([next, Value::Array(keys)]) = reply.as_elements() else {
            return Err(say::fail("SCAN's reply is none."));
        };
        let keys: Vec<&[u8]> = keys.iter().filter_map(Value::as_bytes).collect();
        let mut targets = Vec::with_capacity(keys.len());
        for key in &keys {
            let owner = owners[usize::from(key_slot(key))];
            let owner = owner.ok_or_else(|| say::fail("A slot has no owner."))?;
            let target = cluster.node(owner);
            let mut words = moving::migrate_words(options, &target.host, target.port, key);
            words.extend(options.manager.copy.then(|| b"COPY".to_vec()));
            words.extend(options.manager.replace.then(|| b"REPLACE".to_vec()));
            source.client.send(&words);
            targets.push(target.address());
        }
        // All answers are taken, so that all failures are said.
        let mut failures = Ok(());
        for (key, target) in keys.iter().zip(targets) {
            done += 1;
            progress.set(done);
            match receive(&mut source.client) {
                Ok(_) if terminal::shows_progress() => {}
                Ok(_) => out!("Migrating {} to {target}: OK\n", String::from_utf8_lossy(key)),
                Err(text) => {
                    out!("Migrating {} to {target}: ", String::from_utf8_lossy(key));
                    failures = Err(source.replied_with_error(&text));
                }
            }
        }
        failures?;
        cursor = next.as_bytes().unwrap_or(b"0").to_vec();
        if cursor == b"0" {
            return Ok(());
        }
    }
}

/// The single server.
struct Source {
    client: RespClient,
    address: String,
}

impl Source {
    fn connect(options: &Options, host: String, port: u16) -> ClusterResult<Self> {
        let address = ServerAddress::Tcp { host, port };
        let mut client = RespClient::connect_to(&address, &options.transport).map_err(|error| {
            complain!("Could not connect to {address}: {}", error_text(&error));
            say::Failed
        })?;
        let wanted = &options.manager;
        let password = if wanted.ask_from_password {
            Some(repl::ask_password("Please input the source's password: ").map_err(|error| {
                complain!("{error}");
                say::Failed
            })?)
        } else {
            wanted.from_password.clone()
        };
        members::authenticate(
            &mut client,
            &address,
            wanted.from_user.as_deref(),
            password.as_deref(),
        )?;
        Ok(Self { client, address: address.to_string() })
    }

    fn demand(&mut self, words: &[impl AsRef<[u8]>]) -> ClusterResult<Value> {
        self.client.send(words);
        receive(&mut self.client).map_err(|text| self.replied_with_error(&text))
    }

    fn replied_with_error(&self, text: &str) -> say::Failed {
        say::complain(&format!("Source {} replied with error:\n{text}", self.address));
        say::Failed
    }
}

const SCAN_COUNT: &str = "1000";
