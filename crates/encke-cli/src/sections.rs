//! Sections of the file that are no settings of the server. Each is read by the crate that uses it.

use encke::{ApiKey, ApiKeys};
use serde::Deserialize;

use crate::layers::{Given, Problem, Raw};

/// All sections.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sections {
    /// `[[api_keys]]`
    pub(crate) api_keys: ApiKeys,
}

impl Sections {
    /// Reads a section.
    ///
    /// # Errors
    /// One line for each error, with the line of the section in the file.
    pub(crate) fn read(&mut self, given: &Given) -> Result<(), Vec<Problem>> {
        let Raw::Typed(value) = &given.value else { return Ok(()) };
        let located = |problem: String| Problem(format!("{}: {problem}", given.origin));
        let in_one_line = |error: toml::de::Error| format!("api_keys: {}", error.message().replace('\n', "; "));
        let api_keys = Vec::<ApiKey>::deserialize(value.clone()).map_err(in_one_line);
        let api_keys = api_keys.and_then(|keys| ApiKeys::new(&keys).map_err(|error| error.to_string()));
        self.api_keys = api_keys.map_err(|problem| vec![located(problem)])?;
        Ok(())
    }
}
