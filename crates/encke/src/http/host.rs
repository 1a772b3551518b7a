//! The host that a request names (RFC 9110 §7.2, RFC 9112 §3.2), checked before the rest of the request.
//!
//! A page of `http://evil.example:8080` may read all responses of that name. Its owner can make the name point to this machine
//! after the page has loaded (DNS rebinding). Then every request of the page is same-origin, and the page can leave out `Origin`
//! and `Referer`. Only the `Host` field shows the difference. Programs leave out those fields, too, so the check holds for every
//! request. Addresses and `localhost` always pass: no DNS server decides where they point.

use http::header::HOST;
use http::{Request, Version};

use crate::authority::Host;
use encke_core::Settings;

/// True if a request names this machine, and nothing else: an absolute target and the `Host` field may differ.
pub(crate) fn is_loopback<B>(request: &Request<B>) -> bool {
    let fields = request.headers().get_all(HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let mut named = fields.chain(request.uri().authority().map(|authority| authority.as_str())).peekable();
    named.peek().is_some() && named.all(|named| Host::parse(named).is_some_and(Host::is_loopback))
}

/// The host that a request names, as far as its rules say.
pub(crate) enum Named<'a> {
    Allowed,
    /// None, several, or something that is no host.
    Invalid,
    /// A name that is not one of this server.
    Foreign(&'a str),
}

/// Judges the hosts that a request names. `forwarded` is the one that a trusted proxy names.
pub(crate) fn of<'a, B>(request: &'a Request<B>, settings: &Settings, forwarded: Option<&'a str>) -> Named<'a> {
    let mut fields = request.headers().get_all(HOST).iter();
    let field = match (fields.next(), fields.next()) {
        (Some(only), None) => Some(only.to_str().unwrap_or_default()),
        // A browser never speaks HTTP/1.0.
        (None, _) if request.version() == Version::HTTP_10 => None,
        _ => Some(""),
    };
    let authority = request.uri().authority().map(|authority| authority.as_str());
    for named in field.into_iter().chain(authority).chain(forwarded) {
        let Some(host) = Host::parse(named) else { return Named::Invalid };
        if !host.is_fixed() && !host.is_ours(settings) {
            return Named::Foreign(host.name());
        }
    }
    Named::Allowed
}
