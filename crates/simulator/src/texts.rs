//! The texts of the server, as clients read them.

use bayeux::ext::PositionForm;
use bayeux::json::{decode_string, integer, member};
use encke_core::Format;

use crate::script::Transport;

/// The number of a publication: its data begin with it.
pub fn number_of(data: &str) -> Option<usize> {
    let rest = data.strip_prefix("{\"k\":")?;
    rest[..rest.find(',')?].parse().ok()
}

/// The form in which a client has its positions, if it replays. Half of them are clients of Salesforce.
pub fn form_of(client: usize) -> PositionForm {
    if matches!(client % 4, 1 | 2) { PositionForm::Mixed } else { PositionForm::Ext }
}

/// Splits data with a mixed position into the published data and the offset of the message.
pub fn split_position(data: &str) -> Option<(String, u64)> {
    let event = member(data, "event")?;
    let id = member(event, "replayId").and_then(integer)?;
    let rest = data.strip_prefix("{\"event\":")?.strip_prefix(event)?.strip_prefix(',')?;
    Some((format!("{{{rest}"), u64::try_from(id).ok()?))
}

/// A member that is a string; empty if it is missing or not a string.
pub(crate) fn field(raw: &str, name: &str) -> String {
    member(raw, name).and_then(decode_string).map(String::from).unwrap_or_default()
}

/// The JSON in the body of a response.
pub(crate) fn json_of(transport: Transport, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    match transport {
        Transport::CallbackPolling => {
            let inner = text.strip_prefix("/**/cb(").and_then(|text| text.strip_suffix(");"));
            inner.unwrap_or(&text).to_owned()
        }
        _ => text.into_owned(),
    }
}

/// The batches that a stream has whole. Their text is removed. An error for a text that nobody sends.
pub(crate) fn read_stream(text: &mut Vec<u8>, format: Format) -> Vec<Result<String, String>> {
    let end: &[u8] = if format == Format::Events { b"\n\n" } else { b"\n" };
    let mut found = Vec::new();
    while let Some(at) = text.windows(end.len()).position(|window| window == end) {
        let rest = text.split_off(at + end.len());
        let whole = std::mem::replace(text, rest);
        let whole = String::from_utf8_lossy(&whole[..at]).into_owned();
        if whole.is_empty() || whole == ":" || whole.starts_with("retry: ") {
            continue;
        }
        let batch = if format == Format::Events { whole.strip_prefix("data: ") } else { Some(&*whole) };
        found.push(batch.map(String::from).ok_or_else(|| format!("an event that nobody sends: {whole}")));
    }
    found
}

/// True if a message was refused because its session is about to end, or its credentials have ended.
pub(crate) fn is_ending(raw: &str) -> bool {
    let error = field(raw, "error");
    ["403:session_ending", "403:token_"].iter().any(|start| error.starts_with(start))
}

/// True if a message was refused by a limit, with its error.
pub(crate) fn is_over_limit(raw: &str) -> bool {
    let error = field(raw, "error");
    let limits = ["429:", "413:user_", "413:all_", "413:channel_"];
    limits.iter().any(|limit| error.starts_with(limit))
}

/// True if a handshake was refused because of its token.
pub(crate) fn is_token_refused(raw: &str) -> bool {
    field(raw, "error").starts_with("401:token_")
}

/// True for the data of messages about credentials.
pub(crate) fn is_about_credentials(data: &str) -> bool {
    let starts = ["{\"expires_in_ms\":", "{\"class\":\"refresh_denied\"", "{\"class\":\"rate_exceeded\""];
    starts.iter().any(|start| data.starts_with(start))
}

/// True if a message was refused because the application did not decide.
pub(crate) fn is_undecided(raw: &str) -> bool {
    field(raw, "error").starts_with("503::decision_")
}

/// True for the data of an answer that did not come.
pub(crate) fn is_failed_call(data: &str) -> bool {
    data.starts_with("{\"class\":\"call_")
}

/// The data published there.
pub const OBITUARY: &str = "{\"gone\":1}";
