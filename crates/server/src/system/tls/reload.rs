//! `tls-auto-reload-interval`: a thread that looks whether files of certificates have changed, and
//! takes them up.
//!
//! It exists from the first time that somebody asks for it. Files that cannot be used change
//! nothing: what there was stays, and they are tried again when they change again.

use std::time::Duration;

use bobbin_sync::{Condvar, Mutex};

use super::Tls;
use crate::config::Config;

/// Reloads certificates whose files have changed.
#[derive(Default)]
pub struct Reloader {
    /// Seconds between looks; 0: never. `None`: there is no thread.
    interval_s: Mutex<Option<u64>>,
    changed: Condvar,
}

impl Reloader {
    /// Looks so often from now on.
    pub fn follow(&self, tls: &'static Tls, config: &'static Config) -> Result<(), String> {
        let wanted_s = config.tls_auto_reload_interval().unsigned_abs();
        let mut interval_s = self.interval_s.lock();
        if interval_s.is_none() {
            if wanted_s == 0 {
                return Ok(());
            }
            std::thread::Builder::new()
                .name("bobbin-tls".into())
                .spawn(move || tls.reloader.run(tls, config))
                .map_err(|error| format!("Can't start the thread that reloads: {error}"))?;
        }
        *interval_s = Some(wanted_s);
        self.changed.notify_all();
        Ok(())
    }

    fn run(&self, tls: &Tls, config: &Config) {
        let mut interval_s = self.interval_s.lock();
        loop {
            let waited_s = interval_s.unwrap_or(0);
            let timeout = if waited_s == 0 { LONG } else { Duration::from_secs(waited_s) };
            let (guard, is_over) = self.changed.wait_timeout(interval_s, timeout);
            interval_s = guard;
            if is_over && *interval_s == Some(waited_s) && waited_s > 0 {
                drop(interval_s);
                look(tls, config);
                interval_s = self.interval_s.lock();
            }
        }
    }
}

fn look(tls: &Tls, config: &Config) {
    if config.tls_port() == 0 {
        return;
    }
    match tls.reload() {
        Ok(false) => {}
        Ok(true) => {
            let file = config.tls_cert_file();
            let file = String::from_utf8_lossy(&file);
            log::info!("The files of TLS have changed, and are used from now on ({file})");
        }
        Err(reason) => {
            log::warn!("The files of TLS have changed and cannot be used: {reason}");
        }
    }
}

/// Without an interval there is nothing to do.
const LONG: Duration = Duration::from_secs(3600);
