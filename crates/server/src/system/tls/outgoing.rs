//! Connections that the server makes itself, with TLS: to its primary.

use std::sync::Arc;

use bobbin_tls::{Unknown, choose_suites, explain, trust_authorities};
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;

use super::settings::TlsSettings;
use crate::config::Config;

/// What connections to other servers begin with, as the options say now. The files are read anew.
pub fn outgoing(config: &Config) -> Result<Arc<ClientConfig>, String> {
    TlsSettings::of(config).make_outgoing().map(Arc::new)
}

impl TlsSettings {
    fn make_outgoing(&self) -> Result<ClientConfig, String> {
        let mut provider = aws_lc_rs::default_provider();
        let (old, new) = (self.ciphers.as_deref(), self.ciphersuites.as_deref());
        choose_suites(&mut provider.cipher_suites, old, new, Unknown::Refuse)?;
        let versions = bobbin_tls::versions(self.protocols.as_deref())?;
        let provider = Arc::new(provider);
        let (file, folder) = (self.authorities.as_deref(), self.authorities_folder.as_deref());
        if file.is_none() && folder.is_none() {
            return Err("tls-replication needs tls-ca-cert-file or tls-ca-cert-dir".to_owned());
        }
        let roots = bobbin_tls::authorities(file, folder)?;
        // An administrator who names authorities knows for which servers they sign; no name is
        // checked, as in Redis.
        let verifier = trust_authorities(roots, &provider, false)?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .map_err(|error| format!("The ciphers do not go with the versions of TLS: {error}"))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        // Without a certificate for this purpose the server shows the one that clients see.
        let own = (&self.client_certificate, &self.client_key, &self.client_password);
        let shown = (&self.certificate, &self.key, &self.password);
        let (certificate, key, password) = if own.0.is_some() { own } else { shown };
        let Some(certificate) = certificate else { return Ok(builder.with_no_client_auth()) };
        let key =
            bobbin_tls::private_key(key.as_deref().unwrap_or(certificate), password.as_deref())?;
        let chain = bobbin_tls::certificates(certificate)?;
        builder.with_client_auth_cert(chain, key).map_err(|error| {
            format!("Failed to load certificate: {}: {}", certificate.display(), explain(&error))
        })
    }
}
