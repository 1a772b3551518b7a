//! Positions in histories as text: for programs that store them, and for query strings.
//!
//! ```text
//!   k3jd9a2f-1795000000000            a position: epoch and offset
//!   /a:k3jd9a2f-17,/b:0p4mc2dd-4711   positions of several channels
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The position of a message in the history of its channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The life of the history. A channel whose history was lost begins a new epoch.
    pub epoch: Arc<str>,
    /// The offset of the message. Offsets grow within an epoch, with gaps.
    pub offset: u64,
}

/// Positions of channels, each of the last message that a subscriber has received.
///
/// Positions without a name hold for a subscription to one channel. An empty list means that the channels had no
/// history yet: everything in their histories is new.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    pub(crate) lone: Option<Position>,
    pub(crate) named: BTreeMap<Box<str>, Position>,
}

/// The point from which a subscription gets messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// The messages published from now on: `latest`.
    #[default]
    Latest,
    /// All messages that the histories retain: `earliest`.
    Earliest,
    /// The messages after these positions.
    After(Positions),
}

/// The error for a text that is no position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a position such as k3jd9a2f-17, positions such as /a:k3jd9a2f-17,/b:0p4mc2dd-4, none, latest or earliest")]
pub struct PositionError;

impl Positions {
    /// Sets the position of a channel.
    pub fn insert(&mut self, channel: &str, position: Position) {
        self.named.insert(channel.into(), position);
    }

    /// The positions with the name of their channel.
    pub fn named(&self) -> impl Iterator<Item = (&str, &Position)> {
        self.named.iter().map(|(channel, position)| (&**channel, position))
    }

    /// False for a position of the only channel, without its name.
    pub fn are_named(&self) -> bool {
        self.lone.is_none()
    }

    /// The position of a channel.
    pub fn of(&self, channel: &str) -> Option<&Position> {
        self.named.get(channel).or(self.lone.as_ref())
    }
}

impl From<Position> for Start {
    /// After the message at this position. For a subscription to one channel.
    fn from(position: Position) -> Start {
        Start::After(Positions { lone: Some(position), named: BTreeMap::new() })
    }
}

impl From<Positions> for Start {
    fn from(positions: Positions) -> Start {
        Start::After(positions)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch, self.offset)
    }
}

impl fmt::Display for Positions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(position) = &self.lone {
            return write!(f, "{position}");
        }
        if self.named.is_empty() {
            return f.write_str(NONE);
        }
        for (at, (channel, position)) in self.named.iter().enumerate() {
            write!(f, "{}{channel}:{position}", if at > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

impl FromStr for Position {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Position, PositionError> {
        let (epoch, offset) = text.split_once('-').ok_or(PositionError)?;
        let is_epoch = (1..=EPOCH_BYTES_MAX).contains(&epoch.len()) && epoch.bytes().all(|b| b.is_ascii_alphanumeric());
        let is_number = offset.bytes().all(|byte| byte.is_ascii_digit());
        let offset = offset.parse().ok().filter(|_| is_epoch && is_number).ok_or(PositionError)?;
        Ok(Position { epoch: epoch.into(), offset })
    }
}

impl FromStr for Positions {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Positions, PositionError> {
        let mut positions = Positions::default();
        if text == NONE {
            return Ok(positions);
        }
        if !text.starts_with('/') {
            positions.lone = Some(text.parse()?);
            return Ok(positions);
        }
        for part in text.split(',') {
            let (channel, position) = part.rsplit_once(':').ok_or(PositionError)?;
            if positions.named.len() == CHANNELS_MAX {
                return Err(PositionError);
            }
            positions.insert(channel, position.parse()?);
        }
        Ok(positions)
    }
}

impl FromStr for Start {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Start, PositionError> {
        match text {
            "latest" => Ok(Start::Latest),
            "earliest" => Ok(Start::Earliest),
            positions => positions.parse().map(Start::After),
        }
    }
}

/// The most channels with a history at which a pattern may begin.
pub(crate) const CHANNELS_MAX: usize = 256;
/// The text of an empty list of positions.
const NONE: &str = "none";
/// A longer epoch is none of ours.
const EPOCH_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_read_back_as_they_were_written() {
        for text in ["latest", "earliest"] {
            assert!(matches!(text.parse(), Ok(Start::Latest | Start::Earliest)), "{text}");
        }
        for text in ["none", "abc-17", "/a:abc-17", "/a/b c:abc-17,/b:0-18446744073709551615"] {
            let positions: Positions = text.parse().expect(text);
            assert_eq!(positions.to_string(), text);
            assert_eq!(text.parse(), Ok(Start::After(positions)));
        }
    }

    #[test]
    fn a_text_that_is_no_position_is_refused() {
        let many = vec!["/a:a-1"; CHANNELS_MAX + 2].join(",");
        let distinct: Vec<_> = (0..=CHANNELS_MAX).map(|number| format!("/{number}:a-1")).collect();
        let long = format!("{}-1", "a".repeat(EPOCH_BYTES_MAX + 1));
        for text in
            ["", "17", "-17", "a-", "a-+1", "a--1", "a-1x", "a-99999999999999999999", "é-1", "/a", "/a:", "/a:1"]
        {
            assert_eq!(text.parse::<Start>(), Err(PositionError), "{text}");
        }
        assert!(many.parse::<Start>().is_ok(), "one channel");
        assert_eq!(
            [distinct.join(","), long].map(|text| text.parse::<Start>()),
            [Err(PositionError), Err(PositionError)]
        );
    }
}
