//! Channels by name, of which a pattern reads those below its parent, and values by node.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bayeux::ChannelName;
use bayeux::channel::{covers, is_pattern};

/// The next channel below the parent of a pattern, after this one: the pattern may cover it.
pub(super) fn next_below<'a, T>(
    channels: &'a BTreeMap<Arc<str>, T>,
    pattern: &str,
    after: Option<&str>,
) -> Option<&'a Arc<str>> {
    let parent = parent_of(pattern);
    let from = after.map_or(Bound::Included(parent), Bound::Excluded);
    let (next, _) = channels.range::<str, _>((from, Bound::Unbounded)).next()?;
    next.starts_with(parent).then_some(next)
}

/// The channels that a name covers: the one of this name, or those of a pattern.
pub(super) fn covered<'a, T>(channels: &'a BTreeMap<Arc<str>, T>, name: &'a str) -> impl Iterator<Item = &'a Arc<str>> {
    let (first, last) = match is_pattern(name) {
        true => (parent_of(name), Bound::Unbounded),
        false => (name, Bound::Included(name)),
    };
    let channels = channels.range::<str, _>((Bound::Included(first), last)).map(|(channel, _)| channel);
    channels.take_while(move |channel| channel.starts_with(first)).filter(move |channel| covers(name, channel))
}

/// The beginning of all names that a pattern covers.
fn parent_of(pattern: &str) -> &str {
    pattern.trim_end_matches('*')
}

/// True if a channel, or a pattern that matches it, is one of those that are meant.
pub(super) fn reaches(channel: &str, is_meant: impl Fn(&str) -> bool) -> bool {
    let mut is_reached = is_meant(channel);
    if !is_reached {
        ChannelName::known(channel).patterns(&mut String::new(), |pattern| is_reached |= is_meant(pattern));
    }
    is_reached
}

/// A value for each of a few nodes. It takes little room for one node.
#[derive(Debug)]
pub(super) struct ByNode<T>(Vec<(u64, T)>);

impl<T> ByNode<T> {
    /// The value of a node.
    pub(super) fn get(&self, node: u64) -> Option<&T> {
        self.0.iter().find(|(of, _)| *of == node).map(|(_, value)| value)
    }

    /// The value of a node, to change it.
    pub(super) fn get_mut(&mut self, node: u64) -> Option<&mut T> {
        self.0.iter_mut().find(|(of, _)| *of == node).map(|(_, value)| value)
    }

    /// The value of a node, which has one from now on.
    pub(super) fn or_default(&mut self, node: u64) -> &mut T
    where
        T: Default,
    {
        let at = self.0.iter().position(|(of, _)| *of == node).unwrap_or_else(|| {
            self.0.reserve_exact(1);
            self.0.push((node, T::default()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    /// Removes the value of a node. True: it had one.
    pub(super) fn remove(&mut self, node: u64) -> bool {
        let before = self.0.len();
        self.0.retain(|(of, _)| *of != node);
        self.0.len() < before
    }

    /// The nodes with their values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.0.iter().map(|(node, value)| (*node, value))
    }

    /// True if no node has a value.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for ByNode<T> {
    fn default() -> ByNode<T> {
        ByNode(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_reads_the_channels_below_its_parent_only() {
        let names = ["/a", "/a!/b", "/a/b", "/a/b!", "/a/b/c", "/a/c", "/a0/b", "/b/a"];
        let channels: BTreeMap<Arc<str>, ()> = names.iter().map(|name| (Arc::from(*name), ())).collect();
        for name in names.into_iter().chain(["/*", "/**", "/a/*", "/a/**", "/a/b/*", "/c/**", "/c"]) {
            let found: Vec<&str> = covered(&channels, name).map(|channel| &**channel).collect();
            let expected: Vec<&str> = names.into_iter().filter(|channel| covers(name, channel)).collect();
            assert_eq!(found, expected, "{name}");
        }
        let (mut read, mut after) = (Vec::new(), None);
        while let Some(next) = next_below(&channels, "/a/*", after) {
            read.push(&**next);
            after = Some(&**next);
        }
        assert_eq!(read, ["/a/b", "/a/b!", "/a/b/c", "/a/c"]);
    }
}
