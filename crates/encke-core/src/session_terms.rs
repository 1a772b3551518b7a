//! The terms of one session that differ from the settings: its times, and the way in which it gets messages.

use bayeux::Terms;
use serde::{Deserialize, Serialize};

use crate::settings::{Declared as _, Settings};

/// Terms of one session that differ from the settings. `None`: as the settings say. A number has the range of the setting with
/// its name.
///
/// ```
/// use encke_core::{Identity, SessionTerms};
///
/// // A kiosk may be silent for an hour, and does not get its own messages.
/// let terms =
///     SessionTerms { max_interval_ms: Some(3_600_000), broadcast_to_publisher: Some(false), ..SessionTerms::default() };
/// assert!(terms.check().is_ok());
/// let identity = Identity::of_user("kiosk-7").with_terms(terms);
/// assert_eq!(identity.terms.as_deref(), Some(&terms));
///
/// let nonsense = SessionTerms { timeout_ms: Some(0), ..SessionTerms::default() };
/// assert_eq!(nonsense.check().unwrap_err().to_string(), "timeout_ms = 0: a number above 0");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionTerms {
    /// Time that a connect is held, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Time that its client waits between two connects, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<u64>,
    /// Time that it lives in silence after `interval_ms`, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_interval_ms: Option<u64>,
    /// True if it gets its own messages on channels to which it subscribes. It stands above the rules of channels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broadcast_to_publisher: Option<bool>,
    /// True if its messages come with connect replies only, even on a WebSocket. A session that acknowledges always gets them so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_deliver_only: Option<bool>,
}

/// A number in [`SessionTerms`] that is out of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} = {value}: {wanted}")]
#[non_exhaustive]
pub struct SessionTermsError {
    /// The name of the field.
    pub name: &'static str,
    /// Its value.
    pub value: u64,
    /// A description of valid values.
    pub wanted: &'static str,
}

impl SessionTerms {
    /// Checks that its numbers are in the ranges of the settings.
    ///
    /// # Errors
    /// The first that is not.
    pub fn check(&self) -> Result<(), SessionTermsError> {
        let numbers = [
            ("timeout_ms", self.timeout_ms),
            ("interval_ms", self.interval_ms),
            ("max_interval_ms", self.max_interval_ms),
        ];
        let wrong = numbers.into_iter().find_map(|(name, value)| {
            let (value, setting) = (value?, Settings::declared(name)?);
            Some(SessionTermsError { name, value, wanted: setting.refusal(value)? })
        });
        wrong.map_or(Ok(()), Err)
    }

    /// These terms, and the others where these have none.
    pub(crate) fn or(self, other: SessionTerms) -> SessionTerms {
        SessionTerms {
            timeout_ms: self.timeout_ms.or(other.timeout_ms),
            interval_ms: self.interval_ms.or(other.interval_ms),
            max_interval_ms: self.max_interval_ms.or(other.max_interval_ms),
            broadcast_to_publisher: self.broadcast_to_publisher.or(other.broadcast_to_publisher),
            connect_deliver_only: self.connect_deliver_only.or(other.connect_deliver_only),
        }
    }

    /// The times of the settings, and its own where it has some.
    pub(crate) fn applied_to(&self, terms: Terms) -> Terms {
        Terms {
            timeout_ms: self.timeout_ms.unwrap_or(terms.timeout_ms),
            interval_ms: self.interval_ms.unwrap_or(terms.interval_ms),
            max_interval_ms: self.max_interval_ms.unwrap_or(terms.max_interval_ms),
            client_max_ms: terms.client_max_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_the_ranges_of_the_settings_are_refused() {
        let default = SessionTerms::default;
        let largest = 1_000_000_000_000;
        for (terms, wrong) in [
            (default(), None),
            (SessionTerms { interval_ms: Some(0), timeout_ms: Some(1), max_interval_ms: Some(1), ..default() }, None),
            (SessionTerms { timeout_ms: Some(0), ..default() }, Some("timeout_ms")),
            (SessionTerms { max_interval_ms: Some(0), ..default() }, Some("max_interval_ms")),
            (SessionTerms { interval_ms: Some(largest), ..default() }, None),
            (SessionTerms { interval_ms: Some(largest + 1), ..default() }, Some("interval_ms")),
            (SessionTerms { timeout_ms: Some(u64::MAX), ..default() }, Some("timeout_ms")),
        ] {
            assert_eq!(terms.check().err().map(|error| error.name), wrong, "{terms:?}");
        }
    }

    #[test]
    fn own_terms_stand_above_others_field_by_field() {
        let own = SessionTerms { timeout_ms: Some(1), broadcast_to_publisher: Some(false), ..SessionTerms::default() };
        let others = SessionTerms { timeout_ms: Some(2), interval_ms: Some(3), ..SessionTerms::default() };
        assert_eq!(own.or(others), SessionTerms { interval_ms: Some(3), ..own });
        let settings = Terms { timeout_ms: 7, interval_ms: 8, max_interval_ms: 9, client_max_ms: 10 };
        let expected = Terms { timeout_ms: 1, interval_ms: 3, ..settings };
        assert_eq!(own.or(others).applied_to(settings), expected);
    }
}
