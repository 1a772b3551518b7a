//! The effective configuration: flags before environment before file before defaults.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use encke::{Declared as _, Setting, Settings};
use serde::Deserialize as _;
use toml::{Table, Value};

use crate::cluster::{self, ClusterSection};
use crate::demo;
use crate::layers::{self, Given, Origin, Origins, Problem, Raw, located};
use crate::logs;
use crate::options::{self, Found, NotFound, Program};
use crate::rules;
use crate::sections::Sections;
use crate::tables;
use crate::units::{self, Unit};

/// The sources of the configuration; they can be read again when the file has changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// The file to read, which must exist. Without one, [`FILE`] is read if it exists.
    pub(crate) file: Option<PathBuf>,
    /// The environment.
    pub(crate) environment: Vec<(String, String)>,
    /// The flags of the command line.
    pub(crate) flags: Vec<Given>,
    /// True for `encke demo`: its settings come below those of the file.
    pub(crate) demo: bool,
}

/// A configuration without errors.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// For the server.
    pub(crate) settings: Settings,
    /// For the program around it.
    pub(crate) program: Program,
    /// For what runs beside the server.
    pub(crate) sections: Sections,
    /// The file that was read.
    pub(crate) file: Option<PathBuf>,
    /// Warnings about values that work.
    pub(crate) notes: Vec<String>,
    values: Table,
    of_options: Origins,
    of_sections: Origins,
}

impl Sources {
    /// A file and the environment, without flags.
    pub(crate) fn of_file(file: Option<PathBuf>) -> Sources {
        let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        Sources { file, environment: std::env::vars_os().filter_map(text).collect(), ..Sources::default() }
    }

    /// Reads the file and the environment; flags take precedence.
    ///
    /// # Errors
    /// All errors, one line each.
    pub(crate) fn read(&self) -> Result<Config, Vec<Problem>> {
        let file = self.file();
        let mut merge = Merge { defaults: defaults(), values: defaults(), ..Merge::default() };
        let mut sections = Sections::default();
        if self.demo {
            merge.apply_file(layers::of_text(demo::ORIGIN, demo::SETTINGS)?, &mut sections);
        }
        let of_demo = std::mem::take(&mut sections.sources);
        let mut is_read = true;
        match file.as_deref().map(layers::of_file) {
            Some(Ok(given)) => merge.apply_file(given, &mut sections),
            Some(Err(problems)) => (is_read, merge.problems) = (false, problems),
            None => {}
        }
        demo::add_sources(of_demo, &mut sections.sources);
        merge.apply(layers::of_environment(self.environment.iter().cloned()), options::find_variable);
        merge.apply(self.flags.clone(), options::find);
        if !is_read {
            // The settings may be right with those of the file.
            return Err(merge.problems);
        }
        let (mut config, mut problems) = merge.finish()?;
        let located = |config: &Config, misfits: Vec<Problem>| {
            misfits.into_iter().map(|it| config.located(it)).collect::<Vec<_>>()
        };
        sections.cluster = ClusterSection::with_servers(sections.cluster.take(), &config.program.cluster);
        let is_node = sections.cluster.is_some() || config.of_sections.origin("cluster").is_some();
        problems.extend(located(&config, sections.misfits(&config.settings, is_node)));
        (config.file, config.sections) = (file, sections);
        if !self.demo {
            config.settle_demo(config.settings.listen);
        }
        problems.extend(config.settle_data().err());
        // A section with mistakes is not there, and the server is to be a node all the same.
        let is_broken = !problems.is_empty() && config.of_sections.origin("cluster").is_some();
        let misfits = config.sections.cluster.as_ref().map(|cluster| cluster.misfits(&config.server_settings()));
        let of_server = || cluster::misfits_of_server(&config.settings, is_node);
        let misfits = misfits.or_else(|| (is_broken || !is_node).then(of_server));
        problems.extend(located(&config, misfits.unwrap_or_default()));
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }

    fn file(&self) -> Option<PathBuf> {
        let variable = self.environment.iter().find(|(name, value)| name == "ENCKE_CONFIG" && !value.is_empty());
        let named = self.file.clone().or_else(|| variable.map(|(_, value)| value.into()));
        named.or_else(|| Some(PathBuf::from(FILE)).filter(|path| path.exists()))
    }
}

impl Config {
    /// The settings of the server, with the rules for the channels of the demo pages if these are on, and those for sources.
    pub(crate) fn server_settings(&self) -> Settings {
        let settings = self.settings.clone();
        let own = settings.channels.len();
        let mut settings = if self.program.demo { encke_demo::with_rules(settings) } else { settings };
        if self.sections.cluster.is_some() {
            // The demo goes without histories there.
            let of_demo = settings.channels.split_off(own);
            settings.channels.extend(of_demo.into_iter().filter(|rule| rule.history().is_none()));
        }
        let says = |pattern: &str| {
            let of_file = self.values.get("channels").and_then(Value::as_array).into_iter().flatten();
            let mut of_pattern = of_file.filter(|rule| rule.get("pattern").and_then(Value::as_str) == Some(pattern));
            of_pattern.any(|rule| rule.get("publishers").is_some())
        };
        rules::with_sources(&mut settings.channels, says, &self.sections.sources);
        settings
    }

    /// Turns the services of the demo pages off where nobody has asked for them and strangers would find them: with `[auth]`, and where
    /// `listen` or one of `listeners` is not this machine's only; and in a cluster, where they have no histories.
    pub(crate) fn settle_demo(&mut self, listen: SocketAddr) {
        let settings = Settings { listen, ..self.settings.clone() };
        let reason = match (self.sections.auth.is_some(), self.sections.cluster.is_some(), settings.is_on_loopback()) {
            (true, ..) => "off with [auth], unless demo = true",
            (false, true, _) => "off in a cluster, unless demo = true",
            (false, false, false) => "off on an address that is not loopback, unless demo = true",
            (false, false, true) => return,
        };
        if self.program.demo && !self.is_set("demo") {
            self.program.demo = false;
            self.values.insert("demo".into(), false.into());
            self.of_options.insert("demo", Origin::Implied(reason).into());
        }
    }

    /// Leaves `data` out where it has no effect.
    ///
    /// # Errors
    /// See [`ClusterSection::ignores_data`].
    fn settle_data(&mut self) -> Result<(), Problem> {
        let is_node = self.sections.cluster.is_some();
        if is_node && let Some(note) = ClusterSection::ignores_data(&self.server_settings(), |path| self.origin(path))?
        {
            self.notes.push(note);
            self.settings.data.clear();
            self.values.insert("data".into(), "".into());
            self.of_options.insert("data", Origin::Implied("none in a cluster with histories").into());
        }
        Ok(())
    }

    /// The reason why the services of the demo pages are off, if nobody has turned them off.
    pub(crate) fn demo_is_off(&self) -> Option<&Origin> {
        self.of_options.origin("demo").filter(|origin| matches!(origin, Origin::Implied(_)))
    }

    /// The value of an option as TOML.
    pub(crate) fn value(&self, name: &str) -> &Value {
        &self.values[name]
    }

    /// The origin of the part with this path, such as `channels[1].pattern`, if somebody set its option or section.
    pub(crate) fn origin(&self, path: &str) -> Option<Origin> {
        self.of_sections.of_part(path).or_else(|| self.of_options.of_part(path))
    }

    /// A problem, whose text begins with a path, with its origin.
    fn located(&self, problem: Problem) -> Problem {
        located(self.origin(&problem.0), &problem)
    }

    /// Each option with its value and its source, unless it is the default.
    pub(crate) fn effective(&self) -> impl Iterator<Item = (&'static Setting, &Value, Option<&Origin>)> {
        options::all().filter_map(|option| {
            let value = self.values.get(option.name)?;
            Some((option, value, self.of_options.origin(option.name)))
        })
    }

    /// True if somebody set an option.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.of_options.origin(name).is_some()
    }

    /// The names of the options whose values differ from another configuration's, with both values.
    pub(crate) fn changes_from(&self, old: &Config) -> Vec<(&'static str, String, String)> {
        let all = self.effective().zip(old.effective());
        let changed = all.filter(|((_, new, _), (_, old, _))| new != old);
        changed.map(|((option, new, _), (_, old, _))| (option.name, old.to_string(), new.to_string())).collect()
    }
}

/// The defaults of all options but `port`, which is a part of `listen`.
pub(crate) fn defaults() -> Table {
    let table = |value: Result<Value, _>| match value {
        Ok(Value::Table(table)) => table,
        // Both are plain structs; a test reads every option from here.
        _ => Table::new(),
    };
    let mut defaults = table(Value::try_from(Settings::default()));
    defaults.extend(table(Value::try_from(Program::default())));
    defaults
}

/// The defaults, and the layers that replace them.
#[derive(Default)]
struct Merge {
    defaults: Table,
    values: Table,
    of_options: Origins,
    of_sections: Origins,
    notes: Vec<String>,
    problems: Vec<Problem>,
}

impl Merge {
    fn apply_file(&mut self, file: Vec<Given>, sections: &mut Sections) {
        let (of_sections, settings): (Vec<_>, _) = file.into_iter().partition(|given| options::is_section(&given.name));
        self.apply(settings, options::find);
        for given in &of_sections {
            if let Some(name) = options::SECTIONS.iter().find(|name| **name == given.name) {
                self.of_sections.insert(name, given.source.clone());
            }
        }
        self.problems.extend(of_sections.iter().filter_map(|given| sections.read(given).err()).flatten());
        let contradiction = sections.contradiction();
        self.problems.extend(contradiction.map(|it| located(self.of_sections.of_part(&it.0), &it)));
    }

    fn apply(&mut self, mut layer: Vec<Given>, find: fn(&str) -> Result<Found, NotFound>) {
        // `port` changes a part of `listen`, so it has to come after it.
        layer.sort_by_key(|given| given.name.eq_ignore_ascii_case("port"));
        // A value without a prefix takes precedence over CometD's values for one transport.
        layer.sort_by_key(|given| find(&given.name).is_ok_and(|found| found.is_widened));
        let mut set: BTreeMap<&'static str, (Value, Origin)> = BTreeMap::new();
        for given in layer {
            let Given { name, value, source } = given;
            let origin = source.origin.clone();
            let found = match find(&name) {
                Ok(found) => found,
                Err(NotFound::Ignored(why)) => {
                    self.notes.push(format!("{}: CometD's option has no effect: {why}", location(&name, &origin)));
                    continue;
                }
                Err(why) => {
                    self.problems.push(not_found(&name, &value, &origin, &why));
                    continue;
                }
            };
            let value = match self.value(&found, value) {
                Ok(value) => value,
                Err(mistakes) => {
                    self.problems.extend(mistakes.iter().map(|mistake| source.located(mistake)));
                    continue;
                }
            };
            let option = found.option.name;
            match set.get(option) {
                Some((other, at)) if *other != value && found.is_widened => {
                    let note = format!("has no effect: {option} applies to all transports, and is {other} at {at}");
                    self.notes.push(format!("{} = {value} {note}", location(&name, &origin)));
                }
                Some((other, at)) if *other != value => {
                    let text = format!("{origin}: {option} is {value} here, but {other} at {at}");
                    self.problems.push(Problem(text));
                }
                _ => {
                    if found.is_widened && !set.contains_key(option) {
                        self.notes.push(format!("{origin}: {name} applies to all transports, as {option}"));
                    }
                    let target = if option == "port" { "listen" } else { option };
                    self.values.insert(target.into(), value.clone());
                    self.of_options.insert(target, source);
                    set.insert(option, (value, origin));
                }
            }
        }
    }

    /// The value for an option.
    ///
    /// # Errors
    /// A line for each mistake in it, with the allowed values.
    fn value(&self, found: &Found, raw: Raw) -> Result<Value, Vec<String>> {
        let name = found.option.name;
        if name == "port" {
            return self.with_port(&raw).map_err(|error| vec![error]);
        }
        let default = &self.defaults[name];
        let value = match raw {
            Raw::Text(text) => typed(name, &text, default),
            // CometD's values are often texts, also in a file.
            Raw::Typed(Value::String(text)) if found.is_alias => typed(name, &text, default),
            Raw::Typed(value) => value,
        };
        let value = if found.is_alias { from_cometd(name, value, default) } else { value };
        let error_of = |value: Value| error_of(Table::from_iter([(name.to_owned(), value)]));
        let mut mistakes = match &value {
            Value::Array(items) if items.iter().any(Value::is_table) => mistakes_in_tables(name, items, error_of),
            _ => Vec::new(),
        };
        if let Some(error) = error_of(value.clone()).filter(|_| mistakes.is_empty()) {
            let wanted = match name {
                "listen" => "an address and a port such as 127.0.0.1:8080".into(),
                _ => tables::explain(name, error.message()),
            };
            mistakes.push(format!("{name} = {value}: {wanted}"));
        }
        if name == "log" && mistakes.is_empty() && !value.as_str().is_some_and(logs::is_filter) {
            let wanted = "off, error, warn, info, debug, trace, or such as warn,encke=debug";
            mistakes.push(format!("log = {value}: {wanted}"));
        }
        if mistakes.is_empty() { Ok(value) } else { Err(mistakes) }
    }

    /// `listen` as it is, with another port.
    fn with_port(&self, raw: &Raw) -> Result<Value, String> {
        let text = match raw {
            Raw::Text(text) => text.clone(),
            Raw::Typed(value) => value.to_string(),
        };
        let port: u16 = text.parse().map_err(|_| format!("port = {text}: a whole number from 0 to 65535"))?;
        let listen = self.values["listen"].as_str().and_then(|listen| listen.parse().ok());
        let mut listen = listen.unwrap_or(Settings::default().listen);
        listen.set_port(port);
        Ok(Value::String(listen.to_string()))
    }

    /// The configuration of the values without mistakes, and all mistakes.
    ///
    /// # Errors
    /// The mistakes, if there can be no configuration.
    fn finish(mut self) -> Result<(Config, Vec<Problem>), Vec<Problem>> {
        let (program, settings) =
            self.values.clone().into_iter().partition::<Table, _>(|(name, _)| is_of_program(name));
        let whole = |error: toml::de::Error| {
            self.problems.iter().cloned().chain([Problem(error.message().into())]).collect::<Vec<_>>()
        };
        let settings = Settings::deserialize(settings).map_err(whole)?;
        let program = Program::deserialize(program).map_err(whole)?;
        let wrong = encke::wrong_settings(&settings)
            .into_iter()
            .map(|error| located(self.of_options.of_part(&error.path()), &error));
        let hidden = encke::hidden_rules(&settings.channels).into_iter();
        let hidden = hidden.map(|(first, hidden)| self.hidden_rule(&settings, first, hidden));
        let more: Vec<Problem> = wrong.chain(hidden).collect();
        self.problems.extend(more);
        self.notes.dedup();
        let Merge { values, of_options, of_sections, notes, problems, .. } = self;
        let sections = Sections::default();
        Ok((Config { settings, program, sections, file: None, notes, values, of_options, of_sections }, problems))
    }

    /// A rule that can never apply, with both lines of the file.
    fn hidden_rule(&self, settings: &Settings, first: usize, hidden: usize) -> Problem {
        let pattern = |index: usize| &settings.channels[index].pattern;
        let position = |index: usize| match self.of_options.of_part(&format!("channels[{index}]")) {
            Some(origin @ Origin::File { .. }) => origin.to_string(),
            Some(origin) => format!("{origin} (rule {})", index + 1),
            None => format!("rule {}", index + 1),
        };
        Problem(format!(
            "{}: the rule for {} can never apply: the one for {} at {} comes first and matches all its channels; put the narrower one first",
            position(hidden),
            pattern(hidden),
            pattern(first),
            position(first)
        ))
    }
}

/// The mistakes in a list of tables, such as the rules for channels.
fn mistakes_in_tables(name: &str, items: &[Value], error_of: impl Fn(Value) -> Option<toml::de::Error>) -> Vec<String> {
    let mut mistakes = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let (path, before) = (format!("{name}[{index}]"), mistakes.len());
        if let Value::Table(table) = item {
            let error_of = |field: Table| error_of(Value::Array(vec![field.into()]));
            mistakes.extend(tables::mistakes_in(&path, table, true, error_of));
        }
        if let Some(error) = error_of(Value::Array(vec![item.clone()])).filter(|_| mistakes.len() == before) {
            mistakes.push(format!("{path}: {}", tables::explain("", error.message())));
        }
    }
    mistakes
}

/// The error in a table with one option.
fn error_of(option: Table) -> Option<toml::de::Error> {
    if option.keys().any(|name| is_of_program(name)) {
        Program::deserialize(option).err()
    } else {
        Settings::deserialize(option).err()
    }
}

fn is_of_program(name: &str) -> bool {
    Program::DECLARED.iter().flat_map(|group| group.settings).any(|setting| setting.name == name)
}

/// Describes the source of a name, with the name if the source does not contain it.
fn location(name: &str, origin: &Origin) -> String {
    match origin {
        Origin::File { .. } => format!("{origin}: {name}"),
        Origin::Flag(flag) if flag.starts_with("--set") => format!("{origin} {name}"),
        _ => origin.to_string(),
    }
}

/// One line about an unknown name, in the spelling of its source.
fn not_found(name: &str, value: &Raw, origin: &Origin, why: &NotFound) -> Problem {
    let location = location(name, origin);
    let is_section = matches!(value, Raw::Typed(Value::Table(_)))
        || matches!(value, Raw::Typed(Value::Array(items)) if items.iter().any(Value::is_table));
    let kind = if is_section { "section" } else { "setting" };
    Problem(match why {
        NotFound::Ignored(why) | NotFound::Refused(why) => {
            format!("{location}: CometD's option has no equivalent: {why}")
        }
        NotFound::Unknown { nearest: None } => {
            format!("{location}: there is no such {kind}; see docs/configuration.md")
        }
        NotFound::Unknown { nearest: Some(nearest) } => {
            let nearest = match origin {
                Origin::Environment(_) => format!("ENCKE_{}", options::variable(nearest)),
                _ => options::in_brackets(nearest),
            };
            format!("{location}: there is no such {kind}; did you mean {nearest}?")
        }
    })
}

/// Parses a text as the type of the option's default. A text that cannot be parsed stays a text and is refused as such.
fn typed(name: &str, text: &str, default: &Value) -> Value {
    let text = text.trim();
    match default {
        Value::Integer(_) => {
            let with_unit = || i64::try_from(Unit::of(name)?.parse(text)?).ok();
            let number = text.parse().ok().or_else(with_unit);
            number.map_or_else(|| Value::String(text.into()), Value::Integer)
        }
        Value::Boolean(_) => text.parse().map_or_else(|_| Value::String(text.into()), Value::Boolean),
        Value::Array(_) if text.starts_with('[') => {
            let table: Result<Table, _> = toml::from_str(&format!("value = {text}"));
            let mut table = table.unwrap_or_default();
            units::settle(&mut table);
            table.remove("value").unwrap_or_else(|| Value::String(text.into()))
        }
        Value::Array(_) => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Value::Array(items.map(|item| Value::String(item.into())).collect())
        }
        _ => Value::String(text.into()),
    }
}

/// Translates values of CometD that have another meaning here.
fn from_cometd(name: &str, value: Value, default: &Value) -> Value {
    match (name, value) {
        // "" allows all.
        ("transports", Value::Array(list)) if list.is_empty() => default.clone(),
        // A servlet's mapping.
        ("mounts", Value::Array(list)) => {
            let mount = |item: Value| match item {
                Value::String(text) => {
                    let path = text.strip_suffix('*').unwrap_or(&text).trim_end_matches('/');
                    Value::String(if path.is_empty() { "/" } else { path }.into())
                }
                other => other,
            };
            Value::Array(list.into_iter().map(mount).collect())
        }
        // 0 or less refuses.
        ("browser_surplus_interval_ms", Value::Integer(..0)) => Value::Integer(0),
        // 0 or less: no limit of CometD's own.
        ("outbox_messages_max" | "message_bytes_max", Value::Integer(..=0)) => default.clone(),
        (_, value) => value,
    }
}

/// The file that is read when none is named.
pub(crate) const FILE: &str = "encke.toml";

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
