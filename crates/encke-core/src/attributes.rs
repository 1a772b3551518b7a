//! The attributes of a session: values of the application, by name, for as long as the session lives. Clients neither see nor set them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The attributes of a session: JSON values by name.
///
/// Each change has a number, the version. A change that names the version that it expects is refused if another one came before it, so
/// two that read a value and write it back do not undo each other's work.
///
/// ```
/// use encke_core::{AttributeChange, Attributes};
///
/// let attributes = Attributes::of([("cart", r#"["tea"]"#)]);
/// assert_eq!(attributes.get("cart"), Some(r#"["tea"]"#));
/// let change = AttributeChange::set("cart", r#"["tea","milk"]"#).if_version(attributes.version());
/// assert!(change.check(32).is_ok());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    version: u64,
    values: BTreeMap<Box<str>, Box<str>>,
}

/// A change of one attribute of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AttributeChange {
    /// The name, of 1 to [`AttributeChange::NAME_BYTES_MAX`] bytes without control characters.
    pub name: Box<str>,
    /// The value, as raw JSON. None: the attribute is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Box<str>>,
    /// The version that the attributes must have before the change. None: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

/// A change that no session can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttributeError {
    /// The name is empty, too long, or has control characters.
    #[error("the name of an attribute has 1 to 255 bytes and no control characters")]
    Name,
    /// The value is not JSON (RFC 8259), or deeper than `json_depth_max`.
    #[error("the value of an attribute is JSON")]
    Value,
}

/// The limits of the attributes of one session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttributeLimits {
    pub(crate) count_max: usize,
    pub(crate) bytes_max: usize,
}

/// A change that a session does not take now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unchanged {
    /// The attributes have this version, and the change expects another.
    Conflict(u64),
    /// There would be too many attributes, or too many bytes.
    Full,
}

impl Attributes {
    /// These attributes, with raw JSON as their values, for tests of an application.
    pub fn of<'a>(values: impl IntoIterator<Item = (&'a str, &'a str)>) -> Attributes {
        let values: BTreeMap<Box<str>, Box<str>> =
            values.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Attributes { version: values.len() as u64, values }
    }

    /// The value of an attribute, as raw JSON.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|value| &**value)
    }

    /// The attributes in the order of their names, with raw JSON as their values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The number of attributes.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The number of changes so far. It leaps forward when another node goes on with the session from a record, which may lack the latest
    /// changes.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The bytes of all names and values.
    pub fn bytes(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// The attributes as a JSON object.
    pub fn to_json(&self) -> String {
        let mut text = Vec::with_capacity(self.bytes() + 4 * self.len() + 2);
        text.push(b'{');
        for (index, (name, value)) in self.iter().enumerate() {
            if index > 0 {
                text.push(b',');
            }
            bayeux::json::escape_into(name, &mut text);
            text.push(b':');
            text.extend_from_slice(value.as_bytes());
        }
        text.push(b'}');
        // All parts are texts.
        String::from_utf8(text).unwrap_or_default()
    }

    /// Their memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Attributes>() + self.bytes() + self.len() * ATTRIBUTE_BYTES
    }

    /// True if a change would be taken, and what stands against it otherwise.
    pub(crate) fn admits(&self, change: &AttributeChange, limits: AttributeLimits) -> Result<(), Unchanged> {
        if change.version.is_some_and(|expected| expected != self.version) {
            return Err(Unchanged::Conflict(self.version));
        }
        let Some(value) = &change.value else { return Ok(()) };
        let before = self.get(&change.name);
        let count = self.len() + usize::from(before.is_none());
        let replaced = before.map_or(0, |before| change.name.len() + before.len());
        let bytes = self.bytes() - replaced + change.name.len() + value.len();
        // Limits that a reload has lowered must not forbid to make room.
        let grows = before.is_none_or(|before| value.len() > before.len());
        let is_full = count > limits.count_max || bytes > limits.bytes_max;
        if is_full && grows { Err(Unchanged::Full) } else { Ok(()) }
    }

    /// Skips versions that others may have seen.
    pub(crate) fn leap(&mut self, versions: u64) {
        self.version = self.version.saturating_add(versions);
    }

    /// Makes a change that is admitted.
    pub(crate) fn change(&mut self, change: AttributeChange) {
        self.leap(1);
        match change.value {
            Some(value) => _ = self.values.insert(change.name, value),
            None => _ = self.values.remove(&change.name),
        }
    }
}

impl AttributeChange {
    /// The longest name, in bytes.
    pub const NAME_BYTES_MAX: usize = 255;

    /// Sets an attribute to this value (raw JSON).
    pub fn set(name: &str, value: &str) -> AttributeChange {
        AttributeChange { name: name.into(), value: Some(value.into()), version: None }
    }

    /// Removes an attribute, if there is one with this name.
    pub fn remove(name: &str) -> AttributeChange {
        AttributeChange { name: name.into(), value: None, version: None }
    }

    /// The same, only if the attributes have this version: 0 before the first change, see [`Attributes::version`].
    #[must_use]
    pub fn if_version(self, version: u64) -> AttributeChange {
        AttributeChange { version: Some(version), ..self }
    }

    /// Checks the name, and that the value is JSON of at most this depth.
    ///
    /// # Errors
    /// When one of them is not valid.
    pub fn check(&self, json_depth_max: usize) -> Result<(), AttributeError> {
        let is_name = (1..=AttributeChange::NAME_BYTES_MAX).contains(&self.name.len());
        if !is_name || self.name.chars().any(char::is_control) {
            return Err(AttributeError::Name);
        }
        let value = self.value.as_deref().map(|value| bayeux::json::validate(value, json_depth_max));
        value.transpose().map_or(Err(AttributeError::Value), |_| Ok(()))
    }

    /// The bytes of its texts.
    pub fn bytes(&self) -> usize {
        self.name.len() + self.value.as_ref().map_or(0, |value| value.len())
    }
}

/// The memory of an attribute beside its texts, in bytes: its part of a node of the map, which is at least half full, and two allocations.
const ATTRIBUTE_BYTES: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: AttributeLimits = AttributeLimits { count_max: 2, bytes_max: 10 };

    /// The outcome of a change, which is made if it is admitted.
    fn changed(attributes: &mut Attributes, change: AttributeChange) -> Result<u64, Unchanged> {
        attributes.admits(&change, LIMITS)?;
        attributes.change(change);
        Ok(attributes.version())
    }

    #[test]
    fn attributes_are_set_replaced_and_removed_within_their_limits() {
        let mut own = Attributes::default();
        assert_eq!(changed(&mut own, AttributeChange::set("a", "1")), Ok(1));
        assert_eq!(changed(&mut own, AttributeChange::set("b", "1234567")), Ok(2), "10 bytes");
        assert_eq!(changed(&mut own, AttributeChange::set("b", "12345678")), Err(Unchanged::Full));
        assert_eq!(changed(&mut own, AttributeChange::set("c", "1")), Err(Unchanged::Full), "the third");
        assert_eq!(changed(&mut own, AttributeChange::set("a", "2")), Ok(3));
        assert_eq!((own.get("a"), own.get("b"), own.bytes()), (Some("2"), Some("1234567"), 10));
        assert_eq!(changed(&mut own, AttributeChange::remove("b")), Ok(4));
        assert_eq!(changed(&mut own, AttributeChange::set("c", "1")), Ok(5));
        assert_eq!(own.iter().collect::<Vec<_>>(), [("a", "2"), ("c", "1")]);
    }

    #[test]
    fn a_change_that_expects_another_version_is_refused() {
        let mut own = Attributes::default();
        assert_eq!(changed(&mut own, AttributeChange::set("a", "1").if_version(0)), Ok(1));
        assert_eq!(changed(&mut own, AttributeChange::set("a", "2").if_version(0)), Err(Unchanged::Conflict(1)));
        assert_eq!(changed(&mut own, AttributeChange::remove("a").if_version(1)), Ok(2));
        assert_eq!(changed(&mut own, AttributeChange::set("a", "3").if_version(0)), Err(Unchanged::Conflict(2)));
    }

    #[test]
    fn attributes_above_limits_that_were_lowered_can_shrink() {
        let mut own = Attributes::of([("a", "123456"), ("b", "123456"), ("c", "1")]);
        assert_eq!(changed(&mut own, AttributeChange::set("a", "12")), Ok(4));
        assert_eq!(changed(&mut own, AttributeChange::set("a", "123")), Err(Unchanged::Full));
        assert_eq!(changed(&mut own, AttributeChange::remove("b")), Ok(5));
    }

    #[test]
    fn names_and_values_that_are_none_are_refused() {
        let long = "x".repeat(256);
        for (change, error) in [
            (AttributeChange::set("cart", "[1]"), None),
            (AttributeChange::set("e\u{301}\u{1F512}", "null"), None),
            (AttributeChange::remove("a"), None),
            (AttributeChange::set("", "1"), Some(AttributeError::Name)),
            (AttributeChange::remove(&long), Some(AttributeError::Name)),
            (AttributeChange::set("a\nb", "1"), Some(AttributeError::Name)),
            (AttributeChange::set("a", ""), Some(AttributeError::Value)),
            (AttributeChange::set("a", "{\"b\":}"), Some(AttributeError::Value)),
            (AttributeChange::set("a", "1 2"), Some(AttributeError::Value)),
            (AttributeChange::set("a", "[[[[1]]]]"), Some(AttributeError::Value)),
        ] {
            assert_eq!(change.check(3).err(), error, "{change:?}");
        }
    }

    #[test]
    fn they_are_written_as_an_object() {
        assert_eq!(Attributes::default().to_json(), "{}");
        let own = Attributes::of([("a \"b\"", "[1, 2]"), ("c", "\"d\"")]);
        assert_eq!(own.to_json(), r#"{"a \"b\"":[1, 2],"c":"d"}"#);
    }
}
