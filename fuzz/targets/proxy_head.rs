//! Heads of the PROXY protocol: what is read does not depend on what follows, and has a limit.

#![no_main]

// Only this file, not the crate around it: the server and its dependencies would take minutes to build with instrumentation.
#[path = "../../crates/encke/src/byte_stream/proxy_head.rs"]
mod proxy_head;

use libfuzzer_sys::fuzz_target;
use proxy_head::{PROXY_HEAD_BYTES_MAX, ProxyHead};

fuzz_target!(|input: &[u8]| {
    let followed = [input, b"GET / HTTP/1.1\r\n"].concat();
    match ProxyHead::parse(input) {
        Ok(Some((head, length))) => {
            assert!(length <= input.len());
            assert_eq!(ProxyHead::parse(&input[..length]), Ok(Some((head, length))));
            assert_eq!(ProxyHead::parse(&followed), Ok(Some((head, length))));
            assert!(head.source.is_some() || !head.is_tls, "only a client speaks TLS");
        }
        Ok(None) => assert!(input.len() < PROXY_HEAD_BYTES_MAX),
        Err(error) => assert_eq!(ProxyHead::parse(&followed), Err(error)),
    }
});
