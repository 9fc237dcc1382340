//! `tls-auth-clients-user`: a certificate that names a user logs its client in.

use bobbin_tls::CertificateFacts;

use crate::client::Client;
use crate::config::TlsAuthClientsUser;
use crate::server::Server;

/// Logs the client in whose handshake ended with this certificate, if a user is to be found in it. Else it stays who
/// it is, as in Valkey.
pub fn identify(server: &Server, client: &mut Client, certificate: &[u8]) {
    let wanted = server.config.tls_auth_clients_user();
    if wanted == TlsAuthClientsUser::Off {
        return;
    }
    let facts = CertificateFacts::of(certificate).unwrap_or_default();
    let names = match wanted {
        TlsAuthClientsUser::Uri => facts.uris,
        _ => facts.common_name.into_iter().collect(),
    };
    if names.iter().any(|name| name == DEFAULT_USER) {
        client.authenticated = true;
        log::debug!("TLS: client {} is known by its certificate", client.info.id);
    } else {
        server.tls.count_unknown();
        log::debug!("TLS: the certificate of client {} names no user", client.info.id);
    }
}

const DEFAULT_USER: &str = "default";
