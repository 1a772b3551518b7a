//! The head of the PROXY protocol, versions 1 and 2, by which a proxy names the client of a connection before its first byte.

use std::net::IpAddr;

use proxy_header::{Error, ParseConfig, ProxyHeader};

/// A PROXY head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProxyHead {
    /// The address of the client. None if the proxy speaks for itself (`LOCAL`), or does not know it (`UNKNOWN`).
    pub(crate) source: Option<IpAddr>,
    /// True if the client speaks TLS with the proxy (`PP2_CLIENT_SSL`).
    pub(crate) is_tls: bool,
}

/// The bytes are no PROXY head.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no valid PROXY head")]
pub(crate) struct NoProxyHead;

impl ProxyHead {
    /// Reads the head at the beginning of these bytes. Returns it with its length, or None if more bytes are needed.
    ///
    /// # Errors
    /// No head begins so.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(ProxyHead, usize)>, NoProxyHead> {
        let begins_like = |start: &[u8]| start.iter().zip(bytes).all(|(wanted, byte)| wanted == byte);
        let bytes_max = match (begins_like(V1_START), begins_like(V2_START)) {
            (false, false) => return Err(NoProxyHead),
            (true, false) => V1_BYTES_MAX,
            (_, true) => PROXY_HEAD_BYTES_MAX,
        };
        // So the answer does not depend on the bytes that follow.
        let bytes = &bytes[..bytes.len().min(bytes_max)];
        match ProxyHeader::parse(bytes, ParseConfig::default()) {
            Ok((head, length)) => {
                let source = head.proxied_address().map(|address| address.source.ip().to_canonical());
                let is_tls = source.is_some() && head.ssl().is_some_and(|ssl| ssl.client_ssl());
                Ok(Some((ProxyHead { source, is_tls }, length)))
            }
            Err(Error::BufferTooShort) if bytes.len() < bytes_max => Ok(None),
            Err(_) => Err(NoProxyHead),
        }
    }
}

/// The most bytes of a head: as many as nginx reads.
pub(crate) const PROXY_HEAD_BYTES_MAX: usize = 4096;
/// The most bytes of a head of version 1, as the protocol says.
const V1_BYTES_MAX: usize = 107;
const V1_START: &[u8] = b"PROXY ";
const V2_START: &[u8] = b"\r\n\r\n\x00\r\nQUIT\n";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proxy_header::{ProxiedAddress, SslInfo, Tlv};

    use super::*;

    fn head(source: Option<&str>, is_tls: bool) -> ProxyHead {
        ProxyHead { source: source.map(|source| source.parse().expect("an address")), is_tls }
    }

    fn v2(of: &ProxyHeader<'_>) -> Vec<u8> {
        let mut bytes = vec![0; 2 * PROXY_HEAD_BYTES_MAX];
        let length = of.encode_to_slice_v2(&mut bytes).expect("it fits");
        bytes.truncate(length);
        bytes
    }

    fn from(source: &str, destination: &str) -> ProxyHeader<'static> {
        let [source, destination] = [source, destination].map(|text| text.parse().expect("an address"));
        ProxyHeader::with_address(ProxiedAddress::stream(source, destination))
    }

    #[test]
    fn both_versions_name_the_client_and_end_where_its_bytes_begin() {
        let (four, six) = (from("192.0.2.7:5000", "10.0.0.1:80"), from("[2001:db8::7]:5000", "[2001:db8::1]:80"));
        for (bytes, source) in [
            (b"PROXY TCP4 192.0.2.7 10.0.0.1 5000 80\r\n".to_vec(), Some("192.0.2.7")),
            (b"PROXY TCP6 2001:db8::7 2001:db8::1 5000 80\r\n".to_vec(), Some("2001:db8::7")),
            (b"PROXY TCP6 ::ffff:192.0.2.7 ::1 5000 80\r\n".to_vec(), Some("192.0.2.7")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN ffff::1 ffff::1 65535 65535\r\n".to_vec(), None),
            (v2(&four), Some("192.0.2.7")),
            (v2(&six), Some("2001:db8::7")),
            (v2(&ProxyHeader::with_local()), None),
        ] {
            let found = Ok(Some((head(source, false), bytes.len())));
            assert_eq!(ProxyHead::parse(&bytes), found, "{}", bytes.escape_ascii());
            assert_eq!(ProxyHead::parse(&[&bytes, &b"GET /"[..]].concat()), found, "{}", bytes.escape_ascii());
            for end in 0..bytes.len() {
                assert_eq!(ProxyHead::parse(&bytes[..end]), Ok(None), "{}", bytes[..end].escape_ascii());
            }
        }
    }

    #[test]
    fn a_client_that_speaks_tls_with_the_proxy_is_known_and_other_fields_are_ignored() {
        let mut of = from("192.0.2.7:5000", "10.0.0.1:443");
        of.append_tlv(Tlv::Authority("push.example".into()));
        of.append_tlv(Tlv::Custom(0xe0, [7; 1000][..].into()));
        of.append_tlv(Tlv::Ssl(SslInfo::new(true, false, false, 1)));
        let bytes = v2(&of);
        assert_eq!(ProxyHead::parse(&bytes), Ok(Some((head(Some("192.0.2.7"), true), bytes.len()))));
        of.append_tlv(Tlv::Custom(0xe1, [7; PROXY_HEAD_BYTES_MAX][..].into()));
        let long = v2(&of);
        assert_eq!(ProxyHead::parse(&long[..PROXY_HEAD_BYTES_MAX - 1]), Ok(None));
        assert_eq!(ProxyHead::parse(&long[..PROXY_HEAD_BYTES_MAX]), Err(NoProxyHead));
    }

    #[test]
    fn what_is_no_head_is_refused_at_its_first_wrong_byte() {
        for bytes in [
            &b"G"[..],
            b"PROXX",
            b"PROXYxTCP4 192.0.2.7 10.0.0.1 5000 80\r\n",
            b"\x16\x03\x01",
            b"PROXY TCP5 192.0.2.7 10.0.0.1 5000 80\r\n",
            b"PROXY TCP4 192.0.2.777 10.0.0.1 5000 80\r\n",
            b"PROXY TCP4 ::1 ::1 5000 80\r\n",
            b"PROXY TCP4 192.0.2.7 10.0.0.1 5000 80\r\r",
            b"PROXY TCP4 192.0.2.7 10.0.0.1 5000 65536\r\n",
            b"\r\n\r\n\x00\r\nQUIT\n\x31\x11\x00\x00",
            // Shorter than its two addresses.
            b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x04\x01\x01\x01\x01GET /a HTTP",
        ] {
            assert_eq!(ProxyHead::parse(bytes), Err(NoProxyHead), "{}", bytes.escape_ascii());
        }
        assert_eq!(ProxyHead::parse(&[b"PROXY UNKNOWN ".as_slice(), &[b'x'; 120]].concat()), Err(NoProxyHead));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_read_alike_whatever_follows(
            start in prop_oneof![Just(&b""[..]), Just(V1_START), Just(&b"PROXY TCP4 "[..]), Just(V2_START)],
            rest in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let bytes = [start, &rest].concat();
            match ProxyHead::parse(&bytes) {
                Ok(Some((head, length))) => {
                    prop_assert!(length <= bytes.len());
                    prop_assert_eq!(ProxyHead::parse(&bytes[..length]), Ok(Some((head, length))));
                }
                Ok(None) => {}
                Err(error) => prop_assert_eq!(ProxyHead::parse(&[&bytes, &b"more"[..]].concat()), Err(error)),
            }
        }
    }
}
