//! Replies of services: what a handler may return, and what becomes of it on the wire.

use encke_core::Actions;
use serde::Serialize;

/// Data as JSON, of any type that serde can read or write: the argument of a service, or its reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Data<T>(pub T);

/// Data as raw JSON, unread: the argument of a service, or its reply, which must be valid JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raw(pub String);

/// A call that has failed. The caller gets `"successful":false` and the failure as `data`.
///
/// ```
/// use encke::{Failure, IntoReply};
///
/// let actions = Failure::new("sold_out", "there are no seats left").into_reply();
/// assert_eq!(
///     format!("{:?}", actions.as_slice()),
///     r#"[Reply { data: "{\"class\":\"sold_out\",\"message\":\"there are no seats left\"}", successful: false }]"#,
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    data: String,
}

impl Failure {
    /// A failure in the form that CometD has for exceptions: `{"class":…,"message":…}`. The class is for programs, the
    /// message for people.
    pub fn new(class: &str, message: &str) -> Failure {
        let mut data = Vec::with_capacity(class.len() + message.len() + 32);
        data.extend(br#"{"class":"#);
        bayeux::escape_into(class, &mut data);
        data.extend(br#","message":"#);
        bayeux::escape_into(message, &mut data);
        data.push(b'}');
        Failure { data: String::from_utf8(data).unwrap_or_default() }
    }

    /// A failure with other data.
    pub fn json(data: &impl Serialize) -> Failure {
        serde_json::to_string(data).map_or_else(|error| unwritable(&error), |data| Failure { data })
    }

    /// The class of a failure in CometD's form, for programs. Other data is of the class `failed`.
    pub(crate) fn class(&self) -> String {
        let class = bayeux::RawJson::trusted(&self.data).member("class").and_then(bayeux::RawJson::text);
        class.map_or_else(|| "failed".into(), |class| class.into_owned())
    }

    /// The data as the caller gets it.
    pub fn data(&self) -> &str {
        &self.data
    }
}

/// A value that a service may return: `()` (nothing but the acknowledgement), [`Data`], [`Raw`], [`Failure`], [`Actions`],
/// a reply with actions after it, and options and results of these.
pub trait IntoReply {
    /// The reply and everything else that is to be done, in this order.
    fn into_reply(self) -> Actions;
}

impl IntoReply for Actions {
    fn into_reply(self) -> Actions {
        self
    }
}

impl IntoReply for () {
    fn into_reply(self) -> Actions {
        Actions::default()
    }
}

impl<T: Serialize> IntoReply for Data<T> {
    fn into_reply(self) -> Actions {
        serde_json::to_string(&self.0).map_err(|error| unwritable(&error)).map(reply).into_reply()
    }
}

impl IntoReply for Raw {
    fn into_reply(self) -> Actions {
        if bayeux::json::validate(&self.0, bayeux::Limits::default().json_depth_max).is_err() {
            tracing::error!("the raw reply of a service is no JSON");
            return Failure::new("internal", "the reply could not be written").into_reply();
        }
        reply(self.0)
    }
}

impl IntoReply for Failure {
    fn into_reply(self) -> Actions {
        let mut actions = Actions::default();
        actions.fail(self.data);
        actions
    }
}

impl<R: IntoReply> IntoReply for Option<R> {
    fn into_reply(self) -> Actions {
        self.map_or_else(Actions::default, IntoReply::into_reply)
    }
}

impl<R: IntoReply, E: IntoReply> IntoReply for Result<R, E> {
    fn into_reply(self) -> Actions {
        match self {
            Ok(reply) => reply.into_reply(),
            Err(failure) => failure.into_reply(),
        }
    }
}

impl<R: IntoReply> IntoReply for (R, Actions) {
    fn into_reply(self) -> Actions {
        let mut actions = self.0.into_reply();
        actions.append(self.1);
        actions
    }
}

fn reply(data: String) -> Actions {
    let mut actions = Actions::default();
    actions.reply(data);
    actions
}

/// The reply if the data of a reply cannot be written as JSON. Its type is at fault, so the log has the reason.
fn unwritable(error: &serde_json::Error) -> Failure {
    tracing::error!(%error, "the reply of a service is no JSON");
    Failure::new("internal", "the reply could not be written")
}
