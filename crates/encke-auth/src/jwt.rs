//! The authentication of handshakes by tokens.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use encke::{Authenticate, Caller, Handshake, Identity, Metric, Refusal};
use parking_lot::RwLock;
use strum::VariantNames as _;

use crate::error::TokenError;
use crate::lookup::of_refresh;
use crate::settings::{AuthSettings, AuthSettingsError};
use crate::verifier::Verifier;

/// Authenticates handshakes by JSON Web Tokens (RFC 7519). Clones share keys and counters.
#[derive(Clone)]
pub struct Jwt(Arc<Verification>);

struct Verification {
    verifier: RwLock<Arc<Verifier>>,
    accepted: AtomicU64,
    /// In the order of the variants of [`TokenError`].
    refused: [AtomicU64; TokenError::VARIANTS.len()],
}

impl fmt::Debug for Jwt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Jwt")
    }
}

impl Authenticate for Jwt {
    async fn authenticate(&self, handshake: Handshake) -> Result<Identity, Refusal> {
        Ok(self.counted(self.verifier().authenticate(handshake.ext(), handshake.head()).await)?)
    }

    /// The credentials are a token, or an object with one as `token`. It must be of the same user.
    async fn refresh(&self, caller: Caller<'static>, credentials: String) -> Result<Identity, Refusal> {
        let identity = match of_refresh(&credentials) {
            Some(token) => self.verifier().verify(&token).await,
            None => Err(TokenError::Missing),
        };
        let of_caller = |identity: Identity| match *identity.user == *caller.user() {
            true => Ok(identity),
            false => Err(TokenError::OtherUser),
        };
        Ok(self.counted(identity.and_then(of_caller))?)
    }

    fn policy(&self) -> String {
        self.verifier().settings.policy()
    }
}

impl Jwt {
    /// Reads the keys of the settings. A set of keys is requested when the first token needs it.
    ///
    /// # Errors
    /// The first setting that cannot work.
    pub fn new(settings: &AuthSettings) -> Result<Jwt, AuthSettingsError> {
        let verifier = RwLock::new(Arc::new(Verifier::new(settings)?));
        Ok(Jwt(Arc::new(Verification { verifier, accepted: AtomicU64::new(0), refused: Default::default() })))
    }

    /// Replaces settings and keys, for all clones, and reads all files of keys again. Sessions that are open stay so.
    ///
    /// # Errors
    /// The first setting that cannot work. Then the old ones stay.
    pub fn reload(&self, settings: &AuthSettings) -> Result<(), AuthSettingsError> {
        let mut new = Verifier::new(settings)?;
        let mut current = self.0.verifier.write();
        if *settings == current.settings && new.jwks.as_ref().is_some_and(|jwks| jwks.is_remote()) {
            // Such a set stays, and its age with it. Keys in files may have changed.
            new.jwks.clone_from(&current.jwks);
        }
        *current = Arc::new(new);
        Ok(())
    }

    /// Checks a token. It waits only if a set of keys has to be read first.
    ///
    /// # Errors
    /// The reason why it is refused.
    pub async fn verify(&self, token: &str) -> Result<Identity, TokenError> {
        self.counted(self.verifier().verify(token).await)
    }

    /// The counters, for the metrics of a server.
    pub fn metrics(&self) -> Vec<Metric> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut refused = Metric::counter("encke_tokens_refused", "Tokens that were refused, by reason");
        for (reason, counter) in TokenError::VARIANTS.iter().zip(&self.0.refused) {
            refused = refused.with(&[("reason", reason)], count(counter));
        }
        let accepted = Metric::counter("encke_tokens_accepted", "Tokens that were accepted");
        let mut metrics = vec![accepted.with(&[], count(&self.0.accepted)), refused];
        if let Some(jwks) = &self.verifier().jwks {
            let (requests, failures, keys) = jwks.counts();
            metrics.extend([
                Metric::counter("encke_jwks_requests", "Requests for the set of keys").with(&[], requests),
                Metric::counter("encke_jwks_failures", "Requests for the set of keys that failed").with(&[], failures),
                Metric::gauge("encke_jwks_keys", "Keys of the set that can be used").with(&[], keys),
            ]);
        }
        metrics
    }

    fn verifier(&self) -> Arc<Verifier> {
        self.0.verifier.read().clone()
    }

    fn counted(&self, result: Result<Identity, TokenError>) -> Result<Identity, TokenError> {
        match &result {
            Ok(_) => _ = self.0.accepted.fetch_add(1, Ordering::Relaxed),
            Err(error) => {
                tracing::debug!("token refused: {error}");
                let at = TokenError::VARIANTS.iter().position(|reason| *reason == error.reason());
                if let Some(counter) = at.and_then(|at| self.0.refused.get(at)) {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        result
    }
}
