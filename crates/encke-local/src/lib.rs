//! Beside the shards: the subscribers in the process of a server, the members of channels with presence, and the number of
//! held requests.
//!
//! They belong to all shards, and no publication of a shard waits for them. Time is an input, and there is no thread: the
//! server's own threads drive them, and so does the simulator.

mod cursor;
mod held;
mod holds;
mod members;
mod message;
mod positions;
mod queue;
mod registry;
mod subscription;

pub use held::held_body;
pub use holds::{Hold, Holds};
pub use members::{
    FollowPage, Gathered, Member, MemberTable, Members, MembersReport, PresenceCounts, PresenceTerms, Reporter,
    ToFollow,
};
pub use message::{Gap, Message};
pub use positions::{Position, PositionError, Positions, Start};
pub use registry::{Registry, Scratch};
pub use subscription::{SubscribeError, Subscription};
