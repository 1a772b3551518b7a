//! The command line. The flags of `serve` are made from the table of options.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command, Subcommand as _, value_parser};
use toml::Value;

use crate::config::{Sources, defaults};
use crate::layers::{Given, Origin, Raw};
use crate::options::{self, NotFound};
use crate::talk::{ContextCommand, Disconnect, EXIT_CODES, History, Presence, Publish, Request, Sessions, Subscribe};
use crate::token::Token;
use crate::{USAGE, complain as say};

/// All commands.
pub(crate) fn command() -> Command {
    let file = Arg::new("file").value_name("FILE").value_parser(value_parser!(PathBuf));
    let named = config_file().conflicts_with("file");
    let config = Command::new("config")
        .about("Write, check or show a configuration")
        .arg_required_else_help(true)
        .subcommand_required(true)
        .subcommand(
            Command::new("init")
                .about("Write a file with every setting and section, each with its default; never overwrites")
                .arg(file.clone().help("The file to write [default: encke.toml]"))
                .arg(named.clone()),
        )
        .subcommand(
            Command::new("check")
                .about("Report the errors in a file and the environment")
                .arg(file.clone().help("The file to check [default: encke.toml if it exists]"))
                .arg(named),
        )
        .subcommand(
            with_settings(Command::new("show").about("Show all effective settings and their sources"))
                .arg(file.help("The same as --config").conflicts_with("config")),
        )
        .subcommand(Command::new("docs").about("Print docs/configuration.md").hide(true));
    Command::new("encke")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A server that pushes messages to web pages and programs the moment they happen")
        .arg_required_else_help(true)
        .subcommand_required(true)
        .after_help(EXIT_CODES)
        .subcommand(with_settings(Command::new("serve").about("Run the server")).after_help(
            "All settings are in docs/configuration.md; --help lists them, -h only the common ones. A file may hold the \
             same names, the environment ENCKE_ and the name in capitals. Flags come before environment before file.",
        ))
        .subcommand(demo())
        .subcommand(config)
        .subcommand(client::<Publish>("publish"))
        .subcommand(client::<Subscribe>("subscribe"))
        .subcommand(client::<Request>("request"))
        .subcommand(client::<History>("history"))
        .subcommand(client::<Presence>("presence"))
        .subcommand(client::<Sessions>("sessions"))
        .subcommand(client::<Disconnect>("disconnect"))
        .subcommand(
            ContextCommand::augment_subcommands(Command::new("context"))
                .about("Store servers by names, so that no command repeats their URLs and files")
                .arg_required_else_help(true)
                .subcommand_required(true),
        )
        .subcommand(
            Command::new("completion").about("Print the completion of commands for a shell").arg(
                Arg::new("shell").value_name("SHELL").required(true).value_parser(value_parser!(clap_complete::Shell)),
            ),
        )
        .subcommand(
            Token::augment_subcommands(Command::new("token")).arg_required_else_help(true).subcommand_required(true),
        )
        .subcommand(encke_bench::command())
        .subcommand(encke_bench::flood_target::command())
}

/// A command that speaks to a server.
fn client<T: clap::Args>(name: &'static str) -> Command {
    T::augment_args(Command::new(name)).after_help(EXIT_CODES)
}

/// Prints the completion of all commands for a shell.
pub(crate) fn complete(matches: &ArgMatches) -> ExitCode {
    let Some(shell) = matches.get_one::<clap_complete::Shell>("shell") else { return ExitCode::from(USAGE) };
    clap_complete::generate(*shell, &mut command(), "encke", &mut std::io::stdout());
    ExitCode::SUCCESS
}

fn demo() -> Command {
    with_settings(Command::new("demo").about("Run the server with everything that the demo pages show"))
        .arg(Arg::new("open").long("open").action(ArgAction::SetTrue).help("Open the start page in a browser"))
        .after_help(
            "This is encke serve with a source of 3,000 quotes, example mails as long as no mailbox is configured, and visitors \
             who name themselves. Files, environment and flags work as for encke serve.",
        )
}

/// `--config`.
fn config_file() -> Arg {
    Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("The file with settings [default: encke.toml if it exists] [env: ENCKE_CONFIG]")
}

/// Adds `--config`, `--set` and a flag for each option.
fn with_settings(mut command: Command) -> Command {
    command = command.arg(config_file()).arg(
        Arg::new("set")
            .long("set")
            .value_name("NAME=VALUE")
            .action(ArgAction::Append)
            .help("Any setting by its name, or by CometD's, such as ws.maxMessageSize=65536"),
    );
    let defaults = defaults();
    for group in options::GROUPS.iter() {
        for option in &group.options {
            let default = defaults.get(option.name);
            let shown = default.map(|value| format!(" [default: {value}]")).unwrap_or_default();
            let mut arg = Arg::new(option.name)
                .long(options::flag(option.name))
                .value_name("VALUE")
                .allow_hyphen_values(true)
                .help_heading(group.title)
                .hide_short_help(!COMMON.contains(&option.name))
                .help(format!("{}{shown}", options::description(option).replace('`', "")));
            if matches!(default, Some(Value::Boolean(_))) {
                arg = arg.num_args(0..=1).require_equals(true).default_missing_value("true");
                command = command.arg(
                    Arg::new(format!("no-{}", option.name))
                        .long(format!("no-{}", options::flag(option.name)))
                        .action(ArgAction::SetTrue)
                        .hide(true),
                );
            }
            command = command.arg(arg);
        }
    }
    command
}

/// The sources of `serve`: a file, the environment, flags.
pub(crate) fn sources(matches: &ArgMatches) -> Sources {
    let text = |id: &str| matches.get_one::<String>(id).cloned();
    let mut flags = Vec::new();
    for option in options::all() {
        let flag = options::flag(option.name);
        if let Some(value) = text(option.name) {
            flags.push(given(option.name, value, format!("--{flag}")));
        }
        let negative = format!("no-{}", option.name);
        if matches.try_get_one::<bool>(&negative).ok().flatten() == Some(&true) {
            flags.push(given(option.name, "false".into(), format!("--no-{flag}")));
        }
    }
    for assignment in matches.get_many::<String>("set").into_iter().flatten() {
        let (name, value) = assignment.split_once('=').unwrap_or((assignment, ""));
        flags.push(given(name.trim(), value.into(), "--set".into()));
    }
    Sources { flags, ..Sources::of_file(matches.get_one("config").cloned()) }
}

fn given(name: &str, value: String, flag: String) -> Given {
    Given { name: name.into(), value: Raw::Text(value), source: Origin::Flag(flag).into() }
}

/// Prints help if it was requested, otherwise one line about the error.
pub(crate) fn complain(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(USAGE)
        }
        _ => {
            say(&one_line(error));
            ExitCode::from(USAGE)
        }
    }
}

fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg)
        && let Some(name) = given.strip_prefix("--")
    {
        // The names of settings are for the server's commands only.
        if !["encke serve", "encke demo", "encke config"]
            .iter()
            .any(|command| text.contains(&format!("Usage: {command}")))
        {
            return match error.get(ContextKind::SuggestedArg) {
                Some(ContextValue::String(near)) => format!("{given}: there is no such flag; did you mean {near}?"),
                _ => format!("{given}: there is no such flag; see --help"),
            };
        }
        return match options::find(&name.replace('-', "_")).or_else(|_| options::find(name)) {
            Err(NotFound::Ignored(why) | NotFound::Refused(why)) => {
                format!("{given}: CometD's option has no equivalent: {why}")
            }
            Err(NotFound::Unknown { nearest: Some(nearest) }) => match options::find(nearest) {
                Ok(found) => {
                    format!("{given}: there is no such flag; did you mean --{}?", options::flag(found.option.name))
                }
                Err(_) => format!("{given}: there is no such flag"),
            },
            Err(NotFound::Unknown { nearest: None }) => {
                format!("{given}: there is no such flag; see --help")
            }
            Ok(found) => format!("{given}: the flag is --{}", options::flag(found.option.name)),
        };
    }
    let paragraph: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    paragraph.join(" ").trim_start_matches("error: ").to_string()
}

/// The settings that `-h` shows.
const COMMON: &[&str] =
    &["listen", "port", "shards", "files", "data", "transports", "cluster", "demo", "log", "log_format"];

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(line: &str) -> Vec<(String, Raw, String)> {
        let matches = command().try_get_matches_from(line.split(' ')).expect(line);
        let (_, serve) = matches.subcommand().expect("serve");
        let flags = sources(serve).flags;
        flags.into_iter().map(|given| (given.name, given.value, given.source.origin.to_string())).collect()
    }

    fn refusal(line: &str) -> String {
        one_line(&command().try_get_matches_from(line.split(' ')).expect_err(line))
    }

    #[test]
    fn the_commands_are_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_option_is_a_flag() {
        for option in options::all() {
            let flag = options::flag(option.name);
            let found = flags(&format!("encke serve --{flag}=7"));
            assert_eq!(found, [(option.name.to_string(), Raw::Text("7".into()), format!("--{flag}"))]);
        }
    }

    #[test]
    fn a_switch_needs_no_value_and_has_an_opposite() {
        assert_eq!(flags("encke serve --demo")[0].1, Raw::Text("true".into()));
        assert_eq!(flags("encke serve --no-demo")[0].1, Raw::Text("false".into()));
        assert_eq!(flags("encke serve --trust-client-session=false")[0].1, Raw::Text("false".into()));
    }

    #[test]
    fn set_accepts_any_name() {
        let expected = ("ws.maxMessageSize".to_string(), Raw::Text("65536".into()), "--set".to_string());
        assert_eq!(flags("encke serve --set ws.maxMessageSize=65536"), [expected]);
    }

    #[test]
    fn a_wrong_flag_gets_one_line_with_the_right_one() {
        assert_eq!(
            refusal("encke serve --timout-ms 5"),
            "--timout-ms: there is no such flag; did you mean --timeout-ms?"
        );
        assert_eq!(refusal("encke serve --maxInterval 5"), "--maxInterval: the flag is --max-interval-ms");
        assert!(refusal("encke serve --oort.url 5").contains("see [cluster]"));
        assert!(!refusal("encke publish").contains('\n'));
        assert!(!refusal("encke serv").contains('\n'));
        assert!(!refusal("encke subscribe /a --count 0").contains('\n'));
        assert!(!refusal("encke subscribe /a --replay -3").contains('\n'));
    }
}
