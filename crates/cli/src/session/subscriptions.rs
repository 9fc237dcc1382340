//! What a session is subscribed to, as the server counts it.

use bobbin_client::Value;
use bobbin_resp::Protocol;

/// Whether there are subscriptions. The server counts those to channels and patterns together, and
/// those to channels of slots on their own; it tells the count with each that begins or ends, also
/// when no command of ours has ended it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Subscriptions {
    to_channels: bool,
    to_channels_of_slots: bool,
}

impl Subscriptions {
    /// Takes note of a message for subscribers, if it is of one that begins or ends.
    pub fn note(&mut self, message: &Value, protocol: Protocol) {
        let Some(name) = message_name(message, protocol) else { return };
        let subscriptions = match name {
            b"subscribe" | b"psubscribe" | b"unsubscribe" | b"punsubscribe" => {
                &mut self.to_channels
            }
            b"ssubscribe" | b"sunsubscribe" => &mut self.to_channels_of_slots,
            _ => return,
        };
        if let Some([_, _, Value::Integer(count), ..]) = message.as_elements() {
            *subscriptions = *count > 0;
        }
    }

    pub fn are_there(self) -> bool {
        self.to_channels || self.to_channels_of_slots
    }
}

/// The name of a message for subscribers, `subscribe` or `pmessage` say.
pub fn message_name(value: &Value, protocol: Protocol) -> Option<&[u8]> {
    let elements = match protocol {
        Protocol::Resp3 if matches!(value, Value::Push(_)) => value.as_elements()?,
        Protocol::Resp2 if matches!(value, Value::Array(_)) => value.as_elements()?,
        _ => return None,
    };
    let name = elements.first()?.as_bytes()?;
    let known = name.ends_with(b"message") || name.ends_with(b"subscribe");
    (elements.len() >= 3 && known).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_end_when_both_counts_are_zero() {
        let mut subscriptions = Subscriptions::default();
        let mut after = |name: &str, count: i64| {
            let elements =
                vec![Value::Bulk(name.into()), Value::Bulk(b"a".to_vec()), Value::Integer(count)];
            subscriptions.note(&Value::Array(elements), Protocol::Resp2);
            subscriptions.are_there()
        };
        assert!(!after("unsubscribe", 0));
        assert!(after("subscribe", 1));
        assert!(after("psubscribe", 2));
        assert!(after("ssubscribe", 1));
        assert!(after("message", 0));
        assert!(after("unsubscribe", 1));
        assert!(after("punsubscribe", 0));
        assert!(!after("sunsubscribe", 0));
    }

    #[test]
    fn only_messages_count() {
        let mut subscriptions = Subscriptions::default();
        let elements =
            vec![Value::Bulk(b"subscribe".to_vec()), Value::Null, Value::Bulk(b"1".to_vec())];
        subscriptions.note(&Value::Array(elements.clone()), Protocol::Resp2);
        subscriptions.note(&Value::Array(elements[..2].to_vec()), Protocol::Resp2);
        let elements = [&elements[..2], &[Value::Integer(1)]].concat();
        subscriptions.note(&Value::Array(elements.clone()), Protocol::Resp3);
        assert!(!subscriptions.are_there());
        subscriptions.note(&Value::Push(elements), Protocol::Resp3);
        assert!(subscriptions.are_there());
    }
}
