//! The sources of settings: a file, the environment, flags. Each is read into the same list of names and values.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use toml::de::{DeTable, DeValue};
use toml::{Spanned, Value};

use crate::options::{self, PREFIXES};
use crate::units;

/// A value with the name as it was given.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) name: String,
    pub(crate) value: Raw,
    pub(crate) source: Source,
}

/// The origin of a value, and those of its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) origin: Origin,
    /// The lines of the parts, if it is from a file, by their paths in the value: `[1]`, `[1].pattern`.
    lines: BTreeMap<String, usize>,
}

impl From<Origin> for Source {
    fn from(origin: Origin) -> Source {
        Source { origin, lines: BTreeMap::new() }
    }
}

impl Source {
    /// The origin of the part with this path in the whole configuration: `channels[1].pattern`. A text may follow the path.
    pub(crate) fn of_part(&self, path: &str) -> Origin {
        match (&self.origin, self.line(path_of(path))) {
            (Origin::File { path, .. }, Some(line)) => Origin::File { path: path.clone(), line },
            _ => self.origin.clone(),
        }
    }

    /// A mistake, whose text begins with its path, with its origin.
    pub(crate) fn located(&self, mistake: &str) -> Problem {
        Problem(format!("{}: {mistake}", self.of_part(mistake)))
    }

    /// The line of the innermost part that has one on the way to `path`.
    fn line(&self, path: &str) -> Option<usize> {
        let mut inside = path[path.find(['.', '['])?..].trim_start_matches('.');
        loop {
            if let Some(line) = self.lines.get(inside) {
                return Some(*line);
            }
            inside = &inside[..inside.rfind(['.', '['])?];
        }
    }
}

/// The sources of options or sections, by their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins(BTreeMap<&'static str, Source>);

impl Origins {
    /// Notes the source of an option or a section.
    pub(crate) fn insert(&mut self, name: &'static str, source: Source) {
        self.0.insert(name, source);
    }

    /// The origin of an option or a section, if somebody set it.
    pub(crate) fn origin(&self, name: &str) -> Option<&Origin> {
        self.0.get(name).map(|source| &source.origin)
    }

    /// The origin of the part with this path, if somebody set its option or section. A text may follow the path.
    pub(crate) fn of_part(&self, path: &str) -> Option<Origin> {
        let path = path_of(path);
        Some(self.0.get(path.split(['.', '[']).next()?)?.of_part(path))
    }
}

/// A problem, with its origin if that is known.
pub(crate) fn located(origin: Option<Origin>, problem: &impl fmt::Display) -> Problem {
    Problem(origin.map_or_else(|| problem.to_string(), |origin| format!("{origin}: {problem}")))
}

/// The path with which a text begins.
pub(crate) fn path_of(text: &str) -> &str {
    let is_of_path = |char: char| char.is_ascii_alphanumeric() || "_-.[]".contains(char);
    text.split(|char| !is_of_path(char)).next().unwrap_or_default()
}

/// A value as it was given.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Raw {
    /// From a flag or the environment: a text that is parsed by the option's type.
    Text(String),
    /// From a file.
    Typed(Value),
}

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A line of a file, counted from 1.
    File { path: String, line: usize },
    /// A variable of the environment.
    Environment(String),
    /// A flag, with its dashes.
    Flag(String),
    /// Other settings, for this reason.
    Implied(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { path, line } => write!(f, "{path}:{line}"),
            Origin::Environment(name) | Origin::Flag(name) => f.write_str(name),
            Origin::Implied(reason) => f.write_str(reason),
        }
    }
}

/// One line about an error in the configuration. The user is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Problem(pub(crate) String);

/// Reads a file.
pub(crate) fn of_file(path: &Path) -> Result<Vec<Given>, Vec<Problem>> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| vec![Problem(format!("{shown}: {error}"))])?;
    of_text(&shown, &text)
}

/// Reads the text of a file. Tables that are no option are CometD's prefixes: `[ws]` and `timeout` are `ws.timeout`. The table `[files]` has
/// the settings whose names begin with `files`.
pub(crate) fn of_text(path: &str, text: &str) -> Result<Vec<Given>, Vec<Problem>> {
    let line_of = |at: usize| text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1;
    let broken = |error: toml::de::Error| {
        let line = line_of(error.span().map_or(0, |span| span.start));
        vec![Problem(format!("{path}:{line}: {}", error.message().replace('\n', "; ")))]
    };
    let spanned = DeTable::parse(text).map_err(broken)?;
    let mut values: toml::Table = toml::from_str(text).map_err(broken)?;
    units::settle(&mut values);
    let mut given = Vec::new();
    collect(spanned.get_ref(), &values, "", &mut |name, key, spanned, value| {
        let origin = Origin::File { path: path.into(), line: line_of(key) };
        let mut source = Source::from(origin);
        add_lines(spanned, "", &mut |path, at| _ = source.lines.insert(path, line_of(at)));
        given.push(Given { name, value: Raw::Typed(value), source });
    });
    Ok(given)
}

/// Takes a name, where it is in the file, and the value in both forms.
type Put<'a> = dyn FnMut(String, usize, &DeValue<'_>, Value) + 'a;

/// Walks the same table in two forms: `spanned` has the positions in the file, `values` has the values.
fn collect(spanned: &DeTable<'_>, values: &toml::Table, prefix: &str, put: &mut Put<'_>) {
    for (key, value) in spanned {
        let name = match (prefix, key.get_ref().as_ref()) {
            (OF_FILES, "directory") => FILES.into(),
            (prefix, key) => format!("{prefix}{key}"),
        };
        match (value.get_ref(), values.get(key.get_ref().as_ref())) {
            (DeValue::Table(inner), Some(Value::Table(values))) if name == FILES => {
                collect(inner, values, OF_FILES, put)
            }
            (DeValue::Table(inner), Some(Value::Table(values)))
                if PREFIXES.iter().any(|prefix| prefix.starts_with(&format!("{name}.")))
                    || is_of_cometd(&name, inner) =>
            {
                collect(inner, values, &format!("{name}."), put);
            }
            (spanned, Some(value)) => put(name, key.span().start, spanned, value.clone()),
            (_, None) => {}
        }
    }
}

/// True for the beginning of the names of CometD's options in this table.
fn is_of_cometd(name: &str, table: &DeTable<'_>) -> bool {
    let is_known = |name: &str| !matches!(options::find(name), Err(options::NotFound::Unknown { .. }));
    table.iter().any(|(key, value)| {
        let name = format!("{name}.{}", key.get_ref());
        is_known(&name) || matches!(value.get_ref(), DeValue::Table(inner) if is_of_cometd(&name, inner))
    })
}

/// Adds the parts of a value with their paths in it and where they are.
fn add_lines(value: &DeValue<'_>, path: &str, add: &mut impl FnMut(String, usize)) {
    let mut put = |inner: String, at: usize, value: &DeValue<'_>| {
        add(inner.clone(), at);
        add_lines(value, &inner, add);
    };
    match value {
        DeValue::Table(table) => table.iter().for_each(|(key, value)| {
            let dot = if path.is_empty() { "" } else { "." };
            put(format!("{path}{dot}{}", key.get_ref()), key.span().start, value.get_ref());
        }),
        DeValue::Array(items) => items.iter().enumerate().for_each(|(index, item): (usize, &Spanned<DeValue<'_>>)| {
            put(format!("{path}[{index}]"), item.span().start, item.get_ref());
        }),
        _ => {}
    }
}

/// The table of the settings about files, and the setting that is its `directory`.
const FILES: &str = "files";
/// The beginning of the names of its other settings.
const OF_FILES: &str = "files_";

/// Picks the settings out of an environment. An empty variable counts as not set.
pub(crate) fn of_environment(variables: impl Iterator<Item = (String, String)>) -> Vec<Given> {
    let mut given = Vec::new();
    for (name, value) in variables {
        let Some(rest) = name.strip_prefix("ENCKE_") else { continue };
        if value.is_empty() || OTHER_VARIABLES.contains(&rest) || is_of_kubernetes(rest, &value) {
            continue;
        }
        let source = Origin::Environment(name.clone()).into();
        given.push(Given { name: rest.into(), value: Raw::Text(value), source });
    }
    given
}

/// Kubernetes puts `ENCKE_PORT=tcp://…` and more into every pod beside a service called `encke`.
fn is_of_kubernetes(rest: &str, value: &str) -> bool {
    rest.starts_with("SERVICE_") || rest.starts_with("PORT_") || (rest == "PORT" && value.contains("://"))
}

/// Variables that are no settings: the file to read, the server to talk to and secrets for it, the program that the test scripts use, and
/// that this process is to take over from another.
const OTHER_VARIABLES: &[&str] = &["API_KEY", "BIN", "CONFIG", "CONTEXT", "HANDOVER", "TOKEN", "URL"];

#[cfg(test)]
mod tests {
    use super::*;

    fn names(given: &[Given]) -> Vec<(&str, String)> {
        given.iter().map(|given| (given.name.as_str(), given.source.origin.to_string())).collect()
    }

    #[test]
    fn a_file_gives_names_with_their_lines() {
        let text = "# a comment\ntimeout_ms = 5\n\nws.maxMessageSize = 2048\n[long-polling]\njson.timeout = 3\n\n[[channels]]\npattern = \"/a\"\n";
        let given = of_text("f.toml", text).expect("valid");
        let mut found = names(&given);
        found.sort();
        let expected = [
            ("channels", "f.toml:8"),
            ("long-polling.json.timeout", "f.toml:6"),
            ("timeout_ms", "f.toml:2"),
            ("ws.maxMessageSize", "f.toml:4"),
        ];
        assert_eq!(found, expected.map(|(name, origin)| (name, origin.to_string())));
    }

    #[test]
    fn the_table_of_files_has_the_settings_about_files() {
        let text = "[files]\ndirectory = \"/srv\"\nlisting = true\n[[files.rules]]\npattern = \"/a\"\n";
        let given = of_text("f.toml", text).expect("valid");
        let mut found = names(&given);
        found.sort();
        let expected = [("files", "f.toml:2"), ("files_listing", "f.toml:3"), ("files_rules", "f.toml:4")];
        assert_eq!(found, expected.map(|(name, origin)| (name, origin.to_string())));
        let flat = of_text("f.toml", "files = \"/srv\"\nfiles_listing = true\n").expect("valid");
        assert_eq!(names(&flat), [("files", "f.toml:1".to_string()), ("files_listing", "f.toml:2".to_string())]);
    }

    #[test]
    fn a_file_that_is_not_toml_is_reported_with_its_line() {
        let problems = of_text("f.toml", "timeout_ms = 5\nshards = = 2\n").expect_err("not TOML");
        assert!(problems[0].0.starts_with("f.toml:2: "), "{problems:?}");
        assert!(!problems[0].0.contains('\n'), "{problems:?}");
    }

    #[test]
    fn only_variables_of_encke_are_read_from_the_environment() {
        let variables = [
            ("PATH", "/bin"),
            ("ENCKE_TIMEOUT_MS", "5"),
            ("ENCKE_CONFIG", "f.toml"),
            ("ENCKE_URL", "http://a"),
            ("ENCKE_BIN", "target/release/encke"),
            ("ENCKE_HANDOVER", "1"),
            ("ENCKE_SHARDS", ""),
            ("ENCKE_SERVICE_HOST", "10.0.0.1"),
            ("ENCKE_PORT", "tcp://10.0.0.1:8080"),
            ("ENCKE_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
        ];
        let given = of_environment(variables.into_iter().map(|(name, value)| (name.into(), value.into())));
        assert_eq!(names(&given), [("TIMEOUT_MS", "ENCKE_TIMEOUT_MS".to_string())]);
    }
}
