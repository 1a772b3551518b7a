//! The attributes of a session.

use encke_core::{AttributeChange, AttributeError};
use serde_json::value::RawValue;

use crate::cluster::commands::{NodeCommand, NodeReply};
use crate::error::AttributeChangeError;

use super::call::{Answer, Call, going_away};
use super::input;
use super::problem::{Kind, Problem};
use super::sessions::unknown;
use super::types::{AttributesVersion, OFFSET_MAX, SessionAttributes, SetAttribute};

pub(super) async fn all(call: &Call<'_>) -> Result<Answer, Problem> {
    let command = |session| NodeCommand::Attributes { session };
    let found = call.connection.node.server().at_session(call.id, command).await.ok_or_else(going_away)?;
    let NodeReply::Attributes(own) = found.of_session().map_err(unknown)? else { return Err(going_away()) };
    // The values were checked when they were set.
    let raw = |value: &str| RawValue::from_string(value.into()).unwrap_or_else(|_| RawValue::NULL.to_owned());
    let attributes = own.iter().map(|(name, value)| (name.into(), raw(value))).collect();
    Ok(Answer::new(&SessionAttributes { version: own.version(), attributes }))
}

pub(super) async fn set(call: &Call<'_>) -> Result<Answer, Problem> {
    let SetAttribute { name, value, version } = input::json(call.body)?;
    let value = call.data(value.get(), &call.limits()).map_err(|detail| Problem::field("/value", detail))?;
    let change = AttributeChange::set(&name, value.as_str());
    change_attribute(call, change, version, |error| Problem::field("/name", error.to_string())).await
}

pub(super) async fn remove(call: &Call<'_>) -> Result<Answer, Problem> {
    let change = AttributeChange::remove(call.query.required("name")?);
    let version = call.query.number("version", 0..=OFFSET_MAX)?;
    change_attribute(call, change, version, |error| Problem::parameter("name", error.to_string())).await
}

/// Makes a change, and waits for the outcome.
async fn change_attribute(
    call: &Call<'_>,
    change: AttributeChange,
    version: Option<u64>,
    wrong: impl FnOnce(AttributeError) -> Problem,
) -> Result<Answer, Problem> {
    change.check(call.settings.json_depth_max).map_err(wrong)?;
    if change.bytes() > call.settings.session_attributes_bytes_max {
        return Err(Problem::new(Kind::FULL, AttributeChangeError::Full.to_string()));
    }
    let change = version.into_iter().fold(change, AttributeChange::if_version);
    let command = |session| NodeCommand::ChangeAttribute { session, change: change.clone() };
    let changed = call.connection.node.server().at_session(call.id, command).await.ok_or_else(going_away)?;
    let problem = |kind, error: AttributeChangeError| Err(Problem::new(kind, error.to_string()));
    match changed.of_session().map_err(unknown)? {
        NodeReply::Version(version) => Ok(Answer::new(&AttributesVersion { version })),
        NodeReply::Conflict(version) => problem(Kind::CHANGED, AttributeChangeError::Conflict(version)),
        NodeReply::Full => problem(Kind::FULL, AttributeChangeError::Full),
        _ => Err(going_away()),
    }
}
