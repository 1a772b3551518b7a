//! Logs on stderr, with a level that can be changed while the program runs.

use serde::{Deserialize, Serialize};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
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
            LogFormat::Text => lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).boxed(),
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
    filter.parse().unwrap_or_else(|_| Targets::new().with_default(LevelFilter::INFO))
}

const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

#[cfg(test)]
mod tests {
    use super::*;

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
