//! Times and sizes with their units: `"20s"` and `"16MiB"` wherever the name of a setting says that it is a number of those.

use std::time::Duration;

use toml::Value;

/// The unit of a setting, which its name tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A time: the length of one, and the name of several.
    Time(Duration, &'static str),
    /// Bytes.
    Bytes,
}

impl Unit {
    /// The unit of the setting with this name, if it has one.
    pub(crate) fn of(name: &str) -> Option<Unit> {
        if name.split('_').any(|word| word == "bytes") {
            return Some(Unit::Bytes);
        }
        // `messages_per_s_max` and `_per_s` are rates.
        match name.rsplit_once('_') {
            Some((_, "ms")) => Some(Unit::Time(Duration::from_millis(1), "milliseconds")),
            Some((_, "us")) => Some(Unit::Time(Duration::from_micros(1), "microseconds")),
            Some((before, "s")) if !before.ends_with("_per") => Some(Unit::Time(Duration::from_secs(1), "seconds")),
            _ => None,
        }
    }

    /// The number that a text with a unit says. None without a unit, and for a time that is no whole number of this unit.
    pub(crate) fn parse(self, text: &str) -> Option<u64> {
        let text = text.trim();
        match self {
            // A number alone has no unit.
            _ if text.bytes().all(|byte| byte.is_ascii_digit()) => None,
            Unit::Time(one, _) => {
                let time = humantime::parse_duration(text).ok()?;
                let is_whole = time.as_nanos().is_multiple_of(one.as_nanos());
                u64::try_from(time.as_nanos() / one.as_nanos()).ok().filter(|_| is_whole)
            }
            Unit::Bytes => {
                let number = text.trim_end_matches(|char: char| char.is_ascii_alphabetic());
                let (_, bytes) = SIZES.iter().find(|(unit, _)| *unit == &text[number.len()..])?;
                number.trim_end().parse::<u64>().ok()?.checked_mul(*bytes)
            }
        }
    }

    /// A description of right values.
    pub(crate) fn wanted(self) -> String {
        match self {
            Unit::Time(_, unit) => format!("a whole number of {unit}, or a time such as \"20s\" or \"10m\""),
            Unit::Bytes => "a whole number of bytes, or a size such as \"64KiB\" or \"16MiB\"".into(),
        }
    }
}

/// Replaces texts with units by numbers, in a table and in all tables below it.
pub(crate) fn settle(table: &mut toml::Table) {
    for (name, value) in table.iter_mut() {
        settle_value(name, value);
    }
}

fn settle_value(name: &str, value: &mut Value) {
    match value {
        Value::String(text) => {
            let number = Unit::of(name).and_then(|unit| unit.parse(text)).and_then(|number| i64::try_from(number).ok());
            if let Some(number) = number {
                *value = Value::Integer(number);
            }
        }
        // Its names are not ours.
        Value::Table(_) if name == "environment" => {}
        Value::Table(table) => settle(table),
        Value::Array(items) => items.iter_mut().filter_map(Value::as_table_mut).for_each(settle),
        _ => {}
    }
}

/// The units of sizes.
const SIZES: &[(&str, u64)] = &[
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn number(name: &str, text: &str) -> Option<u64> {
        Unit::of(name).expect(name).parse(text)
    }

    #[test]
    fn times_and_sizes_are_read_in_the_unit_of_the_name() {
        assert_eq!(number("timeout_ms", "20s"), Some(20_000));
        assert_eq!(number("timeout_ms", "1m 30s"), Some(90_000));
        assert_eq!(number("fairness_budget_us", "2ms"), Some(2_000));
        assert_eq!(number("clock_skew_s", "1h"), Some(3_600));
        assert_eq!(number("message_bytes_max", "16MiB"), Some(16 << 20));
        assert_eq!(number("slow_consumer_bytes", "500 kB"), Some(500_000));
        assert_eq!(number("bytes_per_s_max", "1MB"), Some(1_000_000));
    }

    #[test]
    fn what_is_no_whole_number_of_a_known_unit_is_no_number() {
        for (name, text) in [
            ("timeout_ms", "20"),
            ("timeout_ms", "20 apples"),
            ("timeout_ms", "500us"),
            ("timeout_ms", "-5s"),
            ("clock_skew_s", "1500ms"),
            ("message_bytes_max", "16"),
            ("message_bytes_max", "16mib"),
            ("message_bytes_max", "1.5MiB"),
            ("message_bytes_max", "99999999999TiB"),
        ] {
            assert_eq!(number(name, text), None, "{name} {text}");
        }
        for name in ["sessions_max", "session_messages_per_s_max", "shards", "history_messages", "requests_per_s"] {
            assert_eq!(Unit::of(name), None, "{name}");
        }
    }

    #[test]
    fn tables_are_settled_at_every_depth_but_not_the_environment_of_a_program() {
        let mut table: toml::Table = toml::from_str(
            "timeout_ms = \"1s\"\n[[channels]]\nhistory_ms = \"10m\"\n[cluster]\nleave_delay_ms = \"2s\"\n\
             [[source]]\nrestart_pause_ms = \"3s\"\n[source.environment]\nx_ms = \"4s\"\n",
        )
        .expect("TOML");
        settle(&mut table);
        assert_eq!(table["timeout_ms"].as_integer(), Some(1_000));
        assert_eq!(table["channels"][0]["history_ms"].as_integer(), Some(600_000));
        assert_eq!(table["cluster"]["leave_delay_ms"].as_integer(), Some(2_000));
        assert_eq!(table["source"][0]["restart_pause_ms"].as_integer(), Some(3_000));
        assert_eq!(table["source"][0]["environment"]["x_ms"].as_str(), Some("4s"));
    }
}
