//! The section `[auth]` of the configuration.

use std::fmt;
use std::path::PathBuf;

use encke::Secret;
use encke_fetch::SecretUrl;
use serde::Deserialize;

encke::settings! {
    /// The section `[auth]`: the keys that sign tokens, the claims that a token must have, and where a handshake has its token.
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct AuthSettings;

    "Tokens" {
        /// A secret of at least 32 bytes for HMAC. Better in a file or in the environment.
        secret: Option<Secret> = None;
        /// A file with such a secret. A line feed at its end does not count.
        secret_file: Option<PathBuf> = None;
        /// The name of the environment variable with such a secret.
        secret_env: Option<String> = None;
        /// Files with public keys in PEM form: RSA, EC (P-256, P-384) or Ed25519.
        public_key_files: Vec<PathBuf> = Vec::new();
        /// A file with a set of keys (JWKS). It is read again when it may have changed.
        jwks_file: Option<PathBuf> = None;
        /// The URL of a set of keys (JWKS), such as the `jwks_uri` of an OpenID provider.
        jwks_url: Option<SecretUrl> = None;
        /// A file of certificates (PEM) that are trusted for `jwks_url`, beside those of the system.
        jwks_ca_file: Option<PathBuf> = None;
        /// Shortest time between two requests for the set of keys, in seconds. Tokens with an unknown key cause no more.
        jwks_refresh_min_s: u64 = 30;
        /// The age at which a set of keys is requested again, in seconds.
        jwks_max_age_s: u64 = 600;
        /// Longest time that the last set of keys is used while a new one cannot be had, in seconds.
        jwks_stale_max_s: u64 = 24 * 60 * 60;
        /// Longest time of a request for the set of keys, in milliseconds. Handshakes that need it wait.
        jwks_timeout_ms: u64 = 3_000;
        /// Most bytes of a set of keys.
        jwks_bytes_max: usize = 256 * 1024;
        /// Most keys of a set.
        jwks_keys_max: usize = 64;
        /// The algorithms that are allowed, such as `["EdDSA"]`. Empty: those for which there are keys.
        algorithms: Vec<String> = Vec::new();
        /// The names of this server. A token that names an audience must name one of them; if there are any, a token must name an audience.
        audience: Vec<String> = Vec::new();
        /// The issuers that are allowed. Empty: any.
        issuer: Vec<String> = Vec::new();
        /// The difference of clocks that is tolerated, in seconds.
        leeway_s: u64 = 30;
        /// True if a token must have an end (`exp`).
        expiry_required: bool = true;
        /// Most bytes of a token.
        token_bytes_max: usize = 8 * 1024;
        /// Members of a handshake's `ext` that may have the token, as paths.
        token_ext: Vec<String> = vec!["auth.token".into(), "token".into()];
        /// True if a token may come as `Authorization: Bearer`.
        token_bearer: bool = true;
        /// The name of a cookie that may have the token. Empty: none.
        token_cookie: String = String::new();
        /// The name of a parameter of the query that may have the token. URLs are often logged. Empty: none.
        token_query: String = String::new();
        /// True if a good certificate of the client (`tls_client_ca`) does in place of a token. A token that is there decides all the same.
        certificate: bool = false;
        /// The claim with the user.
        user_claim: String = "sub".into();
        /// The claim with the channels and patterns that a session may subscribe to: a list, or one text.
        subscribe_claim: String = "subscribe".into();
        /// The claim with the channels and patterns that a session may publish to: a list, or one text.
        publish_claim: String = "publish".into();
        /// The claim with the limits of a session: an object.
        limits_claim: String = "limits".into();
        /// The claim with the terms of a session that differ from the settings: an object.
        terms_claim: String = "session_terms".into();
        /// True if a token without a claim for channels allows none. Otherwise it sets no limit.
        channel_claims_required: bool = false;
        /// True if a handshake without a token opens a session of nobody.
        anonymous: bool = false;
        /// The channels and patterns that such a session may subscribe to. Without it: all.
        anonymous_subscribe: Option<Vec<String>> = None;
        /// The channels and patterns that such a session may publish to. Without it: all.
        anonymous_publish: Option<Vec<String>> = None;
    }
}

impl AuthSettings {
    /// A text that changes with the tokens that are taken, and with the rights that they give. Keys are not in it: a session
    /// lives on when the key that signed its token is replaced. Terms of sessions give no rights.
    pub(crate) fn policy(&self) -> String {
        let tokens = (&self.algorithms, &self.audience, &self.issuer, self.expiry_required);
        let claims = (&self.user_claim, &self.subscribe_claim, &self.publish_claim, &self.limits_claim);
        let nobody = (self.anonymous, &self.anonymous_subscribe, &self.anonymous_publish);
        let certificate = if self.certificate { " certificate" } else { "" };
        format!("tokens {tokens:?} {claims:?} {:?} {nobody:?}{certificate}", self.channel_claims_required)
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
