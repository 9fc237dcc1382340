//! `--stat`: a line of INFO's most looked-at figures, again and again.

use std::{process::ExitCode, thread, time::Duration};

use super::{info::Info, server};
use crate::session::Session;

/// Prints until it is interrupted.
pub fn run(session: &mut Session) -> ExitCode {
    let interval = session.options.interval.unwrap_or(INTERVAL);
    session.connect_or_exit();
    let mut requests_before = None;
    for line in 0_u64.. {
        let reply = server::ask_persistently(session, &["INFO"]);
        if let Some(text) = reply.as_error() {
            complain!("INFO failed: {}", String::from_utf8_lossy(text));
            return ExitCode::FAILURE;
        }
        let info = Info::read(&reply);
        if line % LINES_BETWEEN_TITLES == 0 {
            out!("{TITLES}");
        }
        let requests = info.integer("total_commands_processed");
        out!("{}", show(&info, requests - requests_before.unwrap_or(requests)));
        requests_before = Some(requests);
        thread::sleep(interval);
    }
    ExitCode::SUCCESS
}

fn show(info: &Info, new_requests: i64) -> String {
    let requests = format!("{} (+{new_requests})", info.integer("total_commands_processed"));
    let children = match (
        info.integer("rdb_bgsave_in_progress") != 0,
        info.integer("aof_rewrite_in_progress") != 0,
        info.integer("loading") != 0,
    ) {
        (_, _, true) => "LOAD",
        (true, true, _) => "SAVE+AOF",
        (true, false, _) => "SAVE",
        (false, true, _) => "AOF",
        (false, false, _) => "",
    };
    format!(
        "{:<11}{:<8} {:<8}{:<8}{requests:<19} {:<12}{children}\n",
        info.keys(),
        human(info.integer("used_memory")),
        info.integer("connected_clients"),
        info.integer("blocked_clients"),
        info.integer("total_connections_received"),
    )
}

/// `512B`, `1.50M`.
pub fn human(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    let size = bytes.unsigned_abs();
    if size < 1024 {
        return format!("{sign}{size}B");
    }
    let units = ["K", "M", "G", "T", "P", "E"];
    let mut value = size as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{sign}{value:.2}{}", units[unit])
}

const INTERVAL: Duration = Duration::from_secs(1);
const LINES_BETWEEN_TITLES: u64 = 20;

/// Scripts cut the lines at these columns.
const TITLES: &str = "\
------- data ------ --------------------- load -------------------- - child -
keys       mem      clients blocked requests            connections          
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (bytes, text) in
            [(0, "0B"), (1023, "1023B"), (1536, "1.50K"), (-2048, "-2.00K"), (1 << 40, "1.00T")]
        {
            assert_eq!(human(bytes), text);
        }
    }
}
