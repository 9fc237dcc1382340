//! Where a server is and who one is there, as a URL says it:
//! `redis://user:password@host:port/database`, `unix:///path?db=1`.
//!
//! The schemes `redis`, `rediss`, `valkey` and `valkeys` are those of redis-cli and valkey-cli;
//! those that end in an additional `s` ask for TLS.

use std::{error, fmt, path::PathBuf};

/// A server, and what to say to it first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub address: ServerAddress,
    pub user: Option<Vec<u8>>,
    pub password: Option<Vec<u8>>,
    pub database: Option<u32>,
    pub tls: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl Target {
    /// Reads a URL. What it leaves out is the default: 127.0.0.1, 6379, no password.
    pub fn parse_url(url: &str) -> Result<Self, UrlError> {
        let mut target = Self::default();
        target.take_url(url)?;
        Ok(target)
    }

    /// Takes over what a URL says. What it leaves out stays as it is, as options before it may have
    /// said that.
    pub fn take_url(&mut self, url: &str) -> Result<(), UrlError> {
        let (scheme, rest) = url.split_once("://").ok_or(UrlError::Scheme)?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            "unix" | "redis+unix" | "redis-socket" => return self.take_unix(rest),
            _ => return Err(UrlError::Scheme),
        };
        let (rest, _query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, place) = match authority.rsplit_once('@') {
            Some((credentials, place)) => (Some(credentials), place),
            None => (None, authority),
        };
        let (user, password) = credentials.map_or(Ok((None, None)), parse_credentials)?;
        let (host, port) = split_port(place)?;
        let (host, database) = (text(host)?, parse_database(path)?);
        if !host.is_empty() || port.is_some() {
            let (old_host, old_port) = match &self.address {
                ServerAddress::Tcp { host, port } => (host.clone(), *port),
                ServerAddress::Unix(_) => (HOST.to_owned(), PORT),
            };
            self.address = ServerAddress::Tcp {
                host: if host.is_empty() { old_host } else { host },
                port: port.unwrap_or(old_port),
            };
        }
        self.take(user, password, database);
        self.tls |= tls;
        Ok(())
    }

    fn take_unix(&mut self, rest: &str) -> Result<(), UrlError> {
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (credentials, path) = match path.split_once('@') {
            Some((credentials, path)) if !credentials.contains('/') => (Some(credentials), path),
            _ => (None, path),
        };
        let (user, password) = credentials.map_or(Ok((None, None)), parse_credentials)?;
        let database = query.split('&').find_map(|pair| pair.strip_prefix("db=")).unwrap_or("");
        let (path, database) = (text(path)?, parse_database(database)?);
        self.address = ServerAddress::Unix(path.into());
        self.take(user, password, database);
        Ok(())
    }

    fn take(&mut self, user: Option<Vec<u8>>, password: Option<Vec<u8>>, database: Option<u32>) {
        self.user = user.or_else(|| self.user.take());
        self.password = password.or_else(|| self.password.take());
        self.database = database.or(self.database);
    }
}

impl Default for Target {
    fn default() -> Self {
        Self {
            address: ServerAddress::Tcp { host: HOST.to_owned(), port: PORT },
            user: None,
            password: None,
            database: None,
            tls: false,
        }
    }
}

impl fmt::Display for ServerAddress {
    /// `host:port`, `[host]:port` for an IPv6 address, or the socket's path.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Why a URL cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlError {
    Scheme,
    Port,
    Database,
    /// A `%` that two hexadecimal digits do not follow, or bytes that are no text where a host is.
    Escape,
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => {
                "Invalid URI scheme: use redis://, rediss://, valkey://, valkeys:// or unix://"
            }
            Self::Port => "Invalid port in the URI",
            Self::Database => "Invalid database number in the URI",
            Self::Escape => "Incorrect URL encoding",
        })
    }
}

impl error::Error for UrlError {}

type Credentials = (Option<Vec<u8>>, Option<Vec<u8>>);

/// `user:password`, or only a password.
fn parse_credentials(credentials: &str) -> Result<Credentials, UrlError> {
    match credentials.split_once(':') {
        Some(("", password)) => Ok((None, Some(decode(password)?))),
        Some((user, password)) => Ok((Some(decode(user)?), Some(decode(password)?))),
        None if credentials.is_empty() => Ok((None, None)),
        None => Ok((None, Some(decode(credentials)?))),
    }
}

/// The host, without the brackets of an IPv6 address, and the port behind it.
fn split_port(place: &str) -> Result<(&str, Option<u16>), UrlError> {
    if let Some(rest) = place.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or(UrlError::Escape)?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port.parse().map_err(|_| UrlError::Port)?))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(UrlError::Port),
        };
    }
    match place.rsplit_once(':') {
        Some((host, "")) => Ok((host, None)),
        Some((host, port)) => Ok((host, Some(port.parse().map_err(|_| UrlError::Port)?))),
        None => Ok((place, None)),
    }
}

fn parse_database(text: &str) -> Result<Option<u32>, UrlError> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| UrlError::Database)
}

fn text(encoded: &str) -> Result<String, UrlError> {
    String::from_utf8(decode(encoded)?).map_err(|_| UrlError::Escape)
}

/// Percent-decoding, RFC 3986, section 2.1.
fn decode(encoded: &str) -> Result<Vec<u8>, UrlError> {
    let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
    let mut decoded = Vec::with_capacity(encoded.len());
    let mut bytes = encoded.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let (Some(high), Some(low)) = (digit(bytes.next()), digit(bytes.next())) else {
            return Err(UrlError::Escape);
        };
        decoded.push((high << 4 | low) as u8);
    }
    Ok(decoded)
}

const HOST: &str = "127.0.0.1";
const PORT: u16 = 6379;

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> ServerAddress {
        ServerAddress::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn what_is_left_out_is_the_default() {
        for url in ["redis://", "valkey:///", "redis://127.0.0.1", "redis://:6379"] {
            assert_eq!(Target::parse_url(url), Ok(Target::default()), "{url}");
        }
        assert_eq!(
            Target::parse_url("rediss://u:p%40:@example.com:7000/3"),
            Ok(Target {
                address: tcp("example.com", 7000),
                user: Some(b"u".to_vec()),
                password: Some(b"p@:".to_vec()),
                database: Some(3),
                tls: true,
            })
        );
        let only_password = Target::parse_url("redis://secret@localhost").unwrap();
        assert_eq!(only_password.user, None);
        assert_eq!(only_password.password, Some(b"secret".to_vec()));
        assert_eq!(Target::parse_url("redis://[::1]:7/").unwrap().address, tcp("::1", 7));
        assert_eq!(tcp("::1", 7).to_string(), "[::1]:7");
        let unix = Target::parse_url("unix://:pw@/run/server.sock?db=2").unwrap();
        assert_eq!(unix.address, ServerAddress::Unix("/run/server.sock".into()));
        assert_eq!((unix.password, unix.database), (Some(b"pw".to_vec()), Some(2)));
    }

    #[test]
    fn what_is_left_out_stays() {
        let before = Target {
            address: tcp("a", 1),
            user: Some(b"u".to_vec()),
            password: Some(b"p".to_vec()),
            database: Some(3),
            tls: true,
        };
        let with = |url: &str| {
            let mut target = before.clone();
            target.take_url(url).map(|()| target)
        };
        for url in ["redis://", "redis:///", "redis://:1", "redis://a", "redis://p@a/3"] {
            assert_eq!(with(url).as_ref(), Ok(&before), "{url}");
        }
        let other = with("redis://v:q@b/0").unwrap();
        assert_eq!((other.address, other.database), (tcp("b", 1), Some(0)));
        assert_eq!((other.user, other.password), (Some(b"v".to_vec()), Some(b"q".to_vec())));
        let unix = with("unix:///run/socket").unwrap();
        assert_eq!(
            (unix.address, unix.database),
            (ServerAddress::Unix("/run/socket".into()), Some(3))
        );
        let mut target = before.clone();
        assert_eq!(target.take_url("redis://b/x"), Err(UrlError::Database));
        assert_eq!(target, before);
    }

    #[test]
    fn what_is_no_url() {
        for (url, error) in [
            ("localhost:6379", UrlError::Scheme),
            ("http://localhost", UrlError::Scheme),
            ("redis://host:70000", UrlError::Port),
            ("redis://host/x", UrlError::Database),
            ("redis://%zz@host", UrlError::Escape),
            ("redis://[::1", UrlError::Escape),
        ] {
            assert_eq!(Target::parse_url(url), Err(error), "{url}");
        }
    }
}
