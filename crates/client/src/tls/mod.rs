//! TLS for connections to a server: what the tools' options say, made into something that connects.
//!
//! rustls does the work. It speaks versions 1.2 and 1.3 with ciphers that are thought safe today, and
//! reads certificates of version 3 only.

mod session;
mod suites;
mod verify;

use std::{
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    CertificateError, ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion,
    client::danger::ServerCertVerifier,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    version::{TLS12, TLS13},
};

pub use session::TlsSession;

/// What to show and whom to believe, as users say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// A PEM file with the certificate to show, and those between it and an authority.
    pub certificate: Option<PathBuf>,
    /// A PEM file with its private key.
    pub key: Option<PathBuf>,
    /// A PEM file with the authorities to believe. Without one and without a folder they are those
    /// that the system believes.
    pub authorities: Option<PathBuf>,
    /// A folder of such files.
    pub authorities_folder: Option<PathBuf>,
    /// The name to ask for, and that the certificate must have.
    pub server_name: Option<String>,
    /// Believe everybody.
    pub insecure: bool,
    /// For version 1.2, by OpenSSL's names with colons between; the first is preferred.
    pub ciphers: Option<String>,
    /// The same for version 1.3.
    pub ciphersuites: Option<String>,
    /// The versions to speak, with commas or blanks between.
    pub protocols: Option<String>,
}

/// Begins TLS on connections. A clone costs nothing.
#[derive(Clone)]
pub struct TlsConnector {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
}

impl TlsConnector {
    /// Reads the files that the options name. The error is for people.
    pub fn new(options: &TlsOptions) -> Result<Self, String> {
        let mut provider = aws_lc_rs::default_provider();
        suites::choose(
            &mut provider.cipher_suites,
            options.ciphers.as_deref(),
            options.ciphersuites.as_deref(),
        )?;
        let versions = versions(options.protocols.as_deref())?;
        let provider = Arc::new(provider);
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .map_err(|error| format!("The ciphers do not go with the versions of TLS: {error}"))?
            .dangerous()
            .with_custom_certificate_verifier(verifier(options, &provider)?);
        let config = match (&options.certificate, &options.key) {
            (None, None) => builder.with_no_client_auth(),
            // A file may hold both.
            (Some(certificate), key) => {
                let key = read_key(key.as_ref().unwrap_or(certificate))?;
                builder.with_client_auth_cert(read_certificates(certificate)?, key).map_err(
                    |error| {
                        format!("{} cannot be used: {}", certificate.display(), explain(&error))
                    },
                )?
            }
            (None, Some(_)) => return Err("A private key needs its certificate".to_owned()),
        };
        let server_name = options.server_name.as_deref().map(|name| {
            ServerName::try_from(name.to_owned()).map_err(|_| format!("'{name}' is no server name"))
        });
        Ok(Self { config: Arc::new(config), server_name: server_name.transpose()? })
    }

    /// TLS on a new connection to `host`. `address` stands in for a host that is no name, a socket's
    /// path say.
    pub fn session(&self, host: &str, address: Option<IpAddr>) -> Result<TlsSession, String> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned())
                .ok()
                .or_else(|| address.map(ServerName::from))
                .unwrap_or_else(|| ServerName::from(IpAddr::from([127, 0, 0, 1]))),
        };
        let connection = ClientConnection::new(self.config.clone(), name)
            .map_err(|error| format!("TLS: {error}"))?;
        Ok(TlsSession::new(connection))
    }
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConnector").field("server_name", &self.server_name).finish()
    }
}

/// How a server's certificate is judged.
///
/// Who names the authorities knows whom they sign for, and their servers' certificates often have no
/// names in them; redis-cli looks at no name, ever. The system's authorities sign for the whole
/// world: then the name must be right, and so it must where somebody gave one.
fn verifier(
    options: &TlsOptions,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, String> {
    if options.insecure {
        return Ok(verify::anybody(provider));
    }
    let (authorities, are_own) = authorities(options)?;
    if authorities.is_empty() {
        return Err("There are no authorities to believe".to_owned());
    }
    verify::authorities(authorities, provider, !are_own || options.server_name.is_some())
}

/// Whom to believe, and whether the options say so.
fn authorities(options: &TlsOptions) -> Result<(RootCertStore, bool), String> {
    let mut store = RootCertStore::empty();
    if let Some(file) = &options.authorities {
        for certificate in read_certificates(file)? {
            let added = store.add(certificate);
            added.map_err(|error| format!("{}: {error}", file.display()))?;
        }
    }
    if let Some(folder) = &options.authorities_folder {
        let found = rustls_native_certs::load_certs_from_paths(None, Some(folder));
        if found.certs.is_empty() {
            return Err(format!("There are no certificates in {}", folder.display()));
        }
        store.add_parsable_certificates(found.certs);
    }
    if options.authorities.is_some() || options.authorities_folder.is_some() {
        return Ok((store, true));
    }
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Ok((store, false))
}

/// An error of TLS in words; rustls shows what its parser of certificates says with its own types.
fn explain(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(reason)) => {
            format!("invalid certificate: {reason}")
        }
        other => other.to_string(),
    }
}

fn versions(list: Option<&str>) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let Some(list) = list else { return Ok(vec![&TLS13, &TLS12]) };
    let mut versions = Vec::new();
    for name in list.split([',', ' ']).filter(|name| !name.is_empty()) {
        versions.push(match name {
            "TLSv1.2" => &TLS12,
            "TLSv1.3" => &TLS13,
            other => return Err(format!("'{other}' is neither TLSv1.2 nor TLSv1.3")),
        });
    }
    if versions.is_empty() { Err("No version of TLS is left".to_owned()) } else { Ok(versions) }
}

fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let fault = |error: &dyn fmt::Display| format!("{}: {error}", file.display());
    let certificates: Vec<_> = CertificateDer::pem_file_iter(file)
        .map_err(|error| fault(&error))?
        .collect::<Result<_, _>>()
        .map_err(|error| fault(&error))?;
    if certificates.is_empty() {
        return Err(fault(&"there is no certificate in it"));
    }
    Ok(certificates)
}

fn read_key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(options: &TlsOptions) -> String {
        TlsConnector::new(options).map(|_| ()).unwrap_err()
    }

    #[test]
    fn faults_of_options_are_said() {
        let options = || TlsOptions { insecure: true, ..TlsOptions::default() };
        assert!(TlsConnector::new(&options()).is_ok());
        let key = TlsOptions { key: Some("/key".into()), ..options() };
        assert_eq!(error(&key), "A private key needs its certificate");
        let missing = TlsOptions { certificate: Some("/nowhere".into()), ..options() };
        assert!(error(&missing).starts_with("/nowhere: "));
        let empty = TlsOptions { authorities: Some("/dev/null".into()), ..TlsOptions::default() };
        assert_eq!(error(&empty), "/dev/null: there is no certificate in it");
        let name = TlsOptions { server_name: Some("a b".into()), ..options() };
        assert_eq!(error(&name), "'a b' is no server name");
        let old = TlsOptions { protocols: Some("TLSv1.1".into()), ..options() };
        assert_eq!(error(&old), "'TLSv1.1' is neither TLSv1.2 nor TLSv1.3");
        let none = TlsOptions { protocols: Some(" ,".into()), ..options() };
        assert_eq!(error(&none), "No version of TLS is left");
    }
}
