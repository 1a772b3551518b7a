//! The files that are part of a program.

/// A file in memory that the server answers with, for example one that `include_bytes!` embeds. See [`Builder::assets`].
///
/// [`Builder::assets`]: crate::Builder::assets
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Asset {
    /// The whole path it answers to, for example `/assets/chat.js`.
    pub path: &'static str,
    /// Its media type, for example `text/html; charset=utf-8`.
    pub content_type: &'static str,
    /// Its bytes.
    pub body: &'static [u8],
    /// Its entity tag with the quotes (RFC 9110 §8.8.3), such as `"1"`: another one for each content, so that browsers
    /// notice a change.
    pub etag: &'static str,
}

impl Asset {
    /// A file with this path, media type, content and entity tag.
    ///
    /// ```
    /// use encke::Asset;
    ///
    /// const PAGE: &[Asset] = &[Asset::new("/", "text/html", b"<!doctype html><title>Prices</title>", "\"1\"")];
    /// ```
    pub const fn new(path: &'static str, content_type: &'static str, body: &'static [u8], etag: &'static str) -> Asset {
        Asset { path, content_type, body, etag }
    }
}
