//! The names of channels with a ring, in an order that groups the matches of a pattern.

use std::collections::BTreeMap;
use std::ops::Bound;

use bayeux::ChannelName;

/// Names by their number of segments: the matches of `/a/*` are one range of one level, those of `/a/**` one range of
/// each level from there on. So a search visits no other names.
#[derive(Debug, Default)]
pub struct Names {
    levels: Vec<BTreeMap<Box<str>, u32>>,
}

impl Names {
    /// The slot of a channel's ring.
    pub fn get(&self, name: &str) -> Option<u32> {
        self.levels.get(level(name))?.get(name).copied()
    }

    /// Adds a channel.
    pub fn insert(&mut self, name: &str, slot: u32) {
        let level = level(name);
        if self.levels.len() <= level {
            self.levels.resize_with(level + 1, BTreeMap::new);
        }
        self.levels[level].insert(name.into(), slot);
    }

    /// Removes a channel.
    pub fn remove(&mut self, name: &str) {
        if let Some(level) = self.levels.get_mut(level(name)) {
            level.remove(name);
        }
    }

    /// The channels that a pattern matches, with the slots of their rings, in their order: see [`order`]. `after`: only those
    /// after this one, which the pattern matches, too.
    pub fn matching<'a>(
        &'a self,
        pattern: ChannelName<'a>,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a str, u32)> {
        let parent = pattern.as_str().trim_end_matches('*');
        let levels = if pattern.as_str().ends_with("/**") { usize::MAX } else { 1 };
        let (first, begun) = (level(parent), after.map(level));
        let of_pattern = self.levels.iter().enumerate().skip(first).take(levels);
        of_pattern.skip_while(move |(at, _)| Some(*at) < begun).flat_map(move |(at, names)| {
            let lower = match after.filter(|_| begun == Some(at)) {
                Some(after) => Bound::Excluded(after),
                None => Bound::Included(parent),
            };
            let from_there = names.range::<str, _>((lower, Bound::Unbounded));
            from_there.map(|(name, slot)| (&**name, *slot)).take_while(move |(name, _)| name.starts_with(parent))
        })
    }
}

/// Orders names as [`Names::matching`] does: by the number of their segments, then by their bytes.
pub fn order(name: &str) -> (usize, &str) {
    (level(name), name)
}

fn level(name: &str) -> usize {
    name.bytes().filter(|byte| *byte == b'/').count().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_finds_what_it_matches_and_nothing_else() {
        let all = ["/a", "/a/b", "/a/b/c", "/a/c", "/ab/c", "/a-/c", "/b", "/a/b/c/d"];
        let mut names = Names::default();
        all.iter().zip(0..).for_each(|(name, slot)| names.insert(name, slot));
        names.insert("/a/gone", 99);
        names.remove("/a/gone");
        let limits = bayeux::Limits::default();
        for pattern in ["/*", "/**", "/a/*", "/a/**", "/a/b/*", "/a/b/**", "/a/b/c/*", "/none/**", "/a/b/c/d/e/f/*"] {
            let pattern = ChannelName::parse(pattern, &limits).expect("a pattern");
            let matches = |name: &str| ChannelName::parse(name, &limits).is_ok_and(|name| pattern.matches(name));
            let mut found: Vec<_> = names.matching(pattern, None).map(|(name, slot)| (slot as usize, name)).collect();
            let in_order: Vec<_> = found.iter().map(|(_, name)| *name).collect();
            assert!(in_order.is_sorted_by_key(|name| order(name)), "{in_order:?}");
            for (at, after) in in_order.iter().enumerate() {
                let rest: Vec<_> = names.matching(pattern, Some(after)).map(|(name, _)| name).collect();
                assert_eq!(rest, in_order[at + 1..], "{pattern:?} after {after}");
            }
            found.sort_unstable();
            let wanted: Vec<_> = all.iter().copied().enumerate().filter(|(_, name)| matches(name)).collect();
            assert_eq!(found, wanted, "{pattern:?}");
        }
        assert_eq!((names.get("/a/c"), names.get("/a/gone"), names.get("/a/b/c/d/e")), (Some(3), None, None));
    }
}
