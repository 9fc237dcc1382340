//! Error replies of a cluster's nodes that are no faults: the slot is elsewhere, or on its way
//! there.

/// Why a node of a cluster did not do what it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RedirectionKind {
    /// The slot has another node.
    Moved,
    /// The slot is on its way, or has no node for a moment.
    Asked,
}

impl RedirectionKind {
    /// What the text of an error reply says.
    pub(super) fn of(text: &[u8]) -> Option<Self> {
        match text.split(|&byte| byte == b' ').next()? {
            b"MOVED" => Some(Self::Moved),
            b"ASK" | b"TRYAGAIN" | b"CLUSTERDOWN" => Some(Self::Asked),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        assert_eq!(RedirectionKind::of(b"MOVED 1 127.0.0.1:7000"), Some(RedirectionKind::Moved));
        assert_eq!(RedirectionKind::of(b"ASK 1 127.0.0.1:7000"), Some(RedirectionKind::Asked));
        assert_eq!(RedirectionKind::of(b"ERR no"), None);
        assert_eq!(RedirectionKind::of(b""), None);
    }
}
