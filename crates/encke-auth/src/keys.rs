//! Keys that check signatures, each with the algorithms that it allows. A token never chooses the kind of its key.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::algorithms;

/// A key that checks signatures.
#[derive(Clone)]
pub(crate) struct Key {
    /// Its name. A key without one may have signed any token.
    kid: Option<Box<str>>,
    /// The algorithms that fit its kind, and that it is for.
    algorithms: Vec<Algorithm>,
    decoding: DecodingKey,
}

/// Some keys.
#[derive(Clone, Default)]
pub(crate) struct KeySet(Vec<Key>);

impl KeySet {
    /// True if some key may have signed tokens with this name of a key.
    pub(crate) fn has(&self, kid: Option<&str>) -> bool {
        self.0.iter().any(|key| key.is_named(kid))
    }

    /// The keys that may have signed a token with this algorithm and name of a key.
    pub(crate) fn candidates<'a>(
        &'a self,
        algorithm: Algorithm,
        kid: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Key> {
        self.0.iter().filter(move |key| key.algorithms.contains(&algorithm) && key.is_named(kid))
    }

    /// True if some key is for this algorithm.
    pub(crate) fn allows(&self, algorithm: Algorithm) -> bool {
        self.0.iter().any(|key| key.algorithms.contains(&algorithm))
    }

    pub(crate) fn push(&mut self, key: Key) {
        self.0.push(key);
    }

    /// The keys for these algorithms, or for all if the list is empty.
    pub(crate) fn retained(mut self, algorithms: &[Algorithm]) -> KeySet {
        self.0.retain_mut(|key| key.retain(algorithms));
        self
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Reads a set of keys (RFC 7517 §5), which may be empty. Keys that check no signatures, or of unknown kinds, are left out: the second
    /// value is the reason for one of them.
    ///
    /// # Errors
    /// The reason why the whole set is refused.
    pub(crate) fn of_jwks(text: &[u8], keys_max: usize, from: Origin) -> Result<(KeySet, Option<String>), String> {
        let set: Set<'_> = serde_json::from_slice(text).map_err(|error| format!("not a set of keys: {error}"))?;
        if set.keys.len() > keys_max {
            return Err(format!("{} keys, more than {keys_max} (jwks_keys_max)", set.keys.len()));
        }
        let (mut keys, mut left_out) = (KeySet::default(), None);
        for text in set.keys {
            match Key::of_jwk(text.get(), from) {
                Ok(key) => keys.push(key),
                Err(why) => left_out = Some(why),
            }
        }
        Ok((keys, left_out))
    }
}

/// The origin of a set of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A file of this machine, which may have secrets.
    File,
    /// A URL. What it answers is no secret, so a symmetric key from there proves nothing.
    Url,
}

#[derive(Deserialize)]
struct Set<'a> {
    #[serde(borrow)]
    keys: Vec<&'a RawValue>,
}

/// The algorithm of a key under any name, beside the parser's own list.
#[derive(Deserialize)]
struct Alg {
    alg: Option<String>,
}

impl Key {
    /// A secret for HMAC. It is for the algorithms whose hash is not longer (RFC 7518 §3.2).
    pub(crate) fn of_secret(secret: &[u8]) -> Result<Key, String> {
        let fitting =
            algorithms::HMAC.iter().filter(|(_, bytes)| secret.len() >= *bytes).map(|(algorithm, _)| *algorithm);
        let algorithms: Vec<Algorithm> = fitting.collect();
        if algorithms.is_empty() {
            return Err(format!("the secret has {} bytes; at least 32 random ones are needed", secret.len()));
        }
        Ok(Key { kid: None, algorithms, decoding: DecodingKey::from_secret(secret) })
    }

    /// A public key in PEM form.
    pub(crate) fn of_pem(pem: &[u8]) -> Result<Key, String> {
        if String::from_utf8_lossy(pem).contains("PRIVATE KEY") {
            return Err("this is a private key; the server needs the public one only".into());
        }
        let kinds = [DecodingKey::from_rsa_pem, DecodingKey::from_ec_pem, DecodingKey::from_ed_pem];
        let decoding = kinds.iter().find_map(|read| read(pem).ok());
        let decoding = decoding.ok_or("not a public key in PEM form: RSA, EC (P-256, P-384) or Ed25519")?;
        let jwk = Jwk::from_decoding_key(&decoding, None).map_err(|error| error.to_string())?;
        Ok(Key { kid: None, algorithms: algorithms_of(&jwk)?, decoding })
    }

    /// Reads a file with a public key.
    pub(crate) fn of_pem_file(path: &Path) -> Result<Key, String> {
        Key::of_pem(&std::fs::read(path).map_err(|error| error.to_string())?)
    }

    /// A key in the form of RFC 7517.
    fn of_jwk(text: &str, from: Origin) -> Result<Key, String> {
        let broken = |error: serde_json::Error| format!("not a key: {error}");
        let jwk: Jwk = serde_json::from_str(text).map_err(broken)?;
        let alg: Alg = serde_json::from_str(text).map_err(broken)?;
        if jwk.common.public_key_use.as_ref().is_some_and(|purpose| *purpose != PublicKeyUse::Signature) {
            return Err("a key that is not for signatures".into());
        }
        if jwk.common.key_operations.as_ref().is_some_and(|all| !all.contains(&KeyOperations::Verify)) {
            return Err("a key that does not verify".into());
        }
        if from == Origin::Url && matches!(jwk.algorithm, AlgorithmParameters::OctetKey(_)) {
            return Err("a symmetric key from a URL is no secret".into());
        }
        let mut algorithms = algorithms_of(&jwk)?;
        if let Some(alg) = alg.alg {
            algorithms.retain(|algorithm| algorithms::named(&alg) == Some(*algorithm));
            if algorithms.is_empty() {
                return Err(format!("a key for the algorithm {alg}, which does not fit its kind or is unknown"));
            }
        }
        let decoding = DecodingKey::from_jwk(&jwk).map_err(|error| error.to_string())?;
        Ok(Key { kid: jwk.common.key_id.map(Into::into), algorithms, decoding })
    }

    /// Leaves only algorithms that are allowed. Returns false if there are none.
    pub(crate) fn retain(&mut self, allowed: &[Algorithm]) -> bool {
        self.algorithms.retain(|algorithm| allowed.is_empty() || allowed.contains(algorithm));
        !self.algorithms.is_empty()
    }

    /// True if the key has made this signature.
    pub(crate) fn verifies(&self, message: &str, signature: &str, algorithm: Algorithm) -> bool {
        jsonwebtoken::crypto::verify(signature, message.as_bytes(), &self.decoding, algorithm).unwrap_or(false)
    }

    fn is_named(&self, kid: Option<&str>) -> bool {
        match (self.kid.as_deref(), kid) {
            (Some(own), Some(wanted)) => own == wanted,
            _ => true,
        }
    }
}

/// The algorithms that fit the kind of a key, if it is long enough.
fn algorithms_of(jwk: &Jwk) -> Result<Vec<Algorithm>, String> {
    let bytes = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|error| format!("a part of the key: {error}"));
    match &jwk.algorithm {
        AlgorithmParameters::RSA(key) => {
            let modulus = bytes(&key.n)?;
            let bits = modulus.iter().skip_while(|byte| **byte == 0).count() * 8;
            if !(2_048..=8_192).contains(&bits) {
                return Err(format!("an RSA key of {bits} bits; at least 2048 are needed, at most 8192 allowed"));
            }
            use Algorithm::{PS256, PS384, PS512, RS256, RS384, RS512};
            Ok(vec![RS256, RS384, RS512, PS256, PS384, PS512])
        }
        AlgorithmParameters::EllipticCurve(key) => {
            let (algorithm, wanted) = match key.curve {
                EllipticCurve::P256 => (Algorithm::ES256, 32),
                EllipticCurve::P384 => (Algorithm::ES384, 48),
                _ => return Err("an EC key of another curve than P-256 and P-384".into()),
            };
            if bytes(&key.x)?.len() != wanted || bytes(&key.y)?.len() != wanted {
                return Err("an EC key whose point does not fit its curve".into());
            }
            Ok(vec![algorithm])
        }
        AlgorithmParameters::OctetKeyPair(key) => match key.curve {
            EllipticCurve::Ed25519 if bytes(&key.x)?.len() == 32 => Ok(vec![Algorithm::EdDSA]),
            _ => Err("an OKP key of another curve than Ed25519".into()),
        },
        AlgorithmParameters::OctetKey(key) => Ok(Key::of_secret(&bytes(&key.value)?)?.algorithms),
        _ => Err("a key of an unknown kind".into()),
    }
}
