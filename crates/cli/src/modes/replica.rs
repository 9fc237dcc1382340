//! `--replica`: attaching as a replica does, and showing the commands that arrive.

use std::process::ExitCode;

use super::replication::{self, Payload};
use crate::{
    format::{Form, Style},
    session::{Lost, Session},
    terminal,
};

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

/// The same for a SYNC or PSYNC that somebody typed and that has been queued.
pub fn attach_by_command(session: &mut Session) -> Result<(), Lost> {
    let style = Style { form: Form::Csv, ..session.options.style.clone() };
    let interactive = session.interactive;
    let Some(client) = session.client() else { return Err(Lost) };
    let payload = replication::begin(client);
    match &payload {
        Payload::Mark(_) => eprintln!(
            "Full resync with primary, discarding bytes of bulk transfer until EOF marker..."
        ),
        Payload::Length(len) => {
            eprintln!("Full resync with primary, discarding {len} bytes of bulk transfer...");
        }
        Payload::Nothing => eprintln!("Partial resync with primary..."),
    }
    let len = replication::receive(client, &payload, |_| {});
    if let Payload::Mark(_) = payload {
        eprintln!("Full resync done after {len} bytes. Logging commands from primary.");
        // That puts a replica online which got its file without a length.
        client.send(&["REPLCONF", "ACK", "0"]);
    } else {
        eprintln!("Full resync done. Logging commands from primary.");
    }
    loop {
        match client.receive_any() {
            Ok(command) => terminal::write(&style.reply(&command, false)),
            Err(error) if interactive => {
                eprintln!("Error: {}", crate::session::explain(&error));
                return Err(Lost);
            }
            Err(error) => replication::fail("Error", &error),
        }
    }
}
