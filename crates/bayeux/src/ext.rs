//! The wire formats of extensions: acknowledgement, replay, timesync, timestamp and binary. The others (activity, reload) need
//! nothing here: the server forwards `ext` and `data` as they are.

mod binary;
mod limits;
mod replay;
mod stamp;

use std::collections::BTreeMap;

use crate::error::BayeuxError;
use crate::json::{self, RawJson, escape_into};
use crate::limits::INTERVAL_MS_MAX;

pub use binary::{BINARY_EXT, binary_data, binary_of};
pub use limits::{ClientLimits, asks_limits};
pub use replay::{
    Heartbeat, Lost, Position, PositionForm, Positions, Recovery, ReplayFrom, Stamped, offers_replay, uses_replay,
};
pub use stamp::{Plain, PositionStamp, channel_of, forwarded, lost_from, position_of};

/// A timesync request: `"ext":{"timesync":{"tc":…,"l":…,"o":…}}`, in milliseconds.
///
/// The client measures the difference between its clock and the server's. It sends its time `tc`, and the lag `l` and the
/// offset `o` that it has measured so far. The reply contains their error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timesync<'a> {
    /// The client's time, raw: the reply repeats it to the last digit.
    tc: &'a str,
    /// `None` from old clients.
    lag_ms: Option<i64>,
    offset_ms: i64,
}

impl<'a> Timesync<'a> {
    /// The request in a raw `ext` object; `None` if there is none, or if its `tc` is not a number.
    pub fn read(ext: RawJson<'a>) -> Option<Self> {
        let request = ext.member("timesync")?;
        let tc = request.member("tc")?;
        tc.integer()?;
        let number = |key| request.member(key).and_then(RawJson::integer);
        Some(Timesync { tc: tc.as_str(), lag_ms: number("l"), offset_ms: number("o").unwrap_or(0) })
    }

    /// The object to put under `timesync` in the reply's `ext`, for a request that was received and is answered at these
    /// times (Unix milliseconds): `{"tc":…,"ts":…,"p":…,"a":…}`, where `a` is the client's error.
    ///
    /// `None` if the client's error is at most 25 ms, so that it needs no answer. An old client, which sends no lag, always
    /// gets an answer, without `a`.
    pub fn reply(&self, received_ms: i64, answered_ms: i64) -> Option<String> {
        let tc = self.tc;
        let spent_ms = answered_ms.saturating_sub(received_ms).max(0);
        let Some(lag_ms) = self.lag_ms else {
            return Some(format!(r#"{{"tc":{tc},"ts":{received_ms},"p":{spent_ms}}}"#));
        };
        // CometD adds these up in 32 bits, which clocks that are weeks apart overflow.
        let error_ms =
            json::integer(tc)?.saturating_add(self.offset_ms).saturating_add(lag_ms).saturating_sub(received_ms);
        let answer = lag_ms == 0 || error_ms.unsigned_abs() >= ACCURACY_MS;
        answer.then(|| format!(r#"{{"tc":{tc},"ts":{received_ms},"p":{spent_ms},"a":{error_ms}}}"#))
    }
}

/// True if the `ext` of a handshake, or of the reply to it, offers the acknowledgement extension: `"ext":{"ack":true}`.
pub fn offers_ack(ext: RawJson<'_>) -> bool {
    ext.member("ack").is_some_and(|ack| ack.as_str() == "true")
}

/// The number of a batch in the `ext` of a connect, `"ext":{"ack":7}`: the last one that the client has received, and in the
/// reply the one that ends there. Old clients begin with -1, newer ones with 0; `None` if there is no integer.
pub fn acknowledged(ext: RawJson<'_>) -> Option<i64> {
    ext.member("ack")?.as_str().parse().ok()
}

/// True if the `ext` of a publication is `{"reply":false}`, among other members: its publisher wants no reply if it succeeds.
pub fn declines_reply(ext: RawJson<'_>) -> bool {
    let raw = ext.as_str();
    // The usual cases: its members need not be read. The name may be written with escapes.
    raw == NO_REPLY
        || (raw.contains("reply") || raw.contains('\\'))
            && ext.member("reply").is_some_and(|reply| reply.as_str() == "false")
}

/// The least time between two messages of a channel, in milliseconds, that the `ext` of a subscribe asks for:
/// `"ext":{"min_interval_ms":500}`. 0 asks for all messages; `None` says nothing.
///
/// # Errors
/// [`BayeuxError::MinIntervalInvalid`] if it is no integer from 0 to [`INTERVAL_MS_MAX`].
pub fn min_interval_ms(ext: RawJson<'_>) -> Result<Option<u32>, BayeuxError> {
    let Some(interval) = ext.member("min_interval_ms") else { return Ok(None) };
    let ms = interval.as_str().parse().ok().filter(|ms| *ms <= INTERVAL_MS_MAX);
    ms.map(Some).ok_or(BayeuxError::MinIntervalInvalid)
}

/// The `ext` by which [`declines_reply`] is true.
pub const NO_REPLY: &str = r#"{"reply":false}"#;

/// The `ext` of a client's message, written member by member.
///
/// ```
/// use bayeux::ext::ExtWriter;
///
/// let mut ext = ExtWriter::with(r#"{"token":"secret"}"#.into());
/// ext.offer_ack();
/// ext.offer_replay();
/// assert_eq!(ext.finish().as_deref(), Some(r#"{"token":"secret","ack":true,"replay":{"positions":"ext"}}"#));
/// assert_eq!(ExtWriter::default().finish(), None);
/// ```
#[derive(Debug, Default)]
pub struct ExtWriter(Vec<u8>);

impl ExtWriter {
    /// Continues an object that the caller has written.
    pub fn with(object: String) -> ExtWriter {
        ExtWriter(object.into_bytes())
    }

    /// Offers acknowledgement, in a handshake; see [`offers_ack`].
    pub fn offer_ack(&mut self) {
        self.member("ack", |out| out.extend_from_slice(b"true"));
    }

    /// Acknowledges a batch, in a connect; see [`acknowledged`].
    pub fn acknowledge(&mut self, batch: u64) {
        self.member("ack", |out| out.extend_from_slice(batch.to_string().as_bytes()));
    }

    /// Offers replay with positions in `ext`, in a handshake; see [`offers_replay`].
    pub fn offer_replay(&mut self) {
        self.member("replay", |out| out.extend_from_slice(PositionForm::Ext.offer().as_bytes()));
    }

    /// Asks for the limits of the session, in a handshake; see [`ClientLimits`].
    pub fn ask_limits(&mut self) {
        self.member("limits", |out| out.extend_from_slice(b"true"));
    }

    /// Declines the reply, in a publication; see [`declines_reply`].
    pub fn decline_reply(&mut self) {
        self.member("reply", |out| out.extend_from_slice(b"false"));
    }

    /// Asks for the least time between two messages of a channel, in a subscribe; see [`min_interval_ms`].
    pub fn min_interval(&mut self, ms: u32) {
        self.member("min_interval_ms", |out| out.extend_from_slice(ms.to_string().as_bytes()));
    }

    /// The points at which channels begin, in a subscribe; see [`Positions`].
    pub fn positions(&mut self, positions: &BTreeMap<String, ReplayFrom<'_>>) {
        self.member("replay", |out| {
            out.push(b'{');
            for (at, (channel, from)) in positions.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                escape_into(channel, out);
                out.push(b':');
                from.write(out);
            }
            out.push(b'}');
        });
    }

    /// The object; `None` if it has no members.
    pub fn finish(self) -> Option<String> {
        String::from_utf8(self.0).ok().filter(|text| text.len() > 2)
    }

    fn member(&mut self, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
        let out = &mut self.0;
        match out.pop() {
            Some(b'}') if out.len() > 1 => out.push(b','),
            _ => *out = vec![b'{'],
        }
        escape_into(name, out);
        out.push(b':');
        value(out);
        out.push(b'}');
    }
}

/// The text of a `timestamp` field: ISO 8601 in GMT, as in `2009-02-13T23:31:30.123Z`, without quotes.
///
/// Bayeux 1.0, "timestamp", writes hundredths and no zone. Thousandths and the `Z` are ISO 8601 as well, and the form
/// that every parser takes as GMT: JavaScript's takes a time without zone as local.
///
/// Times before year 0 or after year 9999, which the form cannot hold, give the nearest that it can.
pub fn timestamp(unix_ms: i64) -> String {
    let unix_ms = unix_ms.clamp(YEAR_0_MS, YEAR_9999_END_MS);
    let (year, month, day) = civil_date(unix_ms.div_euclid(DAY_MS));
    let in_day = unix_ms.rem_euclid(DAY_MS);
    let (hour, minute) = (in_day / 3_600_000, in_day / 60_000 % 60);
    let (second, milli) = (in_day / 1000 % 60, in_day % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// The Gregorian year, month and day of a day counted from 1 January 1970 (Howard Hinnant, "chrono-Compatible Low-Level
/// Date Algorithms", `civil_from_days`): years are taken from March on, so that the leap day comes last.
fn civil_date(unix_day: i64) -> (i64, i64, i64) {
    let day = unix_day + 719_468;
    let era = day.div_euclid(146_097);
    let day_of_era = day.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_month)
}

/// CometD's accuracy target.
const ACCURACY_MS: u64 = 25;
const DAY_MS: i64 = 86_400_000;
const YEAR_0_MS: i64 = -62_167_219_200_000;
const YEAR_9999_END_MS: i64 = 253_402_300_799_999;

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(raw_ext: &str, received_ms: i64, answered_ms: i64) -> Option<String> {
        Timesync::read(RawJson::trusted(raw_ext))?.reply(received_ms, answered_ms)
    }

    #[test]
    fn a_new_client_receives_its_clock_error() {
        let ext = r#"{"ack":1,"timesync":{"tc":1000,"l":0,"o":0}}"#;
        assert_eq!(reply(ext, 990, 993).as_deref(), Some(r#"{"tc":1000,"ts":990,"p":3,"a":10}"#));
    }

    #[test]
    fn a_client_within_25_ms_needs_no_answer() {
        let ext = r#"{"timesync":{"tc":1000,"l":5,"o":100}}"#;
        assert_eq!(reply(ext, 1105 - 24, 0), None);
        assert_eq!(reply(ext, 1105 + 24, 0), None);
        assert_eq!(reply(ext, 1105 - 25, 1080).as_deref(), Some(r#"{"tc":1000,"ts":1080,"p":0,"a":25}"#));
        assert_eq!(reply(ext, 1105 + 25, 1130).as_deref(), Some(r#"{"tc":1000,"ts":1130,"p":0,"a":-25}"#));
    }

    #[test]
    fn an_old_client_is_answered_without_an_error() {
        assert_eq!(reply(r#"{"timesync":{"tc":12.50}}"#, 7, 9).as_deref(), Some(r#"{"tc":12.50,"ts":7,"p":2}"#));
    }

    #[test]
    fn a_server_clock_that_was_set_back_has_spent_no_time() {
        assert_eq!(reply(r#"{"timesync":{"tc":1}}"#, 9, 7).as_deref(), Some(r#"{"tc":1,"ts":9,"p":0}"#));
    }

    #[test]
    fn wild_clocks_are_held_at_64_bits() {
        let ext = r#"{"timesync":{"tc":1e400,"l":9223372036854775807,"o":1}}"#;
        assert_eq!(reply(ext, -5, -5).as_deref(), Some(r#"{"tc":1e400,"ts":-5,"p":0,"a":9223372036854775807}"#));
    }

    #[test]
    fn anything_that_is_no_request_is_not_answered() {
        for ext in ["{}", r#"{"timesync":1}"#, r#"{"timesync":{}}"#, r#"{"timesync":{"tc":"1"}}"#, "[]"] {
            assert_eq!(Timesync::read(RawJson::trusted(ext)), None);
        }
    }

    #[test]
    fn an_acknowledgement_is_offered_with_true_and_given_as_an_integer() {
        assert!(offers_ack(RawJson::trusted(r#"{"ack": true}"#)));
        for ext in [r#"{"ack":false}"#, r#"{"ack":1}"#, r#"{"ack":{}}"#, "{}", "[]"] {
            assert!(!offers_ack(RawJson::trusted(ext)), "{ext}");
        }
        assert_eq!(acknowledged(RawJson::trusted(r#"{"ack":7}"#)), Some(7));
        assert_eq!(acknowledged(RawJson::trusted(r#"{"ack":-1}"#)), Some(-1));
        for ext in [r#"{"ack":true}"#, r#"{"ack":"7"}"#, r#"{"ack":7.5}"#, "{}"] {
            assert_eq!(acknowledged(RawJson::trusted(ext)), None, "{ext}");
        }
    }

    #[test]
    fn a_reply_is_declined_with_false() {
        for ext in [NO_REPLY, r#"{"a":"\"","reply": false}"#, r#"{"\u0072eply":false}"#, r#"{"reply":1,"reply":false}"#]
        {
            assert!(declines_reply(RawJson::trusted(ext)), "{ext}");
        }
        for ext in ["{}", r#"{"reply":true}"#, r#"{"reply":"false"}"#, r#"{"a":{"reply":false}}"#, r#"{"a":"reply"}"#] {
            assert!(!declines_reply(RawJson::trusted(ext)), "{ext}");
        }
        let mut ext = ExtWriter::default();
        ext.decline_reply();
        assert_eq!(ext.finish().as_deref(), Some(NO_REPLY));
    }

    #[test]
    fn timestamps_are_iso_8601_in_gmt() {
        for (unix_ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_234_567_890_123, "2009-02-13T23:31:30.123Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_164_799_999, "2024-02-28T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (i64::MAX, "9999-12-31T23:59:59.999Z"),
            (i64::MIN, "0000-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(timestamp(unix_ms), text);
        }
    }
}
