//! Where the server is, who one is there, and how to get to it: the same flags for every way of
//! calling the program, under the names that they have there.

use bobbin_client::AddressFamily;

use super::{Common, Flag, number, set};

/// redis-benchmark's names.
pub const REDIS: &[Flag<Common>] = &[
    host(&["-h"], "The server's host (default 127.0.0.1)."),
    port(&["-p"], "Its port (default 6379)."),
    socket(&["-s"]),
    Flag {
        names: &["-a"],
        value: "password",
        help: "Authenticate with this password.",
        apply: |common, value| set(&mut common.password, Some(value.into())),
    },
    Flag {
        names: &["--user"],
        value: "name",
        help: "Authenticate as this user; needs -a.",
        apply: |common, value| set(&mut common.user, Some(value.into())),
    },
    url(&["-u"]),
    database(&["--dbnum"]),
];

/// memtier_benchmark's names.
pub const MEMTIER: &[Flag<Common>] = &[
    host(&["-s", "-h", "--host", "--server"], "The server's host (default 127.0.0.1)."),
    port(&["-p", "--port"], "Its port (default 6379)."),
    socket(&["-S", "--unix-socket"]),
    Flag {
        names: &["-a", "--authenticate"],
        value: "credentials",
        help: "A password, or user:password.",
        apply: |common, value| {
            let (user, password) = match value.split_once(':') {
                Some((user, password)) => (Some(user.into()), password),
                None => (None, value),
            };
            common.user = user;
            common.password = Some(password.into());
            Ok(())
        },
    },
    url(&["-u", "--uri"]),
    database(&["--select-db"]),
    Flag {
        names: &["-4", "--ipv4"],
        value: "",
        help: "Use the host's IPv4 address.",
        apply: |common, _| set(&mut common.transport.family, AddressFamily::Ipv4),
    },
    Flag {
        names: &["-6", "--ipv6"],
        value: "",
        help: "Use the host's IPv6 address.",
        apply: |common, _| set(&mut common.transport.family, AddressFamily::Ipv6),
    },
];

/// For servers that are started here.
pub const LISTEN: &[Flag<Common>] = &[
    host(&["--host"], "The address that servers listen on (default 127.0.0.1)."),
    port(&["--port"], "The port that servers listen on (default 7399)."),
];

/// What both ancestors call the same.
pub const TRANSPORT: &[Flag<Common>] = &[
    Flag {
        names: &["--mptcp"],
        value: "",
        help: "Connect by multipath TCP.",
        apply: |common, _| set(&mut common.transport.multipath, true),
    },
    Flag {
        names: &["--tls"],
        value: "",
        help: "Connect with TLS.",
        apply: |common, _| set(&mut common.wants_tls, true),
    },
    Flag {
        names: &["--sni"],
        value: "host",
        help: "The server name to ask for; the certificate must have it.",
        apply: |common, value| set(&mut common.tls.server_name, Some(value.into())),
    },
    Flag {
        names: &["--cacert"],
        value: "file",
        help: "Believe the authorities in this PEM file, instead of the system's.",
        apply: |common, value| set(&mut common.tls.authorities, Some(value.into())),
    },
    Flag {
        names: &["--cacertdir"],
        value: "folder",
        help: "The same for a folder.",
        apply: |common, value| set(&mut common.tls.authorities_folder, Some(value.into())),
    },
    Flag {
        names: &["--insecure", "--tls-skip-verify"],
        value: "",
        help: "Believe any certificate.",
        apply: |common, _| set(&mut common.tls.insecure, true),
    },
    Flag {
        names: &["--cert"],
        value: "file",
        help: "Show the certificate in this PEM file.",
        apply: |common, value| set(&mut common.tls.certificate, Some(value.into())),
    },
    Flag {
        names: &["--key"],
        value: "file",
        help: "Its private key, where it is not in the same file.",
        apply: |common, value| set(&mut common.tls.key, Some(value.into())),
    },
    Flag {
        names: &["--tls-ciphers"],
        value: "list",
        help: "Ciphers of TLS 1.2 by OpenSSL's names, with colons between, the preferred first.",
        apply: |common, value| set(&mut common.tls.ciphers, Some(value.into())),
    },
    Flag {
        names: &["--tls-ciphersuites"],
        value: "list",
        help: "The same for TLS 1.3.",
        apply: |common, value| set(&mut common.tls.ciphersuites, Some(value.into())),
    },
    Flag {
        names: &["--tls-protocols"],
        value: "list",
        help: "Versions of TLS to speak: TLSv1.2, TLSv1.3 (default both).",
        apply: |common, value| set(&mut common.tls.protocols, Some(value.into())),
    },
];

const fn host(names: &'static [&'static str], help: &'static str) -> Flag<Common> {
    Flag { names, value: "host", help, apply: |common, value| set(&mut common.host, value.into()) }
}

const fn port(names: &'static [&'static str], help: &'static str) -> Flag<Common> {
    Flag {
        names,
        value: "port",
        help,
        apply: |common, value| set(&mut common.port, number(value, 1..=65535)?),
    }
}

const fn socket(names: &'static [&'static str]) -> Flag<Common> {
    Flag {
        names,
        value: "path",
        help: "Its Unix socket, instead of host and port.",
        apply: |common, value| set(&mut common.socket, Some(value.into())),
    }
}

const fn url(names: &'static [&'static str]) -> Flag<Common> {
    Flag {
        names,
        value: "url",
        help: "All of these at once, as redis://user:password@host:port/database; rediss:// is \
               with TLS.",
        apply: |common, value| common.take_url(value),
    }
}

const fn database(names: &'static [&'static str]) -> Flag<Common> {
    Flag {
        names,
        value: "database",
        help: "SELECT this database first (default 0).",
        apply: |common, value| set(&mut common.database, number(value, ..)?),
    }
}
