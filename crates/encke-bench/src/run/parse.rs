//! Durations, counts and sizes as people write them on a command line.

use std::time::Duration;

/// Reads `500ms`, `10s`, `2m`, `1h`, `250us`; a fraction as in `1.5s` is fine.
///
/// # Errors
/// The text is none of these, in one line.
pub fn duration(text: &str) -> Result<Duration, String> {
    let fail = || "a duration is a number and a unit, such as 500ms, 10s, 2m or 1h".to_string();
    let (number, unit) = split(text).ok_or_else(fail)?;
    let seconds = match unit {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(fail()),
    };
    let seconds = number * seconds;
    if seconds > DURATION_MAX_S {
        return Err("a duration is at most 1000h".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// As [`duration`], but above zero.
///
/// # Errors
/// As [`duration`], or it is zero.
pub fn some_duration(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|found| if found.is_zero() { Err("it must be above zero".into()) } else { Ok(found) })
}

/// As [`duration`], but at least a millisecond, the unit of a trial's length.
///
/// # Errors
/// As [`duration`], or it is shorter.
pub fn length(text: &str) -> Result<Duration, String> {
    let long_enough = |found: &Duration| *found >= Duration::from_millis(1);
    duration(text).and_then(|found| Some(found).filter(long_enough).ok_or("it must be at least 1ms".into()))
}

/// As [`length`], or zero.
///
/// # Errors
/// As [`duration`], or it is between zero and a millisecond.
pub fn length_or_none(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|found| if found.is_zero() { Ok(found) } else { length(text) })
}

/// Reads a whole number from 1 to four billion, also as `10k` or `2M`.
///
/// # Errors
/// The text is none, in one line.
pub fn count(text: &str) -> Result<u32, String> {
    let fail = || "a whole number above zero, such as 1000 or 10k".to_string();
    let (number, unit) = split(text).ok_or_else(fail)?;
    let number = number * thousands(unit).ok_or_else(fail)?;
    if number < 1.0 || number.fract() != 0.0 || number > f64::from(u32::MAX) {
        return Err(fail());
    }
    Ok(number as u32)
}

/// Reads a number per second above zero, also as `10k` or `1.5M`.
///
/// # Errors
/// The text is none, in one line.
pub fn rate(text: &str) -> Result<f64, String> {
    let fail = || "a number per second above zero, such as 100, 2.5 or 10k".to_string();
    let (number, unit) = split(text).ok_or_else(fail)?;
    let number = number * thousands(unit).ok_or_else(fail)?;
    if number > 0.0 && number <= RATE_MAX { Ok(number) } else { Err(fail()) }
}

/// Reads a size in bytes: `50`, `2kB`, `1MB`, `4KiB`, `1MiB`.
///
/// # Errors
/// The text is none, in one line.
pub fn size(text: &str) -> Result<u32, String> {
    let fail = || "a size in bytes, such as 50, 2kB or 4KiB".to_string();
    let (number, unit) = split(text).ok_or_else(fail)?;
    let factor = match unit {
        "" | "B" => 1.0,
        "k" | "kB" => 1e3,
        "M" | "MB" => 1e6,
        "K" | "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        _ => return Err(fail()),
    };
    let bytes = number * factor;
    if bytes.fract() != 0.0 || bytes > f64::from(SIZE_MAX_BYTES) {
        return Err(format!("{}, at most 16 MiB", fail()));
    }
    Ok(bytes as u32)
}

/// Splits the leading number from the rest.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end =
        text.find(|letter: char| !letter.is_ascii_digit() && letter != '.' && letter != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.replace('_', "").parse().ok()?, unit.trim()))
}

fn thousands(unit: &str) -> Option<f64> {
    match unit {
        "" => Some(1.0),
        "k" | "K" => Some(1e3),
        "M" => Some(1e6),
        _ => None,
    }
}

/// A thousand hours, in seconds.
const DURATION_MAX_S: f64 = 3.6e6;
/// A message every nanosecond is more than any machine sends.
const RATE_MAX: f64 = 1e9;
const SIZE_MAX_BYTES: u32 = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        let ms = |text| duration(text).map(|found| found.as_secs_f64() * 1000.0);
        let found = ["500ms", "10s", "2m", "1h", "1.5s", "250us", "0s"].map(|text| ms(text).expect(text));
        assert_eq!(found, [500.0, 10_000.0, 120_000.0, 3_600_000.0, 1500.0, 0.25, 0.0]);
        for text in ["", "10", "s", "-1s", "1d", "1,5s", "ten", "1..2s", "99999h"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(some_duration("0s").is_err() && some_duration("500us").is_ok());
        assert!(length("0s").is_err() && length("999us").is_err() && length("1ms").is_ok());
        assert!(length_or_none("0s").is_ok() && length_or_none("999us").is_err() && length_or_none("1ms").is_ok());
    }

    #[test]
    fn counts_are_whole_and_above_zero() {
        assert_eq!(
            ["1", "1000", "10k", "2M", "1_000", "1.5k"].map(|text| count(text).expect(text)),
            [1, 1000, 10_000, 2_000_000, 1000, 1500]
        );
        for text in ["", "0", "-1", "1.5", "many", "5 000", "9999M"] {
            assert!(count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_may_be_fractions() {
        assert_eq!(["0.5", "100", "10k"].map(|text| rate(text).expect(text)), [0.5, 100.0, 10_000.0]);
        for text in ["", "0", "-1", "fast", "nan", "inf", "9999M"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_bytes() {
        assert_eq!(["50", "2kB", "4KiB", "1MiB"].map(|text| size(text).expect(text)), [50, 2000, 4096, 1_048_576]);
        for text in ["", "-1", "1.5", "big", "17MiB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
