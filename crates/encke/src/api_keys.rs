//! The keys of the HTTP API: their form in a configuration, and the check of a key that a request gives.

use std::fmt;
use std::hint::black_box;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use strum::IntoStaticStr;

use encke_core::Secret;

/// A permission of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
#[non_exhaustive]
pub enum Scope {
    /// Publish on channels.
    Publish,
    /// Send messages to one session, or to all sessions of a user.
    Deliver,
    /// Read sessions, channels, presence, histories, and information about the server.
    Read,
    /// Subscribe, unsubscribe and disconnect sessions, revoke tokens, remove histories.
    Manage,
    /// Read `/metrics`.
    Metrics,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Scope; 5] = [Scope::Publish, Scope::Deliver, Scope::Read, Scope::Manage, Scope::Metrics];

    /// Its name in a configuration.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A key of the HTTP API, written as `ApiKey { name: …, key: …, scopes: …, ..ApiKey::default() }`. It has one of `key`,
/// `key_file` and `key_env`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApiKey {
    /// Its name in errors.
    pub name: String,
    /// The key itself: 16 to 1,024 visible ASCII characters.
    pub key: Secret,
    /// A file with the key. Space around the key is ignored.
    pub key_file: String,
    /// The name of an environment variable with the key.
    pub key_env: String,
    /// The permissions of the key.
    pub scopes: Vec<Scope>,
}

/// The reason why a list of keys cannot be used. It never contains a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
#[non_exhaustive]
pub struct ApiKeysError(String);

/// A list of valid keys.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ApiKeys(Vec<KnownKey>);

/// A key as it is compared: by its digest, so that the time of a comparison shows nothing of the key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct KnownKey {
    digest: [u8; 32],
    pub(crate) name: Box<str>,
    /// A bit for each scope.
    scopes: u8,
}

impl KnownKey {
    /// True if the key has this scope.
    pub(crate) fn has(&self, scope: Scope) -> bool {
        self.scopes & bit(scope) != 0
    }
}

impl ApiKeys {
    /// Checks a list of keys, and reads those in files and in the environment.
    ///
    /// # Errors
    /// The first key that cannot be used, with the reason.
    pub fn new(keys: &[ApiKey]) -> Result<ApiKeys, ApiKeysError> {
        let mut known: Vec<KnownKey> = Vec::new();
        for (index, api_key) in keys.iter().enumerate() {
            if api_key.name.is_empty() {
                return Err(ApiKeysError(format!("api_keys[{index}].name: one is needed")));
            }
            let failed = |reason: String| ApiKeysError(format!("api_keys[{index}], {:?}: {reason}", api_key.name));
            let key = secret(api_key).map_err(failed)?;
            let key = key.reveal();
            if !(KEY_BYTES_LEAST..=KEY_BYTES_MAX).contains(&key.len())
                || !key.bytes().all(|byte| byte.is_ascii_graphic())
            {
                let wanted = format!("a key has {KEY_BYTES_LEAST} to {KEY_BYTES_MAX} visible ASCII characters");
                return Err(failed(wanted));
            }
            if api_key.scopes.is_empty() {
                let names = Scope::ALL.map(Scope::name).join(", ");
                return Err(failed(format!("scopes is empty: one or more of {names}")));
            }
            let digest = digest(key.as_bytes());
            if let Some(other) = known.iter().find(|other| *other.name == *api_key.name || other.digest == digest) {
                return Err(failed(format!("the key {:?} has the same name or the same secret", other.name)));
            }
            let scopes = api_key.scopes.iter().fold(0, |scopes, scope| scopes | bit(*scope));
            known.push(KnownKey { digest, name: api_key.name.as_str().into(), scopes });
        }
        Ok(ApiKeys(known))
    }

    /// The names of the keys, each with the names of its scopes.
    pub fn names(&self) -> impl Iterator<Item = (&str, String)> {
        self.0.iter().map(|known| {
            let scopes = Scope::ALL.into_iter().filter(|scope| known.has(*scope));
            (&*known.name, scopes.map(Scope::name).collect::<Vec<_>>().join(", "))
        })
    }

    /// The key with this secret. Compares with all keys, and all bytes of each.
    pub(crate) fn find(&self, key: &[u8]) -> Option<&KnownKey> {
        let given = digest(key);
        let mut found = None;
        for known in &self.0 {
            let differs = known.digest.iter().zip(&given).fold(0, |differs, (one, other)| differs | (one ^ other));
            if black_box(differs) == 0 {
                found = Some(known);
            }
        }
        found
    }
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|known| &known.name)).finish()
    }
}

/// The secret of a key, from its one source.
fn secret(api_key: &ApiKey) -> Result<Secret, String> {
    let ApiKey { key, key_file, key_env, .. } = api_key;
    match (key.is_empty(), key_file.is_empty(), key_env.is_empty()) {
        (false, true, true) => Ok(key.clone()),
        (true, false, true) => {
            let text = std::fs::read_to_string(key_file).map_err(|error| format!("key_file {key_file}: {error}"))?;
            Ok(text.trim().into())
        }
        (true, true, false) => {
            let key = std::env::var(key_env).map_err(|_| format!("key_env {key_env}: no such variable"))?;
            Ok(key.into())
        }
        _ => Err("one of key, key_file and key_env is needed, and only one".into()),
    }
}

fn digest(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

fn bit(scope: Scope) -> u8 {
    1 << scope as u8
}

/// The least length of a key in bytes. Shorter ones can be guessed.
const KEY_BYTES_LEAST: usize = 16;
/// The maximum length of a key in bytes.
const KEY_BYTES_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, key: &str) -> ApiKey {
        ApiKey { name: name.into(), key: key.into(), scopes: vec![Scope::Read], ..ApiKey::default() }
    }

    #[test]
    fn a_key_is_found_by_its_secret_and_has_its_scopes_only() {
        let mut two = key("two", "bbbbbbbbbbbbbbbb");
        two.scopes = vec![Scope::Publish, Scope::Metrics];
        let keys = ApiKeys::new(&[key("one", "aaaaaaaaaaaaaaaa"), two]).expect("valid");
        let found = keys.find(b"bbbbbbbbbbbbbbbb").expect("known");
        assert_eq!(&*found.name, "two");
        assert_eq!(Scope::ALL.map(|scope| found.has(scope)), [true, false, false, false, true]);
        for wrong in ["", "aaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaab", "aaaaaaaaaaaaaaaaa"] {
            assert!(keys.find(wrong.as_bytes()).is_none(), "{wrong}");
        }
        assert!(ApiKeys::default().find(b"").is_none());
    }

    #[test]
    fn keys_that_cannot_work_are_refused_without_their_secret() {
        let good = key("good", "aaaaaaaaaaaaaaaa");
        let both = ApiKey { key_env: "HOME".into(), ..good.clone() };
        let missing = ApiKey { key: Secret::default(), key_file: "/nowhere/key".into(), ..good.clone() };
        let unset = ApiKey { key: Secret::default(), key_env: "ENCKE_NO_SUCH_KEY".into(), ..good.clone() };
        let powerless = ApiKey { scopes: Vec::new(), ..good.clone() };
        for (keys, reason) in [
            (vec![key("", "aaaaaaaaaaaaaaaa")], "api_keys[0].name: one is needed"),
            (vec![key("a", "short-secret-15")], "16 to 1024"),
            (vec![key("a", "with a space in the secret")], "visible ASCII"),
            (vec![key("a", "")], "one of key, key_file and key_env"),
            (vec![both], "one of key, key_file and key_env"),
            (vec![missing], "/nowhere/key"),
            (vec![unset], "ENCKE_NO_SUCH_KEY"),
            (vec![powerless], "one or more of publish, deliver, read, manage, metrics"),
            (vec![good.clone(), key("good", "cccccccccccccccc")], "the same name"),
            (vec![good.clone(), key("other", "aaaaaaaaaaaaaaaa")], "the same secret"),
        ] {
            let error = ApiKeys::new(&keys).expect_err(reason).to_string();
            assert!(error.contains(reason), "{error}");
            assert!(!error.contains("aaaa") && !error.contains("short-secret"), "{error}");
        }
        assert!(!format!("{good:?} {:?}", ApiKeys::new(std::slice::from_ref(&good))).contains("aaaa"));
    }

    #[test]
    fn a_key_can_be_in_a_file() {
        let path = std::env::temp_dir().join(format!("encke-api-key-{}", std::process::id()));
        std::fs::write(&path, "dddddddddddddddd\n").expect("written");
        let api_key = ApiKey { key_file: path.display().to_string(), ..key("file", "") };
        let keys = ApiKeys::new(&[api_key]);
        std::fs::remove_file(&path).expect("removed");
        assert!(keys.expect("valid").find(b"dddddddddddddddd").is_some());
    }
}
