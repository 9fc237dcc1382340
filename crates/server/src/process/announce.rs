//! What the log says at the start: where the server listens, how many threads it has, what it
//! stores and where, and where its configuration comes from.

use bobbin_io::{Address, bracketed};

use crate::config::{AppendFsync, Config, OptionId};
use crate::engine::server::Server;

/// Logs a line for each fact. `addresses` are those on which it listens, and whether with TLS.
pub fn announce(server: &Server, addresses: &[(Address, bool)]) {
    for (name, fact) in facts(server, addresses) {
        log::info!("{name}: {fact}");
    }
}

fn facts(server: &Server, addresses: &[(Address, bool)]) -> Vec<(&'static str, String)> {
    let config = &server.config;
    let threads = if config.io_threads() == 0 { "one for each core" } else { "io-threads" };
    let driver = server.driver.name();
    let mut facts = vec![
        ("Listening on", listening(addresses)),
        ("Threads", format!("{} ({threads}), over {driver}", server.workers.serving())),
        ("Persistence", persistence(config)),
        ("Configuration", configuration(config)),
    ];
    if config.metrics_port() != 0 {
        facts.push(("Metrics", metrics(config)));
    }
    facts
}

fn listening(addresses: &[(Address, bool)]) -> String {
    let shown = addresses.iter().map(|(address, is_tls)| match address {
        Address::Tcp(_) if *is_tls => format!("{address} (TLS)"),
        Address::Tcp(_) => address.to_string(),
        Address::Unix(path) => path.display().to_string(),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// What is stored, and in which directory.
fn persistence(config: &Config) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let points = config.words_of(OptionId::save);
    let snapshot = match points.is_empty() {
        true => "no snapshots by themselves".to_owned(),
        false => format!("snapshots to {} (save {})", text(&config.dbfilename()), points.join(" ")),
    };
    let sync = match config.appendfsync() {
        AppendFsync::Always => "always",
        AppendFsync::Everysec => "everysec",
        AppendFsync::No => "no",
    };
    let log = match config.appendonly() {
        false => "no append-only file".to_owned(),
        true => {
            format!("append-only file in {} (appendfsync {sync})", text(&config.appenddirname()))
        }
    };
    format!("{snapshot}, {log}; folder {}", text(&config.dir()))
}

fn configuration(config: &Config) -> String {
    config.file().map_or_else(|| "defaults, no file".to_owned(), |path| path.display().to_string())
}

fn metrics(config: &Config) -> String {
    let hosts = config.words_of(OptionId::metrics_bind);
    let host = hosts.first().map_or("localhost", |host| host.trim_start_matches('-'));
    let site = format!("http://{}:{}/", bracketed(host), config.metrics_port());
    format!("{site}metrics, a dashboard on {site}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_is_kept_and_where() {
        let config = Config::new();
        let folder = String::from_utf8_lossy(&config.dir()).into_owned();
        let expected = "snapshots to dump.rdb (save 3600 1 300 100 60 10000), no append-only file; \
                        folder ";
        assert_eq!(persistence(&config), format!("{expected}{folder}"));
        config.set_internally(OptionId::save, "").expect("it may be empty");
        config.set_internally(OptionId::appendonly, "yes").expect("it may be on");
        let expected = "no snapshots by themselves, append-only file in appendonlydir (appendfsync \
                        everysec); folder ";
        assert_eq!(persistence(&config), format!("{expected}{folder}"));
        assert_eq!(configuration(&config), "defaults, no file");
        config.set_internally(OptionId::metrics_port, "9121").expect("a port");
        let expected = "http://127.0.0.1:9121/metrics, a dashboard on http://127.0.0.1:9121/";
        assert_eq!(metrics(&config), expected);
        let address = Address::Tcp("[::1]:7".parse().expect("an address"));
        assert_eq!(
            listening(&[(address.clone(), false), (address, true)]),
            "[::1]:7, [::1]:7 (TLS)"
        );
    }
}
