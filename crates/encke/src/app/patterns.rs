//! A table of channel patterns: finds everything that is registered for a channel or for a pattern that covers it.
//!
//! A channel of depth *d* is covered by *d* + 1 patterns. The table knows at which depths it has patterns at all, so a
//! look-up hashes only the beginnings of the name that can be in it.

use std::hash::BuildHasher;

use bayeux::ChannelName;
use bayeux::channel::overlap;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use smallvec::SmallVec;

/// Values by channel or pattern.
#[derive(Debug)]
pub(crate) struct Patterns<T> {
    hasher: RandomState,
    entries: HashTable<Entry<T>>,
    /// Bit *d* is set if there is a pattern `/**` below a name of *d* segments.
    deep: u64,
    /// Bit *d* is set if there is a pattern `/*` below a name of *d* segments.
    shallow: u64,
    /// Bit *d* is set if there is a channel of *d* segments.
    names: u64,
}

#[derive(Debug)]
struct Entry<T> {
    name: Box<str>,
    value: T,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Name,
    Shallow,
    Deep,
}

/// The values for one channel, of the widest pattern first. Most channels have few.
pub(crate) type Found<'t, T> = SmallVec<[&'t T; 4]>;

impl<T> Default for Patterns<T> {
    fn default() -> Patterns<T> {
        Patterns { hasher: RandomState::default(), entries: HashTable::new(), deep: 0, shallow: 0, names: 0 }
    }
}

impl<T: Default> Patterns<T> {
    /// The value of a channel or pattern, a default one if there was none.
    pub(crate) fn entry(&mut self, name: ChannelName<'_>) -> &mut T {
        let (kind, stem) = parts(name.as_str());
        let depth = stem.bytes().filter(|byte| *byte == b'/').count();
        let depths = match kind {
            Kind::Name => &mut self.names,
            Kind::Shallow => &mut self.shallow,
            Kind::Deep => &mut self.deep,
        };
        *depths |= bit(depth);
        let Patterns { hasher, entries, .. } = self;
        let hash = hasher.hash_one(stem);
        let is_it = |entry: &Entry<T>| parts(&entry.name) == (kind, stem);
        let again = |entry: &Entry<T>| hasher.hash_one(parts(&entry.name).1);
        let new = || Entry { name: name.as_str().into(), value: T::default() };
        &mut entries.entry(hash, is_it, again).or_insert_with(new).into_mut().value
    }
}

impl<T> Patterns<T> {
    /// Removes the value of exactly this channel or pattern, and returns it.
    pub(crate) fn remove(&mut self, name: ChannelName<'_>) -> Option<T> {
        let (kind, stem) = parts(name.as_str());
        let is_it = |entry: &Entry<T>| parts(&entry.name) == (kind, stem);
        let found = self.entries.find_entry(self.hasher.hash_one(stem), is_it).ok()?;
        Some(found.remove().0.value)
    }

    /// Finds the values for a channel or pattern: of each pattern that covers it, the widest first, and its own last.
    /// A pattern is covered by wider ones with two stars, as in CometD: `/a/*` by `/a/**` and `/**`.
    pub(crate) fn of(&self, channel: &str) -> Found<'_, T> {
        let mut found = Found::new();
        if self.entries.is_empty() {
            return found;
        }
        let (mut depth, mut last) = (0, 0);
        for at in memchr::memchr_iter(b'/', channel.as_bytes()) {
            if self.deep & bit(depth) != 0 {
                found.extend(self.get(Kind::Deep, &channel[..at]));
            }
            (depth, last) = (depth + 1, at);
        }
        if self.shallow & bit(depth.saturating_sub(1)) != 0 && !channel.ends_with("/**") {
            found.extend(self.get(Kind::Shallow, &channel[..last]));
        }
        if self.names & bit(depth) != 0 {
            found.extend(self.get(Kind::Name, channel));
        }
        found
    }

    /// Finds the values for channels that a pattern reaches: of each name that some channel shares with it, but that does not
    /// cover it as a whole, in the order of these names.
    pub(crate) fn within(&self, pattern: &str) -> Found<'_, T> {
        let covering = self.of(pattern);
        let is_within = |(name, value): &(&str, &T)| {
            overlap(name, pattern) && !covering.iter().any(|wider| std::ptr::eq(*wider, *value))
        };
        self.named().into_iter().filter(is_within).map(|(_, value)| value).collect()
    }

    /// All channels and patterns with their values, in the order of their names.
    pub(crate) fn named(&self) -> Vec<(&str, &T)> {
        let mut named: Vec<_> = self.entries.iter().map(|entry| (&*entry.name, &entry.value)).collect();
        named.sort_by_key(|(name, _)| *name);
        named
    }

    /// The value for a channel: its own, or that of the pattern that is closest to it.
    pub(crate) fn closest(&self, channel: &str) -> Option<&T> {
        let own = if self.names > 0 { self.get(Kind::Name, channel) } else { None };
        own.or_else(|| self.of(channel).pop())
    }

    /// All values, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|entry| &entry.value)
    }

    #[inline]
    fn get(&self, kind: Kind, stem: &str) -> Option<&T> {
        let is_it = |entry: &Entry<T>| parts(&entry.name) == (kind, stem);
        self.entries.find(self.hasher.hash_one(stem), is_it).map(|entry| &entry.value)
    }
}

/// The bit of a depth. Very deep names share the last one, which may cost a look-up and changes nothing else.
fn bit(depth: usize) -> u64 {
    1 << depth.min(63)
}

fn parts(name: &str) -> (Kind, &str) {
    if let Some(stem) = name.strip_suffix("/**") {
        return (Kind::Deep, stem);
    }
    name.strip_suffix("/*").map_or((Kind::Name, name), |stem| (Kind::Shallow, stem))
}

#[cfg(test)]
mod tests {
    use bayeux::Limits;
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> ChannelName<'_> {
        ChannelName::parse(text, &Limits::default()).expect("a channel")
    }

    fn table(patterns: &[impl AsRef<str>]) -> Patterns<Vec<usize>> {
        let mut table = Patterns::<Vec<usize>>::default();
        for (number, pattern) in patterns.iter().enumerate() {
            table.entry(name(pattern.as_ref())).push(number);
        }
        table
    }

    fn found(table: &Patterns<Vec<usize>>, channel: &str) -> Vec<usize> {
        table.of(channel).into_iter().flatten().copied().collect()
    }

    #[test]
    fn a_channel_finds_its_own_value_and_those_of_the_patterns_that_cover_it_widest_first() {
        let table = table(&["/a/b", "/a/*", "/a/**", "/**", "/*", "/a/b", "/a"]);
        for (channel, numbers) in [
            ("/a/b", vec![3, 2, 1, 0, 5]),
            ("/a/b/c", vec![3, 2]),
            ("/a", vec![3, 4, 6]),
            ("/x", vec![3, 4]),
            // As in CometD's ChannelId.getWildIds.
            ("/a/*", vec![3, 2, 1]),
            ("/a/**", vec![3, 2]),
            ("/*", vec![3, 4]),
            ("/**", vec![3]),
        ] {
            assert_eq!(found(&table, channel), numbers, "{channel}");
        }
        assert_eq!(table.closest("/a/c"), Some(&vec![1]));
        assert_eq!(Patterns::<Vec<usize>>::default().closest("/a"), None);
    }

    #[test]
    fn a_pattern_finds_the_values_of_the_channels_that_it_reaches() {
        let table = table(&["/**", "/a/b", "/a/*", "/a/**", "/b/*", "/*", "/a/b/c", "/a/b/**"]);
        let within = |pattern: &str| -> Vec<usize> { table.within(pattern).into_iter().flatten().copied().collect() };
        assert_eq!(within("/**"), [5, 2, 3, 1, 7, 6, 4]);
        assert_eq!(within("/a/**"), [2, 1, 7, 6]);
        assert_eq!((within("/a/*"), within("/*"), within("/a/b/*")), (vec![1], vec![], vec![6]));
        assert_eq!(within("/c/**"), Vec::<usize>::new());
    }

    #[test]
    fn names_deeper_than_the_bits_are_found() {
        let deep = |segments: usize| "/a".repeat(segments);
        let limits = Limits { channel_segments_max: 200, channel_bytes_max: 1_000, ..Limits::default() };
        let mut table = Patterns::<Vec<usize>>::default();
        let pattern = format!("{}/**", deep(70));
        table.entry(ChannelName::parse(&pattern, &limits).expect("a pattern")).push(1);
        assert_eq!((found(&table, &deep(71)), found(&table, &deep(70))), (vec![1], vec![]));
    }

    proptest! {
        /// Compares the table with a linear search.
        #[test]
        fn the_table_finds_what_a_linear_search_finds(
            patterns in prop::collection::vec("(/[ab]){0,3}(/[ab]|/\\*|/\\*\\*)", 0..12),
            channel in "(/[ab]){1,4}",
        ) {
            let searched = |number: &usize| name(&patterns[*number]).matches(name(&channel));
            let mut numbers = found(&table(&patterns), &channel);
            numbers.sort_unstable();
            prop_assert_eq!(numbers, (0..patterns.len()).filter(searched).collect::<Vec<_>>());
        }
    }
}
