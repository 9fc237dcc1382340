//! What the `tls-*` options say, and what connections of clients begin with.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bobbin_tls::{CertificateFacts, Unknown, choose_suites, explain, trust_clients};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

use super::TlsCertificates;
use super::store::SessionStore;
use crate::config::{Config, TlsAuthClients};

/// The settings of TLS, ready to use.
#[derive(Clone)]
pub struct TlsSettings {
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) password: Option<Arc<[u8]>>,
    /// What is shown to other servers.
    pub(super) client_certificate: Option<PathBuf>,
    pub(super) client_key: Option<PathBuf>,
    pub(super) client_password: Option<Arc<[u8]>>,
    pub(super) authorities: Option<PathBuf>,
    pub(super) authorities_folder: Option<PathBuf>,
    asks_clients: TlsAuthClients,
    pub(super) protocols: Option<String>,
    pub(super) ciphers: Option<String>,
    pub(super) ciphersuites: Option<String>,
    prefers_own_order: bool,
    /// How many sessions are remembered, and for how long.
    sessions: Option<(usize, Duration)>,
    /// When the files were written that were read.
    pub(super) stamps: Vec<Option<SystemTime>>,
}

impl TlsSettings {
    pub fn of(config: &Config) -> Self {
        let seconds = u64::try_from(config.tls_session_cache_timeout()).unwrap_or(0);
        let size = usize::try_from(config.tls_session_cache_size()).unwrap_or(0);
        let mut settings = Self {
            certificate: path(&config.tls_cert_file()),
            key: path(&config.tls_key_file()),
            password: password(config.tls_key_file_pass()),
            client_certificate: path(&config.tls_client_cert_file()),
            client_key: path(&config.tls_client_key_file()),
            client_password: password(config.tls_client_key_file_pass()),
            authorities: path(&config.tls_ca_cert_file()),
            authorities_folder: path(&config.tls_ca_cert_dir()),
            asks_clients: config.tls_auth_clients(),
            protocols: text(&config.tls_protocols()),
            ciphers: text(&config.tls_ciphers()),
            ciphersuites: text(&config.tls_ciphersuites()),
            prefers_own_order: config.tls_prefer_server_ciphers(),
            sessions: config.tls_session_caching().then_some((size, Duration::from_secs(seconds))),
            stamps: Vec::new(),
        };
        settings.stamps = settings.stamps();
        settings
    }

    /// What new connections begin with, and what there is to tell of it.
    pub fn make(&self) -> Result<(ServerConfig, TlsCertificates), String> {
        let certificate = self.certificate.as_deref().ok_or("No tls-cert-file configured!")?;
        let key = self.key.as_deref().ok_or("No tls-key-file configured!")?;
        let has_authorities = self.authorities.is_some() || self.authorities_folder.is_some();
        if self.asks_clients != TlsAuthClients::No && !has_authorities {
            return Err("tls-auth-clients needs tls-ca-cert-file or tls-ca-cert-dir".to_owned());
        }
        let mut provider = aws_lc_rs::default_provider();
        let (old, new) = (self.ciphers.as_deref(), self.ciphersuites.as_deref());
        choose_suites(&mut provider.cipher_suites, old, new, Unknown::Refuse)?;
        let versions = bobbin_tls::versions(self.protocols.as_deref())?;
        let provider = Arc::new(provider);
        let chain = bobbin_tls::certificates(certificate)?;
        let key = bobbin_tls::private_key(key, self.password.as_deref())?;
        let authorities = (self.authorities.as_deref(), self.authorities_folder.as_deref());
        let roots = bobbin_tls::authorities(authorities.0, authorities.1)?;
        let facts = TlsCertificates {
            server: chain.first().and_then(|certificate| CertificateFacts::of(certificate)),
            client: self.client_certificate.as_deref().map(first_of).transpose()?.flatten(),
            authority: authorities.0.map(soonest_of).transpose()?.flatten(),
        };
        let mut made = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions)
            .map_err(|error| format!("The ciphers do not go with the versions of TLS: {error}"))?
            .with_client_cert_verifier(self.verifier(roots, &provider)?)
            .with_single_cert(chain, key)
            .map_err(|error| {
                let file = certificate.display();
                format!("Failed to load certificate: {file}: {}", explain(&error))
            })?;
        made.ignore_client_order = self.prefers_own_order;
        match self.sessions {
            Some((size, lifetime)) => {
                made.session_storage = Arc::new(SessionStore::new(size, lifetime));
                // Each can be used once, and a client mostly has one connection to go on with.
                made.send_tls13_tickets = 1;
            }
            None => {
                made.session_storage = Arc::new(NoServerSessionStorage {});
                made.send_tls13_tickets = 0;
            }
        }
        Ok((made, facts))
    }

    fn verifier(
        &self,
        roots: RootCertStore,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, String> {
        if self.asks_clients == TlsAuthClients::No {
            return Ok(WebPkiClientVerifier::no_client_auth());
        }
        trust_clients(roots, provider, self.asks_clients != TlsAuthClients::Optional)
    }

    /// When the files were written that there are now.
    pub(super) fn stamps(&self) -> Vec<Option<SystemTime>> {
        let files = [
            &self.certificate,
            &self.key,
            &self.client_certificate,
            &self.client_key,
            &self.authorities,
            &self.authorities_folder,
        ];
        let stamp = |file: &PathBuf| std::fs::metadata(file).and_then(|file| file.modified()).ok();
        files.map(|file| file.as_ref().and_then(stamp)).to_vec()
    }
}

fn password(text: Arc<[u8]>) -> Option<Arc<[u8]>> {
    Some(text).filter(|password| !password.is_empty())
}

fn path(text: &[u8]) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(text)))
}

fn text(text: &[u8]) -> Option<String> {
    (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}

/// Of the first certificate of a file.
fn first_of(file: &Path) -> Result<Option<CertificateFacts>, String> {
    let certificates = bobbin_tls::certificates(file)?;
    Ok(certificates.first().and_then(|certificate| CertificateFacts::of(certificate)))
}

/// Of the certificate of a file that expires first.
fn soonest_of(file: &Path) -> Result<Option<CertificateFacts>, String> {
    let certificates = bobbin_tls::certificates(file)?;
    let facts = certificates.iter().filter_map(|certificate| CertificateFacts::of(certificate));
    Ok(facts.min_by_key(|facts| facts.expires_s))
}
