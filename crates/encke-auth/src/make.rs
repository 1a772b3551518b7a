//! Makes tokens and keys, for tests, for programs without a provider of identities, and for `encke token`.

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::error::{KeyRejected, Unspecified};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::jwk::{Jwk, PublicKeyUse, ThumbprintHash};
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Map, Value, json};

use crate::algorithms;

/// A key that signs tokens.
pub struct SigningKey {
    key: EncodingKey,
    algorithm: Algorithm,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

/// A key that cannot be used or made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
#[non_exhaustive]
pub struct KeyError(String);

impl From<Unspecified> for KeyError {
    fn from(_: Unspecified) -> KeyError {
        KeyError("the key cannot be made".into())
    }
}

impl From<KeyRejected> for KeyError {
    fn from(reason: KeyRejected) -> KeyError {
        KeyError(format!("the key cannot be used: {reason}"))
    }
}

/// A pair of keys.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KeyPair {
    /// The private key: PKCS #8 in PEM form, or the secret as one line of text.
    pub private: String,
    /// The public key in PEM form. Nothing for a secret.
    pub public: Option<String>,
    /// The set of keys (JWKS) for the server, whose key is named by its thumbprint (RFC 7638). Nothing for a secret.
    pub jwks: Option<String>,
}

impl SigningKey {
    /// A secret for HMAC: `HS256`, `HS384` or `HS512`; without the name of an algorithm, `HS256`.
    ///
    /// # Errors
    /// The reason why it cannot be used: a server refuses secrets that are shorter than the hash, too.
    pub fn of_secret(secret: &[u8], algorithm: Option<&str>) -> Result<SigningKey, KeyError> {
        let algorithm = chosen(algorithm, &algorithms::HMAC.map(|(algorithm, _)| algorithm))?;
        let least = algorithms::HMAC.iter().find(|(one, _)| *one == algorithm).map_or(0, |(_, bytes)| *bytes);
        if secret.len() < least {
            let bytes = secret.len();
            return Err(KeyError(format!(
                "the secret has {bytes} bytes; {algorithm:?} needs at least {least} random ones (encke token keys {algorithm:?})"
            )));
        }
        Ok(SigningKey { key: EncodingKey::from_secret(secret), algorithm })
    }

    /// A private key in PEM form (PKCS #8): RSA, EC (P-256, P-384) or Ed25519. Without the name of an algorithm, that of the key; `RS256`
    /// for RSA.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    pub fn of_pem(pem: &[u8], algorithm: Option<&str>) -> Result<SigningKey, KeyError> {
        use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
        let kinds: [(_, &[Algorithm]); 4] = [
            (EncodingKey::from_ed_pem(pem), &[EdDSA]),
            (EncodingKey::from_ec_pem(pem), &[ES256]),
            (EncodingKey::from_ec_pem(pem), &[ES384]),
            (EncodingKey::from_rsa_pem(pem), &[RS256, RS384, RS512, PS256, PS384, PS512]),
        ];
        for (key, algorithms) in kinds {
            let Ok(key) = key else { continue };
            // Curves differ by the key only.
            if jsonwebtoken::crypto::sign(b"", &key, algorithms[0]).is_ok() {
                return Ok(SigningKey { key, algorithm: chosen(algorithm, algorithms)? });
            }
        }
        Err(KeyError("not a private key in PEM form (PKCS #8): RSA, EC (P-256, P-384) or Ed25519".into()))
    }

    /// The name that a set of keys gives the public key: its thumbprint (RFC 7638). A secret has none.
    pub fn kid(&self) -> Option<String> {
        let jwk = Jwk::from_encoding_key(&self.key, self.algorithm).ok()?;
        let is_secret = matches!(self.algorithm, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512);
        jwk.thumbprint(ThumbprintHash::SHA256).ok().filter(|_| !is_secret)
    }

    /// A token with these claims. The header names the key if `kid` is given.
    ///
    /// # Errors
    /// The reason why the key cannot sign.
    pub fn token(&self, claims: &Map<String, Value>, kid: Option<&str>) -> Result<String, KeyError> {
        let mut header = json!({"typ": "JWT", "alg": format!("{:?}", self.algorithm)});
        if let Some(kid) = kid {
            header["kid"] = kid.into();
        }
        let part = |value: String| URL_SAFE_NO_PAD.encode(value);
        let claims = serde_json::to_string(claims).map_err(|error| KeyError(error.to_string()))?;
        let message = format!("{}.{}", part(header.to_string()), part(claims));
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &self.key, self.algorithm);
        Ok(format!("{message}.{}", signature.map_err(|error| KeyError(error.to_string()))?))
    }
}

impl KeyPair {
    /// Makes a pair of keys for an algorithm, or a secret for HMAC.
    ///
    /// # Errors
    /// An algorithm that is unknown.
    pub fn generate(algorithm: &str) -> Result<KeyPair, KeyError> {
        let known = algorithms::named(algorithm).ok_or_else(|| unknown(algorithm))?;
        let random = SystemRandom::new();
        let secret = |bytes: usize| {
            let mut secret = vec![0; bytes];
            aws_lc_rs::rand::fill(&mut secret)?;
            Ok(KeyPair { private: URL_SAFE_NO_PAD.encode(secret), public: None, jwks: None })
        };
        let of_curve = |curve| {
            let document = EcdsaKeyPair::generate_pkcs8(curve, &random)?;
            let pair = EcdsaKeyPair::from_pkcs8(curve, document.as_ref())?;
            let public: PublicKeyX509Der<'_> = pair.public_key().as_der()?;
            Ok::<_, KeyError>((document.as_ref().to_vec(), public.as_ref().to_vec()))
        };
        let (private, public) = match known {
            Algorithm::HS256 => return secret(32),
            Algorithm::HS384 => return secret(48),
            Algorithm::HS512 => return secret(64),
            Algorithm::ES256 => of_curve(&ECDSA_P256_SHA256_FIXED_SIGNING)?,
            Algorithm::ES384 => of_curve(&ECDSA_P384_SHA384_FIXED_SIGNING)?,
            Algorithm::EdDSA => {
                // This version has no public key inside, so that other programs read it, too.
                let document = Ed25519KeyPair::generate_pkcs8v1(&random)?;
                let pair = Ed25519KeyPair::from_pkcs8(document.as_ref())?;
                let public: PublicKeyX509Der<'_> = pair.public_key().as_der()?;
                (document.as_ref().to_vec(), public.as_ref().to_vec())
            }
            _ => {
                let pair = rsa::KeyPair::generate(rsa::KeySize::Rsa2048)?;
                let private: Pkcs8V1Der<'_> = pair.as_der()?;
                let public: PublicKeyX509Der<'_> = pair.public_key().as_der()?;
                (private.as_ref().to_vec(), public.as_ref().to_vec())
            }
        };
        let private = pem("PRIVATE KEY", &private);
        let signing = SigningKey::of_pem(private.as_bytes(), Some(algorithm))?;
        let mut jwk = Jwk::from_encoding_key(&signing.key, known).map_err(|error| KeyError(error.to_string()))?;
        jwk.common.public_key_use = Some(PublicKeyUse::Signature);
        jwk.common.key_id = signing.kid();
        let public = pem("PUBLIC KEY", &public);
        let jwks =
            serde_json::to_string_pretty(&json!({"keys": [jwk]})).map_err(|error| KeyError(error.to_string()))?;
        Ok(KeyPair { private, public: Some(public), jwks: Some(jwks + "\n") })
    }
}

/// The algorithm of this name among those of a key; the first one without a name.
fn chosen(name: Option<&str>, fitting: &[Algorithm]) -> Result<Algorithm, KeyError> {
    let Some(name) = name else { return Ok(fitting[0]) };
    let algorithm = algorithms::named(name).ok_or_else(|| unknown(name))?;
    if fitting.contains(&algorithm) {
        return Ok(algorithm);
    }
    Err(KeyError(format!("the key is not for {name}, but for {fitting:?}")))
}

fn unknown(name: &str) -> KeyError {
    KeyError(format!("{name}: one of {}", algorithms::NAMES))
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines = text.as_bytes().chunks(64).map(String::from_utf8_lossy);
    let body: String = lines.map(|line| format!("{line}\n")).collect();
    format!("-----BEGIN {label}-----\n{body}-----END {label}-----\n")
}
