//! The attacks, one file each: data, and the attackers' actions.

mod backends;
mod backlog;
mod churn;
mod demo;
mod flood;
mod handshakes;
mod herd;
mod http2;
mod incomplete;
mod mixed;
mod outbox;
mod polls;
mod shard_messages;
mod shares;
mod sockets;
mod tls;

use crate::attack::{Arena, Attack, Outcome};

/// An attack, and its limits.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// One sentence: the attackers' actions.
    pub title: &'static str,
    /// Settings beside the defaults, in the format of `--set`.
    pub settings: &'static [&'static str],
    /// True if the attackers and all witnesses speak TLS.
    pub is_over_tls: bool,
    /// The text of a configuration file, or nothing. `{backend}` stands for the address of a backend.
    pub config: &'static str,
    /// The numbers of shards, one run for each.
    pub shards: &'static [usize],
    /// The time after which attackers stop if they have not finished before, in milliseconds.
    pub lasts_ms: u64,
    /// The most memory that the server may have in addition to its size before, in MiB.
    pub grows_mib_max: u64,
    /// Messages that histories retain after the attack, in MiB.
    pub retains_mib: u64,
    /// The bytes that the kernel may hold for clients that do not read, in MiB; none where it does not matter.
    pub kernel_mib_max: Option<u64>,
    /// The attackers.
    pub attack: fn(Arena) -> Attack,
}

/// The defaults of a scenario: default settings, two shards and then one.
const PLAIN: Scenario = Scenario {
    name: "",
    title: "",
    settings: &[],
    is_over_tls: false,
    config: "",
    shards: &[2, 1],
    lasts_ms: 2_000,
    grows_mib_max: 0,
    retains_mib: 0,
    kernel_mib_max: None,
    attack: |_| Box::pin(async { Ok(Outcome::default()) }),
};
/// Mixtures and variations run where shards meet.
const TWO: &[usize] = &[2];

/// All scenarios, in the order in which they run.
pub const ALL: &[Scenario] = &[
    shard_messages::FLOOD_HTTP,
    shard_messages::FLOOD_HISTORY,
    outbox::SLEEPER,
    outbox::RANGES,
    polls::UNREAD,
    polls::SLOW,
    herd::HERD,
    handshakes::HANDSHAKES,
    backlog::LATEST,
    backlog::POSITIONS,
    sockets::PINGS,
    sockets::DEAF,
    incomplete::INCOMPLETE,
    flood::FLOOD,
    churn::SESSIONS,
    churn::SUBSCRIPTIONS,
    demo::RENAMES,
    demo::RENAMES_COMETD,
    polls::UNREAD_ACK,
    polls::UNREAD_SCRIPTS,
    shares::CALLS,
    shares::HOLDS,
    shares::BODIES,
    shares::HISTORIES,
    shares::CREDENTIALS,
    shares::RATES,
    backends::REFRESHES,
    backends::WEBHOOK,
    backends::DECISIONS,
    backends::PROXY,
    tls::HANDSHAKES,
    tls::RECORDS,
    http2::FLOODS,
    http2::STREAMS,
    mixed::MAILBOX_OF_ONE,
    mixed::SURE_SLEEPERS,
    mixed::EVERYTHING,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// `docs/security.md` has a table of the limits that are given out in shares, and one of those that are not. Their last cells name
    /// scenarios.
    #[test]
    fn each_limit_that_is_given_out_in_shares_has_a_scenario() {
        let page = include_str!("../../../../docs/security.md");
        let (_, shares) = page.split_once("\n## Shares\n").expect("the section");
        let (shares, _) = shares.split_once("\n## ").expect("the next section");
        let (given_out, reasons) = shares.split_once("These are shared without shares").expect("both tables");
        let scenarios_of = |row: &'static str| {
            let cell = row.trim_end_matches('|').rsplit('|').next().expect("a cell");
            cell.split('`').skip(1).step_by(2).collect::<Vec<_>>()
        };
        let rows = |text: &'static str| text.lines().filter(|line| line.starts_with("| `"));
        assert!(rows(given_out).count() > 5);
        for row in rows(given_out) {
            assert!(!scenarios_of(row).is_empty(), "no scenario: {row}");
        }
        let known: BTreeSet<&str> = ALL.iter().map(|scenario| scenario.name).collect();
        for row in rows(given_out).chain(rows(reasons)) {
            for name in scenarios_of(row) {
                assert!(known.contains(name), "{name}: no such scenario: {row}");
            }
        }
        let is_named = |name: &str| shares.contains(&format!("`{name}`"));
        for name in known.iter().filter(|name| name.starts_with("shares-")) {
            assert!(is_named(name), "{name} is not in the section");
        }
    }

    #[test]
    fn names_of_scenarios_are_unique() {
        let names: BTreeSet<&str> = ALL.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), ALL.len());
    }
}
