//! The client that opens a connection or sends a request: whether it is a page of a browser, and of which.

use crate::id::Id;

/// The sender of a WebSocket's upgrade request, by its cookie and its origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Opener {
    /// A program: it has neither.
    #[default]
    Program,
    /// A page, whose browser has sent no valid cookie.
    Page,
    /// The browser with this id in its cookie.
    Browser(Id),
}

impl Opener {
    /// The browser, if it is known.
    pub fn browser(self) -> Option<Id> {
        match self {
            Opener::Browser(browser) => Some(browser),
            Opener::Program | Opener::Page => None,
        }
    }
}
