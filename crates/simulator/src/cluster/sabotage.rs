//! Deliberate faults around the machines of a cluster.

/// The options of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClusterOptions {
    /// True to record the last steps, for the report of a failure.
    pub trace: bool,
    /// A deliberate fault, to prove that it is found.
    pub sabotage: ClusterSabotage,
    /// True if the engine keeps journals of histories, and all nodes may be killed at the same time.
    pub has_journals: bool,
}

/// Deliberate faults around the machines of a cluster, to prove that the checks find them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterSabotage {
    /// Nothing.
    #[default]
    None,
    /// The engine writes the claims of histories whatever their revision is.
    UnfencedHistories,
    /// The engine writes the records of sessions whatever their revision is.
    UnfencedSessions,
    /// The node names a position before the clients of its sessions have confirmed it.
    EarlyPosition,
    /// The engine no longer sends what a client of a node still wants, because another one has left.
    EarlyUnsubscribe,
    /// The second copy of an envelope, which an older subscription has brought already, counts as another envelope.
    SecondCopy,
    /// The clock of a node stands still while the node is paused.
    StoppedClock,
    /// A message in a response is taken and never arrives.
    DroppedMessage,
    /// A message in a response arrives twice.
    DoubledMessage,
    /// A loss report is removed.
    HushedLoss,
    /// A publication is confirmed that was refused, or not stored yet.
    EarlyConfirmation,
    /// A node that was away does not learn that others have taken its sessions.
    ForgottenTakeOver,
}

impl ClusterSabotage {
    /// All of them.
    pub const ALL: [ClusterSabotage; 11] = [
        ClusterSabotage::UnfencedHistories,
        ClusterSabotage::UnfencedSessions,
        ClusterSabotage::EarlyPosition,
        ClusterSabotage::EarlyUnsubscribe,
        ClusterSabotage::SecondCopy,
        ClusterSabotage::StoppedClock,
        ClusterSabotage::DroppedMessage,
        ClusterSabotage::DoubledMessage,
        ClusterSabotage::HushedLoss,
        ClusterSabotage::EarlyConfirmation,
        ClusterSabotage::ForgottenTakeOver,
    ];
}
