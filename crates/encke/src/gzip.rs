//! Gzip (RFC 1952) of bodies of responses.

use flate2::{Compress, Compression, FlushCompress, Status};

/// Compresses bodies. It has no memory before the first one.
#[derive(Default)]
pub(crate) struct Gzip(Option<Box<Compress>>);

impl Gzip {
    /// The gzip form of a body (RFC 1952). None if it is not shorter.
    pub(crate) fn compressed(&mut self, mut body: &[u8]) -> Option<Vec<u8>> {
        let new = || Box::new(Compress::new_gzip(Compression::new(LEVEL), WINDOW_BITS));
        let stream = self.0.get_or_insert_with(new);
        stream.reset();
        // A form that does not fit is not shorter.
        let mut form = Vec::with_capacity(body.len());
        loop {
            let (taken, made) = (stream.total_in(), stream.total_out());
            let status = stream.compress_vec(body, &mut form, FlushCompress::Finish).ok()?;
            body = &body[(stream.total_in() - taken) as usize..];
            if status == Status::StreamEnd {
                form.shrink_to_fit();
                return Some(form);
            }
            if form.len() == form.capacity() || stream.total_out() == made {
                return None;
            }
        }
    }
}

/// The level of compression, as for WebSockets: half the time of the default one.
const LEVEL: u32 = 1;

/// The largest window, as an exponent.
const WINDOW_BITS: u8 = 15;

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn a_body_is_compressed_if_that_makes_it_shorter() {
        let mut gzip = Gzip::default();
        let noise: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(100_000).collect();
        for bytes in [300, 10_000, 1_000_000] {
            let body: Vec<u8> = b"{\"a name\":1.25},".iter().copied().cycle().take(bytes).collect();
            let form = gzip.compressed(&body).expect("shorter");
            assert!(form.len() < bytes / 2);
            let mut text = Vec::new();
            GzDecoder::new(&form[..]).read_to_end(&mut text).expect("gzip");
            assert!(text == body);
            assert_eq!(gzip.compressed(&noise), None);
        }
        assert_eq!(gzip.compressed(b"[]"), None);
        assert_eq!(gzip.compressed(b""), None);
    }
}
