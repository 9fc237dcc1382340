//! What a primary sends to a replica, shown: after `--replica`, or a SYNC that was typed.

use std::time::{Duration, Instant};

use bobbin_client::{ClientError, RespClient};

use super::{
    Lost, Session, explain,
    replication::{self, SyncPayload},
};
use crate::{
    format::{ReplyForm, Style},
    terminal,
};

/// Shows commands after a SYNC or PSYNC that the user typed and that has been queued.
pub fn attach_by_command(session: &mut Session) -> Result<(), Lost> {
    let style = Style { form: ReplyForm::Csv, ..session.options.style.clone() };
    let interactive = session.interactive;
    let Some(client) = session.client() else { return Err(Lost) };
    let payload = replication::begin(client);
    match &payload {
        SyncPayload::Mark(_) => complain!(
            "Full resync with primary, discarding bytes of bulk transfer until EOF marker..."
        ),
        SyncPayload::Length(len) => {
            complain!("Full resync with primary, discarding {len} bytes of bulk transfer...");
        }
        SyncPayload::Nothing => complain!("Partial resync with primary..."),
    }
    let len = replication::receive(client, &payload, |_| {});
    let after = match payload {
        SyncPayload::Mark(_) => format!(" after {len} bytes"),
        _ => String::new(),
    };
    complain!("Full resync done{after}. Logging commands from primary.");
    match show_commands(client, &style) {
        error if interactive => {
            complain!("Error: {}", explain(&error));
            Err(Lost)
        }
        error => replication::fail("Error", &error),
    }
}

/// Shows what arrives until the connection fails. Acknowledgements go out all the time, as a
/// replica sends them: the first that comes after the file puts us online, and without any the
/// primary thinks us dead. They say that we have nothing, for we keep nothing.
fn show_commands(client: &mut RespClient, style: &Style) -> ClientError {
    if let Err(error) = client.set_read_timeout(Some(ACKNOWLEDGE_INTERVAL)) {
        return error.into();
    }
    let mut acknowledged: Option<Instant> = None;
    loop {
        if acknowledged.is_none_or(|last| last.elapsed() >= ACKNOWLEDGE_INTERVAL) {
            client.send(&["REPLCONF", "ACK", "0"]);
            acknowledged = Some(Instant::now());
        }
        match client.receive_any() {
            Ok(command) => terminal::write(&style.reply(&command, false)),
            Err(error) if error.is_timeout() => {}
            Err(error) => return error,
        }
    }
}

const ACKNOWLEDGE_INTERVAL: Duration = Duration::from_millis(500);
