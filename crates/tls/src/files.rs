//! Certificates, keys and authorities in PEM files.

use std::fmt::Display;
use std::path::Path;

use bobbin_text::error_text;
use rustls::{
    RootCertStore,
    pki_types::{
        CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer,
        pem::{self, PemObject},
    },
};

use crate::encrypted_key;

/// All certificates of a file, at least one.
pub fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let fault = |error: &dyn Display| format!("{}: {error}", file.display());
    let unread = |error: pem::Error| match error {
        pem::Error::Io(error) => fault(&error_text(&error)),
        other => fault(&other),
    };
    let certificates: Vec<_> = CertificateDer::pem_file_iter(file)
        .map_err(unread)?
        .collect::<Result<_, _>>()
        .map_err(unread)?;
    if certificates.is_empty() {
        return Err(fault(&"there is no certificate in it"));
    }
    Ok(certificates)
}

/// The first private key of a file; it may be encrypted with this password.
pub fn private_key(file: &Path, password: Option<&[u8]>) -> Result<PrivateKeyDer<'static>, String> {
    let fault = |error: &dyn Display| format!("{}: {error}", file.display());
    let text = std::fs::read(file).map_err(|error| fault(&error_text(&error)))?;
    let text = String::from_utf8_lossy(&text);
    if text.contains(OLD_ENCRYPTION) {
        let reason =
            "this old form of encrypted key is not supported, PKCS #8 is (openssl pkcs8 -topk8)";
        return Err(fault(&reason));
    }
    if !text.contains(ENCRYPTED) {
        return PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|error| match error {
            pem::Error::NoItemsFound => fault(&"there is no private key in it"),
            error => fault(&error),
        });
    }
    let Some(password) = password else {
        return Err(fault(&"the key is encrypted, and there is no password for it"));
    };
    // The parser of PEM does not know the name; what is in it is DER as well.
    let renamed = text.replace(ENCRYPTED, "PRIVATE KEY");
    let encrypted =
        PrivatePkcs8KeyDer::from_pem_slice(renamed.as_bytes()).map_err(|error| fault(&error))?;
    let key = encrypted_key::decrypt(encrypted.secret_pkcs8_der(), password);
    Ok(PrivatePkcs8KeyDer::from(key.map_err(|error| fault(&error))?).into())
}

/// The authorities of a file, and those of a folder whose files have the names that OpenSSL's
/// `rehash` gives. Empty when neither is named.
pub fn authorities(file: Option<&Path>, folder: Option<&Path>) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    if let Some(file) = file {
        for certificate in certificates(file)? {
            let added = store.add(certificate);
            added.map_err(|error| format!("{}: {error}", file.display()))?;
        }
    }
    if let Some(folder) = folder {
        let found = rustls_native_certs::load_certs_from_paths(None, Some(folder));
        if found.certs.is_empty() {
            return Err(format!("There are no certificates in {}", folder.display()));
        }
        store.add_parsable_certificates(found.certs);
    }
    Ok(store)
}

const ENCRYPTED: &str = "ENCRYPTED PRIVATE KEY";
/// In the head of keys as OpenSSL before version 1.0 wrote them (RFC 1421).
const OLD_ENCRYPTION: &str = "Proc-Type: 4,ENCRYPTED";
