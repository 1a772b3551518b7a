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
    /// Its compressed forms. A client gets the first one of those that it prefers.
    pub encoded: &'static [Encoded],
    /// Its Content-Security-Policy.
    pub content_security_policy: &'static str,
}

/// A compressed form of an [`Asset`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Encoded {
    /// The content coding, such as `br` or `gzip` (RFC 9110 §8.4.1).
    pub coding: &'static str,
    /// The compressed bytes.
    pub body: &'static [u8],
    /// The entity tag of this form, another one than that of the file itself.
    pub etag: &'static str,
}

impl Asset {
    /// A file with this path, media type, content and entity tag. A page of it loads only files of this server, and no
    /// other page may frame it.
    ///
    /// ```
    /// use encke::Asset;
    ///
    /// const PAGE: &[Asset] = &[Asset::new("/", "text/html", b"<!doctype html><title>Prices</title>", "\"1\"")];
    /// ```
    pub const fn new(path: &'static str, content_type: &'static str, body: &'static [u8], etag: &'static str) -> Asset {
        Asset { path, content_type, body, etag, encoded: &[], content_security_policy: OWN_FILES }
    }

    /// The same file with these compressed forms, the smallest first.
    #[must_use]
    pub const fn encoded(mut self, encoded: &'static [Encoded]) -> Asset {
        self.encoded = encoded;
        self
    }

    /// The same file with this Content-Security-Policy.
    #[must_use]
    pub const fn content_security_policy(mut self, policy: &'static str) -> Asset {
        self.content_security_policy = policy;
        self
    }
}

impl Encoded {
    /// A compressed form: its content coding, bytes and entity tag.
    pub const fn new(coding: &'static str, body: &'static [u8], etag: &'static str) -> Encoded {
        Encoded { coding, body, etag }
    }
}

/// The policy of a page that names none.
const OWN_FILES: &str =
    "default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";
