//! The actions that a backend requests.

use std::time::Duration;

use encke::{Handle, PublishError};
use encke_core::Actions;

use crate::answer::{Action, Deliver, Publish, Target};

/// Adds an action to those of a service call, which the shard performs with the reply.
pub(crate) fn with_reply(action: Action, actions: &mut Actions) {
    match action {
        Action::Publish(Publish { channel, data }) => actions.publish(&channel, data.get()),
        Action::Deliver(Deliver { session: Some(session), channel, data, id, .. }) => {
            actions.deliver(&session, &channel, data.get(), id.as_deref());
        }
        Action::Disconnect(Target { session: Some(session), .. }) => actions.disconnect(&session),
        _ => {}
    }
}

/// Performs an action. False if the server refuses it.
pub(crate) async fn by_handle(server: &Handle, action: Action) -> bool {
    match action {
        Action::Publish(Publish { channel, data }) => publish(server, &channel, data.get()).await,
        Action::Disconnect(Target { session: Some(session), .. }) => server.disconnect(&session),
        _ => false,
    }
}

/// Publishes, and tries again for a while if the server is busy.
async fn publish(server: &Handle, channel: &str, data: &str) -> bool {
    for _ in 0..TRIES {
        match server.publish(channel, data) {
            Err(PublishError::Busy) => tokio::time::sleep(PAUSE).await,
            done => return done.is_ok(),
        }
    }
    false
}

/// Tries to publish while the server is busy, with a pause after each.
const TRIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(10);
