//! Every option of `encke serve`: the settings of the server and of the program, found by their names or by CometD's. Flags, environment,
//! file and `docs/configuration.md` all come from this list.

mod cometd;
mod program;
mod sections;

use std::sync::LazyLock;

use encke::{Declared as _, Setting, Settings};

pub(crate) use cometd::{IGNORED, PREFIXES, REFUSED};
pub(crate) use program::Program;
pub(crate) use sections::{Row, cluster_rows, mongodb_rows, rows, with_rows, with_table};

/// Options that belong together.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) title: &'static str,
    pub(crate) options: Vec<&'static Setting>,
}

/// An option found by one of its names.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) option: &'static Setting,
    /// The name was CometD's.
    pub(crate) is_alias: bool,
    /// CometD has it for one transport (`ws.timeout`), Encke for all.
    pub(crate) is_widened: bool,
}

/// The reason why a name is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotFound {
    /// CometD's, without effect here: the reason.
    Ignored(&'static str),
    /// CometD's, without an equivalent: the reason, or the replacement.
    Refused(&'static str),
    /// Unknown, with the most similar name of an option or section.
    Unknown { nearest: Option<&'static str> },
}

/// All options in the order in which they are shown.
pub(crate) fn all() -> impl Iterator<Item = &'static Setting> {
    GROUPS.iter().flat_map(|group| group.options.iter().copied())
}

/// The description of an option in Markdown.
pub(crate) fn description(option: &Setting) -> String {
    format!("{}{}", option.doc(), if option.needs_restart { " A change needs a restart." } else { "" })
}

/// Finds an option by its name, or by CometD's with or without a transport's prefix.
pub(crate) fn find(name: &str) -> Result<Found, NotFound> {
    if let Some(option) = all().find(|option| option.name == name) {
        return Ok(Found { option, is_alias: false, is_widened: false });
    }
    let prefix = PREFIXES.iter().find(|prefix| name.starts_with(**prefix)).copied().unwrap_or("");
    let bare = &name[prefix.len()..];
    if let Some(option) = all().find(|option| option.cometd == Some(bare)) {
        return Ok(Found { option, is_alias: true, is_widened: !prefix.is_empty() && option.is_widened });
    }
    if let Some(why) = cometd::reason(IGNORED, bare) {
        return Err(NotFound::Ignored(why));
    }
    if let Some(why) = cometd::reason(REFUSED, bare) {
        return Err(NotFound::Refused(why));
    }
    Err(NotFound::Unknown { nearest: nearest(bare) })
}

/// Finds an option by the rest of an `ENCKE_…` variable: any name in capitals, `_` for all that is no letter or digit.
pub(crate) fn find_variable(rest: &str) -> Result<Found, NotFound> {
    let aliases = all().filter_map(|option| option.cometd).chain(IGNORED.iter().chain(REFUSED).map(|(name, _)| *name));
    let spellings =
        aliases.flat_map(|alias| PREFIXES.iter().chain(&[""]).map(move |prefix| format!("{prefix}{alias}")));
    let names = all().map(|option| option.name.to_string()).chain(spellings);
    let mut names = names.filter(|name| variable(name) == rest);
    find(&names.next().unwrap_or_else(|| rest.to_ascii_lowercase()))
}

/// The environment's spelling of a name, without `ENCKE_`.
pub(crate) fn variable(name: &str) -> String {
    let capital = |byte: char| if byte.is_ascii_alphanumeric() { byte.to_ascii_uppercase() } else { '_' };
    name.chars().map(capital).collect()
}

/// The flag's spelling of a name, without `--`.
pub(crate) fn flag(name: &str) -> String {
    name.replace('_', "-")
}

/// The option or section whose name, ours or CometD's, is most similar to `name`, if any is similar.
fn nearest(name: &str) -> Option<&'static str> {
    let names = all().flat_map(|option| [option.name].into_iter().chain(option.cometd));
    nearest_of(name, names.chain(SECTIONS.iter().copied()))
}

/// The one of these names that is most similar to `name`, if any is similar.
pub(crate) fn nearest_of<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.replace(|char: char| !char.is_ascii_alphanumeric(), "").to_ascii_lowercase();
    let wanted = plain(name);
    let distances = names.map(|known| (strsim::levenshtein(&wanted, &plain(known)), known));
    let (distance, best) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= 1 + wanted.len() / 4).then_some(best)
}

/// True for a section of the file that is no setting of the server.
pub(crate) fn is_section(name: &str) -> bool {
    SECTIONS.contains(&name)
}

/// The name of a section as the file has it, in brackets; that of another setting as it is.
pub(crate) fn in_brackets(name: &str) -> String {
    match name {
        "auth" | "cluster" | "mongodb" | "proxy" => format!("[{name}]"),
        name if is_section(name) => format!("[[{name}]]"),
        name => name.into(),
    }
}

/// The sections of the file that are no settings of the server.
pub(crate) const SECTIONS: &[&str] = &["api_keys", "auth", "cluster", "mongodb", "proxy", "source", "webhooks"];

/// The options in groups.
pub(crate) static GROUPS: LazyLock<Vec<Group>> = LazyLock::new(|| {
    let declared = Settings::DECLARED.iter().chain(Program::DECLARED);
    let group = |group: &encke::SettingGroup| Group { title: group.title, options: group.settings.iter().collect() };
    let mut groups: Vec<Group> = declared.map(group).collect();
    // A part of `listen`, which comes first.
    groups[0].options.insert(1, &PORT);
    groups
});

/// An option that is a part of another one.
static PORT: Setting = Setting::new("port", "The port of `listen` alone. 0: any free port.").restart();

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(name: &str) -> &'static str {
        find(name).expect(name).option.name
    }

    #[test]
    fn no_two_options_share_a_name() {
        let mut names: Vec<&str> = all().flat_map(|option| [option.name].into_iter().chain(option.cometd)).collect();
        names.extend(IGNORED.iter().chain(REFUSED).map(|(name, _)| name));
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn cometds_names_are_found_with_and_without_prefix() {
        assert_eq!(name_of("timeout"), "timeout_ms");
        assert_eq!(name_of("long-polling.json.timeout"), "timeout_ms");
        assert_eq!(name_of("ws.maxMessageSize"), "message_bytes_max");
        assert_eq!(name_of("ws.idleTimeout"), "websocket_idle_timeout_ms");
        assert_eq!(name_of("long-polling.jsonp.callbackParameter"), "callback_parameter");
        assert!(find("ws.timeout").expect("found").is_widened);
        assert!(!find("timeout").expect("found").is_widened);
        assert!(!find("ws.idleTimeout").expect("found").is_widened);
        assert_eq!(find("ws.timeout_ms").err(), Some(NotFound::Unknown { nearest: Some("timeout_ms") }));
    }

    #[test]
    fn a_cometd_option_without_an_equivalent_is_ignored_or_refused_with_a_reason() {
        for name in ["oort.url", "seti.debug", "ws.requireHandshakePerConnection"] {
            assert!(matches!(find(name), Err(NotFound::Refused(_))), "{name}");
        }
        for name in ["sweepPeriod", "ws.messagesPerFrame", "ws.enableExtension.permessage-deflate"] {
            assert!(matches!(find(name), Err(NotFound::Ignored(_))), "{name}");
        }
    }

    #[test]
    fn a_typing_error_is_recognised() {
        let near = |name| find(name).expect_err("no such name");
        assert_eq!(near("timout_ms"), NotFound::Unknown { nearest: Some("timeout_ms") });
        assert_eq!(near("maxinterval"), NotFound::Unknown { nearest: Some("maxInterval") });
        assert_eq!(near("cookie-name"), NotFound::Unknown { nearest: Some("cookie_name") });
        assert_eq!(near("something_else_entirely"), NotFound::Unknown { nearest: None });
    }

    #[test]
    fn a_variable_may_mean_our_name_or_cometds() {
        assert_eq!(find_variable("TIMEOUT_MS").expect("ours").option.name, "timeout_ms");
        assert_eq!(find_variable("MAXINTERVAL").expect("CometD's").option.name, "max_interval_ms");
        assert_eq!(find_variable("LONG_POLLING_JSON_TIMEOUT").expect("CometD's").option.name, "timeout_ms");
        assert_eq!(find_variable("TIMOUT_MS").err(), Some(NotFound::Unknown { nearest: Some("timeout_ms") }));
        assert_eq!(find_variable("MAXQUEUE").expect("CometD's").option.name, "outbox_messages_max");
        assert!(matches!(find_variable("SWEEPPERIOD"), Err(NotFound::Ignored(_))));
    }
}
