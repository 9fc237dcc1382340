//! Checks of single values, with Valkey's error texts.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::base::cores::CoreList;
use crate::base::locale::Collation;

pub(super) fn any(_: &[u8]) -> Result<(), String> {
    Ok(())
}

/// A title whose variables are all known and which is not empty; `{{` is a brace. While it checks,
/// Valkey fills in the variables, some of them with nothing.
pub(super) fn title_template(text: &[u8]) -> Result<(), String> {
    const FILLED: [&str; 4] = ["listen-addr", "port", "tls-port", "config-file"];
    const EMPTY: [&str; 3] = ["title", "server-mode", "unixsocket"];
    let invalid = || "template format is invalid or contains unknown variables".to_owned();
    let mut rest = std::str::from_utf8(text).map_err(|_| invalid())?;
    let mut is_empty = true;
    while let Some((literal, after)) = rest.split_once('{') {
        is_empty &= literal.trim().is_empty();
        rest = match (after.strip_prefix('{'), after.split_once('}')) {
            (Some(after), _) => {
                is_empty = false;
                after
            }
            (None, Some((name, after))) if FILLED.contains(&name) => {
                is_empty = false;
                after
            }
            (None, Some((name, after))) if EMPTY.contains(&name) => after,
            _ => return Err(invalid()),
        };
    }
    if is_empty && rest.trim().is_empty() { Err(invalid()) } else { Ok(()) }
}

pub(super) fn shutdown_flags(bits: i64) -> Result<(), String> {
    const SAVE_AND_NOSAVE: i64 = 3;
    if bits & SAVE_AND_NOSAVE == SAVE_AND_NOSAVE {
        return Err("shutdown options SAVE and NOSAVE can't be used simultaneously".into());
    }
    Ok(())
}

pub(super) fn locale(name: &[u8]) -> Result<(), String> {
    let is_known = name.is_empty() || Collation::of_locale(name).is_some();
    if is_known { Ok(()) } else { Err("Invalid locale name".into()) }
}

/// Three numbers that fit into REDIS_VERSION_NUM, which scripts read.
pub(super) fn redis_version(text: &[u8]) -> Result<(), String> {
    let numbers = std::str::from_utf8(text).unwrap_or_default().split('.');
    let valid = numbers.clone().count() == 3
        && numbers
            .into_iter()
            .all(|number| number.parse::<u8>().is_ok_and(|parsed| parsed.to_string() == number));
    if valid { Ok(()) } else { Err("argument must be a version such as 7.4.0".into()) }
}

/// Whether a shutdown with these words would need a failover, which needs a cluster.
pub(super) fn needs_cluster(shown: &[u8]) -> bool {
    shown.split(|byte| *byte == b' ').any(|word| word == b"failover")
}

pub(super) fn core_list(text: &[u8]) -> Result<(), String> {
    CoreList::parse(text).map(drop)
}

pub(super) fn snapshot_name(text: &[u8]) -> Result<(), String> {
    file_name(text, "dbfilename", "filename")
}

pub(super) fn log_name(text: &[u8]) -> Result<(), String> {
    file_name(text, "appendfilename", "filename")
}

pub(super) fn log_directory(text: &[u8]) -> Result<(), String> {
    file_name(text, "appenddirname", "dirname")
}

pub(super) fn cluster_file(text: &[u8]) -> Result<(), String> {
    if text.is_empty() {
        return Err("cluster-config-file can't be empty".into());
    }
    Ok(())
}

pub(super) fn announced_ip(text: &[u8]) -> Result<(), String> {
    const LENGTH_MAX: usize = 45;
    if text.len() > LENGTH_MAX {
        return Err("cluster-announce-ip is too long".into());
    }
    if !is_plain(text) {
        return Err("cluster-announce-ip contains invalid character".into());
    }
    Ok(())
}

pub(super) fn announced_nodename(text: &[u8]) -> Result<(), String> {
    if !is_plain(text) {
        return Err("Announced human node name contained invalid character".into());
    }
    Ok(())
}

pub(super) fn announced_hostname(text: &[u8]) -> Result<(), String> {
    const LENGTH_MAX: usize = 256;
    if text.len() >= LENGTH_MAX {
        return Err(format!("Hostnames must be less than {LENGTH_MAX} characters"));
    }
    if text.iter().any(|byte| !byte.is_ascii_alphanumeric() && !b"-.".contains(byte)) {
        return Err("Hostnames may only contain alphanumeric characters, hyphens or dots".into());
    }
    Ok(())
}

pub(super) fn ipv4(text: &[u8]) -> Result<(), String> {
    is_address::<Ipv4Addr>(text).ok_or_else(|| "Invalid IPv4 address".into())
}

pub(super) fn ipv6(text: &[u8]) -> Result<(), String> {
    is_address::<Ipv6Addr>(text).ok_or_else(|| "Invalid IPv6 address".into())
}

fn is_address<A: std::str::FromStr>(text: &[u8]) -> Option<()> {
    if text.is_empty() {
        return Some(());
    }
    std::str::from_utf8(text).ok()?.parse::<A>().ok().map(|_| ())
}

fn file_name(text: &[u8], option: &str, noun: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err(format!("{option} can't be empty"));
    }
    if text.contains(&0) {
        return Err(format!("{option} can't contain a zero byte"));
    }
    if text.contains(&b'/') || text.contains(&b'\\') {
        return Err(format!("{option} can't be a path, just a {noun}"));
    }
    Ok(())
}

/// Whether a text is printable and has none of the characters that separate fields in the cluster's
/// file.
fn is_plain(text: &[u8]) -> bool {
    const REFUSED: &[u8] = b"!\"#$%&'()*+,;<=>?@[\\]^{|}~";
    text.iter().all(|byte| byte.is_ascii_graphic() && !REFUSED.contains(byte))
}
