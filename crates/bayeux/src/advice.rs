//! Advice: what a server tells its clients to do next (Bayeux 1.0 §1.4 "Advice").

/// What a client has to do after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconnect {
    /// Connect again after `interval`.
    Retry,
    /// The server has forgotten the session: handshake anew.
    Handshake,
    /// Neither connect nor handshake again.
    None,
}

/// An `advice` object. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What to do next.
    pub reconnect: Reconnect,
    /// The pause before the next connect.
    pub interval_ms: Option<u64>,
    /// How long the server holds a connect.
    pub timeout_ms: Option<u64>,
    /// How long after `interval` the server waits for a client that falls silent, where the client has asked for it.
    pub max_interval_ms: Option<u64>,
    /// Several windows of one browser are open: they poll instead of being held.
    pub multiple_clients: bool,
}

impl Advice {
    /// The advice of a healthy session.
    pub fn retry(timeout_ms: u64, interval_ms: u64) -> Advice {
        Advice {
            reconnect: Reconnect::Retry,
            interval_ms: Some(interval_ms),
            timeout_ms: Some(timeout_ms),
            max_interval_ms: None,
            multiple_clients: false,
        }
    }

    /// The advice to a client whose session is unknown: handshake, at once.
    pub const fn handshake() -> Advice {
        Advice { reconnect: Reconnect::Handshake, interval_ms: Some(0), ..Advice::none() }
    }

    /// The advice that ends a conversation.
    pub const fn none() -> Advice {
        Advice {
            reconnect: Reconnect::None,
            interval_ms: None,
            timeout_ms: None,
            max_interval_ms: None,
            multiple_clients: false,
        }
    }

    /// The advice to a surplus window of a browser: poll at `interval_ms`, or give up where that is 0.
    pub fn multiple_clients(interval_ms: u64) -> Advice {
        let polls = interval_ms > 0;
        Advice {
            reconnect: if polls { Reconnect::Retry } else { Reconnect::None },
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
        let reconnect = match self.reconnect {
            Reconnect::Retry => "retry",
            Reconnect::Handshake => "handshake",
            Reconnect::None => "none",
        };
        json.push_str("\"reconnect\":\"");
        json.push_str(reconnect);
        json.push_str("\"}");
        json
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
    fn a_surplus_window_polls_or_gives_up() {
        assert_eq!(
            Advice::multiple_clients(2000).to_json(),
            r#"{"multiple-clients":true,"interval":2000,"reconnect":"retry"}"#
        );
        assert_eq!(Advice::multiple_clients(0).to_json(), r#"{"multiple-clients":true,"reconnect":"none"}"#);
    }
}
