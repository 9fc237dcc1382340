//! One request and its response, as much of HTTP/1.x as a scraper needs. The connection ends with
//! the response.
//!
//! A web page whose name its owner suddenly has lead to this machine could have a browser read the
//! metrics for it; the browser then names the page's host. So a request that names a host is
//! answered only under a name that is ours.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr};

/// One request and its response.
#[derive(Default)]
pub(super) struct Exchange {
    request: Vec<u8>,
    response: Vec<u8>,
    sent: usize,
    state: HttpState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum HttpState {
    #[default]
    Receiving,
    Sending,
    /// The connection must be closed.
    Done,
}

/// What is served, and under which names.
pub(super) struct Site<K, M> {
    /// Whether a host's name is one that the configuration tells of.
    pub is_known: K,
    pub metrics: M,
}

/// A [`Site`] of whatever functions.
pub(super) trait Answers {
    fn is_known(&self, name: &str) -> bool;
    fn metrics(&self) -> String;
}

impl<K: Fn(&str) -> bool, M: Fn() -> String> Answers for Site<K, M> {
    fn is_known(&self, name: &str) -> bool {
        (self.is_known)(name)
    }

    fn metrics(&self) -> String {
        (self.metrics)()
    }
}

/// Bytes of a request's head at most.
const HEAD_BYTES_MAX: usize = 8 * 1024;
const HEAD_END: &[u8] = b"\r\n\r\n";
/// Where the metrics are.
const PATH: &str = "/metrics";
const TEXT_TYPE: &str = "text/plain; charset=utf-8";
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

impl Exchange {
    pub(super) const fn state(&self) -> HttpState {
        self.state
    }

    /// Does what can be done without waiting.
    pub(super) fn go_on(
        &mut self,
        stream: &mut (impl Read + Write),
        site: &impl Answers,
    ) -> HttpState {
        if self.state == HttpState::Receiving {
            self.receive(stream, site);
        }
        if self.state == HttpState::Sending {
            self.send(stream);
        }
        self.state
    }

    fn receive(&mut self, stream: &mut impl Read, site: &impl Answers) {
        let mut chunk = [0; 1024];
        while self.state == HttpState::Receiving {
            match stream.read(&mut chunk) {
                Ok(0) => self.state = HttpState::Done,
                Ok(count) => {
                    // The end may have begun in what came before.
                    let from = self.request.len().saturating_sub(HEAD_END.len() - 1);
                    self.request.extend_from_slice(&chunk[..count]);
                    if has_end(&self.request[from..]) {
                        self.response = respond(&self.request, site);
                        self.state = HttpState::Sending;
                    } else if self.request.len() > HEAD_BYTES_MAX {
                        self.response = response("431 Request Header Fields Too Large", "", None);
                        self.state = HttpState::Sending;
                    }
                }
                Err(error) => {
                    if !is_temporary(&error) {
                        self.state = HttpState::Done;
                    }
                    return;
                }
            }
        }
    }

    fn send(&mut self, stream: &mut impl Write) {
        while self.sent < self.response.len() {
            match stream.write(&self.response[self.sent..]) {
                Ok(count) if count > 0 => self.sent += count,
                Err(error) if is_temporary(&error) => return,
                _ => break,
            }
        }
        self.state = HttpState::Done;
    }
}

fn is_temporary(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Whether the head of the request is complete. There is no body: none is read.
fn has_end(request: &[u8]) -> bool {
    memchr::memmem::find(request, HEAD_END).is_some()
}

fn respond(request: &[u8], site: &impl Answers) -> Vec<u8> {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words[..] else {
        return response("400 Bad Request", "", None);
    };
    if !version.starts_with("HTTP/1.") {
        return response("505 HTTP Version Not Supported", "", None);
    }
    if let Some(host) = hosts(request).find(|host| !is_ours(host, site)) {
        let text =
            format!("'{host}' is no name of this server. The option metrics-hosts takes more.\n");
        return response("403 Forbidden", "", Some((TEXT_TYPE, &text)));
    }
    if target.split('?').next() != Some(PATH) {
        let text = format!("There is nothing here; metrics are at {PATH}.\n");
        return response("404 Not Found", "", Some((TEXT_TYPE, &text)));
    }
    match method {
        "GET" => response("200 OK", "", Some((METRICS_TYPE, &site.metrics()))),
        // Its length is that of the next answer at best, so that it is not told.
        "HEAD" => response("200 OK", &format!("Content-Type: {METRICS_TYPE}\r\n"), None),
        _ => response("405 Method Not Allowed", "Allow: GET, HEAD\r\n", None),
    }
}

/// What the fields called `Host` say. Browsers send one.
fn hosts(request: &[u8]) -> impl Iterator<Item = String> {
    let lines = request.split(|byte| *byte == b'\n').skip(1);
    let fields = lines.filter_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        name.trim_ascii().eq_ignore_ascii_case(b"host").then_some(value.trim_ascii())
    });
    fields.map(|value| String::from_utf8_lossy(value).into_owned())
}

/// Whether a host and port name this server: by an address, which nobody can have lead elsewhere,
/// by what means this machine everywhere, or by what the configuration says.
fn is_ours(host: &str, site: &impl Answers) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(six) = host.strip_prefix('[') {
        let Some((address, port)) = six.split_once(']') else { return false };
        let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return is_port && address.parse::<Ipv6Addr>().is_ok();
    }
    let name = match host.split_once(':') {
        Some((name, port)) if is_port(port) => name,
        Some(_) => return false,
        None => host,
    };
    name.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost") || site.is_known(name)
}

/// A response with these fields, and a body with its type.
fn response(status: &str, fields: &str, body: Option<(&str, &str)>) -> Vec<u8> {
    let mut response = format!("HTTP/1.1 {status}\r\nConnection: close\r\n{fields}");
    if let Some((kind, body)) = body {
        let length = body.len();
        response
            .push_str(&format!("Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}"));
    } else if status.starts_with("200") {
        response.push_str("\r\n");
    } else {
        response.push_str("Content-Length: 0\r\n\r\n");
    }
    response.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that sends these bytes, a few at a time, and keeps what it gets.
    struct Stream<'a> {
        input: &'a [u8],
        output: Vec<u8>,
    }

    impl Read for Stream<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.input.len().min(buffer.len()).min(7);
            if count == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            buffer[..count].copy_from_slice(&self.input[..count]);
            self.input = &self.input[count..];
            Ok(count)
        }
    }

    impl Write for Stream<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let count = bytes.len().min(5);
            self.output.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn answer(request: &str) -> (HttpState, String) {
        let mut stream = Stream { input: request.as_bytes(), output: Vec::new() };
        let site = Site { is_known: |name: &str| name == "db.local", metrics: || "up 1\n".into() };
        let state = Exchange::default().go_on(&mut stream, &site);
        (state, String::from_utf8(stream.output).unwrap())
    }

    #[test]
    fn metrics_are_got() {
        let (state, response) = answer("GET /metrics?x=y HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(state, HttpState::Done);
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8"));
        assert!(head.ends_with("\r\nContent-Length: 5"), "{head}");
        assert_eq!(body, "up 1\n");
    }

    #[test]
    fn only_who_calls_the_server_by_its_name_is_answered() {
        let status = |fields: &str| {
            let (state, response) = answer(&format!("GET /metrics HTTP/1.1\r\n{fields}\r\n"));
            assert_eq!(state, HttpState::Done);
            response["HTTP/1.1 ".len()..][..3].to_owned()
        };
        for host in [
            "127.0.0.1:9121",
            "10.0.0.7",
            "[::1]:9121",
            "[fe80::1]",
            "localhost",
            "LOCALHOST:1",
            "db.local:80",
        ] {
            assert_eq!(status(&format!("Accept: */*\r\nhOst:{host}\r\n")), "200", "{host}");
        }
        // Nobody who can be led astray leaves it out.
        assert_eq!(status("Accept: */*\r\n"), "200");
        for host in [
            "evil.example",
            "evil.example:9121",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "[evil.example]",
            "[::1]evil.example",
            "localhost:x",
            "db.local@evil",
            "",
        ] {
            assert_eq!(status(&format!("Host: {host}\r\n")), "403", "{host}");
        }
        assert_eq!(status("Host: localhost\r\nHost: evil.example\r\n"), "403");
        assert_eq!(status("X: 1\nHost: evil.example\r\n"), "403");
    }

    #[test]
    fn whatever_else_is_asked_for_is_refused() {
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404 "),
            ("GET /metricsx HTTP/1.1\r\n\r\n", "404 "),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405 "),
            ("nonsense\r\n\r\n", "400 "),
            ("GET /metrics HTTP/2\r\n\r\n", "505 "),
        ] {
            let (state, response) = answer(request);
            assert_eq!(state, HttpState::Done, "{request}");
            assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {response}");
        }
        let (_, response) = answer(&format!("GET /metrics HTTP/1.1\r\nX: {}", "y".repeat(9000)));
        assert!(response.starts_with("HTTP/1.1 431 "), "{response}");
        assert_eq!(answer("GET /metrics HTTP/1.1\r\n"), (HttpState::Receiving, String::new()));
    }
}
