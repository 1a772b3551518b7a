//! The reasons why a token is refused.

use encke::Refusal;

/// A token that is refused, or cannot be decided about. The text is for the operator; a client gets [`TokenError::reason`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The handshake has no token, and sessions of nobody are not configured.
    #[error("no token")]
    Missing,
    /// The token is too long.
    #[error("the token has {bytes} bytes, more than {token_bytes_max} (token_bytes_max)")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        token_bytes_max: usize,
    },
    /// It is no signed token.
    #[error("not a signed token: {0}")]
    Malformed(&'static str),
    /// It is not signed at all: its algorithm is `none`.
    #[error("the token is not signed (algorithm none)")]
    Unsigned,
    /// There is no key for its algorithm, or the settings do not allow it.
    #[error("no key for the algorithm {0}, or it is not allowed")]
    Algorithm(String),
    /// It was signed by a key that is unknown.
    #[error("unknown key {0:?}")]
    Key(String),
    /// Its signature is wrong.
    #[error("the signature does not fit any key for this token")]
    Signature,
    /// It has ended.
    #[error("expired {seconds_ago} s ago")]
    Expired {
        /// The time since its end, in seconds.
        seconds_ago: u64,
    },
    /// It is not valid yet.
    #[error("not valid before {seconds_left} s from now (nbf)")]
    NotYetValid {
        /// The time until it is, in seconds.
        seconds_left: u64,
    },
    /// It is for another server.
    #[error("the audience (aud) is {0}, which is not this server's")]
    Audience(String),
    /// It is of another issuer.
    #[error("the issuer (iss) is {0}, which is not allowed")]
    Issuer(String),
    /// A claim is missing, or has a wrong type.
    #[error("the claim {claim}: {wanted}")]
    Claim {
        /// Its name.
        claim: String,
        /// The values that would be right.
        wanted: String,
    },
    /// It is for another user than the session's.
    #[error("the token is of another user than the session")]
    OtherUser,
    /// The set of keys cannot be had.
    #[error("the set of keys cannot be had")]
    KeysUnavailable,
}

impl TokenError {
    /// The reason in the client's error, such as `token_expired`.
    pub fn reason(&self) -> &'static str {
        match self {
            TokenError::Missing => "token_missing",
            TokenError::TooLong { .. } => "token_too_long",
            TokenError::Malformed(_) => "token_malformed",
            TokenError::Unsigned => "token_unsigned",
            TokenError::Algorithm(_) => "token_algorithm_refused",
            TokenError::Key(_) => "token_key_unknown",
            TokenError::Signature => "token_signature_wrong",
            TokenError::Expired { .. } => "token_expired",
            TokenError::NotYetValid { .. } => "token_not_yet_valid",
            TokenError::Audience(_) => "token_audience_refused",
            TokenError::Issuer(_) => "token_issuer_refused",
            TokenError::Claim { .. } => "token_claim_wrong",
            TokenError::OtherUser => "token_of_another_user",
            TokenError::KeysUnavailable => "token_keys_unavailable",
        }
    }

    /// All reasons, for the metrics.
    pub(crate) const REASONS: [&'static str; 14] = [
        "token_missing",
        "token_too_long",
        "token_malformed",
        "token_unsigned",
        "token_algorithm_refused",
        "token_key_unknown",
        "token_signature_wrong",
        "token_expired",
        "token_not_yet_valid",
        "token_audience_refused",
        "token_issuer_refused",
        "token_claim_wrong",
        "token_of_another_user",
        "token_keys_unavailable",
    ];
}

impl From<TokenError> for Refusal {
    fn from(error: TokenError) -> Refusal {
        match error {
            TokenError::KeysUnavailable => Refusal::new(503, error.reason()).retry_after_ms(KEYS_RETRY_MS),
            TokenError::OtherUser => Refusal::new(403, error.reason()),
            _ => Refusal::new(401, error.reason()),
        }
    }
}

/// The time after which a client may try again that came while there were no keys.
const KEYS_RETRY_MS: u64 = 5_000;
