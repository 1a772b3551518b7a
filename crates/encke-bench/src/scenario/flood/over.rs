//! The transport of chunks.

use clap::ValueEnum;

/// The transport of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Over {
    /// An endless response, as `encke flood-target` sends it.
    Stream,
    /// Publications that answer a held connect: one Bayeux session on one connection each.
    LongPolling,
}
