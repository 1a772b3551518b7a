//! The file that `encke config init` writes: every setting and every section, commented out.

use std::fmt::Write as _;

use encke_auth::AuthSettings;
use encke_proxy::ProxySettings;
use toml::Value;

use crate::config::defaults;
use crate::options;

/// The file that `init` writes.
pub(crate) fn template() -> String {
    let defaults = defaults();
    let mut out = String::from("# Settings of encke serve. Each line shows a default; take away its # to change it.\n");
    for group in options::GROUPS.iter() {
        let _ = write!(out, "\n# ---- {}\n", group.title);
        for option in &group.options {
            let (default, meaning) = (default_of(option.name, &defaults), options::description(option));
            let _ = write!(out, "\n# {meaning}\n# {} = {default}\n", option.name);
        }
    }
    out.push_str("\n# ---- Sections. To use one, take away the # of its name in brackets, too.\n");
    add_examples(&mut out, CHANNELS);
    add_section(&mut out, "auth", &options::rows::<AuthSettings>());
    add_section(&mut out, "cluster", &options::cluster_rows());
    add_section(&mut out, "mongodb", &options::mongodb_rows());
    add_section(&mut out, "proxy", &options::rows::<ProxySettings>());
    add_examples(&mut out, SECTIONS);
    out
}

fn add_section(out: &mut String, name: &str, rows: &[options::Row]) {
    let _ = write!(out, "\n# [{name}]\n");
    for (name, default, doc) in rows {
        let _ = match default {
            None => write!(out, "\n# {doc}\n# # {name} = (no default)\n"),
            Some(default) => write!(out, "\n# {doc}\n# {name} = {default}\n"),
        };
    }
}

/// Adds the examples in TOML of a part of the reference, commented out.
fn add_examples(out: &mut String, reference: &str) {
    for example in reference.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
        out.push('\n');
        for line in example.lines() {
            out.push_str(format!("# {line}").trim_end());
            out.push('\n');
        }
    }
}

/// The default of an option as TOML.
pub(crate) fn default_of(name: &str, defaults: &toml::Table) -> Value {
    match name {
        "port" => Value::Integer(i64::from(encke::Settings::default().listen.port())),
        name => defaults[name].clone(),
    }
}

/// The rules for channels.
pub(crate) const CHANNELS: &str = include_str!("reference/channels.md");
/// The sections of the file that are lists.
pub(crate) const SECTIONS: &str = include_str!("reference/sections.md");

#[cfg(test)]
mod tests {
    use encke::{ApiKey, ChannelRule};
    use encke_sources::{CommandSettings, FileSettings, MailSettings, QuotesSettings};
    use encke_webhooks::WebhookSettings;
    use serde::Deserialize as _;
    use serde::de::DeserializeOwned;

    use super::*;
    use crate::cluster::ClusterSection;

    #[test]
    fn the_file_of_init_holds_every_option_with_its_default() {
        let template = template();
        let is_setting = |line: &str| options::all().any(|option| line.starts_with(&format!("# {} = ", option.name)));
        let settings = template.split("\n# ---- Sections").next().expect("the settings");
        let text: String =
            settings.lines().filter(|line| is_setting(line)).map(|line| format!("{}\n", &line[2..])).collect();
        let mut table: toml::Table = toml::from_str(&text).expect("TOML");
        assert_eq!(table.remove("port"), Some(Value::Integer(8080)));
        assert_eq!(table, defaults());
    }

    /// The sections of the file that `init` writes, without the sign before each line.
    fn sections() -> toml::Table {
        let template = template();
        let (_, sections) = template.split_once("\n# ---- Sections").expect("sections");
        let is_toml = |line: &&str| line.starts_with('[') || line.contains(" = ") && !line.starts_with(['#', '-']);
        let lines = sections.lines().skip(1).filter_map(|line| line.strip_prefix("# ")).filter(is_toml);
        toml::from_str(&lines.collect::<Vec<_>>().join("\n")).expect("TOML")
    }

    /// The settings of a section that it does not name: the names in an error about an unknown one, without `but`, which are
    /// in comments.
    fn missing<T: DeserializeOwned>(section: &toml::Table, but: &[&str]) -> Vec<String> {
        let mut unknown = toml::Table::new();
        unknown.insert("no such name".into(), true.into());
        let error = T::deserialize(unknown).err().map(|error| error.to_string()).unwrap_or_default();
        let names = error.split('`').skip(3).step_by(2).map(str::to_owned);
        let missing: Vec<String> =
            names.filter(|name| !section.contains_key(name) && !but.contains(&name.as_str())).collect();
        assert!(error.contains("unknown field"), "{error}");
        missing
    }

    #[test]
    fn the_file_of_init_holds_every_section_with_all_its_settings() {
        let sections = sections();
        for name in options::SECTIONS.iter().chain(&["channels"]) {
            assert!(sections.contains_key(*name), "{name}");
        }
        let first = |name: &str| match &sections[name] {
            Value::Array(items) => items[0].as_table().expect("a table").clone(),
            other => other.as_table().expect("a table").clone(),
        };
        let none: [&str; 0] = [];
        assert_eq!(missing::<ChannelRule>(&first("channels"), &[]), none);
        assert_eq!(missing::<ApiKey>(&first("api_keys"), &["key", "key_env"]), none);
        assert_eq!(missing::<ProxySettings>(&first("proxy"), &[]), none);
        let secrets = ["secret", "secret_env"];
        assert_eq!(missing::<WebhookSettings>(&first("webhooks"), &secrets), none);
        let auth = AuthSettings::deserialize(first("auth")).expect("settings");
        assert_eq!(auth, AuthSettings::default());
        let cluster = ClusterSection::read(&sections["cluster"]).expect("settings");
        assert_eq!(cluster, Some(ClusterSection::default()));
        let proxy = ProxySettings::deserialize(first("proxy")).expect("settings");
        assert_eq!(ProxySettings { backend: String::new(), ..proxy }, ProxySettings::default());
        let sources = encke_sources::parse(&sections["source"]).expect("sources");
        assert_eq!(
            sources.iter().map(|source| source.kind.name()).collect::<Vec<_>>(),
            ["mail", "quotes", "command", "file"]
        );
        let kind = |index: usize| sections["source"][index].as_table().expect("a table").clone();
        assert_eq!(missing::<MailSettings>(&kind(0), &["password", "password_env"]), none);
        assert_eq!(missing::<QuotesSettings>(&kind(1), &[]), none);
        assert_eq!(missing::<CommandSettings>(&kind(2), &[]), none);
        assert_eq!(missing::<FileSettings>(&kind(3), &[]), none);
    }
}
