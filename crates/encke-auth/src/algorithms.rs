//! The names of algorithms (RFC 7518 §3.1, RFC 8037, RFC 9864).

use jsonwebtoken::Algorithm;

/// The algorithm with this name. `none` has none.
pub(crate) fn named(name: &str) -> Option<Algorithm> {
    match name {
        "Ed25519" => Some(Algorithm::EdDSA),
        name => name.parse().ok(),
    }
}

/// The algorithms for HMAC with the least bytes of their secrets: those of the hash (RFC 7518 §3.2).
pub(crate) const HMAC: [(Algorithm, usize); 3] =
    [(Algorithm::HS256, 32), (Algorithm::HS384, 48), (Algorithm::HS512, 64)];

/// The names for people.
pub(crate) const NAMES: &str = "HS256, HS384, HS512, RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA";
