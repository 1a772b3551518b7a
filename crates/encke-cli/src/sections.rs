//! Sections of the file that are no settings of the server. Each is read by the crate that uses it.

use encke::{ApiKey, ApiKeys};
use encke_sources::SourceSettings;
use serde::Deserialize;
use toml::Value;

use crate::layers::{Given, Problem, Raw};

/// All sections.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sections {
    /// `[[api_keys]]`
    pub(crate) api_keys: ApiKeys,
    /// `[[source]]`
    pub(crate) sources: Vec<SourceSettings>,
}

impl Sections {
    /// Reads a section.
    ///
    /// # Errors
    /// One line for each error, with the line of the section in the file.
    pub(crate) fn read(&mut self, given: &Given) -> Result<(), Vec<Problem>> {
        let Raw::Typed(value) = &given.value else { return Ok(()) };
        let read = match given.name.as_str() {
            "source" => self.read_sources(value),
            _ => self.read_api_keys(value),
        };
        let located = |problem: String| Problem(format!("{}: {problem}", given.origin));
        read.map_err(|problems| problems.into_iter().map(located).collect())
    }

    fn read_api_keys(&mut self, value: &Value) -> Result<(), Vec<String>> {
        let in_one_line = |error: toml::de::Error| format!("api_keys: {}", error.message().replace('\n', "; "));
        let api_keys = Vec::<ApiKey>::deserialize(value.clone()).map_err(in_one_line);
        let api_keys = api_keys.and_then(|keys| ApiKeys::new(&keys).map_err(|error| error.to_string()));
        self.api_keys = api_keys.map_err(|problem| vec![problem])?;
        Ok(())
    }

    fn read_sources(&mut self, value: &Value) -> Result<(), Vec<String>> {
        self.sources = encke_sources::parse(value).map_err(|error| error.problems)?;
        Ok(())
    }
}
