//! The compiled rules for channels: finds the first rule that matches a channel.
//!
//! A channel of depth *d* is matched by its own name and by *d* + 1 patterns. These are looked up by name, so the cost
//! for a channel does not depend on the number of rules.

use std::hash::BuildHasher;

use bayeux::ChannelName;
use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::ChannelRule;

/// An index of a list of rules by their patterns. It holds no names: its callers hold the list.
#[derive(Debug, Default)]
pub struct Rules {
    hasher: RandomState,
    /// The first rule of each pattern.
    by_pattern: HashTable<u32>,
}

impl Rules {
    /// Compiles a list.
    pub fn new(rules: &[ChannelRule]) -> Rules {
        let mut compiled = Rules { by_pattern: HashTable::with_capacity(rules.len()), ..Rules::default() };
        for (index, rule) in rules.iter().enumerate() {
            if compiled.find(rules, &rule.pattern).is_none() {
                let hash = compiled.hasher.hash_one(rule.pattern.as_str());
                let again = |index: &u32| compiled.hasher.hash_one(rules[*index as usize].pattern.as_str());
                compiled.by_pattern.insert_unique(hash, index as u32, again);
            }
        }
        compiled
    }

    /// The index of the first rule of the list that matches a channel. `scratch` is overwritten.
    pub fn first(&self, rules: &[ChannelRule], channel: ChannelName<'_>, scratch: &mut String) -> Option<usize> {
        if self.by_pattern.is_empty() {
            return None;
        }
        let mut first = self.find(rules, channel.as_str());
        channel.patterns(scratch, |pattern| {
            let found = self.find(rules, pattern);
            first = first.into_iter().chain(found).min();
        });
        first.map(|index| index as usize)
    }

    fn find(&self, rules: &[ChannelRule], pattern: &str) -> Option<u32> {
        #[cfg(test)]
        tests::LOOKUPS.set(tests::LOOKUPS.get() + 1);
        let is_it = |index: &u32| rules[*index as usize].pattern == pattern;
        self.by_pattern.find(self.hasher.hash_one(pattern), is_it).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use bayeux::Limits;
    use proptest::prelude::*;

    use super::*;

    thread_local! {
        /// The number of look-ups of this thread.
        pub(crate) static LOOKUPS: Cell<usize> = const { Cell::new(0) };
    }

    fn rules(patterns: &[String]) -> Vec<ChannelRule> {
        patterns.iter().map(|pattern| ChannelRule { pattern: pattern.clone(), ..ChannelRule::default() }).collect()
    }

    fn first(list: &[ChannelRule], channel: &str) -> Option<usize> {
        let channel = ChannelName::parse(channel, &Limits::default()).expect("a channel");
        Rules::new(list).first(list, channel, &mut String::new())
    }

    #[test]
    fn the_first_matching_rule_applies() {
        let list = rules(&["/a/b", "/a/*", "/a/b", "/**", "/a/**", "/c"].map(String::from));
        for (channel, index) in
            [("/a/b", 0), ("/a/c", 1), ("/a/b/c", 3), ("/c", 3), ("/a/*", 1), ("/a/**", 4), ("/**", 3)]
        {
            assert_eq!(first(&list, channel), Some(index), "{channel}");
        }
        assert_eq!(first(&list[..3], "/a/b/c"), None);
        assert_eq!(first(&[], "/a"), None);
    }

    #[test]
    fn ten_thousand_rules_cost_a_channel_as_many_look_ups_as_ten() {
        let channel = ChannelName::parse("/stock/lse/abc", &Limits::default()).expect("a channel");
        let lookups = |count: usize| {
            let list = rules(&(0..count).map(|number| format!("/stock/lse/{number}")).collect::<Vec<_>>());
            let compiled = Rules::new(&list);
            LOOKUPS.set(0);
            assert_eq!(compiled.first(&list, channel, &mut String::new()), None);
            LOOKUPS.get()
        };
        // Its name and four patterns.
        assert_eq!((lookups(10), lookups(10_000)), (5, 5));
    }

    proptest! {
        /// Compares the table with a linear search.
        #[test]
        fn the_table_finds_the_same_rules_as_a_linear_search(
            patterns in prop::collection::vec("(/[ab]){0,3}(/[ab]|/\\*|/\\*\\*)", 0..12),
            channel in "(/[ab]){0,3}(/[ab]|/\\*|/\\*\\*)",
        ) {
            let list = rules(&patterns);
            let name = |text| ChannelName::parse(text, &Limits::default()).expect("a name");
            let walked = patterns.iter().position(|pattern| name(pattern).matches(name(&channel)));
            prop_assert_eq!(first(&list, &channel), walked);
        }
    }
}
