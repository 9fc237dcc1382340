//! `--replica`: attaching as a replica does, and showing the commands that arrive.

use std::process::ExitCode;

use crate::session::{Session, attach_by_command, replication};

/// Shows commands until the connection ends, which is a failure.
pub fn run(session: &mut Session) -> ExitCode {
    let client = session.connect_or_exit();
    replication::configure(client, "capa", "eof");
    // A filter that lets nothing through: the file would be thrown away.
    replication::configure(client, "rdb-filter-only", "");
    client.send_raw(b"SYNC\r\n");
    let _ = attach_by_command(session);
    ExitCode::FAILURE
}
