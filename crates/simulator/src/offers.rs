//! The compression that clients of WebSockets offer.

use http::header::SEC_WEBSOCKET_EXTENSIONS;
use http::{HeaderMap, HeaderValue};
use websocket::Compression;

use crate::rng::Rng;

/// Decides about offers. It has separate random numbers, so that offers change nothing else of a run.
#[derive(Debug)]
pub struct Offers {
    rng: Rng,
    /// The share of WebSockets with an offer, per thousand.
    pub share: usize,
}

impl Offers {
    /// Nobody offers anything.
    pub fn new(rng: Rng) -> Offers {
        Offers { rng, share: 0 }
    }

    /// The offer of the next WebSocket, as a server accepts it.
    pub fn draw(&mut self) -> Option<Compression> {
        let offer = self.rng.chance(self.share).then(|| self.rng.pick(&OFFERS));
        offer.and_then(accepted)
    }
}

/// An offer as a server accepts it.
pub fn accepted(offer: &'static str) -> Option<Compression> {
    Compression::accept(&HeaderMap::from_iter([(SEC_WEBSOCKET_EXTENSIONS, HeaderValue::from_static(offer))]))
}

/// A client with a small window takes longer messages only as they are.
const OFFERS: [&str; 3] =
    [Compression::OFFER, "permessage-deflate; client_max_window_bits", "permessage-deflate; server_max_window_bits=9"];
