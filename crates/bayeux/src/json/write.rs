//! JSON written piece by piece, as bytes.

use super::RawJson;
use super::scanner::skip_plain;

/// Appends `text` as a JSON string with quotes (RFC 8259 §7).
pub fn escape_into(text: &str, out: &mut Vec<u8>) {
    escape(text, out);
}

#[inline]
pub(crate) fn escape(text: &str, out: &mut impl Sink) {
    let bytes = text.as_bytes();
    let mut written = 0;
    out.put(b"\"");
    loop {
        let at = skip_plain(bytes, written);
        out.put(&bytes[written..at]);
        written = at + 1;
        let Some(&byte) = bytes.get(at) else { break };
        match byte {
            b'"' => out.put(b"\\\""),
            b'\\' => out.put(b"\\\\"),
            b'\n' => out.put(b"\\n"),
            b'\r' => out.put(b"\\r"),
            b'\t' => out.put(b"\\t"),
            control => {
                let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
                out.put(&[b'\\', b'u', b'0', b'0', digit(control >> 4), digit(control & 15)]);
            }
        }
    }
    out.put(b"\"");
}

/// The destination of encoded bytes. Writing and counting share one code, so that they agree.
pub(crate) trait Sink {
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Counts bytes and keeps none.
#[derive(Default)]
pub(crate) struct ByteCount(pub(crate) usize);

impl Sink for ByteCount {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

/// Writes a field whose value is raw JSON. `key` comes with its comma, quotes and colon.
#[inline]
pub(crate) fn raw_field(out: &mut impl Sink, key: &[u8], raw: Option<RawJson<'_>>) {
    if let Some(raw) = raw {
        out.put(key);
        out.put(raw.as_str().as_bytes());
    }
}

/// Writes a field whose value is text, with escapes where they are needed.
#[inline]
pub(crate) fn text_field(out: &mut impl Sink, key: &[u8], text: Option<&str>) {
    if let Some(text) = text {
        out.put(key);
        escape(text, out);
    }
}
