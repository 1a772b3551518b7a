//! Reads sections of the file that are tables.

use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// Reads a section that is a table. Each error names its key, which is why the keys are read one by one.
///
/// # Errors
/// One line for each error.
pub(crate) fn table<T: DeserializeOwned>(section: &str, value: &Value) -> Result<T, Vec<String>> {
    let Value::Table(all) = value else { return Err(vec![format!("{section}: a table, [{section}]")]) };
    let alone = |(key, value): (&String, &Value)| {
        let error = T::deserialize(Table::from_iter([(key.clone(), value.clone())])).err()?;
        Some(format!("{section}.{key}: {}", in_one_line(&error)))
    };
    let problems: Vec<String> = all.iter().filter_map(alone).collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    T::deserialize(all.clone()).map_err(|error| vec![format!("{section}: {}", in_one_line(&error))])
}

/// The message of an error without line ends.
pub(crate) fn in_one_line(error: &toml::de::Error) -> String {
    error.message().replace('\n', "; ")
}
