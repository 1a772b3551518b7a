//! Messages that a session has lost: it is told.

use std::sync::Arc;

use bayeux::ext::{Heartbeat, Lost};

impl Loss {
    pub(crate) fn to_member(&self) -> String {
        let Loss { name, epoch, from, to, .. } = self;
        let lost = Some(Lost { from: *from, to: *to });
        let heartbeat = Heartbeat { epoch: (**epoch).into(), offset: *to, lost };
        format!("\"{name}\":{}", heartbeat.to_json())
    }
}

/// Messages that are gone.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    pub(crate) name: Box<str>,
    pub(crate) epoch: Arc<str>,
    pub(crate) from: u64,
    /// The last one, if anybody knows.
    pub(crate) to: Option<u64>,
    /// The number of the first batch that told of it, if the session acknowledges: all do until that is confirmed.
    pub(crate) told: Option<u64>,
}
