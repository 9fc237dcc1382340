//! Redirections of a cluster: `MOVED 3999 127.0.0.1:6381`, `ASK 3999 127.0.0.1:6381`.

use bobbin_client::Value;

/// Where a node sends us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirection {
    pub slot: u32,
    /// `None` is the host we are connected to: a node may not know its own name.
    pub host: Option<String>,
    pub port: u16,
    /// Only this command, which needs ASKING before it.
    pub ask: bool,
}

impl Redirection {
    /// The redirection that an error reply is.
    pub fn parse(reply: &Value) -> Option<Self> {
        let text = std::str::from_utf8(reply.as_error()?).ok()?;
        let (kind, rest) = text.split_once(' ')?;
        let ask = match kind {
            "MOVED" => false,
            "ASK" => true,
            _ => return None,
        };
        let (slot, place) = rest.split_once(' ')?;
        // The prompt shows it.
        let (host, port) =
            place.rsplit_once(':').filter(|(host, _)| !host.contains(char::is_control))?;
        Some(Self {
            slot: slot.parse().ok()?,
            host: (!host.is_empty()).then(|| host.to_owned()),
            port: port.trim_end().parse().ok()?,
            ask,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds() {
        let parse = |text: &str| Redirection::parse(&Value::Error(text.into()));
        assert_eq!(
            parse("MOVED 3999 127.0.0.1:6381"),
            Some(Redirection {
                slot: 3999,
                host: Some("127.0.0.1".into()),
                port: 6381,
                ask: false
            })
        );
        assert_eq!(
            parse("ASK 1 :7000"),
            Some(Redirection { slot: 1, host: None, port: 7000, ask: true })
        );
        assert_eq!(parse("MOVED 1 ::1:7000").unwrap().host.as_deref(), Some("::1"));
        assert_eq!(parse("ERR no"), None);
        assert_eq!(parse("MOVED"), None);
        assert_eq!(parse("MOVED 1 a\x1b[2J:7000"), None);
    }
}
