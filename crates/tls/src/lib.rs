//! What both ends of TLS read and understand alike: files with certificates and keys, lists of
//! ciphers and of versions as users write them, what a certificate says, and which certificates
//! either end trusts.
//!
//! rustls does the protocol; it speaks versions 1.2 and 1.3 with ciphers that are thought safe
//! today, and reads certificates of version 3 only.

mod certificate;
mod der;
mod encrypted_key;
mod files;
mod suites;
mod trust;

use rustls::{
    CertificateError, InvalidMessage, SupportedProtocolVersion,
    version::{TLS12, TLS13},
};

pub use certificate::CertificateFacts;
pub use files::{authorities, certificates, private_key};
pub use suites::{Unknown, choose_suites};
pub use trust::{trust_anybody, trust_authorities, trust_clients};

/// The versions that a list with commas or blanks between names; without a list, all there are.
pub fn versions(list: Option<&str>) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let Some(list) = list else { return Ok(vec![&TLS13, &TLS12]) };
    let mut versions = Vec::new();
    for name in list.split([',', ' ']).filter(|name| !name.is_empty()) {
        versions.push(match name.to_ascii_lowercase().as_str() {
            "tlsv1.2" => &TLS12,
            "tlsv1.3" => &TLS13,
            _ => return Err(format!("'{name}' is neither TLSv1.2 nor TLSv1.3")),
        });
    }
    if versions.is_empty() { Err("No version of TLS is left".to_owned()) } else { Ok(versions) }
}

/// An error of TLS in words; rustls shows what its parser of certificates says with its own types.
pub fn explain(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(reason)) => {
            format!("invalid certificate: {reason}")
        }
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "invalid peer certificate: no trusted authority signed it (UnknownIssuer)".to_owned()
        }
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "what came is no TLS: does the other side speak it? (InvalidContentType)".to_owned()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_named() {
        assert_eq!(versions(None).unwrap(), [&TLS13, &TLS12]);
        assert_eq!(versions(Some("tlsv1.2, TLSv1.3")).unwrap(), [&TLS12, &TLS13]);
        assert_eq!(
            versions(Some("TLSv1.3 TLSv1.1")).unwrap_err(),
            "'TLSv1.1' is neither TLSv1.2 nor TLSv1.3"
        );
        assert_eq!(versions(Some(" ,")).unwrap_err(), "No version of TLS is left");
    }
}
