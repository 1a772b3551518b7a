//! The frames of an HTTP/2 connection (RFC 9113 §4 and §6).

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) kind: u8,
    pub(super) flags: u8,
    /// 0 for the connection.
    pub(super) stream: u32,
    pub(super) payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The frame at the start of `bytes`, and its length; `None` until it is complete.
    ///
    /// # Errors
    /// It is longer than a client accepts. The text follows "the server".
    pub(super) fn split(bytes: &'a [u8]) -> Result<Option<(Frame<'a>, usize)>, String> {
        let Some(&[high, middle, low, kind, flags, a, b, c, d]) = bytes.first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(format!("sent a frame of {length} bytes; {FRAME_BYTES_MAX} are allowed"));
        }
        let end = HEAD_BYTES + length;
        let Some(payload) = bytes.get(HEAD_BYTES..end) else { return Ok(None) };
        let stream = u32::from_be_bytes([a, b, c, d]) & STREAM_MAX;
        Ok(Some((Frame { kind, flags, stream, payload }, end)))
    }

    /// Returns true if it has this flag.
    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The content without padding, and without a priority (§6.1, §6.2).
    ///
    /// # Errors
    /// The padding is longer than the frame. The text follows "the server".
    pub(super) fn content(&self) -> Result<&'a [u8], String> {
        let mut content = self.payload;
        if self.has(PADDED) {
            let padding = content.split_off_first().copied().unwrap_or(u8::MAX);
            let length = content.len().checked_sub(padding.into());
            content = &content[..length.ok_or("sent a frame whose padding is longer than itself")?];
        }
        if self.kind == HEADERS && self.has(PRIORITY_FIELDS) {
            content = content.get(5..).ok_or("sent a frame of headers that is too short")?;
        }
        Ok(content)
    }
}

/// Appends the head of a frame. Its payload must follow.
pub(super) fn write_head(kind: u8, flags: u8, stream: u32, payload_bytes: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&(payload_bytes as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
}

/// Appends a frame.
pub(super) fn write(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    write_head(kind, flags, stream, payload.len(), out);
    out.extend_from_slice(payload);
}

/// Appends settings (§6.5).
pub(super) fn write_settings(settings: &[(u16, u32)], out: &mut Vec<u8>) {
    let pairs = settings.iter().flat_map(|(id, value)| id.to_be_bytes().into_iter().chain(value.to_be_bytes()));
    write(SETTINGS, 0, 0, &pairs.collect::<Vec<u8>>(), out);
}

/// The name of an error (§7), or its number.
pub(super) fn error_name(code: u32) -> String {
    ERRORS.get(code as usize).map_or_else(|| format!("error {code}"), |name| (*name).to_owned())
}

/// The client's preface (§3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

/// Of SETTINGS and PING.
pub(super) const ACK: u8 = 1;
/// Of DATA and HEADERS.
pub(super) const END_STREAM: u8 = 1;
/// Of HEADERS and CONTINUATION.
pub(super) const END_HEADERS: u8 = 4;
/// Of DATA and HEADERS.
pub(super) const PADDED: u8 = 8;
/// Of HEADERS.
const PRIORITY_FIELDS: u8 = 0x20;

pub(super) const HEADER_TABLE_SIZE: u16 = 1;
pub(super) const ENABLE_PUSH: u16 = 2;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;

const HEAD_BYTES: usize = 9;
/// The longest payload before settings say otherwise, in bytes (§4.2). The client keeps to it.
pub(super) const FRAME_BYTES_MAX: usize = 16_384;
/// The highest number of a stream; the bit above is reserved.
const STREAM_MAX: u32 = u32::MAX >> 1;
const ERRORS: [&str; 14] = [
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_are_written() {
        let mut bytes = Vec::new();
        write(DATA, END_STREAM, 7, b"text", &mut bytes);
        write_settings(&[(INITIAL_WINDOW_SIZE, 9)], &mut bytes);
        for length in 0..HEAD_BYTES + 4 {
            assert_eq!(Frame::split(&bytes[..length]), Ok(None));
        }
        let (frame, length) = Frame::split(&bytes).expect("short").expect("whole");
        assert_eq!((frame, length), (Frame { kind: DATA, flags: END_STREAM, stream: 7, payload: b"text" }, 13));
        let (frame, _) = Frame::split(&bytes[length..]).expect("short").expect("whole");
        assert_eq!((frame.kind, frame.stream, frame.payload), (SETTINGS, 0, &[0, 4, 0, 0, 0, 9][..]));
        assert!(Frame::split(&[0, 0x40, 1, 0, 0, 0, 0, 0, 1]).is_err(), "too long");
    }

    #[test]
    fn padding_and_priorities_are_no_content() {
        let content = |kind, flags, payload: &'static [u8]| Frame { kind, flags, stream: 1, payload }.content();
        assert_eq!(content(DATA, PADDED, b"\x02abc\0\0"), Ok(&b"abc"[..]));
        assert_eq!(content(HEADERS, PADDED | PRIORITY_FIELDS, b"\x01\0\0\0\0\0abc\0"), Ok(&b"abc"[..]));
        assert_eq!(content(DATA, PRIORITY_FIELDS, b"abc"), Ok(&b"abc"[..]));
        assert!(content(DATA, PADDED, b"").is_err() && content(DATA, PADDED, b"\x03ab").is_err());
        assert!(content(HEADERS, PRIORITY_FIELDS, b"abc").is_err());
    }
}
