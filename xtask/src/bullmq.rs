//! BullMQ, a job queue which is all scripts, on Valkey and on Bobbin: what it does must be the
//! same.

use std::path::PathBuf;
use std::process::Command;

use bobbin_testkit::Server;
use bobbin_testkit::peers;

use crate::npm;
use crate::shell::{self, Outcome};

/// Installs it, with what runs it.
pub(crate) fn install() -> Outcome {
    npm::install(&folder(), "tests/clients/bullmq")
}

/// Compares what its run prints.
pub(crate) fn run() -> Outcome {
    let folder = folder();
    let printed = |server: &Server| {
        let port = server.address().port().to_string();
        shell::output(Command::new("node").arg("run.js").arg(port).current_dir(&folder))
    };
    let wanted = printed(&Server::valkey(&[]))?;
    for threads in ["1", "4"] {
        let found = printed(&Server::bobbin(&["--io-threads", threads]))?;
        for (wanted, found) in wanted.lines().zip(found.lines()) {
            if wanted != found {
                return Err(format!("{threads} threads:\n  valkey: {wanted}\n  bobbin: {found}"));
            }
        }
        if wanted.lines().count() != found.lines().count() {
            return Err(format!("{threads} threads: the run ended early:\n{found}"));
        }
    }
    println!("{} results of BullMQ are the same on both", wanted.lines().count());
    Ok(())
}

fn folder() -> PathBuf {
    peers::cache_folder().join("bullmq")
}
