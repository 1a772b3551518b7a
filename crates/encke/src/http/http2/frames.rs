//! The heads of the frames of an HTTP/2 connection (RFC 9113 §4.1), as their bytes pass by, and how many of them bring nothing.

use encke_core::Settings;

/// The head of a frame.
pub(super) struct Head {
    pub(super) kind: u8,
    flags: u8,
    bytes: usize,
}

/// Finds the heads in one direction of a connection.
#[derive(Default)]
pub(super) struct Frames {
    head: [u8; HEAD_BYTES],
    /// The bytes of the next head that have passed.
    filled: usize,
    /// The bytes before the next head.
    skip: usize,
    /// True between the frames of a list of headers.
    is_in_headers: bool,
}

impl Frames {
    /// The frames of a client. Its preface comes before them.
    pub(super) fn of_client() -> Frames {
        Frames { skip: PREFACE_BYTES, ..Frames::default() }
    }

    /// Passes on the heads that these bytes complete.
    pub(super) fn look(&mut self, mut bytes: &[u8], mut each: impl FnMut(&Head)) {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            let part = (HEAD_BYTES - self.filled).min(bytes.len() - skipped);
            self.head[self.filled..self.filled + part].copy_from_slice(&bytes[skipped..skipped + part]);
            self.filled += part;
            bytes = &bytes[skipped + part..];
            if self.filled < HEAD_BYTES {
                return;
            }
            let [high, middle, low, kind, flags, ..] = self.head;
            let head = Head { kind, flags, bytes: u32::from_be_bytes([0, high, middle, low]) as usize };
            (self.filled, self.skip) = (0, head.bytes);
            if matches!(kind, HEADERS | CONTINUATION) {
                self.is_in_headers = flags & END_HEADERS == 0;
            }
            each(&head);
        }
    }

    /// True inside a frame, or between the frames of a list of headers.
    pub(super) fn is_within(&self) -> bool {
        self.skip > 0 || self.filled > 0 || self.is_in_headers
    }
}

/// The frames of a client in one second that bring neither a request nor bytes of one.
#[derive(Default)]
pub(super) struct Rates {
    second: u64,
    control: usize,
    resets: usize,
}

impl Rates {
    /// Counts a frame that has arrived at this time.
    pub(super) fn count(&mut self, head: &Head, now_ms: u64) {
        let second = now_ms / 1_000;
        if second != self.second {
            *self = Rates { second, ..Rates::default() };
        }
        match head.kind {
            HEADERS | CONTINUATION => {}
            DATA if head.bytes > 0 || head.flags & END_STREAM != 0 => {}
            RST_STREAM => self.resets += 1,
            _ => self.control += 1,
        }
    }

    /// True if there are more in this second than the settings allow.
    pub(super) fn are_exceeded(&self, settings: &Settings) -> bool {
        self.control > settings.http2_control_frames_per_s_max || self.resets > settings.http2_resets_per_s_max
    }
}

/// The bytes of a head.
const HEAD_BYTES: usize = 9;
/// The bytes of the client's preface (RFC 9113 §3.4).
const PREFACE_BYTES: usize = 24;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, 1], payload].concat()
    }

    #[test]
    fn heads_are_found_in_any_parts_and_a_list_of_headers_ends_with_its_last_frame() {
        let bytes = [
            vec![b'x'; PREFACE_BYTES],
            frame(4, 0, &[]),
            frame(HEADERS, 0, &[7; 20]),
            frame(CONTINUATION, END_HEADERS, &[7; 3]),
            frame(DATA, 0, &[9; 40]),
        ]
        .concat();
        for step in [1, 2, 8, 9, 10, 1_000] {
            let (mut frames, mut kinds, mut within) = (Frames::of_client(), Vec::new(), Vec::new());
            for part in bytes.chunks(step) {
                frames.look(part, |head| kinds.push((head.kind, head.bytes)));
                within.push(frames.is_within());
            }
            assert_eq!(kinds, [(4, 0), (HEADERS, 20), (CONTINUATION, 3), (DATA, 40)]);
            assert!(!frames.is_within() && (step > 1 || within[PREFACE_BYTES + 9 + 9 + 19]), "{step}");
        }
    }

    #[test]
    fn frames_that_bring_something_are_free() {
        let settings = Settings { http2_control_frames_per_s_max: 2, http2_resets_per_s_max: 1, ..Settings::default() };
        let exceeded = |kind, flags, payload: &[u8], times| {
            let (mut frames, mut rates) = (Frames::default(), Rates::default());
            frames.look(&frame(kind, flags, payload).repeat(times), |head| rates.count(head, 0));
            rates.are_exceeded(&settings)
        };
        assert!(!exceeded(DATA, 0, b"x", 9) && !exceeded(DATA, END_STREAM, b"", 9) && !exceeded(HEADERS, 4, b"", 9));
        for (kind, payload) in [(DATA, &b""[..]), (4, b""), (6, &[0; 8]), (8, &[0; 4]), (2, &[0; 5]), (99, b"")] {
            assert!(!exceeded(kind, 0, payload, 2) && exceeded(kind, 0, payload, 3), "{kind}");
        }
        assert!(!exceeded(RST_STREAM, 0, &[0; 4], 1) && exceeded(RST_STREAM, 0, &[0; 4], 2));
    }

    #[test]
    fn each_second_is_counted_by_itself() {
        let settings = Settings { http2_resets_per_s_max: 1, ..Settings::default() };
        let mut rates = Rates::default();
        let reset = Head { kind: RST_STREAM, flags: 0, bytes: 4 };
        for second in 1..5 {
            rates.count(&reset, second * 1_000);
            assert!(!rates.are_exceeded(&settings));
        }
        rates.count(&reset, 4_999);
        assert!(rates.are_exceeded(&settings));
    }
}
