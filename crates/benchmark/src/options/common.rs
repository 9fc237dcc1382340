//! Flags that both grammars have.

use std::path::PathBuf;

use bobbin_client::{Address, Target};

use super::{Flag, positive};
use crate::engine::Arrivals;

/// Settings of these flags, and those that both grammars have under different names.
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
    pub multipath: bool,
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
            multipath: false,
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
    /// Takes an address of the form `redis://user:password@host:port/database`.
    pub(super) fn set_url(&mut self, url: &str) -> Result<(), String> {
        let target = Target::parse_url(url).map_err(|error| error.to_string())?;
        if target.tls {
            return Err(NO_TLS.into());
        }
        match target.address {
            Address::Tcp { host, port } => (self.host, self.port) = (host, port),
            Address::Unix(path) => self.socket = Some(path),
        }
        self.user = target.user;
        self.password = target.password;
        self.database = u64::from(target.database.unwrap_or(0));
        Ok(())
    }
}

pub(super) const FLAGS: &[Flag<Common>] = &[
    Flag {
        names: &["--open-loop"],
        value: "rate",
        help: "Send so many requests a second over all connections, each at its time, whether or \
               not replies have come. Latency counts from the time a request was due, so that a \
               server that stalls cannot hide it.",
        apply: |common, value| {
            common.open_loop = Some(positive(value)?);
            Ok(())
        },
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
        apply: |common, _| {
            common.continue_after_errors = true;
            Ok(())
        },
    },
    Flag {
        names: &["--show-cpu"],
        value: "",
        help: "Say how much processor time the generator itself took for a request.",
        apply: |common, _| {
            common.show_cpu = true;
            Ok(())
        },
    },
    Flag {
        names: &["--no-progress"],
        value: "",
        help: "No live line, also on a terminal.",
        apply: |common, _| {
            common.hide_progress = true;
            Ok(())
        },
    },
    Flag {
        names: &["--mptcp"],
        value: "",
        help: "Connect by multipath TCP.",
        apply: |common, _| {
            common.multipath = true;
            Ok(())
        },
    },
    Flag {
        names: &["--tls", "--insecure", "--tls-skip-verify"],
        value: "",
        help: NO_TLS,
        apply: no_tls,
    },
    Flag {
        names: &[
            "--sni",
            "--cacert",
            "--cacertdir",
            "--cert",
            "--key",
            "--tls-ciphers",
            "--tls-ciphersuites",
            "--tls-protocols",
        ],
        value: "value",
        help: NO_TLS,
        apply: no_tls,
    },
];

fn no_tls(_: &mut Common, _: &str) -> Result<(), String> {
    Err(NO_TLS.into())
}

const NO_TLS: &str = "TLS is not supported yet.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let mut common = Common::default();
        common.set_url("redis://me:p%40ss@example.org:7000/3").unwrap();
        assert_eq!(common.user.as_deref(), Some(&b"me"[..]));
        assert_eq!(common.password.as_deref(), Some(&b"p@ss"[..]));
        assert_eq!((common.host.as_str(), common.port, common.database), ("example.org", 7000, 3));
        common.set_url("valkey://[::1]").unwrap();
        assert_eq!((common.host.as_str(), common.port), ("::1", 6379));
        common.set_url("unix:///tmp/socket").unwrap();
        assert_eq!(common.socket, Some("/tmp/socket".into()));
        assert_eq!(common.set_url("rediss://x"), Err(NO_TLS.into()));
        assert!(common.set_url("x").is_err());
        assert!(common.set_url("http://x").is_err());
        assert!(common.set_url("redis://x:port").is_err());
        assert!(common.set_url("redis://a%4@x").is_err());
    }
}
