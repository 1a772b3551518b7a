//! `encke config`: write, check and show a configuration.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use encke_auth::AuthSettings;
use encke_proxy::ProxySettings;

use crate::config::{Sources, defaults};
use crate::template::{self, CHANNELS, SECTIONS, default_of};
use crate::{FAILED, USAGE, complain, effects, options};

/// Writes a file with every setting, commented out, unless there is one.
pub(crate) fn init(path: &Path) -> ExitCode {
    let file = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
    match file.and_then(|mut file| file.write_all(template::template().as_bytes())) {
        Ok(()) => {
            println!("{} written: every setting with its default", path.display());
            ExitCode::SUCCESS
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            complain(&format_args!("{} is there already and stays as it is", path.display()));
            ExitCode::from(FAILED)
        }
        Err(error) => {
            complain(&format_args!("{}: {error}", path.display()));
            ExitCode::from(FAILED)
        }
    }
}

/// Reports the errors in a file and the environment, or that there are none.
pub(crate) fn check(sources: &Sources) -> ExitCode {
    match sources.read() {
        Ok(config) => {
            for note in config.notes.iter().chain(&effects::without_effect(&config)) {
                println!("note: {note}");
            }
            match &config.file {
                Some(path) => println!("{}: good", path.display()),
                None => println!("no file, so the defaults hold: good"),
            }
            ExitCode::SUCCESS
        }
        Err(problems) => complain_all(&problems),
    }
}

/// Shows every effective setting and its source.
pub(crate) fn show(sources: &Sources) -> ExitCode {
    match sources.read() {
        Ok(config) => {
            for (option, value, origin) in config.effective() {
                match origin {
                    Some(origin) => println!("{} = {value}  # {origin}", option.name),
                    None => println!("{} = {value}", option.name),
                }
            }
            if config.sections.auth.is_some() {
                // Not its settings: a secret may be among them.
                println!("[auth]");
            }
            for (name, scopes) in config.sections.api_keys.names() {
                println!("[[api_keys]] {name}: {scopes}");
            }
            if let Some(proxy) = &config.sections.proxy {
                println!("[proxy] {}: {}", proxy.backend, proxy.paths.join(", "));
            }
            for source in &config.sections.sources {
                println!("[[source]] {}: {} publishes to {}", source.name, source.kind.name(), source.channel);
            }
            for webhook in &config.sections.webhooks {
                let events: Vec<_> = webhook.events.iter().map(|event| event.as_str()).collect();
                println!("[[webhooks]] {}: {}", webhook.url, events.join(", "));
            }
            ExitCode::SUCCESS
        }
        Err(problems) => complain_all(&problems),
    }
}

/// Prints `docs/configuration.md`.
pub(crate) fn docs() -> ExitCode {
    print!("{}", reference());
    ExitCode::SUCCESS
}

/// One line for each problem.
pub(crate) fn complain_all(problems: &[crate::layers::Problem]) -> ExitCode {
    problems.iter().for_each(|problem| complain(problem));
    ExitCode::from(USAGE)
}

/// The text of `docs/configuration.md`.
fn reference() -> String {
    let defaults = defaults();
    let mut out = String::from(INTRODUCTION);
    for group in options::GROUPS.iter() {
        let _ =
            write!(out, "\n## {}\n\n| name | default | CometD | meaning |\n| --- | --- | --- | --- |\n", group.title);
        for option in &group.options {
            let cometd = option.cometd.map(|name| format!("`{name}`")).unwrap_or_default();
            let (default, meaning) = (default_of(option.name, &defaults), options::description(option));
            let _ = writeln!(out, "| `{}` | `{default}` | {cometd} | {meaning} |", option.name);
        }
    }
    let (auth, proxy) = (options::with_table::<AuthSettings>(AUTH), options::with_table::<ProxySettings>(PROXY));
    let cluster = options::with_rows(CLUSTER, &options::cluster_rows());
    let mongodb = options::with_rows(MONGODB, &options::mongodb_rows());
    for text in [CHANNELS, &auth, &cluster, &mongodb, &proxy, SECTIONS, COMETD] {
        out.push('\n');
        out.push_str(text);
    }
    let prefixes: Vec<String> = options::PREFIXES.iter().map(|prefix| format!("`{prefix}`")).collect();
    let _ = writeln!(out, "Prefixes: {}.", prefixes.join(", "));
    for (title, list) in [
        ("accepted with a warning, without effect | why", options::IGNORED),
        ("refused | why, or the replacement", options::REFUSED),
    ] {
        let _ = write!(out, "\n| {title} |\n| --- | --- |\n");
        for (name, why) in list {
            let _ = writeln!(out, "| `{name}` | {why} |");
        }
    }
    out
}

const INTRODUCTION: &str = include_str!("reference/introduction.md");
const AUTH: &str = include_str!("reference/auth.md");
const CLUSTER: &str = include_str!("reference/cluster.md");
const MONGODB: &str = include_str!("reference/mongodb.md");
const PROXY: &str = include_str!("reference/proxy.md");
const COMETD: &str = include_str!("reference/cometd.md");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_is_what_the_options_say() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let stored = std::fs::read_to_string(path).unwrap_or_default();
        assert!(stored == reference(), "run: cargo run -p encke-cli -- config docs > docs/configuration.md");
    }
}
