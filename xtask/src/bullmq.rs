//! BullMQ, a job queue which is all scripts, on Valkey and on Bobbin: what it does must be the same.

use std::process::Command;

use bobbin_testkit::Server;
use bobbin_testkit::peers::repository;

use crate::shell::{self, Outcome};

/// Installs it into the target folder, and compares what its run prints.
pub(crate) fn run() -> Outcome {
    let sources = repository().join("tests/clients/bullmq");
    let folder = repository().join("target/bullmq");
    shell::create_folder(&folder)?;
    for name in ["package.json", "run.js"] {
        shell::write(&folder.join(name), &shell::read(&sources.join(name))?)?;
    }
    shell::run(
        Command::new("npm")
            .args(["install", "--silent", "--no-audit", "--no-fund"])
            .current_dir(&folder),
    )
    .map_err(|error| format!("cannot install BullMQ: {error}"))?;
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
