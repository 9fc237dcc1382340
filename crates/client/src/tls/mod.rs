//! TLS for connections to a server: what the tools' options say, made into something that connects.
//!
//! rustls does the work. It speaks versions 1.2 and 1.3 with ciphers that are thought safe today,
//! and reads certificates of version 3 only.

mod session;

use std::{fmt, net::IpAddr, path::PathBuf, sync::Arc};

use bobbin_tls::{Unknown, choose_suites, explain};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore,
    client::danger::ServerCertVerifier,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::ServerName,
};

pub use session::ClientTlsSession;

/// The certificate to show and the authorities to trust, as users give them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// A PEM file with the certificate to show, and those between it and an authority.
    pub certificate: Option<PathBuf>,
    /// A PEM file with its private key.
    pub key: Option<PathBuf>,
    /// A PEM file with the authorities to trust. Without a file and a folder, the authorities that
    /// the system trusts are used.
    pub authorities: Option<PathBuf>,
    /// A folder of such files.
    pub authorities_folder: Option<PathBuf>,
    /// The name to ask for, and that the certificate must have.
    pub server_name: Option<String>,
    /// Trust every server.
    pub insecure: bool,
    /// For version 1.2, by OpenSSL's names with colons between; the first is preferred.
    pub ciphers: Option<String>,
    /// For version 1.3, in the same form.
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
        choose_suites(
            &mut provider.cipher_suites,
            options.ciphers.as_deref(),
            options.ciphersuites.as_deref(),
            Unknown::PassOver,
        )?;
        let versions = bobbin_tls::versions(options.protocols.as_deref())?;
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
                let key = bobbin_tls::private_key(key.as_ref().unwrap_or(certificate), None)?;
                let shown = bobbin_tls::certificates(certificate)?;
                builder.with_client_auth_cert(shown, key).map_err(|error| {
                    format!("{} cannot be used: {}", certificate.display(), explain(&error))
                })?
            }
            (None, Some(_)) => return Err("A private key needs its certificate".to_owned()),
        };
        let server_name = options.server_name.as_deref().map(|name| {
            ServerName::try_from(name.to_owned()).map_err(|_| format!("'{name}' is no server name"))
        });
        Ok(Self { config: Arc::new(config), server_name: server_name.transpose()? })
    }

    /// TLS on a new connection to `host`. `address` stands in for a host that is no name, a
    /// socket's path say.
    pub fn session(&self, host: &str, address: Option<IpAddr>) -> Result<ClientTlsSession, String> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned())
                .ok()
                .or_else(|| address.map(ServerName::from))
                .unwrap_or_else(|| ServerName::from(IpAddr::from([127, 0, 0, 1]))),
        };
        let connection = ClientConnection::new(self.config.clone(), name)
            .map_err(|error| format!("TLS: {error}"))?;
        Ok(ClientTlsSession::new(connection))
    }
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConnector").field("server_name", &self.server_name).finish()
    }
}

/// How a server's certificate is judged.
///
/// A user who names authorities knows which servers they sign for, and the certificates of those
/// servers often contain no names. So no name is checked then; redis-cli never checks one. The
/// system's authorities sign for the whole world, so the name must match then, and also whenever
/// the user gives one.
fn verifier(
    options: &TlsOptions,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, String> {
    if options.insecure {
        return Ok(bobbin_tls::trust_anybody(provider));
    }
    let (authorities, are_own) = authorities(options)?;
    if authorities.is_empty() {
        return Err("There are no authorities to believe".to_owned());
    }
    bobbin_tls::trust_authorities(authorities, provider, !are_own || options.server_name.is_some())
}

/// The authorities to trust, and whether the options name them.
fn authorities(options: &TlsOptions) -> Result<(RootCertStore, bool), String> {
    let (file, folder) = (options.authorities.as_deref(), options.authorities_folder.as_deref());
    let mut store = bobbin_tls::authorities(file, folder)?;
    if file.is_some() || folder.is_some() {
        return Ok((store, true));
    }
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Ok((store, false))
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
        assert_eq!(error(&missing), "/nowhere: No such file or directory");
        let authority =
            TlsOptions { authorities: Some("/nowhere".into()), ..TlsOptions::default() };
        assert_eq!(error(&authority), "/nowhere: No such file or directory");
        let empty = TlsOptions { authorities: Some("/dev/null".into()), ..TlsOptions::default() };
        assert_eq!(error(&empty), "/dev/null: there is no certificate in it");
        let no_key = TlsOptions { certificate: Some("/dev/null".into()), ..options() };
        assert_eq!(error(&no_key), "/dev/null: there is no private key in it");
        let name = TlsOptions { server_name: Some("a b".into()), ..options() };
        assert_eq!(error(&name), "'a b' is no server name");
        let old = TlsOptions { protocols: Some("TLSv1.1".into()), ..options() };
        assert_eq!(error(&old), "'TLSv1.1' is neither TLSv1.2 nor TLSv1.3");
        let none = TlsOptions { protocols: Some(" ,".into()), ..options() };
        assert_eq!(error(&none), "No version of TLS is left");
    }
}
