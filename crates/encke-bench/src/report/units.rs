//! Figures for people: grouped thousands, at most three significant digits, a suitable unit.

/// A count with its thousands apart: `10,000,000`.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A figure with three digits, or all digits before the point: `0.123`, `12.3`, `12,346`. NaN is `–`.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if value.is_nan() {
        return NOTHING.into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "∞".into() } else { "−∞".into() };
    }
    if size >= WHOLE {
        let sign = if value < 0.0 { "-" } else { "" };
        // Beyond 2^53 the digits would only pretend to know.
        return if size < EXACT { format!("{sign}{}", count(size.round() as u64)) } else { format!("{value:.2e}") };
    }
    let decimals = if size >= 9.995 {
        1
    } else if size >= 0.9995 {
        2
    } else {
        3
    };
    if size > 0.0 && size < 0.0005 {
        return format!("{value:.1e}");
    }
    trimmed(format!("{value:.decimals$}"))
}

/// Microseconds as `850 µs`, `12.4 ms` or `1.24 s`.
pub fn micros(us: f64) -> String {
    scaled(us, &[("µs", 1.0), ("ms", 1e3), ("s", 1e6)], 999.5)
}

/// Bytes as `512 B`, `20 KiB`, `1.21 GiB`.
pub fn bytes(bytes: f64) -> String {
    scaled(bytes, &[("B", 1.0), ("KiB", KIB), ("MiB", KIB * KIB), ("GiB", KIB * KIB * KIB)], 1023.5)
}

/// A length of time in milliseconds as `850 ms`, `12.4 s`, `2 min 5 s` or `3 h 10 min`.
pub fn span(ms: u64) -> String {
    let seconds = (ms + 500) / 1000;
    match seconds {
        0..120 => micros(ms as f64 * 1e3),
        120..7200 => two_parts(seconds, 60, "min", "s"),
        _ => two_parts((seconds + 30) / 60, 60, "h", "min"),
    }
}

/// Milliseconds since 1970 as `2026-11-21 10:57 UTC`.
pub fn date(unix_ms: u64) -> String {
    let timestamp = bayeux::ext::timestamp(unix_ms.try_into().unwrap_or(i64::MAX));
    format!("{} UTC", timestamp[..MINUTES_BYTES].replace('T', " "))
}

/// A figure with its unit; times and bytes get the unit that fits.
pub fn figure(value: f64, unit: &str) -> String {
    if !value.is_finite() {
        return number(value);
    }
    if let Some(per) = unit.strip_prefix("bytes/") {
        return format!("{}/{}", bytes(value), if per == "hour" { "h" } else { per });
    }
    match unit {
        "ns" if value.abs() < 999.5 => format!("{} ns", number(value)),
        "ns" => micros(value / 1e3),
        "us" | "µs" => micros(value),
        "ms" => micros(value * 1e3),
        "s" if value.abs() >= 120.0 && value < EXACT => span((value.max(0.0) * 1e3) as u64),
        "s" => micros(value * 1e6),
        "B" | "bytes" => bytes(value),
        "" => number(value),
        "%" => format!("{} %", number(value)),
        unit if unit.starts_with('/') => format!("{}{unit}", number(value)),
        unit => format!("{} {unit}", number(value)),
    }
}

fn scaled(value: f64, units: &[(&str, f64)], limit: f64) -> String {
    if !value.is_finite() {
        return number(value);
    }
    let fits = |(_, size): &&(&str, f64)| value.abs() / size < limit;
    let (unit, size) = units.iter().find(fits).or(units.last()).copied().unwrap_or(("", 1.0));
    format!("{} {unit}", number(value / size))
}

fn two_parts(small: u64, ratio: u64, large_unit: &str, small_unit: &str) -> String {
    match (small / ratio, small % ratio) {
        (large, 0) => format!("{large} {large_unit}"),
        (large, rest) => format!("{large} {large_unit} {rest} {small_unit}"),
    }
}

fn trimmed(text: String) -> String {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// Shown if there is no figure.
pub const NOTHING: &str = "–";

/// The part of a timestamp up to its minutes: `2026-11-21T10:57`.
const MINUTES_BYTES: usize = 16;

/// Figures from here on have no decimals.
const WHOLE: f64 = 99.95;

/// Above this a float does not know its last digit.
const EXACT: f64 = 9e15;

const KIB: f64 = 1024.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        assert_eq!([0, 999, 1000, 10_000_000].map(count), ["0", "999", "1,000", "10,000,000"]);
        assert_eq!(
            [0.0, 0.1234, 1.5, 12.34, 123.4, 52_139_467.2].map(number),
            ["0", "0.123", "1.5", "12.3", "123", "52,139,467"]
        );
    }

    #[test]
    fn nan_and_infinity_have_their_own_signs() {
        assert_eq!([f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(number), ["–", "∞", "−∞"]);
        assert_eq!(micros(f64::NAN), "–");
        assert_eq!(figure(f64::INFINITY, "s"), "∞");
        assert_eq!(figure(f64::NAN, "KiB/h"), "–");
        assert_eq!([f64::MAX, f64::MIN_POSITIVE].map(number), ["1.80e308", "2.2e-308"]);
    }

    #[test]
    fn times_and_bytes_get_the_unit_that_fits() {
        assert_eq!(
            [0.0, 850.0, 999.6, 12_400.0, 1_240_000.0].map(micros),
            ["0 µs", "850 µs", "1 ms", "12.4 ms", "1.24 s"]
        );
        assert_eq!([512.0, 1023.6, 20480.0, 1.3e9].map(bytes), ["512 B", "1 KiB", "20 KiB", "1.21 GiB"]);
        assert_eq!([850, 12_400, 125_000, 11_400_000].map(span), ["850 ms", "12.4 s", "2 min 5 s", "3 h 10 min"]);
        assert_eq!(figure(1592.0, "bytes"), "1.55 KiB");
        assert_eq!(figure(15_568.0, "/s"), "15,568/s");
        assert_eq!(figure(-2048.0, "bytes/hour"), "-2 KiB/h");
    }

    #[test]
    fn dates_are_civil() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400_000), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_795_258_620_000), "2026-11-21 10:57 UTC");
    }
}
