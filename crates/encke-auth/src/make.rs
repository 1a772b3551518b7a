//! Makes tokens and keys, for tests, for programs without a provider of identities, and for `encke token`.

use std::error::Error;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use getrandom::SysRng;
use jsonwebtoken::jwk::{Jwk, PublicKeyUse, ThumbprintHash};
use jsonwebtoken::{Algorithm, EncodingKey};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair as _,
};
use rsa::pkcs8::der::asn1::{BitStringRef, OctetStringRef};
use rsa::pkcs8::der::{self, EncodePem as _};
use rsa::pkcs8::spki::{AlgorithmIdentifierRef, SubjectPublicKeyInfoRef};
use rsa::pkcs8::{EncodePrivateKey as _, EncodePublicKey as _, LineEnding, ObjectIdentifier, PrivateKeyInfoRef};
use serde_json::{Map, Value, json};

use crate::{algorithms, crypto};

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
        crypto::install();
        Ok(SigningKey { key: EncodingKey::from_secret(secret), algorithm })
    }

    /// A private key in PEM form (PKCS #8): RSA of 2048 to 4096 bits, EC (P-256, P-384) or Ed25519. Without the name of an
    /// algorithm, that of the key; `RS256` for RSA.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    pub fn of_pem(pem: &[u8], algorithm: Option<&str>) -> Result<SigningKey, KeyError> {
        use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
        crypto::install();
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
        Err(KeyError(
            "not a private key in PEM form (PKCS #8): RSA of 2048 to 4096 bits, EC (P-256, P-384) or Ed25519".into(),
        ))
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
        let cannot = |reason: Box<dyn Error>| KeyError(format!("the key cannot be made: {reason}"));
        let secret = |bytes: usize| {
            let mut secret = vec![0; bytes];
            getrandom::fill(&mut secret).map_err(|reason| cannot(reason.into()))?;
            Ok(KeyPair { private: URL_SAFE_NO_PAD.encode(secret), public: None, jwks: None })
        };
        let made = match known {
            Algorithm::HS256 => return secret(32),
            Algorithm::HS384 => return secret(48),
            Algorithm::HS512 => return secret(64),
            Algorithm::ES256 => ec_pair(&ECDSA_P256_SHA256_FIXED_SIGNING, P256),
            Algorithm::ES384 => ec_pair(&ECDSA_P384_SHA384_FIXED_SIGNING, P384),
            Algorithm::EdDSA => ed25519_pair(),
            _ => rsa_pair(),
        };
        let (private, public) = made.map_err(cannot)?;
        let signing = SigningKey::of_pem(private.as_bytes(), Some(algorithm))?;
        let mut jwk = Jwk::from_encoding_key(&signing.key, known).map_err(|error| KeyError(error.to_string()))?;
        jwk.common.public_key_use = Some(PublicKeyUse::Signature);
        jwk.common.key_id = signing.kid();
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

/// A private key and its public key in PEM form.
type PemPair = (String, String);

fn ec_pair(signing: &'static EcdsaSigningAlgorithm, curve: ObjectIdentifier) -> Result<PemPair, Box<dyn Error>> {
    let random = SystemRandom::new();
    let document = EcdsaKeyPair::generate_pkcs8(signing, &random)?;
    let pair = EcdsaKeyPair::from_pkcs8(signing, document.as_ref(), &random)?;
    let algorithm = AlgorithmIdentifierRef { oid: EC, parameters: Some((&curve).into()) };
    let private = PrivateKeyInfoRef::try_from(document.as_ref())?.to_pem(LineEnding::LF)?;
    Ok((private, public_pem(algorithm, pair.public_key().as_ref())?))
}

/// The private key has no public key inside, so that other programs read it, too.
fn ed25519_pair() -> Result<PemPair, Box<dyn Error>> {
    // An octet string in DER (RFC 8410 §7).
    let mut key = [0; 34];
    key[..2].copy_from_slice(&[4, 32]);
    getrandom::fill(&mut key[2..])?;
    let pair = Ed25519KeyPair::from_seed_unchecked(&key[2..])?;
    let algorithm = AlgorithmIdentifierRef { oid: ED25519, parameters: None };
    let private = PrivateKeyInfoRef::new(algorithm, OctetStringRef::new(&key)?).to_pem(LineEnding::LF)?;
    Ok((private, public_pem(algorithm, pair.public_key().as_ref())?))
}

fn rsa_pair() -> Result<PemPair, Box<dyn Error>> {
    let pair = rsa::PrivateKey::new(&mut SysRng, 2_048)?;
    let private = pair.to_pkcs8_pem(LineEnding::LF)?.to_string();
    Ok((private, pair.to_public_key().to_public_key_pem(LineEnding::LF)?))
}

fn public_pem(algorithm: AlgorithmIdentifierRef<'_>, key: &[u8]) -> der::Result<String> {
    let key = SubjectPublicKeyInfoRef { algorithm, subject_public_key: BitStringRef::from_bytes(key)? };
    key.to_pem(LineEnding::LF)
}

/// Keys on elliptic curves (RFC 5480 §2.1.1).
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
/// RFC 8410 §3.
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
