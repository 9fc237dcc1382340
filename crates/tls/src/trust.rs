//! Judging a server's certificate.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{
        CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
};

/// Trusts certificates that the authorities signed: for any name or, if `checks_name` is set, only
/// for the name asked for.
pub fn trust_authorities(
    authorities: RootCertStore,
    provider: &Arc<CryptoProvider>,
    checks_name: bool,
) -> Result<Arc<dyn ServerCertVerifier>, String> {
    let chain =
        WebPkiServerVerifier::builder_with_provider(Arc::new(authorities), provider.clone())
            .build()
            .map_err(|error| format!("The authorities cannot be used: {error}"))?;
    Ok(if checks_name { chain } else { lenient(Some(chain), provider) })
}

/// Trusts every server.
pub fn trust_anybody(provider: &Arc<CryptoProvider>) -> Arc<dyn ServerCertVerifier> {
    lenient(None, provider)
}

/// Accepts a certificate for any name. The other side must have the certificate's key.
#[derive(Debug)]
struct Lenient {
    /// Checks that the authorities signed the certificate; `None`: anybody may have.
    chain: Option<Arc<WebPkiServerVerifier>>,
    algorithms: WebPkiSupportedAlgorithms,
}

fn lenient(
    chain: Option<Arc<WebPkiServerVerifier>>,
    provider: &Arc<CryptoProvider>,
) -> Arc<dyn ServerCertVerifier> {
    Arc::new(Lenient { chain, algorithms: provider.signature_verification_algorithms })
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        match chain.verify_server_cert(certificate, intermediates, server_name, ocsp_response, now)
        {
            // The name is looked at last, so all else was right.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
