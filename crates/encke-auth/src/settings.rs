//! The section `[auth]` of the configuration.

use std::fmt;
use std::path::PathBuf;

use encke::Secret;
use encke_fetch::SecretUrl;
use serde::Deserialize;

/// The section `[auth]`: the keys that sign tokens, the claims that a token must have, and where a handshake has its token.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthSettings {
    /// A secret of at least 32 bytes for HMAC. Better in a file or in the environment.
    pub secret: Option<Secret>,
    /// A file with such a secret. A line feed at its end does not count.
    pub secret_file: Option<PathBuf>,
    /// The name of the environment variable with such a secret.
    pub secret_env: Option<String>,
    /// Files with public keys in PEM form: RSA, EC (P-256, P-384) or Ed25519.
    pub public_key_files: Vec<PathBuf>,
    /// A file with a set of keys (JWKS). It is read again when it may have changed.
    pub jwks_file: Option<PathBuf>,
    /// The URL of a set of keys (JWKS), such as the `jwks_uri` of an OpenID provider.
    pub jwks_url: Option<SecretUrl>,
    /// A file of certificates (PEM) that are trusted for `jwks_url`, beside those of the system.
    pub jwks_ca_file: Option<PathBuf>,
    /// Shortest time between two requests for the set of keys, in seconds. Tokens with an unknown key cause no more.
    pub jwks_refresh_min_s: u64,
    /// The age at which a set of keys is requested again, in seconds.
    pub jwks_max_age_s: u64,
    /// Longest time that the last set of keys is used while a new one cannot be had, in seconds.
    pub jwks_stale_max_s: u64,
    /// Longest time of a request for the set of keys, in milliseconds. Handshakes that need it wait.
    pub jwks_timeout_ms: u64,
    /// Most bytes of a set of keys.
    pub jwks_bytes_max: usize,
    /// Most keys of a set.
    pub jwks_keys_max: usize,
    /// The algorithms that are allowed, such as `["EdDSA"]`. Empty: those for which there are keys.
    pub algorithms: Vec<String>,
    /// The names of this server. A token that names an audience must name one of them; if there are any, a token must name an audience.
    pub audience: Vec<String>,
    /// The issuers that are allowed. Empty: any.
    pub issuer: Vec<String>,
    /// The difference of clocks that is tolerated, in seconds.
    pub leeway_s: u64,
    /// True if a token must have an end (`exp`).
    pub expiry_required: bool,
    /// Most bytes of a token.
    pub token_bytes_max: usize,
    /// Members of a handshake's `ext` that may have the token, as paths.
    pub token_ext: Vec<String>,
    /// True if a token may come as `Authorization: Bearer`.
    pub token_bearer: bool,
    /// The name of a cookie that may have the token. Empty: none.
    pub token_cookie: String,
    /// The name of a parameter of the query that may have the token. URLs are often logged. Empty: none.
    pub token_query: String,
    /// The claim with the user.
    pub user_claim: String,
    /// The claim with the channels and patterns that a session may subscribe to: a list, or one text.
    pub subscribe_claim: String,
    /// The claim with the channels and patterns that a session may publish to: a list, or one text.
    pub publish_claim: String,
    /// The claim with the limits of a session: an object.
    pub limits_claim: String,
    /// True if a token without a claim for channels allows none. Otherwise it sets no limit.
    pub channel_claims_required: bool,
    /// True if a handshake without a token opens a session of nobody.
    pub anonymous: bool,
    /// The channels and patterns that such a session may subscribe to. Without it: all.
    pub anonymous_subscribe: Option<Vec<String>>,
    /// The channels and patterns that such a session may publish to. Without it: all.
    pub anonymous_publish: Option<Vec<String>>,
}

impl Default for AuthSettings {
    fn default() -> AuthSettings {
        AuthSettings {
            secret: None,
            secret_file: None,
            secret_env: None,
            public_key_files: Vec::new(),
            jwks_file: None,
            jwks_url: None,
            jwks_ca_file: None,
            jwks_refresh_min_s: 30,
            jwks_max_age_s: 600,
            jwks_stale_max_s: 24 * 60 * 60,
            jwks_timeout_ms: 3_000,
            jwks_bytes_max: 256 * 1024,
            jwks_keys_max: 64,
            algorithms: Vec::new(),
            audience: Vec::new(),
            issuer: Vec::new(),
            leeway_s: 30,
            expiry_required: true,
            token_bytes_max: 8 * 1024,
            token_ext: vec!["auth.token".into(), "token".into()],
            token_bearer: true,
            token_cookie: String::new(),
            token_query: String::new(),
            user_claim: "sub".into(),
            subscribe_claim: "subscribe".into(),
            publish_claim: "publish".into(),
            limits_claim: "limits".into(),
            channel_claims_required: false,
            anonymous: false,
            anonymous_subscribe: None,
            anonymous_publish: None,
        }
    }
}

impl AuthSettings {
    /// A text that changes with the tokens that are taken, and with the rights that they give. Keys are not in it: a session
    /// lives on when the key that signed its token is replaced.
    pub(crate) fn policy(&self) -> String {
        let tokens = (&self.algorithms, &self.audience, &self.issuer, self.expiry_required);
        let claims = (&self.user_claim, &self.subscribe_claim, &self.publish_claim, &self.limits_claim);
        let nobody = (self.anonymous, &self.anonymous_subscribe, &self.anonymous_publish);
        format!("tokens {tokens:?} {claims:?} {:?} {nobody:?}", self.channel_claims_required)
    }
}

/// A setting of `[auth]` that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("auth.{name} = {value}: {wanted}")]
#[non_exhaustive]
pub struct AuthSettingsError {
    /// The name of the setting.
    pub name: &'static str,
    /// Its value; never a secret.
    pub value: String,
    /// The reason, or what would be right.
    pub wanted: String,
}

impl AuthSettingsError {
    pub(crate) fn new(name: &'static str, value: impl fmt::Display, wanted: impl fmt::Display) -> AuthSettingsError {
        AuthSettingsError { name, value: value.to_string(), wanted: wanted.to_string() }
    }
}
