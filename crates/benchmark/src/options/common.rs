//! Settings that several grammars have, and flags that are the same in them.

use std::path::PathBuf;

use bobbin_client::{ServerAddress, Target, TlsConnector, TlsOptions, Transport};

use super::{Flag, number, positive, set};
use crate::engine::Arrivals;

/// Settings of these flags, and of those of [`super::connection`]: a field for each.
#[derive(Clone, Debug)]
pub struct Common {
    pub host: String,
    pub port: u16,
    pub socket: Option<PathBuf>,
    pub user: Option<Vec<u8>>,
    pub password: Option<Vec<u8>>,
    pub database: u64,
    /// 3, or 0 for what the server starts with.
    pub protocol: u8,
    pub transport: Transport,
    pub wants_tls: bool,
    pub tls: TlsOptions,
    pub cluster: bool,
    pub open_loop: Option<f64>,
    pub arrivals: Arrivals,
    pub seed: Option<u64>,
    pub json: Option<PathBuf>,
    pub hdr_prefix: Option<String>,
    pub hide_progress: bool,
    pub show_cpu: bool,
    pub continue_after_errors: bool,
}

impl Default for Common {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".into(),
            port: 6379,
            socket: None,
            user: None,
            password: None,
            database: 0,
            protocol: 0,
            transport: Transport::default(),
            wants_tls: false,
            tls: TlsOptions::default(),
            cluster: false,
            open_loop: None,
            arrivals: Arrivals::Poisson,
            seed: None,
            json: None,
            hdr_prefix: None,
            hide_progress: false,
            show_cpu: false,
            continue_after_errors: false,
        }
    }
}

impl Common {
    /// Where the server is.
    pub fn address(&self) -> ServerAddress {
        match &self.socket {
            Some(path) => ServerAddress::Unix(path.clone()),
            None => ServerAddress::Tcp { host: self.host.clone(), port: self.port },
        }
    }

    /// Takes over what a URL says, and nothing that it leaves out.
    pub(super) fn take_url(&mut self, url: &str) -> Result<(), String> {
        let mut target = Target {
            address: self.address(),
            user: self.user.take(),
            password: self.password.take(),
            database: None,
            tls: self.wants_tls,
        };
        target.take_url(url).map_err(|error| error.to_string())?;
        match target.address {
            ServerAddress::Tcp { host, port } => {
                (self.host, self.port, self.socket) = (host, port, None);
            }
            ServerAddress::Unix(path) => self.socket = Some(path),
        }
        self.user = target.user;
        self.password = target.password;
        self.database = target.database.map_or(self.database, u64::from);
        self.wants_tls = target.tls;
        Ok(())
    }

    /// What can be said only when all flags are known.
    pub(super) fn finish(&mut self) -> Result<(), String> {
        if self.user.is_some() && self.password.is_none() {
            // As in valkey-benchmark.
            complain!("Warning: a user without a password (-a) is not logged in");
        }
        if self.wants_tls {
            self.transport.tls = Some(TlsConnector::new(&self.tls)?);
        }
        Ok(())
    }
}

/// How to load a server.
pub const LOAD: &[Flag<Common>] = &[
    Flag {
        names: &["--seed"],
        value: "number",
        help: "Draw the same random numbers each time.",
        apply: |common, value| set(&mut common.seed, Some(number(value, ..)?)),
    },
    Flag {
        names: &["--open-loop"],
        value: "rate",
        help: "Send this many requests a second over all connections, each at its time, whether or \
               not replies have come. Latency counts from the time a request was due, so that a \
               server that stalls cannot hide it.",
        apply: |common, value| set(&mut common.open_loop, Some(positive(value)?)),
    },
    Flag {
        names: &["--arrivals"],
        value: "kind",
        help: "How the open loop spreads its requests: poisson (default) or even.",
        apply: |common, value| {
            common.arrivals = match value {
                "poisson" => Arrivals::Poisson,
                "even" => Arrivals::Even,
                other => return Err(format!("'{other}' is neither poisson nor even")),
            };
            Ok(())
        },
    },
    Flag {
        names: &["--continue-after-errors"],
        value: "",
        help: "Count error replies instead of ending at the first.",
        apply: |common, _| set(&mut common.continue_after_errors, true),
    },
    Flag {
        names: &["--show-cpu"],
        value: "",
        help: "Say how much processor time the generator itself took for a request.",
        apply: |common, _| set(&mut common.show_cpu, true),
    },
    Flag {
        names: &["--no-progress"],
        value: "",
        help: "No live line, also on a terminal.",
        apply: |common, _| set(&mut common.hide_progress, true),
    },
];

/// Where results go.
pub const FILES: &[Flag<Common>] = &[
    Flag {
        names: &["--json-out-file"],
        value: "file",
        help: "Also write the results, with their histograms and seconds, as JSON.",
        apply: |common, value| set(&mut common.json, Some(value.into())),
    },
    Flag {
        names: &["--hdr-file-prefix"],
        value: "prefix",
        help: "Also write latency distributions for HdrHistogram's tools: as text (.txt) and as a \
               compressed log (.hgrm).",
        apply: |common, value| set(&mut common.hdr_prefix, Some(value.into())),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str) -> Common {
        let mut common = Common::default();
        common.take_url(url).unwrap();
        common
    }

    #[test]
    fn urls() {
        let common = of("redis://me:p%40ss@example.org:7000/3");
        assert_eq!(common.user.as_deref(), Some(&b"me"[..]));
        assert_eq!(common.password.as_deref(), Some(&b"p@ss"[..]));
        assert_eq!((common.host.as_str(), common.port, common.database), ("example.org", 7000, 3));
        assert!(!common.wants_tls && of("rediss://x").wants_tls);
        assert_eq!(of("unix:///tmp/socket").address(), ServerAddress::Unix("/tmp/socket".into()));
        let mut common = Common { password: Some(b"p".to_vec()), database: 3, ..Common::default() };
        common.take_url("redis://h:7").unwrap();
        assert_eq!((common.database, common.password.as_deref()), (3, Some(&b"p"[..])));
    }
}
