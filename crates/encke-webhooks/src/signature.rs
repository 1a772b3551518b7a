//! Signatures of webhooks, as [Standard Webhooks](https://www.standardwebhooks.com) defines them.
//!
//! A signature is an HMAC with SHA-256 of `ID.TIMESTAMP.BODY`. A request carries one for each secret, so a backend that knows one of them
//! can check it while secrets change.

use base64::Engine;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ring::hmac;

/// The header with the id of an event. It is the same in every retry.
pub const ID: &str = "webhook-id";
/// The header with the time of this request, in seconds since 1970.
pub const TIMESTAMP: &str = "webhook-timestamp";
/// The header with the signatures.
pub const SIGNATURE: &str = "webhook-signature";

/// The prefix of a secret in text.
const PREFIX: &str = "whsec_";
/// The bytes of a secret, as the standard recommends them.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Base64 with padding, which may be missing in a secret.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A secret that an Encke server and a backend share. Its debug text names the algorithm only.
#[derive(Clone, Debug)]
pub struct Secret(hmac::Key);

/// An invalid secret. The text never contains the secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// It does not begin with `whsec_`.
    #[error("a secret begins with whsec_")]
    Prefix,
    /// The rest is not base64.
    #[error("a secret is whsec_ and base64")]
    Base64,
    /// It is too short or too long.
    #[error("a secret has 24 to 64 bytes, this one has {0}")]
    Length(usize),
}

impl Secret {
    /// Parses `whsec_` with the base64 of 24 to 64 bytes.
    ///
    /// # Errors
    /// When the text is something else.
    pub fn parse(text: &str) -> Result<Secret, SecretError> {
        let encoded = text.strip_prefix(PREFIX).ok_or(SecretError::Prefix)?;
        let bytes = BASE64.decode(encoded).map_err(|_| SecretError::Base64)?;
        if !SECRET_BYTES.contains(&bytes.len()) {
            return Err(SecretError::Length(bytes.len()));
        }
        Ok(Secret(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }

    /// The signature of a request: `v1,` and base64.
    pub fn sign(&self, id: &str, timestamp_s: u64, body: &[u8]) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(format!("{id}.{timestamp_s}.").as_bytes());
        context.update(body);
        format!("v1,{}", BASE64.encode(context.sign()))
    }

    /// True if one of these signatures, separated by spaces, is this secret's. For a backend in Rust, which also checks that the
    /// time is at most some minutes away. The comparison takes the same time for every signature of the same length.
    pub fn verifies(&self, signatures: &str, id: &str, timestamp_s: u64, body: &[u8]) -> bool {
        let signed = [format!("{id}.{timestamp_s}.").as_bytes(), body].concat();
        signatures.split(' ').any(|signature| {
            let encoded = signature.strip_prefix("v1,").unwrap_or_default();
            BASE64.decode(encoded).is_ok_and(|tag| hmac::verify(&self.0, &signed, &tag).is_ok())
        })
    }
}

/// The signatures of a request by several secrets: the value of the header `webhook-signature`.
pub(crate) fn sign(secrets: &[Secret], id: &str, timestamp_s: u64, body: &[u8]) -> String {
    let signatures: Vec<String> = secrets.iter().map(|secret| secret.sign(id, timestamp_s, body)).collect();
    signatures.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vector of the specification's libraries.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const MESSAGE: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const TIME_S: u64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SIGNED: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    #[test]
    fn the_vector_of_the_specification_is_signed_as_it_says() {
        let secret = Secret::parse(SECRET).expect("valid");
        assert_eq!(secret.sign(MESSAGE, TIME_S, BODY), SIGNED);
        assert!(secret.verifies(SIGNED, MESSAGE, TIME_S, BODY));
    }

    #[test]
    fn any_other_id_time_body_or_version_does_not_verify() {
        let secret = Secret::parse(SECRET).expect("valid");
        assert!(!secret.verifies(SIGNED, "msg_other", TIME_S, BODY));
        assert!(!secret.verifies(SIGNED, MESSAGE, TIME_S + 1, BODY));
        assert!(!secret.verifies(SIGNED, MESSAGE, TIME_S, b"{}"));
        assert!(!secret.verifies(&SIGNED.replace("v1,", "v2,"), MESSAGE, TIME_S, BODY));
        assert!(!secret.verifies("", MESSAGE, TIME_S, BODY));
    }

    #[test]
    fn while_secrets_change_a_backend_may_know_either() {
        let (old, new) = (Secret::parse(SECRET).expect("valid"), Secret::parse(OTHER).expect("valid"));
        let both = sign(&[new.clone(), old.clone()], MESSAGE, TIME_S, BODY);
        assert!(both.ends_with(SIGNED), "{both}");
        assert!(old.verifies(&both, MESSAGE, TIME_S, BODY));
        assert!(new.verifies(&both, MESSAGE, TIME_S, BODY));
    }

    const OTHER: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

    #[test]
    fn an_invalid_secret_is_refused_and_never_shown() {
        assert_eq!(Secret::parse("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").err(), Some(SecretError::Prefix));
        assert_eq!(Secret::parse("whsec_no!").err(), Some(SecretError::Base64));
        assert_eq!(Secret::parse("whsec_c2hvcnQ=").err(), Some(SecretError::Length(5)));
        assert!(!format!("{:?}", Secret::parse(OTHER)).contains("AAAA"));
    }
}
