//! The section about TLS: the certificates, and the outcome of handshakes.

use bobbin_tls::CertificateFacts;

use super::InfoUnit::Number;
use super::{InfoValue, Lines, Section, SectionShown, counter, gauge, label};

pub(super) const TLS: Section = Section {
    name: "tls",
    title: "TLS",
    shown: SectionShown::All,
    lines: Lines::Fields(&[
        label("tls_server_cert_serial", |s| serial(s.server.tls.facts().server)),
        gauge(
            "tls_server_cert_expires_in_seconds",
            Number,
            "Seconds until the server's certificate expires.",
            |s| left_s(s.server.tls.facts().server),
        ),
        label("tls_client_cert_serial", |s| serial(s.server.tls.facts().client)),
        gauge(
            "tls_client_cert_expires_in_seconds",
            Number,
            "Seconds until the certificate for other servers expires.",
            |s| left_s(s.server.tls.facts().client),
        ),
        label("tls_ca_cert_serial", |s| serial(s.server.tls.facts().authority)),
        gauge(
            "tls_ca_cert_expires_in_seconds",
            Number,
            "Seconds until the authority's certificate expires.",
            |s| left_s(s.server.tls.facts().authority),
        ),
        counter("tls_handshakes", Number, "TLS handshakes that succeeded.", |s| {
            s.server.tls.finished().into()
        }),
        counter("tls_handshakes_resumed", Number, "TLS handshakes that resumed a session.", |s| {
            s.server.tls.resumed().into()
        }),
        counter("tls_handshakes_failed", Number, "TLS handshakes that failed.", |s| {
            s.server.tls.failed().into()
        }),
    ]),
};

fn serial(facts: Option<CertificateFacts>) -> InfoValue {
    facts.map_or_else(|| "none".into(), |facts| facts.serial.as_str().into())
}

/// Seconds until the certificate expires; 0 if it has expired or does not exist.
fn left_s(facts: Option<CertificateFacts>) -> InfoValue {
    let left_s = |facts: CertificateFacts| facts.expires_s - crate::base::clock::system_ms() / 1000;
    facts.map_or(0, left_s).max(0).into()
}
