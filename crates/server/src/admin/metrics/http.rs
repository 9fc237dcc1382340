//! One request and its response, with as much of HTTP/1.x as a scraper and a page need. The
//! connection is closed after the response.

use std::io::{ErrorKind, Read, Write};
use std::net::IpAddr;

use super::request::{self, HEAD_END};
use super::site::{Answers, Resource, TEXT_TYPE, Trust};

/// One request and its response.
#[derive(Default)]
pub(super) struct Exchange {
    /// The peer is on this machine.
    is_local: bool,
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

/// The longest head of a request in bytes.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// Makes a browser ask its user for a password.
const CHALLENGE: &str = "WWW-Authenticate: Basic realm=\"Bobbin\", charset=\"UTF-8\"\r\n";
const SIGN_IN_TEXT: &str = "A user with all rights (~* &* +@all) and a password sees everything.\n";
/// The fields of every response. They tell a browser not to show the response in a frame or to
/// another site, not to keep a copy, and not to guess another type.
const FIELDS: &str = "Connection: close\r\n\
                      Cache-Control: no-store\r\n\
                      Cross-Origin-Opener-Policy: same-origin\r\n\
                      Cross-Origin-Resource-Policy: same-origin\r\n\
                      Referrer-Policy: no-referrer\r\n\
                      X-Content-Type-Options: nosniff\r\n\
                      X-Frame-Options: DENY\r\n";

impl Exchange {
    pub(super) fn with(peer: IpAddr) -> Self {
        Self { is_local: peer.to_canonical().is_loopback(), ..Self::default() }
    }

    pub(super) const fn state(&self) -> HttpState {
        self.state
    }

    /// Does what is possible without waiting.
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
                    // The end mark may have begun in the bytes before.
                    let from = self.request.len().saturating_sub(HEAD_END.len() - 1);
                    self.request.extend_from_slice(&chunk[..count]);
                    if request::has_end(&self.request[from..]) {
                        self.response = respond(&self.request, site, self.is_local);
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

fn respond(request: &[u8], site: &impl Answers, is_local: bool) -> Vec<u8> {
    let mut response = respond_to_get(request, site, is_local);
    // A reply to HEAD never has a body, not even with an error.
    if request.starts_with(b"HEAD ")
        && let Some(end) = memchr::memmem::find(&response, HEAD_END)
    {
        response.truncate(end + HEAD_END.len());
    }
    response
}

/// The response. A reply to HEAD may still have its body.
fn respond_to_get(request: &[u8], site: &impl Answers, is_local: bool) -> Vec<u8> {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words[..] else {
        return response("400 Bad Request", "", None);
    };
    if !version.starts_with("HTTP/1.") {
        return response("505 HTTP Version Not Supported", "", None);
    }
    if let Some(text) = request::refusal(request, site) {
        return response("403 Forbidden", "", Some((TEXT_TYPE, &text)));
    }
    let path = target.split('?').next().unwrap_or_default();
    let Some(resource) = Resource::at(path, request) else {
        let text = "There is nothing here; metrics are at /metrics, and the dashboard is at /.\n";
        return response("404 Not Found", "", Some((TEXT_TYPE, text)));
    };
    let trust = match resource {
        // Only these resources depend on a password, so it is checked only for them.
        Resource::Status | Resource::SignIn if request::is_signed_in(request, site) => {
            Trust::SignedIn
        }
        _ if is_local && !request::is_for_others(request) => Trust::Local,
        _ => Trust::Nothing,
    };
    let fields = match resource {
        Resource::Page => format!("Content-Security-Policy: {}\r\n", site.policy()),
        Resource::Metrics(_) => "Vary: Accept\r\n".to_owned(),
        Resource::Status | Resource::SignIn => String::new(),
    };
    let kind = resource.kind();
    match method {
        "GET" | "HEAD" if resource == Resource::SignIn => match trust {
            Trust::SignedIn => response("303 See Other", "Location: ./\r\n", None),
            _ => response("401 Unauthorized", CHALLENGE, Some((kind, SIGN_IN_TEXT))),
        },
        "GET" => response("200 OK", &fields, Some((kind, &site.body(resource, trust)))),
        // The length is left out, because it would be that of another answer.
        "HEAD" => response("200 OK", &format!("{fields}Content-Type: {kind}\r\n"), None),
        _ => response("405 Method Not Allowed", "Allow: GET, HEAD\r\n", None),
    }
}

/// A response with these fields, and a body with its type.
fn response(status: &str, fields: &str, body: Option<(&str, &str)>) -> Vec<u8> {
    let mut response = format!("HTTP/1.1 {status}\r\n{FIELDS}{fields}");
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
    use crate::admin::metrics::site::Site;

    /// A peer that sends these bytes a few at a time, and keeps what it receives.
    struct SlowPeer<'a> {
        input: &'a [u8],
        output: Vec<u8>,
    }

    impl Read for SlowPeer<'_> {
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

    impl Write for SlowPeer<'_> {
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
        answer_to("127.0.0.1", request)
    }

    fn answer_to(peer: &str, request: &str) -> (HttpState, String) {
        let mut stream = SlowPeer { input: request.as_bytes(), output: Vec::new() };
        let site = Site {
            is_known: |name: &str| name == "db.local",
            admits: |user: &[u8], password: &[u8]| user == b"ada" && password == b"a:b",
            policy: "default-src 'none'".to_owned(),
            body: |resource, trust| match resource {
                Resource::Page => "<p>".into(),
                Resource::Status => format!("{trust:?}").into(),
                Resource::Metrics(format) => format!("{format:?} 1\n").into(),
                Resource::SignIn => unreachable!("it has no body of the site's"),
            },
        };
        let mut exchange = Exchange::with(peer.parse().unwrap());
        let state = exchange.go_on(&mut stream, &site);
        (state, String::from_utf8(stream.output).unwrap())
    }

    #[test]
    fn metrics_are_got() {
        let (state, response) = answer("GET /metrics?x=y HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(state, HttpState::Done);
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8"));
        assert!(head.ends_with("\r\nContent-Length: 8"), "{head}");
        assert_eq!(body, "Plain 1\n");
        let (_, response) = answer(
            "GET /metrics HTTP/1.1\r\naccept: application/openmetrics-text; version=1.0.0\r\n\
             Accept: text/plain; q=0.5\r\n\r\n",
        );
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        let kind = "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8";
        assert!(head.lines().any(|line| line == kind), "{head}");
        assert_eq!(body, "Open 1\n");
    }

    fn status_of(path: &str, fields: &str) -> String {
        let (state, response) = answer(&format!("GET {path} HTTP/1.1\r\n{fields}\r\n"));
        assert_eq!(state, HttpState::Done);
        response["HTTP/1.1 ".len()..][..3].to_owned()
    }

    #[test]
    fn the_page_has_a_policy_and_nothing_may_be_shared() {
        for (path, kind) in [
            ("/", "text/html; charset=utf-8"),
            ("/status.json", "application/json"),
            ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
            ("/none", "text/plain; charset=utf-8"),
        ] {
            for method in ["GET", "HEAD"] {
                let (_, response) = answer(&format!("{method} {path} HTTP/1.1\r\n\r\n"));
                let (head, body) = response.split_once("\r\n\r\n").unwrap();
                for field in [
                    format!("Content-Type: {kind}"),
                    "X-Content-Type-Options: nosniff".into(),
                    "X-Frame-Options: DENY".into(),
                    "Referrer-Policy: no-referrer".into(),
                    "Cross-Origin-Resource-Policy: same-origin".into(),
                    "Cache-Control: no-store".into(),
                ] {
                    assert!(head.lines().any(|line| line == field), "{path}: {field}: {head}");
                }
                assert!(!head.contains("Access-Control"), "{head}");
                let policy = "\r\nContent-Security-Policy: default-src 'none'\r\n";
                assert_eq!(head.contains(policy), path == "/", "{head}");
                assert!(method == "GET" || body.is_empty(), "{body}");
            }
        }
    }

    #[test]
    fn other_sites_are_refused() {
        for path in ["/", "/status.json", "/metrics"] {
            let status = |fields: &str| status_of(path, fields);
            let host = "Host: localhost:9121\r\n";
            for field in [
                "Sec-Fetch-Site: same-origin",
                "sec-fetch-site: none",
                "Origin: http://localhost:9121",
                "Origin: https://LOCALHOST:9121",
            ] {
                assert_eq!(status(&format!("{host}{field}\r\n")), "200", "{field}");
            }
            for field in [
                "Sec-Fetch-Site: cross-site",
                "Sec-Fetch-Site: same-site",
                "Sec-Fetch-Site:",
                "Sec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site",
                "Origin: http://evil.example",
                "Origin: http://localhost:8000",
                "Origin: http://localhost",
                "origin:null",
                "Origin: localhost:9121",
                "Origin: ",
            ] {
                assert_eq!(status(&format!("{host}{field}\r\n")), "403", "{field}");
            }
            assert_eq!(status("Origin: http://localhost\r\n"), "403", "of no host");
        }
    }

    #[test]
    fn the_peer_is_known_to_be_near() {
        let request = "GET /status.json HTTP/1.1\r\n\r\n";
        for (peer, is_local) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("10.0.0.1", false),
            ("::ffff:10.0.0.1", false),
            ("fe80::1", false),
        ] {
            let (_, response) = answer_to(peer, request);
            let trust = if is_local { Trust::Local } else { Trust::Nothing };
            assert!(response.ends_with(&format!("\r\n\r\n{trust:?}")), "{peer}: {response}");
        }
        for (field, is_local) in [
            ("Host: localhost:9121", true),
            ("Host: [::1]", true),
            ("Host: db.local", false),
            ("X-Forwarded-For: 10.0.0.1", false),
            ("forwarded: for=10.0.0.1", false),
        ] {
            let (_, response) =
                answer(&request.replace("\r\n\r\n", &format!("\r\n{field}\r\n\r\n")));
            let trust = if is_local { Trust::Local } else { Trust::Nothing };
            assert!(response.ends_with(&format!("\r\n\r\n{trust:?}")), "{field}: {response}");
        }
    }

    #[test]
    fn a_password_opens() {
        let ask = |path: &str, fields: &str| {
            answer_to("10.0.0.1", &format!("GET {path} HTTP/1.1\r\n{fields}\r\n")).1
        };
        // ada:a:b
        let right = "Authorization: Basic YWRhOmE6Yg==\r\n";
        assert!(ask("/status.json", right).ends_with("\r\n\r\nSignedIn"));
        let led = ask("/sign-in", &right.to_lowercase().replace("ywrhome6yg", "YWRhOmE6Yg"));
        assert!(led.starts_with("HTTP/1.1 303 ") && led.contains("\r\nLocation: ./\r\n"), "{led}");
        for wrong in [
            "",
            "Authorization: Basic YWRhOmE=\r\n",
            "Authorization: Basic YWRh\r\n",
            "Authorization: Basic YWRhOmE6Yg=\r\n",
            "Authorization: Basic YWRhOmE6Y?==\r\n",
            "Authorization: Basic ====\r\n",
            "Authorization: Basic\r\n",
            "Authorization: Bearer YWRhOmE6Yg==\r\n",
            "Authorization: \r\nAuthorization: Basic YWRhOmE6Yg==\r\n",
        ] {
            assert!(ask("/status.json", wrong).ends_with("\r\n\r\nNothing"), "{wrong}");
            let asked = ask("/sign-in", wrong);
            assert!(asked.starts_with("HTTP/1.1 401 "), "{wrong}: {asked}");
            assert!(asked.contains("\r\nWWW-Authenticate: Basic realm=\"Bobbin\""), "{asked}");
        }
        let foreign = format!("{right}Sec-Fetch-Site: cross-site\r\n");
        for path in ["/sign-in", "/status.json"] {
            assert!(ask(path, &foreign).starts_with("HTTP/1.1 403 "), "{path}");
        }
    }

    #[test]
    fn only_who_calls_the_server_by_its_name_is_answered() {
        let status = |fields: &str| status_of("/metrics", fields);
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
        // A browser never leaves this field out.
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
            ("GET /dashboard HTTP/1.1\r\n\r\n", "404 "),
            ("POST / HTTP/1.1\r\n\r\n", "405 "),
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
