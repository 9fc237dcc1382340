//! Judging the certificate of the other end.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
    client::{
        VerifierBuilderError, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{
        CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::{
        ParsedCertificate, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};

/// Trusts certificates that the authorities signed, and the authorities' own: for any name or, if
/// `checks_name` is set, only for the name asked for.
pub fn trust_authorities(
    authorities: RootCertStore,
    provider: &Arc<CryptoProvider>,
    checks_name: bool,
) -> Result<Arc<dyn ServerCertVerifier>, String> {
    let authorities = Arc::new(authorities);
    let chain = WebPkiServerVerifier::builder_with_provider(authorities.clone(), provider.clone())
        .build()
        .map_err(|error| unusable(&error))?;
    Ok(judge(Some(Trust { chain, authorities, checks_name }), provider))
}

/// Trusts clients with certificates that the authorities signed, or with the authorities' own.
/// `is_required`: a client must show one.
pub fn trust_clients(
    authorities: RootCertStore,
    provider: &Arc<CryptoProvider>,
    is_required: bool,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let authorities = Arc::new(authorities);
    let chain = WebPkiClientVerifier::builder_with_provider(authorities.clone(), provider.clone());
    let chain = if is_required { chain } else { chain.allow_unauthenticated() };
    let chain = chain.build().map_err(|error| unusable(&error))?;
    Ok(Arc::new(ClientTrust { chain, authorities }))
}

fn unusable(error: &VerifierBuilderError) -> String {
    format!("The authorities cannot be used: {error}")
}

/// Trusts every server.
pub fn trust_anybody(provider: &Arc<CryptoProvider>) -> Arc<dyn ServerCertVerifier> {
    judge(None, provider)
}

/// Judges a server. It must always have the key of the certificate that it shows.
#[derive(Debug)]
struct Judge {
    /// Whose certificates are accepted; `None`: anybody's.
    trust: Option<Trust>,
    algorithms: WebPkiSupportedAlgorithms,
}

fn judge(trust: Option<Trust>, provider: &Arc<CryptoProvider>) -> Arc<dyn ServerCertVerifier> {
    Arc::new(Judge { trust, algorithms: provider.signature_verification_algorithms })
}

/// Whose certificates are accepted, and for which names.
#[derive(Debug)]
struct Trust {
    chain: Arc<WebPkiServerVerifier>,
    authorities: Arc<RootCertStore>,
    checks_name: bool,
}

/// Accepts the certificate of one of the authorities, as one is that signed itself. OpenSSL makes
/// such certificates authorities unless told otherwise. That trusts nobody else: the key of such a
/// certificate could sign any other.
fn verify_authority(
    certificate: &CertificateDer<'_>,
    authorities: &RootCertStore,
) -> Result<(), Error> {
    let mut shown = RootCertStore::empty();
    shown.add(certificate.clone().into_owned())?;
    // The subject and the key are compared: only who has the key gets through the handshake.
    if !shown.roots.iter().all(|root| authorities.roots.contains(root)) {
        return Err(CertificateError::UnknownIssuer.into());
    }
    Ok(())
}

impl Trust {
    /// Accepts the certificate of an authority that is itself the server.
    fn verify_own(
        &self,
        certificate: &CertificateDer<'_>,
        server_name: &ServerName<'_>,
    ) -> Result<ServerCertVerified, Error> {
        verify_authority(certificate, &self.authorities)?;
        if self.checks_name {
            verify_server_name(&ParsedCertificate::try_from(certificate)?, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }
}

impl ServerCertVerifier for Judge {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(trust) = &self.trust else { return Ok(ServerCertVerified::assertion()) };
        let chain = &trust.chain;
        match chain.verify_server_cert(certificate, intermediates, server_name, ocsp_response, now)
        {
            // The name is looked at last, so all else was right.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !trust.checks_name => Ok(ServerCertVerified::assertion()),
            // The dates are looked at first.
            Err(error) if is_of_authority(&error) => trust.verify_own(certificate, server_name),
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

/// Judges clients.
#[derive(Debug)]
struct ClientTrust {
    chain: Arc<dyn ClientCertVerifier>,
    authorities: Arc<RootCertStore>,
}

impl ClientCertVerifier for ClientTrust {
    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match self.chain.verify_client_cert(certificate, intermediates, now) {
            // The dates are looked at first.
            Err(error) if is_of_authority(&error) => {
                verify_authority(certificate, &self.authorities)?;
                Ok(ClientCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn offer_client_auth(&self) -> bool {
        self.chain.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.chain.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

/// Whether a certificate was refused only because it is an authority's.
fn is_of_authority(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(reason)) = error else { return false };
    matches!(reason.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::{crypto::aws_lc_rs, pki_types::pem::PemObject};

    use super::*;

    fn certificate(text: &str) -> CertificateDer<'_> {
        CertificateDer::from_pem_slice(text.as_bytes()).unwrap()
    }

    /// The authorities of one that trusts `OWN`, and what it reckons with.
    fn trusted() -> (RootCertStore, Arc<CryptoProvider>) {
        let mut authorities = RootCertStore::empty();
        authorities.add(certificate(OWN)).unwrap();
        (authorities, Arc::new(aws_lc_rs::default_provider()))
    }

    fn time_in(year: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs((year - 1970) * 31_557_600))
    }

    /// What a client says of a server's certificate.
    fn judged(shown: &str, checks_name: bool, name: &str, year: u64) -> Result<(), Error> {
        let (authorities, provider) = trusted();
        let verifier = trust_authorities(authorities, &provider, checks_name).unwrap();
        let name = ServerName::try_from(name).unwrap();
        let shown = certificate(shown);
        verifier.verify_server_cert(&shown, &[], &name, &[], time_in(year)).map(|_| ())
    }

    #[test]
    fn a_certificate_that_signed_itself_is_trusted_where_it_is_named() {
        assert_eq!(judged(OWN, false, "anything.test", 2030), Ok(()));
        assert_eq!(judged(OWN, true, "own.test", 2030), Ok(()));
        assert!(judged(OWN, true, "anything.test", 2030).is_err());
        assert!(judged(OWN, false, "own.test", 2200).is_err());
        let stranger = judged(STRANGER, false, "own.test", 2030);
        assert_eq!(stranger, Err(CertificateError::UnknownIssuer.into()));
    }

    #[test]
    fn a_client_whose_certificate_signed_itself_is_trusted_where_it_is_named() {
        let (authorities, provider) = trusted();
        for is_required in [true, false] {
            let verifier = trust_clients(authorities.clone(), &provider, is_required).unwrap();
            assert_eq!(verifier.client_auth_mandatory(), is_required);
            let judged = |shown: &str, year: u64| {
                verifier.verify_client_cert(&certificate(shown), &[], time_in(year)).map(|_| ())
            };
            assert_eq!(judged(OWN, 2030), Ok(()));
            assert!(judged(OWN, 2200).is_err());
            assert_eq!(judged(STRANGER, 2030), Err(CertificateError::UnknownIssuer.into()));
        }
    }

    // Both are authorities by the name "own", as `openssl req -x509 -days 36500` makes them. The
    // first is for own.test.
    const OWN: &str = "\
-----BEGIN CERTIFICATE-----
MIIBhzCCAS6gAwIBAgIUWRmfQ7ABf7dt4nQ8eLwruwHt6n4wCgYIKoZIzj0EAwIw
DjEMMAoGA1UEAwwDb3duMCAXDTI2MTEyODEwMzE0NVoYDzIxMjYxMTA0MTAzMTQ1
WjAOMQwwCgYDVQQDDANvd24wWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAR1Wo13
TNkcufh9K/R/cNaHyy3sFA8xDrh12RxRkQd3AhFng7dv7zX/aa6ivUO9tFxTHBck
v/dnJ/KX7RMmnHvmo2gwZjAdBgNVHQ4EFgQUHm26Sz1i4uTkmR8MgLYUqq6sankw
HwYDVR0jBBgwFoAUHm26Sz1i4uTkmR8MgLYUqq6sankwDwYDVR0TAQH/BAUwAwEB
/zATBgNVHREEDDAKgghvd24udGVzdDAKBggqhkjOPQQDAgNHADBEAiAC2+hL5OgO
0cs0pUN44So8UzbI8ooGimHvUqPHHiBASwIgS0QxtsOVBNigqJTt4Rvp+YE3/c6M
hKUJe/8HNb98WfQ=
-----END CERTIFICATE-----
";
    const STRANGER: &str = "\
-----BEGIN CERTIFICATE-----
MIIBdDCCARmgAwIBAgIUUdd6FpU62WDYDBxIc6oJXfL7SukwCgYIKoZIzj0EAwIw
DjEMMAoGA1UEAwwDb3duMCAXDTI2MTEyODEwMzE0NVoYDzIxMjYxMTA0MTAzMTQ1
WjAOMQwwCgYDVQQDDANvd24wWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASe3xSX
yxcaVN562trX5IeEQ7ROEwWHku7QHWc4vKsiytQIp/dwlJsG+Ji1vLw4BGwymaHm
KehCqQiQf0Dm10iEo1MwUTAdBgNVHQ4EFgQUb4XygqAz+ztgtWGP2/jxjEFm/wQw
HwYDVR0jBBgwFoAUb4XygqAz+ztgtWGP2/jxjEFm/wQwDwYDVR0TAQH/BAUwAwEB
/zAKBggqhkjOPQQDAgNJADBGAiEA0MbriQtbzjHkGGbau8hYAMyGjIgof9dnjkVC
2cN53SYCIQCX1gUC+NHsTH7IA74YOL8SacP8SQZu/oPqlE8L4YOvRA==
-----END CERTIFICATE-----
";
}
