//! The file of `encke subscribe --positions`: where a subscriber is in the histories of its channels.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use encke_client::Position;
use serde::{Deserialize, Serialize};

use crate::talk::Failure;
use crate::talk::context::replace;

/// The positions, and their file.
pub(crate) struct Positions {
    path: PathBuf,
    known: BTreeMap<String, Position>,
    /// True if an earlier subscriber has written the file.
    is_resumed: bool,
    /// True if the file has them all.
    is_stored: bool,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Line {
    channel: String,
    epoch: String,
    offset: u64,
}

impl Positions {
    /// Reads the file, if it exists.
    ///
    /// # Errors
    /// It cannot be read, or is not one of positions.
    pub(crate) fn read(path: &Path) -> Result<Positions, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", path.display()));
        let (text, is_resumed) = match std::fs::read_to_string(path) {
            Ok(text) => (text, true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => (String::new(), false),
            Err(error) => return Err(failed(&error)),
        };
        let mut known = BTreeMap::new();
        for line in text.lines() {
            let line: Line = serde_json::from_str(line).map_err(|error| failed(&error))?;
            known.insert(line.channel, Position { epoch: line.epoch.into(), offset: line.offset });
        }
        Ok(Positions { path: path.into(), known, is_resumed, is_stored: is_resumed })
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = (String, Position)> {
        self.known.iter().map(|(channel, position)| (channel.clone(), position.clone()))
    }

    /// True if an earlier subscriber has written the file, also without positions.
    pub(crate) fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Notes where the session is. All messages up to there have been printed.
    pub(crate) fn set(&mut self, positions: Vec<(String, Position)>) {
        for (channel, position) in positions {
            if self.known.get(&channel) != Some(&position) {
                self.known.insert(channel, position);
                self.is_stored = false;
            }
        }
    }

    /// Replaces the file, if something has changed.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn store(&mut self) -> Result<(), Failure> {
        if self.is_stored {
            return Ok(());
        }
        let mut text = String::new();
        for (channel, Position { epoch, offset }) in &self.known {
            let line = Line { channel: channel.clone(), epoch: epoch.to_string(), offset: *offset };
            let line = serde_json::to_string(&line).map_err(|error| Failure::new(error.to_string()))?;
            let _ = writeln!(text, "{line}");
        }
        replace(&self.path, &text).map_err(|error| Failure::new(format!("{}: {error}", self.path.display())))?;
        self.is_stored = true;
        Ok(())
    }
}
