//! `tls-auth-clients-user`: logs a client in as the user that its certificate names.

use bobbin_tls::CertificateFacts;

use crate::config::TlsAuthClientsUser;
use crate::engine::acl::check::Reason;
use crate::engine::acl::log::{AclEvent, Scene};
use crate::engine::client::Client;
use crate::engine::server::Server;

/// Authenticates a TLS client by its certificate, as the first enabled user that the certificate
/// names. If there is none, the client keeps its user and ACL LOG gets an entry, as in Valkey.
pub fn identify(server: &Server, client: &mut Client, certificate: &[u8], now_ms: i64) {
    let wanted = server.config.tls_auth_clients_user();
    if wanted == TlsAuthClientsUser::Off {
        return;
    }
    let facts = CertificateFacts::of(certificate).unwrap_or_default();
    let names = match wanted {
        TlsAuthClientsUser::Uri => facts.uris,
        _ => facts.common_name.into_iter().collect(),
    };
    let mut users = names.iter().filter_map(|name| server.acl.find(name.as_bytes()));
    if let Some(user) = users.find(|user| user.is_enabled()) {
        log::debug!("TLS: client {} is known by its certificate", client.info.id);
        client.log_in(&server.acl, user);
        return;
    }
    log::debug!("TLS: the certificate of client {} names no user", client.info.id);
    let user = names.first().map_or(&b""[..], |name| name.as_bytes());
    let event = AclEvent::new(Reason::Certificate, Scene::Toplevel, b"", user);
    server.note_denied(&client.info, event, now_ms);
}
