//! A table of channel patterns: finds everything that is registered for a channel or for a pattern that covers it.
//!
//! A channel of depth *d* is covered by *d* + 1 patterns. The table knows at which depths it has patterns at all, so a
//! look-up hashes only the beginnings of the name that can be in it.
//!
//! Templates such as `/room/{id}/join` are in the same table: their hash leaves out the parameters. The table knows in which
//! segments its templates have parameters, and looks once for each such shape.

use std::hash::{BuildHasher, Hasher};

use bayeux::channel::overlap;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use smallvec::SmallVec;

use super::template::{Kind, Name, filled, segments};

/// Values by channel, pattern or template.
#[derive(Clone, Debug)]
pub(crate) struct Patterns<T> {
    hasher: RandomState,
    entries: HashTable<Entry<T>>,
    /// Bit *d* is set if there is a pattern `/**` below a name of *d* segments.
    deep: u64,
    /// Bit *d* is set if there is a pattern `/*` below a name of *d* segments.
    shallow: u64,
    /// Bit *d* is set if there is a channel of *d* segments.
    names: u64,
    /// The shapes of the templates, the widest of each kind and depth first.
    shapes: Vec<Shape>,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    name: Name,
    value: T,
}

/// The templates with parameters in the same segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    kind: Kind,
    depth: usize,
    parameters: u64,
}

/// The values for one channel, of the widest pattern first. Most channels have few.
pub(crate) type Found<'t, T> = SmallVec<[&'t T; 4]>;

impl<T> Default for Patterns<T> {
    fn default() -> Patterns<T> {
        Patterns {
            hasher: RandomState::default(),
            entries: HashTable::new(),
            deep: 0,
            shallow: 0,
            names: 0,
            shapes: Vec::new(),
        }
    }
}

impl<T> Patterns<T> {
    /// The value of exactly this channel, pattern or template; that of `new` if there was none.
    ///
    /// # Errors
    /// The template that there is already, with other names of its parameters.
    pub(crate) fn entry(&mut self, name: &Name, new: impl FnOnce() -> T) -> Result<&mut T, Box<str>> {
        let shape = Shape::of(name);
        match name.kind {
            _ if name.has_parameters() => {
                if let Err(at) = self.shapes.binary_search_by_key(&shape.key(), Shape::key) {
                    self.shapes.insert(at, shape);
                }
            }
            Kind::Name => self.names |= bit(shape.depth),
            Kind::Shallow => self.shallow |= bit(shape.depth),
            Kind::Deep => self.deep |= bit(shape.depth),
        }
        let Patterns { hasher, entries, .. } = self;
        let again = |entry: &Entry<T>| hash(hasher, entry.name.stem(), entry.name.parameters);
        let hash = hash(hasher, name.stem(), name.parameters);
        let found = entries.entry(hash, |entry| entry.name.is_same(name), again);
        let found = found.or_insert_with(|| Entry { name: name.clone(), value: new() }).into_mut();
        if found.name == *name { Ok(&mut found.value) } else { Err(found.name.text.clone()) }
    }

    /// Removes the values that are no longer wanted.
    pub(crate) fn retain(&mut self, mut is_wanted: impl FnMut(&mut T) -> bool) {
        self.entries.retain(|entry| is_wanted(&mut entry.value));
        let Patterns { entries, shapes, .. } = self;
        shapes.retain(|shape| entries.iter().any(|entry| Shape::of(&entry.name) == *shape));
    }

    /// Finds the values for a channel or pattern: of each pattern that covers it, the widest first, and its own last.
    /// A pattern is covered by wider ones with two stars, as in CometD: `/a/*` by `/a/**` and `/**`. A template covers what `/*`
    /// instead of each parameter would, and comes behind the pattern with stars.
    pub(crate) fn of(&self, channel: &str) -> Found<'_, T> {
        let mut found = Found::new();
        if self.entries.is_empty() {
            return found;
        }
        let (mut depth, mut last) = (0, 0);
        for at in memchr::memchr_iter(b'/', channel.as_bytes()) {
            self.add(Kind::Deep, depth, &channel[..at], &mut found);
            (depth, last) = (depth + 1, at);
        }
        if !channel.ends_with("/**") {
            self.add(Kind::Shallow, depth.saturating_sub(1), &channel[..last], &mut found);
            self.add(Kind::Name, depth, channel, &mut found);
        }
        found
    }

    /// Finds the values for channels that a pattern reaches: of each name that some channel shares with it, but that does not
    /// cover it as a whole, in the order of these names.
    pub(crate) fn within(&self, pattern: &str) -> Found<'_, T> {
        let covering = self.of(pattern);
        let is_within = |entry: &&Entry<T>| {
            let is_reached = match entry.name.parameters {
                0 => overlap(&entry.name.text, pattern),
                _ => overlap(&filled(&entry.name.text, pattern), pattern),
            };
            is_reached && !covering.iter().any(|wider| std::ptr::eq(*wider, &entry.value))
        };
        let mut within: Vec<_> = self.entries.iter().filter(is_within).collect();
        within.sort_by_key(|entry| &*entry.name.text);
        within.into_iter().map(|entry| &entry.value).collect()
    }

    /// All channels, patterns and templates with their values, in the order of their names.
    pub(crate) fn named(&self) -> Vec<(&str, &T)> {
        let mut named: Vec<_> = self.entries.iter().map(|entry| (&*entry.name.text, &entry.value)).collect();
        named.sort_by_key(|(name, _)| *name);
        named
    }

    /// The value for a channel: its own, or that of the template or pattern that is closest to it.
    pub(crate) fn closest(&self, channel: &str) -> Option<&T> {
        let own = if self.names > 0 { self.get(Kind::Name, channel, 0) } else { None };
        own.or_else(|| self.of(channel).pop())
    }

    /// All values, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|entry| &entry.value)
    }

    /// Adds the values of one kind with this stem: first those of templates.
    #[inline]
    fn add<'t>(&'t self, kind: Kind, depth: usize, stem: &str, found: &mut Found<'t, T>) {
        let of_kind = |shape: &&Shape| shape.kind == kind && shape.depth == depth;
        found.extend(self.shapes.iter().filter(of_kind).filter_map(|shape| self.get(kind, stem, shape.parameters)));
        let depths = match kind {
            Kind::Name => self.names,
            Kind::Shallow => self.shallow,
            Kind::Deep => self.deep,
        };
        if depths & bit(depth) != 0 {
            found.extend(self.get(kind, stem, 0));
        }
    }

    #[inline]
    fn get(&self, kind: Kind, stem: &str, parameters: u64) -> Option<&T> {
        let is_it =
            |entry: &Entry<T>| entry.name.kind == kind && entry.name.parameters == parameters && entry.name.fits(stem);
        self.entries.find(hash(&self.hasher, stem, parameters), is_it).map(|entry| &entry.value)
    }
}

impl Shape {
    fn of(name: &Name) -> Shape {
        Shape { kind: name.kind, depth: segments(name.stem()).count(), parameters: name.parameters }
    }

    /// Of two shapes of one kind and depth the wider one has the smaller key: the first segment that differs is a parameter.
    fn key(&self) -> (u8, usize, u64) {
        (self.kind as u8, self.depth, !self.parameters.reverse_bits())
    }
}

/// The hash of a stem without its parameters.
#[inline]
fn hash(hasher: &RandomState, stem: &str, parameters: u64) -> u64 {
    if parameters == 0 {
        return hasher.hash_one(stem);
    }
    let mut hash = hasher.build_hasher();
    for (at, segment) in segments(stem).enumerate().filter(|(at, _)| parameters & bit(*at) == 0) {
        hash.write_usize(at);
        hash.write(segment.as_bytes());
    }
    hash.finish()
}

/// The bit of a depth or a segment. Very deep names share the last one, which may cost a look-up and changes nothing else.
fn bit(depth: usize) -> u64 {
    1 << depth.min(63)
}

#[cfg(test)]
mod tests {
    use bayeux::{ChannelName, Limits};
    use proptest::prelude::*;

    use super::super::template::name_of;
    use super::*;

    fn table(patterns: &[impl AsRef<str>]) -> Patterns<Vec<usize>> {
        let mut table = Patterns::<Vec<usize>>::default();
        for (number, pattern) in patterns.iter().enumerate() {
            let name = name_of(pattern.as_ref()).expect("a name");
            table.entry(&name, Vec::new).expect("no other parameters").push(number);
        }
        table
    }

    fn found(table: &Patterns<Vec<usize>>, channel: &str) -> Vec<usize> {
        table.of(channel).into_iter().flatten().copied().collect()
    }

    fn within(table: &Patterns<Vec<usize>>, pattern: &str) -> Vec<usize> {
        table.within(pattern).into_iter().flatten().copied().collect()
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
    fn templates_come_between_a_name_and_the_stars() {
        let names =
            ["/a/b/c", "/a/{x}/c", "/{x}/b/c", "/{x}/{y}/{z}", "/a/b/{x}", "/a/b/*", "/a/**", "/{x}/**", "/a/{x}"];
        let table = table(&names);
        for (channel, numbers) in [
            ("/a/b/c", vec![7, 6, 5, 3, 2, 1, 4, 0]),
            ("/a/x/c", vec![7, 6, 3, 1]),
            ("/x/b/c", vec![7, 3, 2]),
            ("/a/b/x", vec![7, 6, 5, 3, 4]),
            ("/a/b", vec![7, 6, 8]),
            ("/a", vec![]),
            // A star at the end may be a parameter, two may not: they reach deeper.
            ("/a/*", vec![7, 6, 8]),
            ("/a/b/*", vec![7, 6, 5, 3, 4]),
            ("/a/b/**", vec![7, 6]),
            ("/a/**", vec![7, 6]),
            ("/**", vec![]),
        ] {
            assert_eq!(found(&table, channel), numbers, "{channel}");
        }
        assert_eq!(table.closest("/a/b/c"), Some(&vec![0]));
        assert_eq!(within(&table, "/a/**"), [5, 0, 4, 8, 1, 2, 3], "in the order of their names");
        assert_eq!(within(&table, "/a/b/*"), [0, 1, 2]);
        assert_eq!(within(&table, "/x/*"), Vec::<usize>::new());
    }

    #[test]
    fn two_templates_differ_by_more_than_the_names_of_their_parameters() {
        let mut table = table(&["/a/{x}", "/{x}/a"]);
        let name = |text| name_of(text).expect("a template");
        assert_eq!(table.entry(&name("/a/{y}"), Vec::new), Err("/a/{x}".into()));
        assert!(table.entry(&name("/a/{y}/*"), Vec::new).is_ok() && table.entry(&name("/a/{x}"), Vec::new).is_ok());
    }

    #[test]
    fn a_pattern_finds_the_values_of_the_channels_that_it_reaches() {
        let table = table(&["/**", "/a/b", "/a/*", "/a/**", "/b/*", "/*", "/a/b/c", "/a/b/**"]);
        let within = |pattern: &str| within(&table, pattern);
        assert_eq!(within("/**"), [5, 2, 3, 1, 7, 6, 4]);
        assert_eq!(within("/a/**"), [2, 1, 7, 6]);
        assert_eq!((within("/a/*"), within("/*"), within("/a/b/*")), (vec![1], vec![], vec![6]));
        assert_eq!(within("/c/**"), Vec::<usize>::new());
    }

    #[test]
    fn names_deeper_than_the_bits_are_found() {
        let deep = |segments: usize| "/a".repeat(segments);
        let table = table(&[format!("{}/**", deep(70))]);
        assert_eq!((found(&table, &deep(71)), found(&table, &deep(70))), (vec![0], vec![]));
    }

    #[test]
    fn a_value_that_is_not_wanted_leaves_nothing_behind() {
        let mut table = table(&["/a", "/a/{x}"]);
        table.retain(|numbers| numbers[0] == 0);
        assert_eq!((table.entries.len(), table.shapes.len()), (1, 0));
        assert_eq!((found(&table, "/a/b"), found(&table, "/a")), (vec![], vec![0]));
    }

    /// The pattern with stars instead of parameters, segment by segment.
    fn reaches(pattern: &str, name: &str) -> bool {
        let (mut pattern, mut name) = (segments(pattern), segments(name));
        loop {
            match (pattern.next(), name.next()) {
                (None, None) => return true,
                (Some("**"), Some(_)) => return true,
                // A pattern is covered by wider ones.
                (Some("*"), Some("**")) | (Some(_), Some("**")) | (None, _) | (_, None) => return false,
                (Some(one), Some(other)) if one == "*" || one.starts_with('{') || one == other => {}
                _ => return false,
            }
        }
    }

    /// True if some channel of at most four segments, each one of two, is reached by both.
    fn share_a_channel(one: &str, other: &str) -> bool {
        let mut channels = vec![String::new()];
        for _ in 0..4 {
            let longer = channels.iter().flat_map(|channel| ["a", "b"].map(|segment| format!("{channel}/{segment}")));
            let longer: Vec<String> = longer.collect();
            if longer.iter().any(|channel| reaches(one, channel) && reaches(other, channel)) {
                return true;
            }
            channels = longer;
        }
        false
    }

    proptest! {
        /// Compares the table with a linear search.
        #[test]
        fn the_table_finds_what_a_linear_search_finds(
            patterns in prop::collection::vec("(/[ab]|/\\{x\\}){0,3}(/[ab]|/\\{y\\}|/\\*|/\\*\\*)", 0..12),
            channel in "(/[ab]){0,3}(/[ab]|/\\*|/\\*\\*)",
        ) {
            // Names of parameters are distinct in one template, and the same in templates of one shape.
            let patterns: Vec<String> = patterns.iter().map(|pattern| numbered(pattern)).collect();
            let table = table(&patterns);
            let searched = |number: &usize| reaches(&patterns[*number], &channel);
            let mut numbers = found(&table, &channel);
            numbers.sort_unstable();
            prop_assert_eq!(numbers, (0..patterns.len()).filter(searched).collect::<Vec<_>>());
            let only = |number: &usize| share_a_channel(&patterns[*number], &channel) && !searched(number);
            if channel.ends_with('*') {
                let mut numbers = within(&table, &channel);
                numbers.sort_unstable();
                prop_assert_eq!(numbers, (0..patterns.len()).filter(only).collect::<Vec<_>>());
            }
        }

        /// A name without parameters is found as the protocol says.
        #[test]
        fn names_without_parameters_match_as_in_bayeux(
            pattern in "(/[ab]){0,3}(/[ab]|/\\*|/\\*\\*)",
            channel in "(/[ab]){1,4}",
        ) {
            let limits = Limits::default();
            let parsed = |text| ChannelName::parse(text, &limits).expect("a channel");
            let is_found = !found(&table(&[&pattern]), &channel).is_empty();
            prop_assert_eq!(is_found, parsed(&pattern).matches(parsed(&channel)));
        }
    }

    /// The template with parameters named by their segments.
    fn numbered(pattern: &str) -> String {
        let named = |(at, segment): (usize, &str)| {
            if segment.starts_with('{') { format!("/{{p{at}}}") } else { format!("/{segment}") }
        };
        segments(pattern).enumerate().map(named).collect()
    }
}
