//! The cryptography of tokens: ring, as a provider for `jsonwebtoken`.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::jwk::{EllipticCurve, ThumbprintHash};
use jsonwebtoken::signature::{Error as SignatureError, Signer, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::rand::SystemRandom;
use ring::signature::{
    self, ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED,
    ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RsaEncoding,
    RsaKeyPair, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use ring::{digest, hmac};
use rsa::pkcs1;

/// Makes ring the provider of this process. Everything that makes a key calls it first.
pub(crate) fn install() {
    // Fails only when ring is the provider already.
    _ = RING.install_default();
}

static RING: CryptoProvider = CryptoProvider {
    signer_factory: |algorithm, key| match algorithm.family() == key.family() {
        true => Ok(Box::new(With(*algorithm, key.clone()))),
        false => Err(ErrorKind::InvalidKeyFormat.into()),
    },
    verifier_factory: |algorithm, key| match algorithm.family() == key.family() {
        true => Ok(Box::new(With(*algorithm, key.clone()))),
        false => Err(ErrorKind::InvalidKeyFormat.into()),
    },
    key_utils: KeyUtils {
        rsa_pub_components_from_private_key: |key| {
            let pair = RsaKeyPair::from_der(key).map_err(|reason| ErrorKind::InvalidRsaKey(reason.to_string()))?;
            let RsaPublicKeyComponents { n, e } = pair.public().into();
            Ok((n, e))
        },
        rsa_pub_components_from_public_key: |key| {
            let key = pkcs1::RsaPublicKeyRef::try_from(key);
            let key = key.map_err(|reason| ErrorKind::InvalidRsaKey(reason.to_string()))?;
            Ok((key.modulus.as_bytes().to_vec(), key.public_exponent.as_bytes().to_vec()))
        },
        ec_pub_components_from_private_key: |key, algorithm| {
            let Some(Scheme::Ecdsa(signing, _, curve)) = Scheme::of(algorithm) else { return Err(invalid_ec_key()) };
            let pair = EcdsaKeyPair::from_pkcs8(signing, key, &SystemRandom::new()).map_err(|_| invalid_ec_key())?;
            // An uncompressed point: 4, x, y (SEC 1 §2.3.3).
            let Some((4, point)) = pair.public_key().as_ref().split_first().map(|(form, point)| (*form, point)) else {
                return Err(invalid_ec_key());
            };
            let (x, y) = point.split_at(point.len() / 2);
            Ok((curve, x.to_vec(), y.to_vec()))
        },
        ed_pub_components_from_private_key: |key, curve| match (curve, Ed25519KeyPair::from_pkcs8_maybe_unchecked(key))
        {
            (EllipticCurve::Ed25519, Ok(pair)) => Ok(pair.public_key().as_ref().to_vec()),
            _ => Err(ErrorKind::InvalidEddsaKey.into()),
        },
        compute_digest: |data, hash| {
            let hash = match hash {
                ThumbprintHash::SHA256 => &digest::SHA256,
                ThumbprintHash::SHA384 => &digest::SHA384,
                ThumbprintHash::SHA512 => &digest::SHA512,
                _ => return Err(ErrorKind::InvalidAlgorithm.into()),
            };
            Ok(digest::digest(hash, data).as_ref().to_vec())
        },
    },
};

fn invalid_ec_key() -> Error {
    ErrorKind::InvalidEcdsaKey.into()
}

/// An algorithm with a key for it.
struct With<K>(Algorithm, K);

impl Signer<Vec<u8>> for With<EncodingKey> {
    fn try_sign(&self, message: &[u8]) -> Result<Vec<u8>, SignatureError> {
        let (key, random) = (self.1.as_bytes(), SystemRandom::new());
        match Scheme::of(self.0).ok_or_else(SignatureError::new)? {
            Scheme::Hmac(hash) => Ok(hmac::sign(&hmac::Key::new(hash, key), message).as_ref().to_vec()),
            Scheme::Rsa(encoding, _) => {
                let pair = RsaKeyPair::from_der(key).map_err(SignatureError::from_source)?;
                let mut signed = vec![0; pair.public().modulus_len()];
                pair.sign(encoding, &random, message, &mut signed).map_err(SignatureError::from_source)?;
                Ok(signed)
            }
            Scheme::Ecdsa(algorithm, ..) => {
                let pair = EcdsaKeyPair::from_pkcs8(algorithm, key, &random).map_err(SignatureError::from_source)?;
                Ok(pair.sign(&random, message).map_err(SignatureError::from_source)?.as_ref().to_vec())
            }
            Scheme::Ed25519 => {
                let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key).map_err(SignatureError::from_source)?;
                Ok(pair.sign(message).as_ref().to_vec())
            }
        }
    }
}

impl JwtSigner for With<EncodingKey> {
    fn algorithm(&self) -> Algorithm {
        self.0
    }
}

impl Verifier<Vec<u8>> for With<DecodingKey> {
    fn verify(&self, message: &[u8], signed: &Vec<u8>) -> Result<(), SignatureError> {
        let by = |algorithm: &'static dyn VerificationAlgorithm, key| {
            UnparsedPublicKey::new(algorithm, key).verify(message, signed)
        };
        let scheme = Scheme::of(self.0).ok_or_else(SignatureError::new)?;
        let verified = match (scheme, self.1.kind()) {
            (Scheme::Hmac(hash), DecodingKeyKind::SecretOrDer(secret)) => {
                hmac::verify(&hmac::Key::new(hash, secret), message, signed)
            }
            (Scheme::Rsa(_, parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n: unpadded(n), e: unpadded(e) }.verify(parameters, message, signed)
            }
            (Scheme::Rsa(_, parameters), DecodingKeyKind::SecretOrDer(key)) => by(parameters, key),
            (Scheme::Ecdsa(_, algorithm, _), DecodingKeyKind::SecretOrDer(key)) => by(algorithm, key),
            (Scheme::Ed25519, DecodingKeyKind::SecretOrDer(key)) => by(&signature::ED25519, key),
            (_, DecodingKeyKind::RsaModulusExponent { .. }) => return Err(SignatureError::new()),
        };
        verified.map_err(SignatureError::from_source)
    }
}

/// A number without the zeros that some sets of keys put before it.
fn unpadded(number: &[u8]) -> &[u8] {
    &number[number.iter().take_while(|byte| **byte == 0).count()..]
}

impl JwtVerifier for With<DecodingKey> {
    fn algorithm(&self) -> Algorithm {
        self.0
    }
}

/// An algorithm as ring has it.
enum Scheme {
    Hmac(hmac::Algorithm),
    Rsa(&'static dyn RsaEncoding, &'static RsaParameters),
    Ecdsa(&'static EcdsaSigningAlgorithm, &'static dyn VerificationAlgorithm, EllipticCurve),
    Ed25519,
}

impl Scheme {
    fn of(algorithm: Algorithm) -> Option<Scheme> {
        use Scheme::{Ecdsa, Ed25519, Hmac, Rsa};
        Some(match algorithm {
            Algorithm::HS256 => Hmac(hmac::HMAC_SHA256),
            Algorithm::HS384 => Hmac(hmac::HMAC_SHA384),
            Algorithm::HS512 => Hmac(hmac::HMAC_SHA512),
            Algorithm::RS256 => Rsa(&signature::RSA_PKCS1_SHA256, &signature::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => Rsa(&signature::RSA_PKCS1_SHA384, &signature::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => Rsa(&signature::RSA_PKCS1_SHA512, &signature::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => Rsa(&signature::RSA_PSS_SHA256, &signature::RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => Rsa(&signature::RSA_PSS_SHA384, &signature::RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => Rsa(&signature::RSA_PSS_SHA512, &signature::RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => Ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING, &ECDSA_P256_SHA256_FIXED, EllipticCurve::P256),
            Algorithm::ES384 => Ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING, &ECDSA_P384_SHA384_FIXED, EllipticCurve::P384),
            Algorithm::EdDSA => Ed25519,
            _ => return None,
        })
    }
}
