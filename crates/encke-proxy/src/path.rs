//! The paths that may go to the backend.

use percent_encoding::percent_decode;

/// True if a path has a segment `.` or `..`, in any spelling: percent-encoded, also more than once, behind a backslash, or with
/// parameters (`..;x`). The path that the proxy compares with its settings would not be the path that the backend serves.
pub(crate) fn has_dot_segments(path: &str) -> bool {
    let mut path = path.as_bytes().to_vec();
    for _ in 0..DECODINGS_MAX {
        if path.split(|byte| matches!(byte, b'/' | b'\\')).any(is_dots) {
            return true;
        }
        let decoded: Vec<u8> = percent_decode(&path).collect();
        if decoded == path {
            return false;
        }
        path = decoded;
    }
    true
}

fn is_dots(segment: &[u8]) -> bool {
    matches!(segment.split(|byte| *byte == b';').next(), Some(b"." | b".."))
}

/// Backends decode a path once, some twice. A path that is encoded more often is refused.
const DECODINGS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_segments_are_found_in_every_spelling() {
        for path in [
            "/app/../admin",
            "/app/./x",
            "/..",
            "/app/..",
            "/app/%2e%2e/admin",
            "/app/%2E./admin",
            "/app/..%2fadmin",
            "/app%2f..%2fadmin",
            "/app/..\\admin",
            "/app/..%5cadmin",
            "/app%5C..%5Cadmin",
            "/app/%252e%252e/admin",
            "/app/..%252fadmin",
            "/app/..;x=1/admin",
            "/app/..%3bx/admin",
            "/app/%2525252525252e",
        ] {
            assert!(has_dot_segments(path), "{path}");
        }
        for path in ["/", "/app", "/a..b/...", "/.well-known/x", "/a%20b", "/100%", "/%zz/%2", "/a;..", "/caf%C3%A9"] {
            assert!(!has_dot_segments(path), "{path}");
        }
    }
}
