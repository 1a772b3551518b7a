//! The names of channels in a run, and the channels that a pattern covers.

use encke_core::PRESENCE_CHANNEL;

/// True if a subscription to `name` covers `channel`. It is a separate implementation, so as not to trust the code
/// under test.
pub fn covers(name: &str, channel: &str) -> bool {
    if let Some(parent) = name.strip_suffix("/**") {
        return channel.strip_prefix(parent).is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'));
    }
    if let Some(parent) = name.strip_suffix("/*") {
        let rest = channel.strip_prefix(parent).and_then(|rest| rest.strip_prefix('/'));
        return rest.is_some_and(|rest| !rest.is_empty() && !rest.contains('/'));
    }
    name == channel
}

/// The names for which a client needs a right that subscribes to this one.
pub(crate) fn needed_for(name: &str) -> impl Iterator<Item = &str> {
    let announced = name.strip_prefix(PRESENCE_CHANNEL).filter(|rest| rest.starts_with('/'));
    std::iter::once(name).chain(announced)
}

/// True if one of the names covers a channel, or everything that a pattern matches.
pub(crate) fn include(names: &[&str], wanted: &str) -> bool {
    let is_deeper = |name: &str| wanted.ends_with("/**") && !name.ends_with("/**");
    names.iter().any(|name| *name == wanted || (covers(name, wanted) && !is_deeper(name)))
}

/// True if a channel has a history.
pub fn has_history(channel: &str) -> bool {
    HISTORY_CHANNELS.contains(&channel)
}

/// Channels that clients publish on.
pub const CHANNELS: [&str; 8] = ["/a", "/a/b", "/a/b/c", "/lazy/x", "/drop/x", "/keep/x", "/past/a", "/past/b"];
/// The channels with a history.
pub const HISTORY_CHANNELS: [&str; 2] = ["/past/a", "/past/b"];
/// The channels that may have presence.
pub const PRESENT: [&str; 2] = ["/a/b", "/a/b/c"];
/// Announcements of members, and patterns that match some.
pub(crate) const ANNOUNCED: [&str; 6] =
    ["/presence/a/b", "/presence/a/b/c", "/presence/a/*", "/presence/a/**", "/presence/**", "/presence/*"];
/// The channel on which the end of a session is published, for subscribers of all channels.
pub const OBITUARIES: &str = "/obituaries/x";
/// A service that replies with the message it received.
pub const ECHO: &str = "/service/echo";
/// Services that pass a message on to the client of this number.
pub const WHISPER_TO: &str = "/service/to/";
/// The channel of whispered messages.
pub const WHISPER: &str = "/service/whisper";
