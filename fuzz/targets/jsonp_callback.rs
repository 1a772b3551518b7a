//! Names of JSONP callbacks: what passes is a path of names and nothing else, so it cannot end the call it stands in.

#![no_main]

// Only this file, not the crate around it: the server and its dependencies would take minutes to build with instrumentation.
#[path = "../../crates/encke/src/http/callback.rs"]
mod callback;

use callback::is_callback;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Ok(name) = std::str::from_utf8(input) else { return };
    if !is_callback(name, BYTES_MAX) {
        return;
    }
    assert!((1..=BYTES_MAX).contains(&name.len()));
    assert!(is_callback(name, name.len()) && !is_callback(name, name.len() - 1), "the limit is off: {name:?}");
    let harmless = |byte: u8| byte.is_ascii_alphanumeric() || b"_$-.".contains(&byte);
    assert!(name.bytes().all(harmless), "{name:?}");
    assert!(!name.starts_with(|first: char| first.is_ascii_digit() || first == '-'), "{name:?}");
    assert!(!name.contains("..") && !name.ends_with('.'), "{name:?}");
    // Paths are closed under joining, and each of their parts is one.
    assert!(is_callback(&format!("{name}.{name}"), 2 * BYTES_MAX + 1));
    assert!(name.split('.').all(|part| is_callback(part, BYTES_MAX)));
});

/// As the server's default.
const BYTES_MAX: usize = 64;
