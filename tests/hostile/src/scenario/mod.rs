//! The attacks, one file each: data, and what the attackers do.

mod backlog;
mod churn;
mod demo;
mod flood;
mod handshakes;
mod herd;
mod incomplete;
mod mail;
mod mixed;
mod outbox;
mod polls;
mod sockets;

use crate::attack::{Arena, Attack, Outcome};

/// An attack, and what it may cost.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// One sentence: what attackers do.
    pub title: &'static str,
    /// Settings beside the defaults, as `--set` takes them.
    pub settings: &'static [&'static str],
    /// With how many shards it runs, one run for each.
    pub shards: &'static [usize],
    /// How long attackers go on, if they have not done everything before, in milliseconds.
    pub lasts_ms: u64,
    /// Memory that the server may have at most beside what it had before, in MiB.
    pub grows_mib_max: u64,
    /// Bytes that the kernel may hold for clients that do not read, in MiB. Mostly it does not matter.
    pub kernel_mib_max: Option<u64>,
    /// The attackers.
    pub attack: fn(Arena) -> Attack,
}

/// What holds for a scenario that does not say otherwise: default settings, two shards and then one.
const PLAIN: Scenario = Scenario {
    name: "",
    title: "",
    settings: &[],
    shards: &[2, 1],
    lasts_ms: 2_000,
    grows_mib_max: 0,
    kernel_mib_max: None,
    attack: |_| Box::pin(async { Ok(Outcome::default()) }),
};
/// Mixtures and variations run where shards meet.
const TWO: &[usize] = &[2];

/// All of them, in the order in which they run.
pub const ALL: &[Scenario] = &[
    mail::FLOOD_HTTP,
    mail::FLOOD_HISTORY,
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
    mixed::MAILBOX_OF_ONE,
    mixed::SURE_SLEEPERS,
    mixed::EVERYTHING,
];
