//! Whether a session is subscribed to anything, as the server counts that.

use bobbin_client::Value;
use bobbin_resp::Protocol;

/// Whether there are subscriptions. The server counts those to channels and patterns together, and
/// those to channels of slots on their own; it tells the count with each that begins or ends, also
/// when no command of ours has ended it.
#[derive(Clone, Copy, Debug, Default)]
pub struct SubscribedMode {
    to_channels: bool,
    to_channels_of_slots: bool,
}

impl SubscribedMode {
    /// Takes note of a message, if it tells of a subscription that begins or ends.
    pub fn note(&mut self, message: &Value, protocol: Protocol) {
        let Some(name) = message_name(message, protocol) else { return };
        let are_there = match name {
            b"subscribe" | b"psubscribe" | b"unsubscribe" | b"punsubscribe" => {
                &mut self.to_channels
            }
            b"ssubscribe" | b"sunsubscribe" => &mut self.to_channels_of_slots,
            _ => return,
        };
        if let Some([_, _, Value::Integer(count), ..]) = message.as_elements() {
            *are_there = *count > 0;
        }
    }

    pub fn is_on(self) -> bool {
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
    fn it_ends_when_both_counts_are_zero() {
        let mut mode = SubscribedMode::default();
        let mut after = |name: &str, count: i64| {
            let elements =
                vec![Value::Bulk(name.into()), Value::Bulk(b"a".to_vec()), Value::Integer(count)];
            mode.note(&Value::Array(elements), Protocol::Resp2);
            mode.is_on()
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
        let mut mode = SubscribedMode::default();
        let elements =
            vec![Value::Bulk(b"subscribe".to_vec()), Value::Null, Value::Bulk(b"1".to_vec())];
        mode.note(&Value::Array(elements.clone()), Protocol::Resp2);
        mode.note(&Value::Array(elements[..2].to_vec()), Protocol::Resp2);
        let elements = [&elements[..2], &[Value::Integer(1)]].concat();
        mode.note(&Value::Array(elements.clone()), Protocol::Resp3);
        assert!(!mode.is_on());
        mode.note(&Value::Push(elements), Protocol::Resp3);
        assert!(mode.is_on());
    }
}
