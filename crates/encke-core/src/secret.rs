//! Texts that no log, error or list shows.

use std::fmt;

use serde::{Deserialize, Deserializer};

/// A key, a password, or another text that only its user may see. It is shown as `***`, and has no serialized form.
///
/// ```
/// use encke_core::Secret;
///
/// let password = Secret::from("hunter2");
/// assert_eq!(format!("{password} {password:?}"), "*** ***");
/// assert_eq!(password.reveal(), "hunter2");
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A secret.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text itself. Whoever calls this must not show it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// True if there is no text.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: Into<String>> From<T> for Secret {
    fn from(text: T) -> Secret {
        Secret::new(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Secret, D::Error> {
        // An error about another type would show the value.
        let text = String::deserialize(from).map_err(|_| serde::de::Error::custom("a secret is a text in quotes"))?;
        Ok(Secret(text))
    }
}

#[cfg(test)]
mod tests {
    use serde::de::value::{Error, StrDeserializer, U64Deserializer};

    use super::*;

    #[test]
    fn the_error_for_a_secret_that_is_no_text_does_not_show_it() {
        let error = Secret::deserialize(U64Deserializer::<Error>::new(12_345_678_901)).expect_err("a number");
        assert_eq!(error.to_string(), "a secret is a text in quotes");
        assert_eq!(Secret::deserialize(StrDeserializer::<Error>::new("a")).expect("a text").reveal(), "a");
    }
}
