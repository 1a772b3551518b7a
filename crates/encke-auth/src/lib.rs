//! Authentication of handshakes by JSON Web Tokens (RFC 7519).
//!
//! [`AuthSettings`] is the section `[auth]` of the configuration, and [`Jwt`] decides as it says. The algorithms that are allowed follow
//! from the keys, never from the token: a public key is never a secret for HMAC, and an unsigned token is refused.
//!
//! ```
//! use encke_auth::{AuthSettings, Jwt, Secret, SigningKey};
//!
//! let secret = "a secret that only the application and the server know";
//! let settings = AuthSettings { secret: Some(Secret::new(secret)), ..AuthSettings::default() };
//! let jwt = Jwt::new(&settings)?;
//!
//! // The application makes a token for a user.
//! let claims = serde_json::json!({"sub": "alice", "exp": 4_102_444_800_u64, "subscribe": ["/news/**"]});
//! let key = SigningKey::of_secret(secret.as_bytes(), None)?;
//! let token = key.token(claims.as_object().expect("an object"), None)?;
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! let identity = jwt.verify(&token).await?;
//! assert_eq!(&*identity.user, "alice");
//! # Ok::<(), encke_auth::TokenError>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod algorithms;
mod claims;
mod crypto;
mod error;
mod jwks;
mod jwt;
mod keys;
mod lookup;
mod make;
mod settings;
mod verifier;

pub use encke::Secret;
pub use encke_fetch::SecretUrl;
pub use error::TokenError;
pub use jwt::Jwt;
pub use make::{KeyError, KeyPair, SigningKey};
pub use settings::{AuthSettings, AuthSettingsError};
pub use verifier::unverified;
