//! The options of a run, and deliberate faults.

/// Options of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// True to record the last steps, for the report of a failure.
    pub trace: bool,
    /// A deliberate fault, to prove that it is found.
    pub sabotage: Sabotage,
}

/// Deliberate faults around the core, to prove that the checks find them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// Nothing.
    #[default]
    None,
    /// A frame arrives twice.
    DoubledFrame,
    /// A frame is taken and never arrives.
    DroppedFrame,
    /// Messages arrive in the wrong order.
    SwappedMessages,
    /// Data is reformatted on its way.
    ChangedData,
    /// A delivered message has advice in it.
    ForgedAdvice,
    /// A client gets the client id of another.
    LeakedId,
    /// A response never reaches its connection.
    LostResponse,
    /// Lost responses are reported as taken.
    FalseReceipt,
    /// The server does not learn that a socket is gone.
    ForgottenSocket,
    /// Time passes, and the shards do not learn of it.
    StoppedClock,
    /// A message of a channel with a history is taken and never arrives.
    DroppedPosition,
    /// A message of a channel with a history arrives twice.
    DoubledPosition,
    /// A message carries the position of another.
    ChangedPosition,
    /// A loss report is removed.
    HushedLoss,
    /// Records that never reached the log are reported as persisted.
    FalsePersisted,
    /// After a kill the log claims a clean end.
    FalseEnd,
    /// The data that the start after a kill writes again never reaches the disk.
    SkippedRewrite,
    /// A clean restart loses a session.
    LostSession,
    /// A clean restart loses the queued messages of sessions.
    LostOutbox,
    /// The shards do not learn that a token is revoked.
    ForgottenRevocation,
    /// A subscription is not counted.
    ForgottenCount,
    /// A member of a channel leaves, and nobody learns of it.
    ForgottenLeave,
    /// A member of a channel comes, and the table does not learn of it.
    ForgottenMember,
    /// One session of a user leaves, and the table takes it for all of them.
    LeaveOfAll,
    /// Users that left stay members.
    EndlessGrace,
    /// Users that left are gone at once.
    NoGrace,
    /// A change of members is not announced.
    ForgottenAnnouncement,
    /// A process ends, and changes that were not announced yet never are.
    ForgottenEnd,
    /// The table has room for any number of members.
    BoundlessTable,
    /// A message of a channel with `keep-latest` is taken and never arrives.
    DroppedLatest,
    /// Each message costs a search through all queues.
    LinearSearch,
    /// The gaps in the answers of held requests are removed.
    HushedGap,
    /// A chain of held requests continues one message further.
    SkippingHold,
    /// A chain of held requests continues where its last one began.
    RepeatedHold,
    /// The dispatcher loses a publication.
    DeafDispatcher,
    /// A held request whose credentials have ended is answered with messages.
    HeldBeyondRights,
    /// The queue of a held request has room for any number of messages.
    BoundlessQueue,
    /// Requests of one address are held above all limits.
    GreedyAddress,
    /// Requests are refused below the limits.
    RefusedRequest,
    /// The share of a held request is not given back.
    ForgottenShare,
    /// The server forgets the claims of credentials.
    ForgottenClaims,
    /// A client learns of the members of a channel that it may not know.
    LeakedAnnouncement,
    /// A handle's subscription is reported as done and never made.
    ForgottenChange,
    /// A history is not removed.
    ForgottenRemoval,
    /// A WebSocket is read on while its last message waits for the application.
    ReaderThatReadsOn,
    /// Messages are compressed for a client that has not offered it.
    UnaskedCompression,
    /// A byte of a compressed message changes on its way.
    ChangedByte,
}

impl Sabotage {
    /// True if it is about compressed messages.
    pub(crate) fn is_of_compression(self) -> bool {
        matches!(self, Sabotage::UnaskedCompression | Sabotage::ChangedByte)
    }

    /// True if it is about held requests.
    pub(crate) fn is_of_held(self) -> bool {
        use Sabotage::{BoundlessQueue, DeafDispatcher, HeldBeyondRights, HushedGap, RepeatedHold, SkippingHold};
        let all = [HushedGap, SkippingHold, RepeatedHold, DeafDispatcher, HeldBeyondRights, BoundlessQueue];
        all.contains(&self)
    }

    /// True if it is about the table of members.
    pub(crate) fn is_of_presence(self) -> bool {
        use Sabotage::{BoundlessTable, EndlessGrace, ForgottenAnnouncement, ForgottenEnd};
        use Sabotage::{ForgottenMember, LeaveOfAll, NoGrace};
        let all =
            [ForgottenMember, LeaveOfAll, EndlessGrace, NoGrace, ForgottenAnnouncement, ForgottenEnd, BoundlessTable];
        all.contains(&self)
    }

    /// True if it is about the limit for held requests.
    pub(crate) fn is_of_held_shares(self) -> bool {
        matches!(self, Sabotage::GreedyAddress | Sabotage::RefusedRequest | Sabotage::ForgottenShare)
    }
}
