//! `--rdb` and `--functions-rdb`: the server's data as an RDB file, as it would send it to a
//! replica.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
    process::{self, ExitCode},
};

use bobbin_client::{RespClient, error_text};

use super::progress::Progress;
use crate::session::{
    Session,
    replication::{self, SyncPayload},
};

/// Which part of the data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum DataPart {
    All,
    Functions,
}

pub fn run(session: &mut Session, part: DataPart) -> ExitCode {
    let name = OsStr::from_bytes(&session.options.modes.file).to_owned();
    if !save(session.connect_or_exit(), part, &name) {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Writes the data to the file, and says so. The connection is of no use then: what follows would
/// be commands for a replica. A failure ends the program; a server that does not send the part is
/// said.
pub fn save(client: &mut RespClient, part: DataPart, name: &OsStr) -> bool {
    replication::configure(client, "capa", "eof");
    replication::configure(client, "rdb-only", "1");
    if part == DataPart::Functions
        && !replication::configure(client, "rdb-filter-only", "functions")
    {
        complain!("The server does not send functions alone.");
        return false;
    }
    Output::expect_folder(name);
    client.send_raw(b"SYNC\r\n");
    let payload = replication::begin(client);
    let mut output = Output::open(name);
    let shown = name.display();
    let total = match payload {
        SyncPayload::Length(len) => {
            complain!("SYNC sent to primary, writing {len} bytes to '{shown}'");
            Some(len)
        }
        _ => {
            complain!(
                "SYNC sent to primary, writing bytes of bulk transfer until EOF marker to '{shown}'"
            );
            None
        }
    };
    let progress = Progress::bytes(total);
    let mut done = 0;
    let len = replication::receive(client, &payload, |bytes| {
        output.write(bytes);
        done += bytes.len() as u64;
        progress.set(done);
    });
    progress.finish();
    match total {
        Some(_) => complain!("Transfer finished with success."),
        None => complain!("Transfer finished with success after {len} bytes"),
    }
    output.finish();
    true
}

enum Output {
    Standard(io::Stdout),
    File(File),
}

impl Output {
    fn open(name: &OsStr) -> Self {
        if name == "-" {
            return Self::Standard(io::stdout());
        }
        match File::create(name) {
            Ok(file) => Self::File(file),
            Err(error) => Self::refuse(name, &error),
        }
    }

    /// Ends the program if the file's folder is not there. A server may take seconds before it
    /// sends anything, and makes a snapshot for it.
    fn expect_folder(name: &OsStr) {
        let folder = Path::new(name).parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(Err(error)) = folder.map(Path::metadata) {
            Self::refuse(name, &error);
        }
    }

    fn refuse(name: &OsStr, error: &io::Error) -> ! {
        complain!("Error opening '{}': {}", name.display(), error_text(error));
        process::exit(1);
    }

    fn write(&mut self, bytes: &[u8]) {
        let written = match self {
            Self::Standard(output) => output.write_all(bytes),
            Self::File(file) => file.write_all(bytes),
        };
        written.unwrap_or_else(|error| Self::fail(&error));
    }

    fn finish(self) {
        let finished = match self {
            Self::Standard(mut output) => output.flush(),
            Self::File(file) => file.sync_all(),
        };
        finished.unwrap_or_else(|error| Self::fail(&error));
    }

    fn fail(error: &io::Error) -> ! {
        complain!("Error writing data to file: {}", error_text(error));
        process::exit(1);
    }
}
