//! The sections `[[source]]` of a configuration.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::check::Check;
use crate::command::CommandSettings;
use crate::file::FileSettings;
use crate::mail::MailSettings;
use crate::quotes::{QuotesSettings, SYMBOL};

/// The settings of one source.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SourceSettings {
    /// Its name, which no other source has: letters, digits, `-` and `_`. The default is its kind.
    pub name: String,
    /// The channel it publishes to. The default depends on the kind.
    pub channel: String,
    /// The pause after the first failure, in milliseconds. It doubles with each further failure.
    pub restart_pause_ms: u64,
    /// The longest pause, in milliseconds. A source that has worked for this time begins with the shortest pause again.
    pub restart_pause_max_ms: u64,
    /// True if each node of a cluster runs it. False: one of those that have a source of this name.
    pub every_node: bool,
    /// The settings of its kind.
    pub kind: Kind,
}

/// The kinds of sources.
#[derive(Clone, Debug, PartialEq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// The output of a program.
    Command(CommandSettings),
    /// The lines that are added to a file.
    File(FileSettings),
    /// New mails of an account.
    Mail(MailSettings),
    /// Prices of symbols.
    Quotes(QuotesSettings),
}

/// The errors in the settings of sources, one line each. The user is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", problems.join("; "))]
#[non_exhaustive]
pub struct SettingsError {
    /// Each names the source, the setting, its value, and the allowed values.
    pub problems: Vec<String>,
}

/// Settings that every kind has.
#[derive(Deserialize)]
#[serde(default)]
struct Common {
    name: Option<String>,
    channel: Option<String>,
    restart_pause_ms: u64,
    restart_pause_max_ms: u64,
    every_node: bool,
}

impl Default for Common {
    fn default() -> Common {
        Common { name: None, channel: None, restart_pause_ms: 1_000, restart_pause_max_ms: 60_000, every_node: false }
    }
}

impl Kind {
    /// Its name in a configuration.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// The kind with this name, its settings without the common ones, and its default channel.
    fn parse(subject: &str, kind: &str, table: Table) -> Result<(Kind, &'static str), Vec<String>> {
        match kind {
            "command" => Ok((Kind::Command(fields(subject, table)?), "/command/{name}")),
            "file" => Ok((Kind::File(fields(subject, table)?), "/file/{name}")),
            "mail" => Ok((Kind::Mail(fields(subject, table)?), "/mail/{name}")),
            "quotes" => Ok((Kind::Quotes(fields(subject, table)?), "/stock/{symbol}")),
            other => Err(vec![format!("{subject}.kind = {other:?}: {KINDS}")]),
        }
    }

    fn check(&self, channel: &str, check: &mut Check<'_>) {
        match self {
            Kind::Command(settings) => settings.check(check),
            Kind::File(settings) => settings.check(check),
            Kind::Mail(settings) => settings.check(check),
            Kind::Quotes(settings) => settings.check(channel, check),
        }
    }
}

/// Reads the list of all `[[source]]`.
///
/// # Errors
/// All errors: an unknown kind or setting, a value that cannot work, a name that two sources have.
pub fn parse(list: &Value) -> Result<Vec<SourceSettings>, SettingsError> {
    let (mut sources, mut problems, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
    let none = Vec::new();
    let tables = list.as_array().unwrap_or_else(|| {
        problems.push("source: a list; each source begins with [[source]]".into());
        &none
    });
    for (index, table) in tables.iter().enumerate() {
        let subject = format!("source[{index}]");
        let Some(table) = table.as_table() else {
            problems.push(format!("{subject}: a table; each source begins with [[source]]"));
            continue;
        };
        match parse_one(&subject, table.clone()) {
            Ok(source) => {
                let mut check = Check::new(&subject, &mut problems);
                source.check(&mut check);
                let is_new = names.insert(source.name.clone());
                check.that(is_new, format_args!("name = {:?}: another source has this name", source.name));
                sources.push(source);
            }
            Err(more) => problems.extend(more),
        }
    }
    if problems.is_empty() { Ok(sources) } else { Err(SettingsError { problems }) }
}

fn parse_one(subject: &str, mut table: Table) -> Result<SourceSettings, Vec<String>> {
    let kind = match table.remove("kind") {
        Some(Value::String(kind)) => kind,
        Some(other) => return Err(vec![format!("{subject}.kind = {other}: {KINDS}")]),
        None => return Err(vec![format!("{subject}: kind is missing: {KINDS}")]),
    };
    let common: Table = COMMON.iter().filter_map(|name| table.remove_entry(*name)).collect();
    let (common, settings) = (fields::<Common>(subject, common), Kind::parse(subject, &kind, table));
    let (common, (settings, channel)) = match (common, settings) {
        (Ok(common), Ok(settings)) => (common, settings),
        (common, settings) => {
            return Err([common.err(), settings.err()].into_iter().flatten().flatten().collect());
        }
    };
    let name = common.name.unwrap_or(kind);
    let channel = common.channel.unwrap_or_else(|| channel.into()).replace("{name}", &name);
    Ok(SourceSettings {
        name,
        channel,
        restart_pause_ms: common.restart_pause_ms,
        restart_pause_max_ms: common.restart_pause_max_ms,
        every_node: common.every_node,
        kind: settings,
    })
}

/// Reads a struct. Each field is tried alone, so that each error names its setting.
fn fields<T: DeserializeOwned>(subject: &str, table: Table) -> Result<T, Vec<String>> {
    let common: String = ["kind"].iter().chain(&COMMON).map(|name| format!("`{name}`, ")).collect();
    let in_words = |error: toml::de::Error| error.message().trim().replace('\n', "; ");
    let alone = |(key, value): (&String, &Value)| {
        let error = T::deserialize(Table::from_iter([(key.clone(), value.clone())])).err()?;
        let text = in_words(error).replacen("expected one of ", &format!("expected one of {common}"), 1);
        Some(format!("{subject}.{key}: {text}"))
    };
    let problems: Vec<String> = table.iter().filter_map(alone).collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    T::deserialize(table).map_err(|error| vec![format!("{subject}: {}", in_words(error))])
}

impl SourceSettings {
    /// The channel that it publishes to, or the pattern that matches all of them.
    pub fn pattern(&self) -> String {
        let Some((before, after)) = self.channel.split_once(SYMBOL) else { return self.channel.clone() };
        let parent = before.rsplit_once('/').map_or("", |(parent, _)| parent);
        format!("{parent}/{}", if after.contains('/') { "**" } else { "*" })
    }

    fn check(&self, check: &mut Check<'_>) {
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let is_named = !self.name.is_empty() && self.name.len() <= NAME_BYTES_MAX && self.name.chars().all(is_name);
        check.that(is_named, format_args!("name = {:?}: 1 to {NAME_BYTES_MAX} letters, digits, - and _", self.name));
        let channel = self.channel.as_str();
        let is_channel = channel.starts_with('/')
            && !["/meta/", "/service/"].iter().any(|prefix| channel.starts_with(prefix))
            && !channel.ends_with('/')
            && !channel.contains('*');
        check.that(is_channel, format_args!("channel = {channel:?}: a channel for broadcasts such as /news/today"));
        check.range("restart_pause_ms", self.restart_pause_ms, 1..=86_400_000);
        check.range("restart_pause_max_ms", self.restart_pause_max_ms, self.restart_pause_ms..=86_400_000);
        self.kind.check(channel, check);
    }
}

/// The settings of [`Common`].
const COMMON: [&str; 5] = ["name", "channel", "restart_pause_ms", "restart_pause_max_ms", "every_node"];

const KINDS: &str = "one of mail, quotes, command, file";

const NAME_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<SourceSettings>, Vec<String>> {
        let table: Table = toml::from_str(text).expect("TOML");
        parse(&table["source"]).map_err(|error| error.problems)
    }

    #[test]
    fn a_source_has_defaults_for_all_but_its_kind_and_its_input() {
        let text = "[[source]]\nkind = \"command\"\ncommand = [\"date\"]\n[[source]]\nkind = \"file\"\nname = \"log\"\npath = \"/var/log/x\"\n";
        let sources = parsed(text).expect("valid");
        let names: Vec<_> = sources.iter().map(|source| (source.name.as_str(), source.channel.as_str())).collect();
        assert_eq!(names, [("command", "/command/command"), ("log", "/file/log")]);
        assert_eq!((sources[0].restart_pause_ms, sources[0].restart_pause_max_ms), (1_000, 60_000));
    }

    #[test]
    fn a_source_has_one_pattern_for_all_its_channels() {
        for (channel, pattern) in [
            ("/stock/{symbol}", "/stock/*"),
            ("/{symbol}", "/*"),
            ("/stock/x-{symbol}", "/stock/*"),
            ("/stock/{symbol}/price", "/stock/**"),
        ] {
            let text = format!("[[source]]\nkind = \"quotes\"\nchannel = \"{channel}\"\n");
            assert_eq!(parsed(&text).expect("valid")[0].pattern(), pattern);
        }
        let file = "[[source]]\nkind = \"file\"\npath = \"a\"\n";
        assert_eq!(parsed(file).expect("valid")[0].pattern(), "/file/file");
    }

    #[test]
    fn an_error_names_the_source_the_setting_and_the_allowed_values() {
        for (text, expected) in [
            ("", "source[0]: kind is missing: one of "),
            ("kind = \"mial\"", "source[0].kind = \"mial\": one of "),
            ("kind = 3", "source[0].kind = 3: one of "),
            ("kind = \"command\"", "source[0].command = []: a program and its arguments"),
            (
                "kind = \"command\"\nname = \"x\"\ncomand = [\"a\"]",
                "source[0].comand: unknown field `comand`, expected one of `kind`, `name`, ",
            ),
            (
                "kind = \"command\"\ncommand = \"a\"",
                "source[0].command: invalid type: string \"a\", expected a sequence",
            ),
            ("kind = \"command\"\ncommand = [\"a\"]\nname = \"a/b\"", "source[0].name = \"a/b\": 1 to 64 letters"),
            (
                "kind = \"command\"\ncommand = [\"a\"]\nchannel = \"/meta/x\"",
                "source[0].channel = \"/meta/x\": a channel for broadcasts",
            ),
            ("kind = \"command\"\ncommand = [\"a\"]\nline_bytes_max = 0", "source[0].line_bytes_max = 0: from 1 to "),
            (
                "kind = \"file\"\npath = \"a\"\nstart = \"middle\"",
                "source[0].start: unknown variant `middle`, expected `end` or `beginning`",
            ),
            (
                "kind = \"file\"\npath = \"a\"\nrestart_pause_ms = 9\nrestart_pause_max_ms = 8",
                "source[0].restart_pause_max_ms = 8: from 9 to ",
            ),
        ] {
            let problems = parsed(&format!("[[source]]\n{text}\n")).expect_err(text);
            assert!(problems[0].starts_with(expected), "{problems:?}");
        }
        let twice = "[[source]]\nkind = \"file\"\npath = \"a\"\n".repeat(2);
        assert_eq!(parsed(&twice), Err(vec!["source[1].name = \"file\": another source has this name".into()]));
        assert!(parsed("source = 3").expect_err("no list")[0].starts_with("source: a list"));
    }
}
