//! Validation of JSONP callback names.

/// True for a name that a callback-polling script may call: letters, digits, `_`, `$`, `-` and single dots between
/// such parts (CometD: letters, digits, `. _ -`), at most `bytes_max` bytes, not beginning with a digit or `-`.
pub(crate) fn is_callback(name: &str, bytes_max: usize) -> bool {
    name.len() <= bytes_max && name.split('.').all(is_part)
}

fn is_part(part: &str) -> bool {
    let mut bytes = part.bytes();
    let first = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_' || b == b'$');
    first && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_real_clients_pass() {
        for name in ["_cometd_jsonp_42", "__jsonp12__", "jsonpcallback", "dojo.io.script.jsonp_1", "$", "a-b"] {
            assert!(is_callback(name, 64), "{name}");
        }
    }

    #[test]
    fn anything_but_a_name_is_refused() {
        let long = "a".repeat(65);
        for name in
            ["", "1a", "a()", "a[0]", "a.", ".a", "a..b", "<script>", "a\n", "a\u{2028}", "é", "a b", "-->", &long]
        {
            assert!(!is_callback(name, 64), "{name:?}");
        }
    }
}
