//! Advice in both directions (Bayeux 1.0, "advice"): the server's on what to do next, the client's on how long to wait.

use crate::json::{RawJson, Sink};

/// The next step of a client after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconnect {
    /// Connect again after `interval`.
    Retry,
    /// The server has forgotten the session: open a new one.
    Handshake,
    /// Neither connect nor handshake again.
    None,
}

/// The `advice` of a server. Times are in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    /// The next step. Servers always send one; if a reply has none, the client's last one still applies.
    pub reconnect: Option<Reconnect>,
    /// The pause before the next connect.
    pub interval_ms: Option<u64>,
    /// The time for which the server holds a connect.
    pub timeout_ms: Option<u64>,
    /// The time after `interval` for which the server waits for a silent client. Only if the client has requested it.
    pub max_interval_ms: Option<u64>,
    /// True if several windows of one browser are open. They poll, and their connects are not held.
    pub multiple_clients: bool,
}

impl Advice {
    /// The advice of a healthy session.
    pub fn retry(timeout_ms: u64, interval_ms: u64) -> Advice {
        Advice {
            reconnect: Some(Reconnect::Retry),
            interval_ms: Some(interval_ms),
            timeout_ms: Some(timeout_ms),
            max_interval_ms: None,
            multiple_clients: false,
        }
    }

    /// The advice to a client whose session is unknown: handshake, at once.
    pub const fn handshake() -> Advice {
        Advice { reconnect: Some(Reconnect::Handshake), interval_ms: Some(0), ..Advice::none() }
    }

    /// The advice neither to connect nor to handshake again.
    pub const fn none() -> Advice {
        Advice {
            reconnect: Some(Reconnect::None),
            interval_ms: None,
            timeout_ms: None,
            max_interval_ms: None,
            multiple_clients: false,
        }
    }

    /// The advice to a surplus window of a browser: poll at `interval_ms`, or give up if that is 0.
    pub fn multiple_clients(interval_ms: u64) -> Advice {
        let polls = interval_ms > 0;
        Advice {
            reconnect: Some(if polls { Reconnect::Retry } else { Reconnect::None }),
            interval_ms: polls.then_some(interval_ms),
            multiple_clients: true,
            ..Advice::none()
        }
    }

    /// The JSON object, in CometD's order of keys.
    pub fn to_json(&self) -> String {
        let mut json = String::with_capacity(64);
        json.push('{');
        if self.multiple_clients {
            json.push_str("\"multiple-clients\":true,");
        }
        let times =
            [("interval", self.interval_ms), ("timeout", self.timeout_ms), ("maxInterval", self.max_interval_ms)];
        for (key, value) in times {
            if let Some(value) = value {
                json.push_str(&format!("\"{key}\":{value},"));
            }
        }
        match self.reconnect {
            Some(reconnect) => json.push_str(&format!("\"reconnect\":\"{}\"}}", reconnect.name())),
            None => {
                json.truncate(json.trim_end_matches(',').len());
                json.push('}');
            }
        }
        json
    }

    /// Reads the advice of a server. `None` if it is not an object. Missing and invalid members are `None`; a pause below
    /// zero is zero.
    pub fn read(raw: RawJson<'_>) -> Option<Advice> {
        let mut advice = raw.is_object().then(Advice::default)?;
        for (key, value) in raw.members() {
            let time = || value.integer().map(|ms| u64::try_from(ms).unwrap_or(0));
            if key.is("reconnect") {
                advice.reconnect = value.text().and_then(|name| Reconnect::named(&name));
            } else if key.is("interval") {
                advice.interval_ms = time();
            } else if key.is("timeout") {
                advice.timeout_ms = time();
            } else if key.is("maxInterval") {
                advice.max_interval_ms = time();
            } else if key.is("multiple-clients") {
                advice.multiple_clients = value.as_str() == "true";
            }
        }
        Some(advice)
    }
}

impl Reconnect {
    /// Its name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Reconnect::Retry => "retry",
            Reconnect::Handshake => "handshake",
            Reconnect::None => "none",
        }
    }

    fn named(name: &str) -> Option<Reconnect> {
        [Reconnect::Retry, Reconnect::Handshake, Reconnect::None].into_iter().find(|reconnect| reconnect.name() == name)
    }
}

/// The advice of a client in a connect or a handshake, in milliseconds.
///
/// A member that is missing or not a number is `None`. Fractions are cut off. Values are clamped to `i64` and otherwise
/// unchanged, also negative ones: the session checks them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientAdvice {
    /// The longest time for which the server may hold this connect.
    pub timeout_ms: Option<i64>,
    /// The client's pause before its next connect.
    pub interval_ms: Option<i64>,
    /// The time after the interval for which the session lives on (CometD's `maxInterval`).
    pub max_interval_ms: Option<i64>,
}

impl ClientAdvice {
    /// Reads the advice of a client. `None` if it is not an object.
    pub fn read(raw: RawJson<'_>) -> Option<ClientAdvice> {
        let mut advice = raw.is_object().then(ClientAdvice::default)?;
        for (key, value) in raw.members() {
            if key.is("timeout") {
                advice.timeout_ms = value.integer();
            } else if key.is("interval") {
                advice.interval_ms = value.integer();
            } else if key.is("maxInterval") {
                advice.max_interval_ms = value.integer();
            }
        }
        Some(advice)
    }

    /// Appends it as a JSON object.
    pub fn write(&self, out: &mut Vec<u8>) {
        let times =
            [("timeout", self.timeout_ms), ("interval", self.interval_ms), ("maxInterval", self.max_interval_ms)];
        let mut separator = "{";
        for (key, value) in times {
            if let Some(value) = value {
                out.put(format!("{separator}\"{key}\":{value}").as_bytes());
                separator = ",";
            }
        }
        out.put(if separator == "{" { b"{}" } else { b"}" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_written_as_cometd_writes_it() {
        assert_eq!(Advice::retry(3000, 0).to_json(), r#"{"interval":0,"timeout":3000,"reconnect":"retry"}"#);
        let patient = Advice { max_interval_ms: Some(60_000), ..Advice::retry(3000, 0) };
        assert_eq!(patient.to_json(), r#"{"interval":0,"timeout":3000,"maxInterval":60000,"reconnect":"retry"}"#);
        assert_eq!(Advice::handshake().to_json(), r#"{"interval":0,"reconnect":"handshake"}"#);
        assert_eq!(Advice::none().to_json(), r#"{"reconnect":"none"}"#);
    }

    #[test]
    fn advice_reads_back() {
        for advice in [
            Advice::retry(3000, 0),
            Advice { max_interval_ms: Some(60_000), ..Advice::retry(3000, 5) },
            Advice::handshake(),
            Advice::none(),
            Advice::multiple_clients(2000),
            Advice { reconnect: None, ..Advice::retry(1, 2) },
            Advice::default(),
        ] {
            assert_eq!(Advice::read(RawJson::trusted(&advice.to_json())), Some(advice));
        }
        let odd = r#"{"reconnect":"soon","interval":-5,"timeout":1e400,"x":[]}"#;
        let read = Advice { interval_ms: Some(0), timeout_ms: Some(i64::MAX as u64), ..Advice::default() };
        assert_eq!(Advice::read(RawJson::trusted(odd)), Some(read));
        assert_eq!(Advice::read(RawJson::trusted("[]")), None);
    }

    #[test]
    fn a_clients_advice_reads_back() {
        for advice in [
            ClientAdvice::default(),
            ClientAdvice { timeout_ms: Some(0), ..ClientAdvice::default() },
            ClientAdvice { timeout_ms: Some(1), interval_ms: Some(-2), max_interval_ms: Some(3) },
        ] {
            let mut out = Vec::new();
            advice.write(&mut out);
            let text = String::from_utf8(out).expect("text");
            assert_eq!(ClientAdvice::read(RawJson::parse(&text).expect("JSON")), Some(advice));
        }
    }

    #[test]
    fn a_surplus_window_polls_or_gives_up() {
        assert_eq!(
            Advice::multiple_clients(2000).to_json(),
            r#"{"multiple-clients":true,"interval":2000,"reconnect":"retry"}"#
        );
        assert_eq!(Advice::multiple_clients(0).to_json(), r#"{"multiple-clients":true,"reconnect":"none"}"#);
    }
}
