//! The agreement on compression in the opening handshake (RFC 7692 §7.1).

use std::num::NonZeroU8;

use http::HeaderMap;
use http::header::SEC_WEBSOCKET_EXTENSIONS;

/// The compression that both ends of a connection have agreed on. Neither end keeps its context between two messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    /// The server's window as an exponent: 8 to 15, or [`UNLIMITED`]. WebSockets are many, so it is small.
    server_window_bits: NonZeroU8,
}

/// The client does not limit the server's window.
const UNLIMITED: NonZeroU8 = NonZeroU8::MAX;

/// Compression without context takeover in either direction.
const OFFER: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";

impl Compression {
    /// It as a byte, which is not 0.
    pub fn to_byte(self) -> u8 {
        self.server_window_bits.get()
    }

    /// The compression of a byte that [`Compression::to_byte`] has made. None for any other byte.
    pub fn from_byte(byte: u8) -> Option<Compression> {
        let server_window_bits = NonZeroU8::new(byte)?;
        let is_one = server_window_bits == UNLIMITED || (8..=15).contains(&byte);
        is_one.then_some(Compression { server_window_bits })
    }

    /// The offer of a client, as the value of `Sec-WebSocket-Extensions`.
    pub const OFFER: &str = OFFER;

    /// Accepts the first of a client's offers that is valid; declines the others (RFC 7692 §5.1). None if there is no valid
    /// one.
    pub fn accept(headers: &HeaderMap) -> Option<Compression> {
        let lines = headers.get_all(SEC_WEBSOCKET_EXTENSIONS).iter().filter_map(|line| line.to_str().ok());
        lines.flat_map(|line| line.split(',')).find_map(|offer| {
            let parameters = Parameters::parse(offer, |bits| bits.is_none_or(|bits| window_bits(bits).is_some()))?;
            Some(parameters.compression())
        })
    }

    /// The server's answer, as the value of `Sec-WebSocket-Extensions`.
    pub fn answer(&self) -> String {
        match self.server_window_bits {
            UNLIMITED => OFFER.to_owned(),
            bits => format!("{OFFER}; server_max_window_bits={bits}"),
        }
    }

    /// Checks the server's answer to [`Compression::OFFER`]. Without one the server declines. None if the answer is none to
    /// that offer: the client fails the connection (RFC 7692 §7.1).
    pub fn check_answer(headers: &HeaderMap) -> Option<Option<Compression>> {
        let mut lines = headers.get_all(SEC_WEBSOCKET_EXTENSIONS).iter();
        let Some(line) = lines.next() else { return Some(None) };
        // The client has not offered to limit its own window.
        let answer = Parameters::parse(line.to_str().ok()?, |_| false)?;
        let is_agreed = lines.next().is_none() && answer.has_no_server_context;
        is_agreed.then(|| Some(answer.compression()))
    }

    /// The longest message that the server may compress, in bytes. It compresses with the largest window for all clients;
    /// a shorter message uses no larger window than the client has.
    pub fn message_bytes_max(&self) -> usize {
        let bits = self.server_window_bits.get();
        if bits < 15 { 1 << bits } else { usize::MAX }
    }
}

/// The parameters of an offer or an answer.
#[derive(Default)]
struct Parameters {
    has_no_server_context: bool,
    server_window_bits: Option<NonZeroU8>,
}

impl Parameters {
    fn compression(&self) -> Compression {
        Compression { server_window_bits: self.server_window_bits.unwrap_or(UNLIMITED) }
    }

    /// None unless it is permessage-deflate with valid parameters, each once (RFC 7692 §7.1). `takes_client_bits` decides
    /// about the value of `client_max_window_bits`, if it has one: the receiver's window is large enough for all.
    fn parse(extension: &str, takes_client_bits: impl Fn(Option<&str>) -> bool) -> Option<Parameters> {
        let mut items = extension.split(';').map(str::trim);
        if items.next() != Some("permessage-deflate") {
            return None;
        }
        let (mut parsed, mut has_no_client_context, mut has_client_bits) = (Parameters::default(), false, false);
        for item in items {
            let (name, value) = match item.split_once('=') {
                Some((name, value)) => (name.trim_end(), Some(unquoted(value.trim_start())?)),
                None => (item, None),
            };
            let is_repeated = match (name, value) {
                ("server_no_context_takeover", None) => std::mem::replace(&mut parsed.has_no_server_context, true),
                ("client_no_context_takeover", None) => std::mem::replace(&mut has_no_client_context, true),
                ("server_max_window_bits", Some(bits)) => {
                    parsed.server_window_bits.replace(window_bits(bits)?).is_some()
                }
                ("client_max_window_bits", bits) if takes_client_bits(bits) => {
                    std::mem::replace(&mut has_client_bits, true)
                }
                _ => return None,
            };
            if is_repeated {
                return None;
            }
        }
        Some(parsed)
    }
}

/// A value without its quotes, if it has some (RFC 6455 §9.1). A number needs no escapes.
fn unquoted(value: &str) -> Option<&str> {
    match value.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"'),
        None => Some(value),
    }
}

/// The size of a window as an exponent: 8 to 15, without leading zeros (RFC 7692 §7.1.2).
fn window_bits(value: &str) -> Option<NonZeroU8> {
    (8..=15).find(|bits: &u8| bits.to_string() == value).and_then(NonZeroU8::new)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(lines: &[&'static str]) -> HeaderMap {
        let lines = lines.iter().map(|line| (SEC_WEBSOCKET_EXTENSIONS, HeaderValue::from_static(line)));
        lines.collect()
    }

    #[test]
    fn valid_offers_are_accepted_and_malformed_ones_declined() {
        let answer = |lines: &[&'static str]| Compression::accept(&headers(lines)).map(|agreed| agreed.answer());
        let accepted = [
            "permessage-deflate",
            "permessage-deflate; client_max_window_bits",
            "permessage-deflate;client_max_window_bits=8;server_no_context_takeover",
            "permessage-deflate ; client_no_context_takeover ; client_max_window_bits = \"15\"",
            "x-webkit-deflate-frame, permessage-deflate",
            "permessage-deflate; unknown, permessage-deflate; server_max_window_bits=7, permessage-deflate",
        ];
        for line in accepted {
            assert_eq!(answer(&[line]).as_deref(), Some(OFFER), "{line}");
        }
        assert_eq!(answer(&["foo", "permessage-deflate"]).as_deref(), Some(OFFER));
        let with_bits = |bits: u8| Some(format!("{OFFER}; server_max_window_bits={bits}"));
        assert_eq!(answer(&["permessage-deflate; server_max_window_bits=9, permessage-deflate"]), with_bits(9));
        assert_eq!(answer(&["permessage-deflate; server_max_window_bits=\"15\""]), with_bits(15));
        let declined = [
            "",
            "permessage-bzip2",
            "Permessage-Deflate",
            "permessage-deflate; ",
            "permessage-deflate; unknown",
            "permessage-deflate; server_max_window_bits",
            "permessage-deflate; server_max_window_bits=",
            "permessage-deflate; server_max_window_bits=7",
            "permessage-deflate; server_max_window_bits=16",
            "permessage-deflate; server_max_window_bits=010",
            "permessage-deflate; server_max_window_bits=+10",
            "permessage-deflate; server_max_window_bits=\"10",
            "permessage-deflate; server_max_window_bits=10; server_max_window_bits=10",
            "permessage-deflate; client_max_window_bits=0",
            "permessage-deflate; client_max_window_bits; client_max_window_bits",
            "permessage-deflate; server_no_context_takeover=1",
            "permessage-deflate; client_no_context_takeover; client_no_context_takeover",
            "permessage-deflate; x=\"a; server_no_context_takeover\"",
        ];
        for line in declined {
            assert_eq!(answer(&[line]), None, "{line}");
        }
        assert_eq!(answer(&[]), None);
    }

    #[test]
    fn a_client_takes_no_answer_to_what_it_has_not_offered() {
        let check = |lines: &[&'static str]| Compression::check_answer(&headers(lines));
        assert_eq!(check(&[]), Some(None));
        assert_eq!(check(&[OFFER]), Some(Some(Compression { server_window_bits: UNLIMITED })));
        assert!(check(&["permessage-deflate; server_no_context_takeover; server_max_window_bits=10"]).is_some());
        for line in
            ["permessage-deflate", "foo", "permessage-deflate; server_no_context_takeover; client_max_window_bits=9"]
        {
            assert_eq!(check(&[line]), None, "{line}");
        }
        assert_eq!(check(&[OFFER, OFFER]), None);
    }

    #[test]
    fn a_small_window_is_for_short_messages() {
        let longest = |line| Compression::accept(&headers(&[line])).map(|agreed| agreed.message_bytes_max());
        assert_eq!(longest("permessage-deflate"), Some(usize::MAX));
        assert_eq!(longest("permessage-deflate; server_max_window_bits=15"), Some(usize::MAX));
        assert_eq!(longest("permessage-deflate; server_max_window_bits=8"), Some(256));
    }
}
