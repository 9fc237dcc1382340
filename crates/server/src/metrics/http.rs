//! One request and its response, as much of HTTP/1.x as a scraper needs. The connection ends with the response.

use std::io::{ErrorKind, Read, Write};

/// See the module.
#[derive(Default)]
pub(super) struct Exchange {
    request: Vec<u8>,
    response: Vec<u8>,
    sent: usize,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum State {
    #[default]
    Receiving,
    Sending,
    /// The connection is to be closed.
    Done,
}

/// Bytes of a request's head at most.
const REQUEST_MAX: usize = 8 * 1024;
/// Where the metrics are.
const PATH: &str = "/metrics";
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

impl Exchange {
    pub(super) const fn state(&self) -> State {
        self.state
    }

    /// Does what can be done without waiting.
    pub(super) fn go_on(
        &mut self,
        stream: &mut (impl Read + Write),
        metrics: &impl Fn() -> String,
    ) -> State {
        if self.state == State::Receiving {
            self.receive(stream, metrics);
        }
        if self.state == State::Sending {
            self.send(stream);
        }
        self.state
    }

    fn receive(&mut self, stream: &mut impl Read, metrics: &impl Fn() -> String) {
        let mut chunk = [0; 1024];
        while self.state == State::Receiving {
            match stream.read(&mut chunk) {
                Ok(0) => self.state = State::Done,
                Ok(count) => {
                    self.request.extend_from_slice(&chunk[..count]);
                    if has_end(&self.request) {
                        self.response = respond(&self.request, metrics);
                        self.state = State::Sending;
                    } else if self.request.len() > REQUEST_MAX {
                        self.response = response("431 Request Header Fields Too Large", "", None);
                        self.state = State::Sending;
                    }
                }
                Err(error) => {
                    if !is_temporary(&error) {
                        self.state = State::Done;
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
        self.state = State::Done;
    }
}

fn is_temporary(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Whether the head of the request is complete. There is no body: none is read.
fn has_end(request: &[u8]) -> bool {
    request.windows(4).any(|bytes| bytes == b"\r\n\r\n")
}

fn respond(request: &[u8], metrics: &impl Fn() -> String) -> Vec<u8> {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words[..] else {
        return response("400 Bad Request", "", None);
    };
    if !version.starts_with("HTTP/1.") {
        return response("505 HTTP Version Not Supported", "", None);
    }
    if target.split('?').next() != Some(PATH) {
        let text = format!("There is nothing here; metrics are at {PATH}.\n");
        return response("404 Not Found", "", Some(("text/plain; charset=utf-8", &text)));
    }
    match method {
        "GET" => response("200 OK", "", Some((METRICS_TYPE, &metrics()))),
        // Its length is that of the next answer at best, so that it is not told.
        "HEAD" => response("200 OK", &format!("Content-Type: {METRICS_TYPE}\r\n"), None),
        _ => response("405 Method Not Allowed", "Allow: GET, HEAD\r\n", None),
    }
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

    fn answer(request: &str) -> (State, String) {
        let mut stream = Stream { input: request.as_bytes(), output: Vec::new() };
        let state = Exchange::default().go_on(&mut stream, &|| "up 1\n".into());
        (state, String::from_utf8(stream.output).unwrap())
    }

    #[test]
    fn metrics_are_got() {
        let (state, response) = answer("GET /metrics?x=y HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(state, State::Done);
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8"));
        assert!(head.ends_with("\r\nContent-Length: 5"), "{head}");
        assert_eq!(body, "up 1\n");
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
            assert_eq!(state, State::Done, "{request}");
            assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {response}");
        }
        let (_, response) = answer(&format!("GET /metrics HTTP/1.1\r\nX: {}", "y".repeat(9000)));
        assert!(response.starts_with("HTTP/1.1 431 "), "{response}");
        assert_eq!(answer("GET /metrics HTTP/1.1\r\n"), (State::Receiving, String::new()));
    }
}
