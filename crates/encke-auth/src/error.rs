//! The reasons why a token is refused.

use encke::Refusal;

/// A token that is refused, or cannot be decided about. The text is for the operator; a client gets [`TokenError::reason`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case", prefix = "token_")]
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
    #[strum(serialize = "algorithm_refused")]
    Algorithm(String),
    /// It was signed by a key that is unknown.
    #[error("unknown key {0:?}")]
    #[strum(serialize = "key_unknown")]
    Key(String),
    /// Its signature is wrong.
    #[error("the signature does not fit any key for this token")]
    #[strum(serialize = "signature_wrong")]
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
    #[strum(serialize = "audience_refused")]
    Audience(String),
    /// It is of another issuer.
    #[error("the issuer (iss) is {0}, which is not allowed")]
    #[strum(serialize = "issuer_refused")]
    Issuer(String),
    /// A claim is missing, or has a wrong type.
    #[error("the claim {claim}: {wanted}")]
    #[strum(serialize = "claim_wrong")]
    Claim {
        /// Its name.
        claim: String,
        /// The values that would be right.
        wanted: String,
    },
    /// It is for another user than the session's.
    #[error("the token is of another user than the session")]
    #[strum(serialize = "of_another_user")]
    OtherUser,
    /// The set of keys cannot be had.
    #[error("the set of keys cannot be had")]
    KeysUnavailable,
}

impl TokenError {
    /// The reason in the client's error, such as `token_expired`.
    pub fn reason(&self) -> &'static str {
        self.into()
    }
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
