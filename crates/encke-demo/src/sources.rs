//! `/service/demo/sources`: the sources of the server, so that a page can say how to switch on the one that it needs.

use std::fmt;

use encke::Data;
use serde::Serialize;

/// A source that publishes by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// Its kind, such as `quotes`.
    pub kind: String,
    /// The channel that it publishes to, with `{symbol}` if there are many.
    pub channel: String,
}

/// Lists the sources that are on now.
pub(super) struct Listing(pub(super) Box<dyn Fn() -> Vec<Source> + Send + Sync>);

/// The reply of the service.
#[derive(Debug, Serialize)]
pub(super) struct List {
    sources: Vec<Source>,
}

impl Listing {
    /// Answers a call.
    pub(super) fn answer(&self) -> Data<List> {
        Data(List { sources: (self.0)() })
    }
}

impl Default for Listing {
    fn default() -> Listing {
        Listing(Box::new(Vec::new))
    }
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listing")
    }
}
