//! From a token to an identity.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use encke::{Identity, Patterns};
use encke_fetch::{Fetcher, Limits};
use jsonwebtoken::Algorithm;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::error::TokenError;
use crate::jwks::{Jwks, Source, Terms};
use crate::keys::{Key, KeySet, Origin};
use crate::settings::{AuthSettings, AuthSettingsError};
use crate::{algorithms, claims, crypto, jwks, lookup};

/// Checks tokens as the settings say.
pub(crate) struct Verifier {
    pub(crate) settings: AuthSettings,
    /// The keys of the settings themselves.
    keys: KeySet,
    /// The set of keys that is read again.
    pub(crate) jwks: Option<Arc<Jwks>>,
    /// The identity of nobody, if there may be one.
    pub(crate) anonymous: Option<Identity>,
}

/// The header of a token (RFC 7515 §4).
#[derive(Deserialize)]
struct Header<'a> {
    #[serde(borrow)]
    alg: Cow<'a, str>,
    #[serde(borrow)]
    kid: Option<Cow<'a, str>>,
    /// Names of members that a reader must understand. None is known here.
    crit: Option<IgnoredAny>,
}

impl Verifier {
    /// Reads the keys of the settings, but no set of keys from a URL.
    pub(crate) fn new(settings: &AuthSettings) -> Result<Verifier, AuthSettingsError> {
        crypto::install();
        let allowed = allowed_algorithms(settings)?;
        let mut keys = KeySet::default();
        let mut push = |name: &'static str, value: &str, key: Result<Key, String>| {
            let mut key = key.map_err(|reason| AuthSettingsError::new(name, value, reason))?;
            if !key.retain(&allowed) {
                return Err(AuthSettingsError::new(name, value, "the key is for no algorithm of auth.algorithms"));
            }
            keys.push(key);
            Ok(())
        };
        for (name, value, secret) in secrets(settings)? {
            push(name, &value, Key::of_secret(&secret))?;
        }
        for path in &settings.public_key_files {
            push("public_key_files", &format!("{path:?}"), Key::of_pem_file(path))?;
        }
        let source = source(settings, &allowed)?;
        if keys.len() == 0 && source.is_none() && !settings.anonymous && !settings.certificate {
            let wanted = "a key is needed: secret_file, secret_env, public_key_files, jwks_file or jwks_url";
            return Err(AuthSettingsError::new("secret_file", "\"\"", wanted));
        }
        let terms = Terms {
            refresh_min: Duration::from_secs(settings.jwks_refresh_min_s),
            max_age: Duration::from_secs(settings.jwks_max_age_s),
            stale_max: Duration::from_secs(settings.jwks_stale_max_s),
            bytes_max: settings.jwks_bytes_max,
            keys_max: settings.jwks_keys_max,
            algorithms: allowed,
        };
        Ok(Verifier {
            settings: settings.clone(),
            keys,
            jwks: source.map(|(source, keys)| {
                let jwks = Jwks::new(source, terms);
                keys.into_iter().fold(jwks, Jwks::with_keys)
            }),
            anonymous: anonymous(settings)?,
        })
    }

    /// Checks a token. It waits only if it needs keys that have to be read first.
    pub(crate) async fn verify(&self, token: &str) -> Result<Identity, TokenError> {
        let token_bytes_max = self.settings.token_bytes_max;
        if token.len() > token_bytes_max {
            return Err(TokenError::TooLong { bytes: token.len(), token_bytes_max });
        }
        let (message, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed("it has no three parts"))?;
        let (header, claims) = message.split_once('.').ok_or(TokenError::Malformed("it has no three parts"))?;
        if claims.contains('.') {
            return Err(TokenError::Malformed("it has more than three parts"));
        }
        let header = decoded(header)?;
        let header: Header<'_> =
            serde_json::from_str(&header).map_err(|_| TokenError::Malformed("its header is not one of a token"))?;
        if header.crit.is_some() {
            return Err(TokenError::Malformed("its header requires an extension (crit)"));
        }
        if header.alg.eq_ignore_ascii_case("none") {
            return Err(TokenError::Unsigned);
        }
        let kid = header.kid.as_deref();
        let algorithm = algorithms::named(&header.alg).ok_or_else(|| TokenError::Algorithm(shown(&header.alg)))?;
        let is_signed = |keys: &KeySet| {
            let mut candidates = keys.candidates(algorithm, kid).take(CANDIDATES_MAX);
            candidates.any(|key| key.verifies(message, signature, algorithm))
        };
        if !is_signed(&self.keys) {
            let set = match &self.jwks {
                Some(jwks) => jwks.keys(kid).await.ok_or(TokenError::KeysUnavailable)?,
                None => Arc::default(),
            };
            if !is_signed(&set) {
                return Err(refusal(&[&self.keys, &set], algorithm, kid));
            }
        }
        claims::identity(&self.settings, &decoded(claims)?, now_ms())
    }

    /// Finds the token of a handshake, and checks it. Without one, the certificate of the client does, if the settings say so.
    pub(crate) async fn authenticate(
        &self,
        ext: Option<&str>,
        head: Option<&encke::Head>,
    ) -> Result<Identity, TokenError> {
        match lookup::token(&self.settings, ext, head)? {
            Some(token) => self.verify(&token).await,
            None => match head.and_then(encke::Head::certificate).filter(|_| self.settings.certificate) {
                Some(user) => Ok(claims::of_certificate(&self.settings, user)),
                None => self.anonymous.clone().ok_or(TokenError::Missing),
            },
        }
    }
}

/// The reason why none of the keys has signed a token.
fn refusal(sets: &[&KeySet], algorithm: Algorithm, kid: Option<&str>) -> TokenError {
    if sets.iter().any(|keys| keys.candidates(algorithm, kid).next().is_some()) {
        TokenError::Signature
    } else if !sets.iter().any(|keys| keys.has(kid)) && kid.is_some() && sets.iter().any(|keys| keys.allows(algorithm))
    {
        TokenError::Key(shown(kid.unwrap_or_default()))
    } else {
        TokenError::Algorithm(format!("{algorithm:?}"))
    }
}

/// The beginning of a name in a token that nobody has signed.
fn shown(name: &str) -> String {
    name.chars().take(SHOWN_MAX).collect()
}

/// The header and the claims of a token for people to look at. Nothing of it is checked.
pub fn unverified(token: &str) -> Option<(String, String)> {
    let mut parts = token.split('.').map(|part| decoded(part).ok());
    Some((parts.next()??, parts.next()??))
}

/// The text of a part of a token.
fn decoded(part: &str) -> Result<String, TokenError> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed("a part is not base64url"))?;
    String::from_utf8(bytes).map_err(|_| TokenError::Malformed("a part is not UTF-8"))
}

fn allowed_algorithms(settings: &AuthSettings) -> Result<Vec<Algorithm>, AuthSettingsError> {
    let named = |name: &String| {
        let wanted = || AuthSettingsError::new("algorithms", format!("{name:?}"), algorithms::NAMES);
        algorithms::named(name).ok_or_else(wanted)
    };
    settings.algorithms.iter().map(named).collect()
}

/// The name of a setting, its value as an error shows it, and the secret.
type NamedSecret = (&'static str, String, Vec<u8>);

/// The secrets of the settings.
fn secrets(settings: &AuthSettings) -> Result<Vec<NamedSecret>, AuthSettingsError> {
    let mut secrets = Vec::new();
    if let Some(secret) = &settings.secret {
        secrets.push(("secret", secret.to_string(), secret.reveal().as_bytes().to_vec()));
    }
    if let Some(path) = &settings.secret_file {
        let shown = format!("{path:?}");
        let read = jwks::read_file(path, SECRET_BYTES_MAX);
        let mut secret = read.map_err(|reason| AuthSettingsError::new("secret_file", &shown, reason))?;
        while secret.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
            secret.pop();
        }
        secrets.push(("secret_file", shown, secret));
    }
    if let Some(name) = &settings.secret_env {
        let shown = format!("{name:?}");
        let value = std::env::var_os(name).filter(|value| !value.is_empty());
        let value = value.ok_or_else(|| AuthSettingsError::new("secret_env", &shown, "no such variable, or empty"))?;
        secrets.push(("secret_env", shown, value.into_encoded_bytes()));
    }
    Ok(secrets)
}

/// The set of keys that is read again: where it is, and the keys that a file has now.
fn source(
    settings: &AuthSettings,
    allowed: &[Algorithm],
) -> Result<Option<(Source, Option<KeySet>)>, AuthSettingsError> {
    match (&settings.jwks_file, &settings.jwks_url) {
        (Some(_), Some(url)) => {
            Err(AuthSettingsError::new("jwks_url", format!("{url:?}"), "only one of jwks_url and jwks_file"))
        }
        (Some(path), None) => {
            let refused = |reason: String| AuthSettingsError::new("jwks_file", format!("{path:?}"), reason);
            let text = jwks::read_file(path, settings.jwks_bytes_max).map_err(refused)?;
            let (keys, left_out) = KeySet::of_jwks(&text, settings.jwks_keys_max, Origin::File).map_err(refused)?;
            let (is_empty, keys) = (keys.len() == 0 && left_out.is_none(), keys.retained(allowed));
            if keys.len() == 0 && !is_empty {
                let reason = left_out.unwrap_or_else(|| "none is for an algorithm of auth.algorithms".into());
                return Err(refused(format!("no key of the set can be used: {reason}")));
            }
            Ok(Some((Source::File(path.clone()), Some(keys))))
        }
        (None, Some(url)) => {
            let shown = format!("{url:?}");
            if !["https://", "http://"].iter().any(|scheme| url.reveal().starts_with(scheme)) {
                return Err(AuthSettingsError::new("jwks_url", shown, "a URL that begins with https:// or http://"));
            }
            let limits = Limits {
                connect_timeout_ms: settings.jwks_timeout_ms,
                total_timeout_ms: settings.jwks_timeout_ms,
                response_bytes_max: settings.jwks_bytes_max,
                ..Limits::default()
            };
            let fetcher = Fetcher::new(limits, settings.jwks_ca_file.as_deref());
            let fetcher = fetcher.map_err(|error| AuthSettingsError::new("jwks_ca_file", shown, error))?;
            Ok(Some((Source::Url(Box::new(fetcher), url.clone()), None)))
        }
        (None, None) => Ok(None),
    }
}

fn anonymous(settings: &AuthSettings) -> Result<Option<Identity>, AuthSettingsError> {
    let patterns = |name: &'static str, names: &Option<Vec<String>>| match names {
        Some(names) => match Patterns::new(names) {
            Ok(patterns) => Ok(Some(patterns)),
            Err(error) => Err(AuthSettingsError::new(name, format!("{names:?}"), error)),
        },
        None => Ok(None),
    };
    let subscribe = patterns("anonymous_subscribe", &settings.anonymous_subscribe)?;
    let publish = patterns("anonymous_publish", &settings.anonymous_publish)?;
    Ok(settings.anonymous.then(|| Identity { subscribe, publish, ..Identity::default() }))
}

/// The time in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Most keys that are tried for a token: without the name of a key, each key of its algorithm may have signed it.
const CANDIDATES_MAX: usize = 8;

/// Most characters of the name of an unknown key or algorithm in a log.
const SHOWN_MAX: usize = 64;

/// Most bytes of a file with a secret.
const SECRET_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use encke::{Head, Secret};

    use super::*;

    fn authenticated(settings: AuthSettings, ext: Option<&str>) -> Result<Identity, TokenError> {
        let verifier = Verifier::new(&settings).expect("good settings");
        let head = Head::new("/cometd", [], None).with_certificate(Some("alice"));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(verifier.authenticate(ext, Some(&head)))
    }

    #[test]
    fn a_certificate_does_in_place_of_a_token_if_the_settings_say_so() {
        let secret = Some(Secret::new("0123456789abcdef0123456789abcdef"));
        let tokens = AuthSettings { secret, ..AuthSettings::default() };
        assert_eq!(authenticated(tokens.clone(), None), Err(TokenError::Missing));
        let both = AuthSettings { certificate: true, ..tokens };
        assert_eq!(authenticated(both.clone(), None), Ok(Identity::of_user("alice")));
        let bad = authenticated(both.clone(), Some(r#"{"token":"a.b.c"}"#));
        assert!(bad.is_err(), "a token decides, also a bad one");
        let narrow = AuthSettings { channel_claims_required: true, ..both };
        let identity = authenticated(narrow, None).expect("alice");
        assert!(!identity.may_publish("/a") && !identity.may_subscribe("/a"), "it has no claims");
        let nobody = AuthSettings { anonymous: true, ..AuthSettings::default() };
        assert_eq!(authenticated(nobody, None), Ok(Identity::default()));
    }
}
