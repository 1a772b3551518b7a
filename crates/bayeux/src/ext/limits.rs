//! The limits that the client of a session must respect. A handshake asks for them by `"ext":{"limits":true}`, and the reply has them.

use crate::json::RawJson;

/// The limits of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientLimits {
    /// The bytes of one text or request from the client, with all its messages.
    pub message_bytes: u64,
    /// The messages in one text or request.
    pub batch_messages: u64,
    /// The bytes of a channel's name.
    pub channel_bytes: u64,
    /// The subscriptions of the session.
    pub subscriptions: u64,
    /// The positions of one subscribe.
    pub positions: u64,
    /// The messages that the client may send in a second; `None` if there is no limit.
    pub messages_per_s: Option<u64>,
}

/// True if the `ext` of a handshake asks for the limits.
pub fn asks_limits(ext: RawJson<'_>) -> bool {
    ext.member("limits").is_some_and(|limits| limits.as_str() == "true")
}

impl ClientLimits {
    /// Reads them in the `ext` of the reply to a handshake; `None` if one is missing.
    pub fn read(ext: RawJson<'_>) -> Option<ClientLimits> {
        let limits = ext.member("limits")?;
        let number = |name| limits.member(name)?.as_str().parse().ok();
        Some(ClientLimits {
            message_bytes: number("message_bytes")?,
            batch_messages: number("batch_messages")?,
            channel_bytes: number("channel_bytes")?,
            subscriptions: number("subscriptions")?,
            positions: number("positions")?,
            messages_per_s: number("messages_per_s"),
        })
    }

    /// The JSON object.
    pub fn to_json(&self) -> String {
        let ClientLimits { message_bytes, batch_messages, channel_bytes, subscriptions, positions, .. } = self;
        let per_s = self.messages_per_s.map_or_else(|| "null".into(), |messages| messages.to_string());
        format!(
            "{{\"message_bytes\":{message_bytes},\"batch_messages\":{batch_messages},\"channel_bytes\":{channel_bytes},\
             \"subscriptions\":{subscriptions},\"positions\":{positions},\"messages_per_s\":{per_s}}}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_read_back_and_are_asked_for_with_true() {
        for messages_per_s in [None, Some(50)] {
            let limits = ClientLimits {
                message_bytes: 1_048_576,
                batch_messages: 1_000,
                channel_bytes: 256,
                subscriptions: 7,
                positions: 9,
                messages_per_s,
            };
            let ext = format!("{{\"limits\":{}}}", limits.to_json());
            assert_eq!(ClientLimits::read(RawJson::parse(&ext).expect("JSON")), Some(limits));
        }
        for (ext, asks) in [(r#"{"limits":true}"#, true), (r#"{"limits":1}"#, false), ("{}", false), ("[]", false)] {
            assert_eq!(asks_limits(RawJson::trusted(ext)), asks, "{ext}");
            assert_eq!(ClientLimits::read(RawJson::trusted(ext)), None, "{ext}");
        }
    }
}
