//! The rights of users in a run: the claims of their credentials, and a channel that the application keeps from them. The
//! checks are a separate implementation, so as not to trust the code under test.

use encke_core::{Identity, Patterns};

use crate::channels::{covers, include, needed_for};
use crate::rng::Rng;

/// The rights of a user.
#[derive(Clone, Copy, Debug, Default)]
pub struct Claims {
    /// The channels and patterns on which it may publish, and that it may call. None: all.
    publish: Option<&'static [&'static str]>,
    /// The channels and patterns to which it may subscribe. None: all.
    subscribe: Option<&'static [&'static str]>,
    /// The channel to which the application admits it under no name.
    denied: Option<&'static str>,
}

impl Claims {
    /// The rights of one user. Some users may do everything.
    pub(crate) fn some(rng: &mut Rng) -> Claims {
        if rng.chance(400) {
            return Claims::default();
        }
        Claims { publish: rng.pick(&PUBLISH), subscribe: rng.pick(&SUBSCRIBE), denied: rng.pick(&DENIED) }
    }

    /// The identity with these claims.
    pub(crate) fn give(&self, identity: Identity) -> Identity {
        let patterns = |names: Option<&[&str]>| names.and_then(|names| Patterns::new(names).ok());
        Identity { publish: patterns(self.publish), subscribe: patterns(self.subscribe), ..identity }
    }

    /// True if its user may publish on a channel, or call it.
    pub(crate) fn may_publish(&self, channel: &str) -> bool {
        self.publish.is_none_or(|names| include(names, channel))
    }

    /// True if its user may subscribe to a channel or pattern. Announcements are for those who may subscribe to the channels
    /// that they are about, too.
    pub(crate) fn may_subscribe(&self, name: &str) -> bool {
        needed_for(name).all(|name| self.subscribe.is_none_or(|names| include(names, name)) && !self.is_denied(name))
    }

    /// True if the application denies its user a channel or pattern.
    pub(crate) fn is_denied(&self, name: &str) -> bool {
        self.denied.is_some_and(|denied| covers(name, denied))
    }
}

/// The rights of a user: all, if it has no name.
pub(crate) fn claims_of(users: &[Claims], user: &str) -> Claims {
    let number = user.strip_prefix('u').and_then(|number| number.parse::<usize>().ok());
    number.and_then(|number| users.get(number)).copied().unwrap_or_default()
}

/// The claims on channels to publish on and to call.
const PUBLISH: [Option<&[&str]>; 5] =
    [None, Some(&[]), Some(&["/service/echo", "/past/*"]), Some(&["/a/**", "/past/**"]), Some(&["/**"])];
/// The claims on channels to subscribe to: all, announcements without the channels, one of the two channels, the channels
/// without announcements.
const SUBSCRIBE: [Option<&[&str]>; 5] = [
    None,
    None,
    Some(&["/presence/**", "/past/**", "/a"]),
    Some(&["/presence/a/*", "/presence/a/b/*", "/a/b", "/past/*", "/keep/*"]),
    Some(&["/a/**", "/lazy/*", "/past/**"]),
];
/// The channels that the application denies.
const DENIED: [Option<&str>; 3] = [None, Some("/a/b"), Some("/a/b/c")];
