//! The actions that a backend requests.

use std::time::Duration;

use encke::{Handle, Outgoing, PublishError};
use encke_core::Actions;
use serde_json::value::RawValue;

use crate::answer::{Action, Deliver, Publish, Target};

/// Adds an action to those of a service call, which the shard performs with the reply. They count for the caller.
pub(crate) fn with_reply(action: Action, actions: &mut Actions) {
    match action {
        Action::Publish(Publish { channel, data, ext, lazy: true }) => {
            actions.publish_lazily(&channel, data.get(), ext.as_deref().map(RawValue::get));
        }
        Action::Publish(Publish { channel, data, ext: None, .. }) => actions.publish(&channel, data.get()),
        Action::Publish(Publish { channel, data, ext: Some(ext), .. }) => {
            actions.publish_with_ext(&channel, data.get(), ext.get());
        }
        Action::Deliver(Deliver { session: Some(session), channel, data, id: None, ext: Some(ext), .. }) => {
            actions.deliver_with_ext(&session, &channel, data.get(), ext.get());
        }
        Action::Deliver(Deliver { session: Some(session), channel, data, id, .. }) => {
            actions.deliver(&session, &channel, data.get(), id.as_deref());
        }
        Action::Disconnect(Target { session: Some(session), .. }) => actions.disconnect(&session),
        Action::SetAttributes(set) => set.changes().for_each(|change| actions.change_attribute(&set.session, change)),
        Action::Deliver(Deliver { user, channel, data, .. }) => {
            user.into_iter().for_each(|user| actions.deliver_to_user(&user, &channel, data.get()));
        }
        Action::Disconnect(Target { user, .. }) => user.into_iter().for_each(|user| actions.disconnect_user(&user)),
    }
}

/// Performs an action, and tries again for a while if the server is busy.
pub(crate) async fn by_handle(server: &Handle, action: &Action) -> Result<(), PublishError> {
    for _ in 0..TRIES {
        match once(server, action).await {
            Err(PublishError::Busy) => tokio::time::sleep(PAUSE).await,
            done => return done,
        }
    }
    Err(PublishError::Busy)
}

async fn once(server: &Handle, action: &Action) -> Result<(), PublishError> {
    match action {
        Action::Publish(Publish { channel, data, ext, lazy }) => {
            let message = message(data, ext);
            server.publish_message(channel, &if *lazy { message.lazy() } else { message })
        }
        Action::Deliver(Deliver { session: Some(session), channel, data, ext, .. }) => {
            server.deliver_message(session, channel, &message(data, ext)).map(drop)
        }
        Action::Deliver(Deliver { user, channel, data, .. }) => {
            let user = user.as_deref().unwrap_or_default();
            server.deliver_to_user(user, channel, data.get()).await.map(drop)
        }
        Action::Disconnect(Target { session: Some(session), .. }) => {
            server.disconnect(session);
            Ok(())
        }
        Action::SetAttributes(set) => {
            for change in set.changes() {
                let name = change.name.clone();
                if let Err(error) = server.change_session_attribute(&set.session, change).await {
                    tracing::debug!(name = &*name, %error, "an attribute of a session is not changed as a backend wants");
                }
            }
            Ok(())
        }
        Action::Disconnect(Target { user, .. }) => {
            server.disconnect_user(user.as_deref().unwrap_or_default()).await;
            Ok(())
        }
    }
}

fn message<'a>(data: &'a RawValue, ext: &'a Option<Box<RawValue>>) -> Outgoing<'a> {
    let message = Outgoing::raw(data.get());
    ext.as_deref().map_or(message.clone(), |ext| message.ext(ext.get()))
}

/// Tries while the server is busy, with a pause after each.
const TRIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publication_of_an_answer_has_its_ext_and_is_lazy_if_it_says_so() {
        let mut actions = Actions::default();
        for text in [
            r#"{"publish": {"channel": "/a", "data": 1}}"#,
            r#"{"publish": {"channel": "/a", "data": 2, "lazy": true}}"#,
            r#"{"publish": {"channel": "/a", "data": 3, "ext": {"x": 1}, "lazy": true}}"#,
        ] {
            let action = serde_json::from_str(text).expect("an action");
            with_reply(action, &mut actions);
        }
        let publish = |data: &str, ext: Option<&str>, is_lazy| encke_core::Action::Publish {
            channel: "/a".into(),
            data: data.into(),
            ext: ext.map(String::from),
            is_lazy,
        };
        let expected = [publish("1", None, false), publish("2", None, true), publish("3", Some(r#"{"x": 1}"#), true)];
        assert_eq!(actions.as_slice(), expected);
    }
}
