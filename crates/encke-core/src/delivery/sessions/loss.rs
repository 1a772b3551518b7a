//! Messages that a session has lost. They are reported to its client.

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

/// Lost messages of one channel.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    pub(crate) name: Box<str>,
    pub(crate) epoch: Arc<str>,
    pub(crate) from: u64,
    /// The offset of the last one, if known.
    pub(crate) to: Option<u64>,
    /// The number of the first batch that reported the loss, if the session acknowledges. Every batch reports it until
    /// one of them is confirmed.
    pub(crate) reported: Option<u64>,
}
