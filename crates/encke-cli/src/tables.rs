//! Finds each mistake in the tables of a configuration.
//!
//! A mistake is a line of text that begins with its path, such as `channels[1].history_ms: …`. So its line in the file can be found.

use std::fmt::Display;

use encke::Declared;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::layers::path_of;
use crate::options::nearest_of;
use crate::units::Unit;

/// Reads a section that is a table.
///
/// # Errors
/// Each mistake.
pub(crate) fn table<T: DeserializeOwned>(section: &str, value: &Value) -> Result<T, Vec<String>> {
    checked(section, value, |_| Vec::new())
}

/// The same with a check of the whole. Beside fields with mistakes, it counts only for fields that are given and have none.
pub(crate) fn checked<T: DeserializeOwned>(
    section: &str,
    value: &Value,
    check: impl FnOnce(&T) -> Vec<String>,
) -> Result<T, Vec<String>> {
    let Value::Table(all) = value else { return Err(vec![format!("{section}: a table, [{section}]")]) };
    let mut mistakes = mistakes_in(section, all, false, |table| T::deserialize(table).err());
    let is_of = |mistake: &str, key: &str| is_about(mistake, &format!("{section}.{key}"));
    let mut rest = all.clone();
    rest.retain(|key, _| !mistakes.iter().any(|mistake| is_of(mistake, key)));
    match T::deserialize(rest.clone()) {
        Ok(value) => {
            let mut wrong = check(&value);
            wrong.retain(|wrong| mistakes.is_empty() || rest.keys().any(|key| is_of(wrong, key)));
            mistakes.extend(wrong);
            if mistakes.is_empty() { Ok(value) } else { Err(mistakes) }
        }
        // Most likely a field with a mistake is missing.
        Err(_) if !mistakes.is_empty() => Err(mistakes),
        Err(error) => Err(vec![format!("{section}: {}", explain("", error.message()))]),
    }
}

/// The numbers of a section that are out of their ranges, and what else a check has found.
pub(crate) fn wrong_in<T: Declared>(
    section: &str,
    settings: &T,
    found: impl IntoIterator<Item = impl Display>,
) -> Vec<String> {
    let of_range = settings.out_of_range().into_iter();
    let of_range = of_range.map(|(setting, value, wanted)| format!("{section}.{} = {value}: {wanted}", setting.name));
    let mut wrong: Vec<String> = of_range.collect();
    for found in found.into_iter().map(|found| found.to_string()) {
        if !wrong.iter().any(|wrong| path_of(wrong) == path_of(&found)) {
            wrong.push(found);
        }
    }
    wrong
}

/// True if a mistake is about the field with this path, or about a part of it.
fn is_about(mistake: &str, path: &str) -> bool {
    path_of(mistake).strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Reads a section that is a list of tables, and checks each of them.
///
/// # Errors
/// Each mistake.
pub(crate) fn list<T: DeserializeOwned>(
    section: &str,
    value: &Value,
    check: impl Fn(usize, &T) -> Vec<String>,
) -> Result<Vec<T>, Vec<String>> {
    let Value::Array(items) = value else {
        return Err(vec![format!("{section}: a list; each of its entries begins with [[{section}]]")]);
    };
    let read =
        |(index, item): (usize, &Value)| checked(&format!("{section}[{index}]"), item, |entry| check(index, entry));
    all_or_mistakes(items.iter().enumerate().map(read))
}

/// All values, or all mistakes.
fn all_or_mistakes<T>(results: impl Iterator<Item = Result<T, Vec<String>>>) -> Result<Vec<T>, Vec<String>> {
    let (mut values, mut mistakes) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(value) => values.push(value),
            Err(more) => mistakes.extend(more),
        }
    }
    if mistakes.is_empty() { Ok(values) } else { Err(mistakes) }
}

/// The mistakes in the fields of a table, each tried alone, with the value if `shows`. What is missing is not among them.
pub(crate) fn mistakes_in(
    path: &str,
    table: &Table,
    shows: bool,
    error_of: impl Fn(Table) -> Option<toml::de::Error>,
) -> Vec<String> {
    let alone = |(key, value): (&String, &Value)| {
        let error = error_of(Table::from_iter([(key.clone(), value.clone())]))?;
        let is_about_others = error.message().starts_with("missing field");
        let shown =
            if shows && !error.message().starts_with("unknown field") { format!(" = {value}") } else { String::new() };
        (!is_about_others).then(|| format!("{path}.{key}{shown}: {}", explain(key, error.message())))
    };
    table.iter().filter_map(alone).collect()
}

/// Says in words what would be right, for a message of the parser about the setting `key`.
pub(crate) fn explain(key: &str, message: &str) -> String {
    let message = message.trim();
    let expected = || message.split_once("expected ").map_or("", |(_, expected)| expected);
    let listed = || expected().trim_start_matches("one of ").replace('`', "");
    if message.starts_with("unknown variant") {
        let names = expected().replace('`', "");
        return names;
    }
    if message.starts_with("unknown field") {
        let names = listed();
        let near = nearest_of(key, names.split(", ").flat_map(|name| name.split(" or ")));
        return match near {
            Some(near) => format!("there is no such setting; did you mean {near}?"),
            None => format!("there is no such setting; there are: {names}"),
        };
    }
    if let Some(rest) = message.strip_prefix("missing field ") {
        return format!("{} is missing", rest.lines().next().unwrap_or_default().replace('`', ""));
    }
    let is_number = ["u16", "u32", "u64", "usize", "i64", "a nonzero"].iter().any(|kind| expected().starts_with(kind));
    let number = || Unit::of(key).map_or_else(|| "a whole number".into(), Unit::wanted);
    match message.split_once(':').map_or(("", message), |(kind, rest)| (kind, rest.trim())) {
        ("invalid value", rest) if is_number && rest.starts_with("integer `-") => format!("{}, 0 or more", number()),
        ("invalid value", _) if is_number => "a smaller number".into(),
        ("invalid type", _) if is_number => number(),
        ("invalid type", _) if expected() == "a boolean" => "true or false".into(),
        ("invalid type", _) if expected() == "a string" => "a text in quotes".into(),
        ("invalid type", _) if expected() == "a sequence" => "a list".into(),
        ("invalid type", _) if expected() == "a map" || expected().starts_with("struct ") => "a table".into(),
        _ => message.replace('\n', "; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_the_parser_becomes_words_about_right_values() {
        for (key, message, expected) in [
            ("slow", "unknown variant `x`, expected one of `a`, `b`", "one of a, b"),
            ("slow", "unknown variant `x`, expected `a` or `b`", "a or b"),
            (
                "lasy",
                "unknown field `lasy`, expected one of `lazy`, `pattern`",
                "there is no such setting; did you mean lazy?",
            ),
            (
                "lasy",
                "unknown field `lasy`, expected `lazy` or `pattern`",
                "there is no such setting; did you mean lazy?",
            ),
            (
                "zzz",
                "unknown field `zzz`, expected one of `lazy`, `pattern`",
                "there is no such setting; there are: lazy, pattern",
            ),
            ("", "missing field `pattern`", "pattern is missing"),
            ("shards", "invalid type: string \"5\", expected usize", "a whole number"),
            ("shards", "invalid value: integer `-5`, expected usize", "a whole number, 0 or more"),
            ("status", "invalid value: integer `70000`, expected u16", "a smaller number"),
            ("demo", "invalid type: string \"yes\", expected a boolean", "true or false"),
            ("name", "invalid type: integer `7`, expected a string", "a text in quotes"),
            ("mounts", "invalid type: integer `7`, expected a sequence", "a list"),
            ("key", "a secret is a text in quotes", "a secret is a text in quotes"),
        ] {
            assert_eq!(explain(key, message), expected, "{message}");
        }
        let time = explain("history_ms", "invalid type: string \"5\", expected u64");
        assert_eq!(time, "a whole number of milliseconds, or a time such as \"20s\" or \"10m\"");
    }
}
