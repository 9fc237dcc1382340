//! TLS for tests: certificates of an authority of our own, and servers that show them.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};

use super::{TestServer, free_port, fresh_folder};

/// PEM files in a folder that goes away: `ca.crt`, and certificate and key of a server at
/// `localhost`, of one called `elsewhere.test`, and of clients named `client` and `default`.
#[derive(Debug)]
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    pub fn create() -> Self {
        let folder = fresh_folder().expect("the temporary folder can be written");
        let certificates = Self { folder };
        certificates.fill().expect("certificates can be made of these parameters");
        certificates
    }

    /// The path of `ca.crt`, `server.crt`, `server.key`, `elsewhere.crt`, `elsewhere.key`,
    /// `client.crt`, `client.key`, `default.crt` or `default.key`.
    pub fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn fill(&self) -> Result<(), rcgen::Error> {
        let mut authority = CertificateParams::default();
        authority.distinguished_name.push(DnType::CommonName, "Bobbin's tests");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        self.write("ca.crt", &authority.self_signed(&key)?.pem());
        let issuer = Issuer::new(authority, key);
        for (name, names, purpose) in [
            ("server", &["localhost", "127.0.0.1"][..], ExtendedKeyUsagePurpose::ServerAuth),
            ("elsewhere", &["elsewhere.test"], ExtendedKeyUsagePurpose::ServerAuth),
            ("client", &[], ExtendedKeyUsagePurpose::ClientAuth),
            ("default", &[], ExtendedKeyUsagePurpose::ClientAuth),
        ] {
            let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
            let mut parameters = CertificateParams::new(names)?;
            parameters.distinguished_name.push(DnType::CommonName, name);
            parameters.extended_key_usages.push(purpose);
            let key = KeyPair::generate()?;
            self.write(&format!("{name}.crt"), &parameters.signed_by(&key, &issuer)?.pem());
            self.write(&format!("{name}.key"), &key.serialize_pem());
        }
        Ok(())
    }

    fn write(&self, name: &str, pem: &str) {
        std::fs::write(self.folder.join(name), pem).expect("the folder can be written");
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A server that listens with TLS on a second port.
#[derive(Debug)]
pub struct TlsServer {
    pub server: TestServer,
    pub port: u16,
    pub certificates: Certificates,
}

impl TlsServer {
    /// Starts one with `start`, [`TestServer::valkey`] say; it shows the certificate called `name`.
    pub fn start(start: fn(&[&str]) -> TestServer, name: &str, arguments: &[&str]) -> Self {
        let certificates = Certificates::create();
        let port = free_port().expect("there is a free port");
        let number = port.to_string();
        let [authority, certificate, key] =
            ["ca.crt", &format!("{name}.crt"), &format!("{name}.key")]
                .map(|file| certificates.path(file));
        let tls = [
            "--tls-port",
            &number,
            "--tls-ca-cert-file",
            &authority,
            "--tls-cert-file",
            &certificate,
            "--tls-key-file",
            &key,
        ];
        Self { server: start(&[&tls, arguments].concat()), port, certificates }
    }
}
