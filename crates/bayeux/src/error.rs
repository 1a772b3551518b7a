//! The `error` field of replies: all texts that the server writes, and the reader that a client uses.

macro_rules! errors {
    ($($(#[doc = $doc:literal])* $Name:ident = $text:literal;)*) => {
        /// An error of the server: `code "::" text`, or `code ":" args ":" text` (Bayeux 1.0, "error").
        ///
        /// The texts are CometD's if it has one for the error, because clients compare them. CometD has none for limits.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
        #[error("{}", self.as_str())]
        #[non_exhaustive]
        pub enum BayeuxError {
            $($(#[doc = $doc])* $Name,)*
        }

        impl BayeuxError {
            /// The whole text of the `error` field. It needs no escapes in JSON.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(BayeuxError::$Name => $text,)*
                }
            }

            /// All of them.
            #[cfg(test)]
            const ALL: &'static [BayeuxError] = &[$(BayeuxError::$Name),*];
        }
    };
}

errors! {
    /// The text is not JSON.
    JsonInvalid = "400::json_invalid";
    /// The JSON is nested too deep.
    JsonTooDeep = "400::json_too_deep";
    /// The batch holds no message.
    BatchEmpty = "400::batch_empty";
    /// The batch, or one of its elements, is no object.
    MessageNotObject = "400::message_not_object";
    /// The message has no channel, or the channel of an unsubscribe does not exist.
    ChannelMissing = "400::channel_missing";
    /// The `ext` field is no object.
    ExtInvalid = "400::ext_invalid";
    /// A subscribe contains an invalid position.
    ReplayInvalid = "400::replay_invalid";
    /// A subscribe contains an interval that is no integer from 0 to 60,000.
    MinIntervalInvalid = "400::min_interval_invalid";
    /// A subscribe names a position and an interval: a subscription with an interval has no positions.
    MinIntervalWithPositions = "400::min_interval_with_positions";
    /// No session has this client id, or the sender may not use it. Clients recover by a new handshake.
    SessionUnknown = "402::session_unknown";
    /// The policy forbids a session for this client.
    HandshakeDenied = "403::handshake_denied";
    /// The new credentials of a session are refused.
    RefreshDenied = "403::refresh_denied";
    /// The policy forbids this subscription.
    SubscribeDenied = "403:denied_by_security_policy:subscribe_denied";
    /// The policy forbids a subscription that would create the channel.
    CreateDenied = "403:denied_by_security_policy:create_denied";
    /// The policy forbids a publication that would create the channel.
    ChannelCreateDenied = "403:denied_by_security_policy:channel_create_denied";
    /// The policy forbids this publication.
    PublishDenied = "403:denied_by_security_policy:publish_denied";
    /// A subscribe or unsubscribe names no channel.
    SubscriptionMissing = "403::subscription_missing";
    /// A subscribe or unsubscribe contains an invalid name.
    SubscriptionInvalid = "403::subscription_invalid";
    /// An extension or a listener removed the message.
    MessageDeleted = "404::message_deleted";
    /// The application has no service on this channel.
    ServiceUnknown = "404::service_unknown";
    /// The channel name is invalid.
    ChannelInvalid = "405::channel_invalid";
    /// The message id is not alphanumeric, or too long.
    MessageIdInvalid = "405::message_id_invalid";
    /// The batch holds more messages than allowed.
    BatchTooLong = "413::batch_too_long";
    /// The message has more bytes than allowed.
    MessageTooLarge = "413::message_too_large";
    /// The `ext` of a handshake, or the credentials of a refresh, have more bytes than allowed.
    CredentialsTooLarge = "413::credentials_too_large";
    /// The channel's name has more bytes than allowed.
    ChannelTooLong = "413::channel_too_long";
    /// The channel's name has more segments than allowed.
    ChannelTooDeep = "413::channel_too_deep";
    /// The message has more custom fields than allowed.
    CustomFieldsMax = "413::custom_fields_max";
    /// One subscribe names more channels than allowed.
    SubscriptionNamesMax = "413::subscription_names_max";
    /// A subscribe names positions of more channels, or replays more channels, than allowed.
    ReplayChannelsMax = "413::replay_channels_max";
    /// The replies to earlier messages of its batch are already as long as allowed.
    RepliesTooLong = "413::replies_too_long";
    /// The session already has as many subscriptions as allowed.
    SubscriptionsMax = "413::subscriptions_max";
    /// The server already has as many sessions as allowed.
    SessionsMax = "413::sessions_max";
    /// The server already has as many channels as allowed.
    ChannelsMax = "413::channels_max";
    /// The rule for the channel gives it a history, and as many channels of this rule have one as allowed.
    HistoryChannelsMax = "413::history_channels_max";
    /// Its session, user, address or channel, or the server as a whole, got more in a second than allowed.
    RateExceeded = "429::rate_exceeded";
    /// The server is about to stop and opens no sessions.
    ServerDraining = "503::server_draining";
    /// The application did not decide in time.
    DecisionTimeout = "503::decision_timeout";
    /// The application failed to decide.
    DecisionFailed = "503::decision_failed";
    /// As many messages wait for decisions of the application as allowed.
    DecisionsWaitingMax = "503::decisions_waiting_max";
    /// The application did not answer a call in time.
    CallTimeout = "503::call_timeout";
    /// The application failed to answer a call.
    CallFailed = "503::call_failed";
    /// As many calls wait for answers of the application as allowed.
    CallsWaitingMax = "503::calls_waiting_max";
}

impl BayeuxError {
    /// A message was delivered, but could not be stored in the history of its channel: it may be lost if the server ends.
    pub fn not_stored(channel: &str) -> String {
        format!("507:{channel}:history_not_stored")
    }

    /// A message was not published: in a cluster it would have waited for the other nodes that have the history of its channel, and as much
    /// waits already as may, or it is too large.
    pub fn not_replicated(channel: &str) -> String {
        format!("503:{channel}:history_not_replicated")
    }

    /// The whole text with a reason as its argument, such as `403:closed:handshake_denied`. Letters, digits, space, `_`, `-` and `.` stay;
    /// anything else becomes `_`, so that no reason can pass for another part of the text. Without a reason there is no argument.
    pub fn because(self, reason: &str) -> String {
        self.with_code(self.code(), reason)
    }

    /// The same with another code, such as `401:token_expired:handshake_denied`.
    pub fn with_code(self, code: u16, reason: &str) -> String {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || " _-.".contains(letter);
        let plain: String = reason.chars().map(|letter| if is_plain(letter) { letter } else { '_' }).collect();
        let (_, text) = self.as_str().rsplit_once(':').unwrap_or_default();
        format!("{code}:{plain}:{text}")
    }

    /// The number at its beginning.
    pub fn code(self) -> u16 {
        self.as_str().bytes().take_while(u8::is_ascii_digit).fold(0, |code, digit| code * 10 + u16::from(digit - b'0'))
    }
}

/// The parts of an `error` field, as a client reads them: `code ":" args ":" text`.
///
/// ```
/// use bayeux::error::ErrorField;
///
/// let error = ErrorField::parse("403:denied_by_security_policy:subscribe_denied");
/// assert_eq!((error.code, error.args, error.text), (Some(403), "denied_by_security_policy", "subscribe_denied"));
/// let error = ErrorField::parse("oh no");
/// assert_eq!((error.code, error.args, error.text), (None, "", "oh no"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorField<'a> {
    /// The number; `None` if the field does not have this form.
    pub code: Option<u16>,
    /// The arguments, separated by commas; often none.
    pub args: &'a str,
    /// The name of the error, or the whole field if it does not have this form.
    pub text: &'a str,
}

impl<'a> ErrorField<'a> {
    /// Splits the field.
    pub fn parse(field: &'a str) -> ErrorField<'a> {
        let parts = || {
            let (code, rest) = field.split_once(':')?;
            let (args, text) = rest.split_once(':')?;
            let is_code = code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_digit());
            Some(ErrorField { code: is_code.then(|| code.parse().ok())?, args, text })
        };
        parts().unwrap_or(ErrorField { code: None, args: "", text: field })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The strings that clients compare, as CometD 9 sends them.
    #[test]
    fn errors_read_as_clients_know_them() {
        for (error, text, code) in [
            (BayeuxError::SessionUnknown, "402::session_unknown", 402),
            (BayeuxError::HandshakeDenied, "403::handshake_denied", 403),
            (BayeuxError::SubscribeDenied, "403:denied_by_security_policy:subscribe_denied", 403),
            (BayeuxError::CreateDenied, "403:denied_by_security_policy:create_denied", 403),
            (BayeuxError::ChannelCreateDenied, "403:denied_by_security_policy:channel_create_denied", 403),
            (BayeuxError::ChannelMissing, "400::channel_missing", 400),
            (BayeuxError::MessageDeleted, "404::message_deleted", 404),
            (BayeuxError::MessageIdInvalid, "405::message_id_invalid", 405),
            (BayeuxError::ServerDraining, "503::server_draining", 503),
        ] {
            assert_eq!((error.to_string().as_str(), error.code()), (text, code));
        }
    }

    #[test]
    fn the_page_of_errors_has_all_of_them() {
        let page = include_str!("../../../docs/errors.md");
        for error in BayeuxError::ALL {
            let (code, (_, text)) = (error.code(), error.as_str().rsplit_once(':').expect("parts"));
            let is_there = page
                .lines()
                .any(|line| line.starts_with(&format!("| `{code}:")) && line.contains(&format!(":{text}`")));
            assert!(is_there, "{error}");
        }
    }

    #[test]
    fn a_reason_is_the_argument_and_nothing_more() {
        let because = |reason| BayeuxError::SubscribeDenied.because(reason);
        assert_eq!(because("not_yours"), "403:not_yours:subscribe_denied");
        assert_eq!(because("see 1.2-b"), "403:see 1.2-b:subscribe_denied");
        assert_eq!(because("x:handshake_denied"), "403:x_handshake_denied:subscribe_denied");
        assert_eq!(because("\"},{\n\u{e9}"), "403:______:subscribe_denied");
        assert_eq!(BayeuxError::HandshakeDenied.because(""), "403::handshake_denied");
    }
}
