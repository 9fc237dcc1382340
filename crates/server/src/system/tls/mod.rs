//! TLS on the server's side: what the `tls-*` options say, made into something that new connections
//! begin with, and one connection's part of the protocol.
//!
//! A connection keeps what it began with. So certificates can be replaced while it lasts, and only
//! later connections see the new ones.

mod outgoing;
mod reload;
mod session;
mod settings;
mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bobbin_sync::{Mutex, RwLock};
use bobbin_tls::CertificateFacts;
use rustls::ServerConfig;
use rustls::server::UnbufferedServerConnection;

pub use self::outgoing::outgoing;
pub use self::reload::Reloader;
pub use self::session::{ServerTlsSession, TlsHandshake};
pub use self::settings::TlsSettings;

use crate::config::Config;

/// What all threads know of TLS.
#[derive(Default)]
pub struct Tls {
    /// `None`: there is no port for it.
    current: RwLock<Option<Arc<CurrentTls>>>,
    /// Only one thread at a time replaces the configuration: the one that runs CONFIG SET, or the
    /// one that looks at the files.
    following: Mutex<()>,
    /// Handshakes that failed, and those that took too long.
    failed_handshakes: AtomicU64,
    /// Of those that came to their end, how many went on from an earlier session.
    resumed: AtomicU64,
    finished: AtomicU64,
    pub reloader: Reloader,
    /// Why the files that are there now could not be used, if that is so.
    rejected: Mutex<Option<String>>,
}

/// What new connections begin with.
struct CurrentTls {
    settings: TlsSettings,
    config: Arc<ServerConfig>,
    facts: TlsCertificates,
}

/// Of which certificates INFO tells.
#[derive(Clone, Debug, Default)]
pub struct TlsCertificates {
    pub server: Option<CertificateFacts>,
    /// Of outgoing connections.
    pub client: Option<CertificateFacts>,
    /// The authority's that expires first.
    pub authority: Option<CertificateFacts>,
}

impl Tls {
    /// Takes up what the configuration says now. On an error all stays as it is; its text is for
    /// the log.
    pub fn follow(&self, config: &Config) -> Result<(), String> {
        // Otherwise a thread that read the configuration first might finish last.
        let _one_at_a_time = self.following.lock();
        self.adopt(TlsSettings::of(config))
    }

    /// Reads the files again if they have changed, and returns whether it uses other ones now. The
    /// settings are those of the last `follow`: CONFIG SET may yet take back what the configuration
    /// says now. Files that cannot be used are tried each time, since the reason may pass without a
    /// change of the files; the same reason is an error only once.
    pub fn reload(&self) -> Result<bool, String> {
        let _one_at_a_time = self.following.lock();
        let Some(current) = self.current() else { return Ok(false) };
        // From before the files are read: what changes meanwhile is read the next time.
        let stamps = current.settings.stamps();
        let mut rejected = self.rejected.lock();
        if stamps == current.settings.stamps {
            *rejected = None;
            return Ok(false);
        }
        let mut settings = current.settings.clone();
        settings.stamps = stamps;
        match self.adopt(settings) {
            Ok(()) => {
                *rejected = None;
                Ok(true)
            }
            Err(error) if rejected.as_ref() == Some(&error) => Ok(false),
            Err(error) => Err(rejected.insert(error).clone()),
        }
    }

    fn adopt(&self, settings: TlsSettings) -> Result<(), String> {
        let (made, facts) = settings.make()?;
        let current = CurrentTls { settings, config: Arc::new(made), facts };
        *self.current.write() = Some(Arc::new(current));
        Ok(())
    }

    /// One connection's part of the protocol, which has not begun yet.
    pub fn begin(&self) -> Result<UnbufferedServerConnection, String> {
        let current = self.current().ok_or("TLS is not configured")?;
        UnbufferedServerConnection::new(Arc::clone(&current.config))
            .map_err(|error| bobbin_tls::explain(&error))
    }

    pub fn facts(&self) -> TlsCertificates {
        self.current().map(|current| current.facts.clone()).unwrap_or_default()
    }

    /// Counts a handshake that came to its end.
    pub fn count_finished(&self, is_resumed: bool) {
        self.finished.fetch_add(1, Ordering::Relaxed);
        self.resumed.fetch_add(u64::from(is_resumed), Ordering::Relaxed);
    }

    /// Counts one that did not.
    pub fn count_failed(&self) {
        self.failed_handshakes.fetch_add(1, Ordering::Relaxed);
    }

    pub fn finished(&self) -> u64 {
        self.finished.load(Ordering::Relaxed)
    }

    pub fn resumed(&self) -> u64 {
        self.resumed.load(Ordering::Relaxed)
    }

    pub fn failed(&self) -> u64 {
        self.failed_handshakes.load(Ordering::Relaxed)
    }

    /// CONFIG RESETSTAT.
    pub fn reset_statistics(&self) {
        let counts = [&self.finished, &self.resumed, &self.failed_handshakes];
        for count in counts {
            count.store(0, Ordering::Relaxed);
        }
    }

    fn current(&self) -> Option<Arc<CurrentTls>> {
        self.current.read().clone()
    }
}
