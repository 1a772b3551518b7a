//! The side that has made a publication.

/// The side that has made a publication. Data of clients is data and nothing else: it decides nothing about the responses of other
/// clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// A client, whatever the application has changed in its message; or nobody knows.
    #[default]
    Client,
    /// The server's own side: the application, a handle, the HTTP API, a source.
    Server,
}
