//! Reads the head of a request: its fields, its host, and the user that it names.
//!
//! A hostile web page can point its own name at this machine and make a browser read the metrics.
//! The browser then names the page's host. So a request that names a host is answered only if the
//! name is ours. A page of another site could also make the browser ask under our own name. The
//! browser then says so, and the request is refused. The browser would not show the answer to that
//! page, but data that is not sent cannot leak.
//!
//! A user signs in by HTTP's own means (RFC 7617). Browsers ask for the password, remember it until
//! they are closed, and send it with each request of the page.

use std::net::{IpAddr, Ipv6Addr};

use super::site::Answers;

/// The end of the head.
pub(super) const HEAD_END: &[u8] = b"\r\n\r\n";

/// Whether the head of the request is complete. No body is read.
pub(super) fn has_end(request: &[u8]) -> bool {
    memchr::memmem::find(request, HEAD_END).is_some()
}

/// The values of the fields with this name, which is in lower case.
pub(super) fn fields(request: &[u8], wanted: &str) -> impl Iterator<Item = String> {
    let lines = request.split(|byte| *byte == b'\n').skip(1);
    let fields = lines.filter_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        name.trim_ascii().eq_ignore_ascii_case(wanted.as_bytes()).then_some(value.trim_ascii())
    });
    fields.map(|value| String::from_utf8_lossy(value).into_owned())
}

/// Why a request is refused, whatever it asks for.
pub(super) fn refusal(request: &[u8], site: &impl Answers) -> Option<String> {
    if let Some(host) = fields(request, "host").find(|host| !is_ours(host, site)) {
        return Some(format!(
            "'{host}' is no name of this server. The option metrics-hosts takes more.\n"
        ));
    }
    let is_foreign = |site: String| !matches!(&*site, "same-origin" | "none");
    if fields(request, "sec-fetch-site").any(is_foreign)
        || fields(request, "origin").any(|origin| !is_of_host(&origin, request))
    {
        let text = "Another site asks for this, which it may not. Open the address by itself.\n";
        return Some(text.to_owned());
    }
    None
}

/// Whether a request from this machine may be for another machine: it came through a proxy, or
/// under a name that the configuration allows, which may be that of another site's page.
pub(super) fn is_for_others(request: &[u8]) -> bool {
    let is_passed_on = |name| fields(request, name).next().is_some();
    ["forwarded", "via", "x-forwarded-for", "x-real-ip"].into_iter().any(is_passed_on)
        || fields(request, "host").any(|host| !is_certain(&host))
}

/// Whether the request has the right name and password of a user.
pub(super) fn is_signed_in(request: &[u8], site: &impl Answers) -> bool {
    let Some(field) = fields(request, "authorization").next() else { return false };
    let Some((scheme, credentials)) = field.split_once(' ') else { return false };
    let credentials = if scheme.eq_ignore_ascii_case("basic") { credentials } else { "" };
    let Some(credentials) = decoded(credentials.trim()) else { return false };
    let Some(colon) = memchr::memchr(b':', &credentials) else { return false };
    site.admits(&credentials[..colon], &credentials[colon + 1..])
}

/// Decodes Base64. `None`: the text is invalid.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if !text.len().is_multiple_of(4) || text.len() - digits.len() > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    let (mut bits, mut count) = (0u32, 0);
    for digit in digits.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

/// Whether an origin is the host that the request names.
fn is_of_host(origin: &str, request: &[u8]) -> bool {
    let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    host.is_some_and(|host| fields(request, "host").any(|own| own.eq_ignore_ascii_case(host)))
}

/// Whether a host and port name this server: with certainty, as [`is_certain`] says, or by the
/// configuration.
fn is_ours(host: &str, site: &impl Answers) -> bool {
    is_certain(host) || name_of(host).is_some_and(|name| site.is_known(name))
}

/// Whether a host and port name this server by an address, which nobody can redirect, or by a name
/// that always means the local machine.
fn is_certain(host: &str) -> bool {
    let is_certain =
        |name: &str| name.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost");
    name_of(host).is_some_and(is_certain)
}

/// The name or address in a host and port.
fn name_of(host: &str) -> Option<&str> {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(six) = host.strip_prefix('[') {
        let (address, port) = six.split_once(']')?;
        let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return (is_port && address.parse::<Ipv6Addr>().is_ok()).then_some(address);
    }
    match host.split_once(':') {
        Some((name, port)) => is_port(port).then_some(name),
        None => Some(host),
    }
}
