//! `bobbin-server --check-config`, beyond the lines themselves: whether a server could start with
//! what the options name, which are files, addresses and certificates.
//!
//! What differs from one moment to the next is not looked at: a server may run that has the ports,
//! and the data is not loaded.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::net::{TcpListener, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr;
use std::path::Path;

use bobbin_io::error_text;

use super::start::choose_driver;
use crate::config::{Config, OptionId};
use crate::engine::acl::{self, Acl};
use crate::engine::command::Registry;
use crate::engine::server::USERS_TWICE;
use crate::system::tls::{self, Tls};

/// What would keep a server from starting: one line for each fault, which begins with the option.
/// `renamed` and `users` are the lines of `rename-command` and `user`.
pub fn faults(
    config: &Config,
    renamed: &[(Vec<u8>, Vec<u8>)],
    users: &[Vec<Vec<u8>>],
) -> Vec<String> {
    let certificates = || match config.tls_port() {
        0 => Ok(()),
        _ => Tls::default().follow(config),
    };
    let outgoing = || match config.tls_replication() {
        false => Ok(()),
        true => tls::outgoing(config).map(drop),
    };
    let outcomes = [
        ("aclfile", see_users(config, renamed, users)),
        ("io-driver", choose_driver(config).map(drop)),
        ("tls-port", certificates()),
        ("tls-replication", outgoing()),
        ("bind", see_addresses(config)),
        ("unixsocket", see_socket(config)),
        ("port", see_that_it_listens(config)),
    ];
    let said = |(option, outcome): (&str, Result<(), String>)| {
        outcome.err().map(|fault| format!("{option}: {fault}"))
    };
    outcomes.into_iter().filter_map(said).collect()
}

fn see_users(
    config: &Config,
    renamed: &[(Vec<u8>, Vec<u8>)],
    users: &[Vec<Vec<u8>>],
) -> Result<(), String> {
    let registry = Registry::new(&super::families(), renamed)?;
    let path = config.aclfile();
    if path.is_empty() {
        return Ok(());
    }
    if !users.is_empty() {
        return Err(USERS_TWICE.into());
    }
    let acl = Acl::new(registry.facts(), config);
    acl.load_file(&path, &acl::grammar(registry.facts(), config)).map(drop)
}

/// Whether the addresses of `bind` are known, and are addresses of this machine.
fn see_addresses(config: &Config) -> Result<(), String> {
    if config.port() == 0 && config.tls_port() == 0 {
        return Ok(());
    }
    for address in config.words_of(OptionId::bind) {
        let (is_optional, host) = match address.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, &*address),
        };
        if ["*", "::*"].contains(&host) {
            continue;
        }
        let cannot = |error| format!("Can't listen on {host}: {}", error_text(&error));
        // The system chooses a port that is free.
        let mut resolved = (host, 0).to_socket_addrs().map_err(cannot)?;
        let family = resolved.find(|found| found.is_ipv6() == host.contains(':'));
        match family.map(TcpListener::bind) {
            None => return Err(format!("Can't listen on {host}: unable to bind socket")),
            Some(Err(error)) if error.kind() == ErrorKind::AddrNotAvailable && !is_optional => {
                return Err(cannot(error));
            }
            // A protocol that the machine lacks is no fault.
            Some(_) => {}
        }
    }
    Ok(())
}

fn see_socket(config: &Config) -> Result<(), String> {
    let name = config.unixsocket();
    if name.is_empty() {
        return Ok(());
    }
    let path = Path::new(OsStr::from_bytes(&name));
    let cannot = |why: &str| format!("Can't listen on {}: {why}", path.display());
    SocketAddr::from_pathname(path).map_err(|error| cannot(&error_text(&error)))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_some_and(|folder| !folder.is_dir()) {
        return Err(cannot("its directory is missing"));
    }
    Ok(())
}

fn see_that_it_listens(config: &Config) -> Result<(), String> {
    let listens = config.port() != 0 || config.tls_port() != 0 || !config.unixsocket().is_empty();
    if listens { Ok(()) } else { Err("Configured to not listen anywhere".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{CommandLine, NoDirectives};

    #[test]
    fn what_options_name_is_looked_at() {
        let folder = std::env::temp_dir().join(format!("bobbin-check-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        std::fs::write(path("good.acl"), "user alice on ~* +get\n").unwrap();
        std::fs::write(path("bad.acl"), "user alice on ~* +nonsense\n").unwrap();
        std::fs::write(path("bad.pem"), "nonsense\n").unwrap();
        let bad_files = format!("tls-cert-file {0}\ntls-key-file {0}", path("bad.pem"));
        let user = [vec![b"alice".to_vec(), b"on".to_vec()]];
        for (options, users, expected) in [
            (format!("aclfile {}", path("good.acl")), &[][..], &[][..]),
            (format!("aclfile {}", path("good.acl")), &user, &["aclfile: Users are defined"]),
            (format!("aclfile {}", path("bad.acl")), &[], &["aclfile: "]),
            (format!("aclfile {}", path("none.acl")), &[], &["aclfile: Error loading ACLs"]),
            ("tls-port 7000".to_owned(), &[], &["tls-port: "]),
            (format!("tls-port 7000\n{bad_files}"), &[], &["tls-port: "]),
            ("bind 127.0.0.1 -192.0.2.1 * ::*".to_owned(), &[], &[]),
            ("bind 192.0.2.1".to_owned(), &[], &["bind: Can't listen on 192.0.2.1: "]),
            ("bind nohost.invalid".to_owned(), &[], &["bind: Can't listen on nohost.invalid: "]),
            (format!("unixsocket {}", path("socket")), &[], &[]),
            (format!("unixsocket {}", path("none/socket")), &[], &["unixsocket: Can't listen"]),
            ("port 0".to_owned(), &[], &["port: Configured to not listen"]),
            (
                format!("tls-port 7000\naclfile {}", path("none.acl")),
                &[],
                &["aclfile: ", "tls-port: "],
            ),
        ] {
            let line = CommandLine { options: options.into_bytes(), ..CommandLine::default() };
            let (config, faults_of_lines) =
                Config::check(&line, &mut &b""[..], "1", &mut NoDirectives);
            assert_eq!(faults_of_lines, [""; 0]);
            let found = faults(&config, &[], users);
            let is_expected = found.len() == expected.len()
                && found.iter().zip(expected).all(|(fault, start)| fault.starts_with(start));
            assert!(is_expected, "{line:?}: {found:?}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
