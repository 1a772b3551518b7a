//! The servers that a client may connect to: one after the other is tried.

use std::sync::Arc;

use crate::connection::{Cookies, Target};

/// The servers of a client, at least one, with their cookies.
#[derive(Debug)]
pub(crate) struct Servers {
    servers: Vec<(Arc<Target>, Cookies)>,
    at: usize,
}

impl Servers {
    /// The first one is tried first.
    pub(crate) fn new(targets: Vec<Arc<Target>>) -> Servers {
        Servers { servers: targets.into_iter().map(|target| (target, Cookies::default())).collect(), at: 0 }
    }

    /// The server to connect to, and the cookies to return to it.
    pub(crate) fn current(&self) -> &(Arc<Target>, Cookies) {
        &self.servers[self.at]
    }

    /// Replaces the cookies of this server.
    pub(crate) fn set_cookies(&mut self, cookies: Cookies) {
        self.servers[self.at].1 = cookies;
    }

    /// Goes on to the next server. False after the last one: then the next is the first one again.
    pub(crate) fn advance(&mut self) -> bool {
        self.at = (self.at + 1) % self.servers.len();
        self.at != 0
    }
}
