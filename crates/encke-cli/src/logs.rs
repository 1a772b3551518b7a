//! Logs on stderr, with a level that can be changed while the program runs.
//!
//! Logs show what clients, backends and files have sent. A line of the text form escapes it: nobody outside can end a line,
//! begin another one, or send commands to the terminal of a reader. The JSON form does so by its nature.

use std::fmt::{Debug, Display, Formatter, Write};

use serde::{Deserialize, Serialize};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

/// The form of the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Changes the filter of the logs.
pub(crate) struct LogLevel(reload::Handle<Targets, Registry>);

impl LogLevel {
    /// Starts the logs.
    pub(crate) fn start(filter: &str, format: LogFormat) -> LogLevel {
        let (level, handle) = reload::Layer::new(targets(filter));
        let lines = fmt::layer().with_writer(std::io::stderr);
        let lines = match format {
            LogFormat::Text => {
                lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).fmt_fields(EscapedFields).boxed()
            }
            LogFormat::Json => lines.json().flatten_event(true).boxed(),
        };
        // Fails only if logs were started before.
        let _ = tracing_subscriber::registry().with(level).with(lines).try_init();
        LogLevel(handle)
    }

    /// Applies another filter.
    pub(crate) fn change(&self, filter: &str) {
        let _ = self.0.reload(targets(filter));
    }
}

/// True if a text is a level, or a list of levels and of `module=level`.
pub(crate) fn is_filter(text: &str) -> bool {
    text.split(',').all(|part| {
        let level = part.split_once('=').map_or(part, |(module, level)| if module.is_empty() { "" } else { level });
        LEVELS.contains(&level.trim())
    })
}

fn targets(filter: &str) -> Targets {
    let targets = filter.parse().unwrap_or_else(|_| Targets::new().with_default(LevelFilter::INFO));
    // The client of NATS says at `info` what the node says in its own words.
    let is_chatty = targets.default_level() == Some(LevelFilter::INFO) && !filter.contains(CLIENT_OF_NATS);
    if is_chatty { targets.with_target(CLIENT_OF_NATS, LevelFilter::WARN) } else { targets }
}

const CLIENT_OF_NATS: &str = "async_nats";

/// Writes the fields of an event as `message name=value …`, and escapes all values.
struct EscapedFields;

impl<'w> FormatFields<'w> for EscapedFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> std::fmt::Result {
        let mut line = Line { writer, is_first: true, result: Ok(()) };
        fields.record(&mut line);
        line.result
    }
}

/// The fields of one line.
struct Line<'w> {
    writer: Writer<'w>,
    is_first: bool,
    result: std::fmt::Result,
}

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let separator = if std::mem::take(&mut self.is_first) { "" } else { " " };
        let (italic, dim, plain) =
            if self.writer.has_ansi_escapes() { ("\x1b[3m", "\x1b[2m", "\x1b[0m") } else { ("", "", "") };
        let value = Escaped(format_args!("{value:?}"));
        let written = match field.name() {
            "message" => write!(self.writer, "{separator}{value}"),
            name => write!(self.writer, "{separator}{italic}{name}{plain}{dim}={plain}{value}"),
        };
        self.result = self.result.and(written);
    }
}

/// A value whose control characters, and those that reorder a line, are shown as escapes such as `\n` and `\u{1b}`.
pub(crate) struct Escaped<T>(pub(crate) T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        struct Escaping<'a, 'f>(&'a mut Formatter<'f>);
        impl Write for Escaping<'_, '_> {
            fn write_str(&mut self, text: &str) -> std::fmt::Result {
                for part in text.split_inclusive(is_escaped) {
                    let plain = part.trim_end_matches(is_escaped);
                    self.0.write_str(plain)?;
                    part[plain.len()..].chars().try_for_each(|c| write!(self.0, "{}", c.escape_default()))?;
                }
                Ok(())
            }
        }
        write!(Escaping(f), "{}", self.0)
    }
}

fn is_escaped(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_outside_ends_a_line_or_commands_a_terminal() {
        let shown = Escaped("a\r\nINFO forged\x1b[2J\u{9b}1m\u{202e}\u{2028}é\t\\").to_string();
        assert_eq!(shown, r"a\r\nINFO forged\u{1b}[2J\u{9b}1m\u{202e}\u{2028}é\t\");
        assert_eq!(Escaped("").to_string(), "");
    }

    #[test]
    fn a_filter_is_made_of_levels() {
        for filter in ["info", "off", "warn,encke=debug", "encke_core=trace"] {
            assert!(is_filter(filter) && filter.parse::<Targets>().is_ok(), "{filter}");
        }
        for text in ["", "loud", "warn,", "=debug", "encke=", "encke=loud"] {
            assert!(!is_filter(text), "{text}");
        }
    }
}
