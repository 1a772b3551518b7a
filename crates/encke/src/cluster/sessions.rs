//! Sessions on their way between nodes, and in records, as bytes: their state as JSON, and behind it their messages as they are.
//!
//! ```text
//!   length │ JSON: policy, session without its id │ length │ message │ length │ message │ …
//! ```

use encke_cluster::{SessionsSettings, Subjects};
use encke_core::{Id, NodeTag, Policy, Saved, SavedSession, Settings};
use serde::{Deserialize, Serialize};

use super::settings::ClusterSettings;

/// The state of one session. Its id is not among it: records show no id, and who asks for a session knows it.
#[derive(Serialize, Deserialize)]
struct State {
    policy: Policy,
    session: SavedSession,
}

/// The settings of the sessions of a node.
pub(crate) fn settings(
    cluster: &ClusterSettings,
    server: &Settings,
    subjects: Subjects,
    (node, shards): (NodeTag, usize),
) -> SessionsSettings {
    SessionsSettings {
        node,
        subjects,
        bucket: format!("encke-{}-sessions", cluster.name),
        shards,
        forwarded_max: cluster.forwarded_max,
        forwarded_bytes_max: cluster.forwarded_bytes_max,
        message_bytes_max: server.message_bytes_max,
        hold_ms: server.timeout_ms,
        records_per_s_max: cluster.session_records_per_s_max,
        record_ttl_ms: cluster.session_record_ttl_ms,
        reply_delay_max_ms: cluster.reply_delay_max_ms,
        return_delay_ms: cluster.return_delay_ms,
        encode,
        decode,
    }
}

/// Writes one session.
fn encode(saved: &Saved) -> Vec<u8> {
    let Some(session) = saved.sessions.first() else { return Vec::new() };
    let state = State { policy: saved.policy, session: SavedSession { id: no_id(), ..session.clone() } };
    // Maps with other keys than texts would fail, and there are none.
    let state = serde_json::to_vec(&state).unwrap_or_default();
    let mut bytes = Vec::with_capacity(state.len() + LENGTH_BYTES + saved.bytes());
    for part in std::iter::once(&state[..]).chain(saved.messages.iter().map(|message| message.as_bytes())) {
        bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
        bytes.extend_from_slice(part);
    }
    bytes
}

/// Reads one session. None if this is none.
fn decode(mut bytes: &[u8]) -> Option<Saved> {
    let State { policy, session } = serde_json::from_slice(part(&mut bytes)?).ok()?;
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        messages.push(str::from_utf8(part(&mut bytes)?).ok()?.into());
    }
    Some(Saved { policy, messages, sessions: vec![session] })
}

/// The next part with its length.
fn part<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *bytes = rest;
    Some(part)
}

/// The id that stands for none.
fn no_id() -> Id {
    Id::new(0, &mut (Box::new(|bytes: &mut [u8]| bytes.fill(0)) as encke_core::Entropy))
}

const LENGTH_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use encke_core::{Identity, SavedUnacked, Span, Stage};

    use super::*;
    use crate::entropy::kernel_entropy;

    fn saved() -> Saved {
        let session = SavedSession {
            id: Id::new(3, &mut kernel_entropy()),
            browser: Some(Id::new(0, &mut kernel_entropy())),
            identity: Some(Identity::of_user("ann")),
            terms: None,
            attributes: None,
            policy: None,
            stage: Stage::Connected,
            interval_ms: Some(7),
            max_interval_ms: None,
            subscriptions: vec!["/a/*".into(), "/b".into()],
            intervals: vec![(1, 500)],
            waiting: vec![Span(0, 2)],
            ack: Some(SavedUnacked { closed: 9, batches: Vec::new() }),
            replay: None,
        };
        let policy = Policy::default().decided_by("/a");
        Saved { policy, messages: vec!["{\"data\":1}".into(), "{\"data\":\"é\"}".into()], sessions: vec![session] }
    }

    #[test]
    fn a_session_reads_back_without_its_id() {
        let saved = saved();
        let bytes = encode(&saved);
        let id = saved.sessions[0].id;
        assert!(!String::from_utf8_lossy(&bytes).contains(id.as_str()));
        let mut back = decode(&bytes).expect("a session");
        back.sessions[0].id = id;
        assert_eq!(back, saved);
    }

    #[test]
    fn what_is_cut_or_no_session_is_refused() {
        let bytes = encode(&saved());
        assert!(decode(&[]).is_none() && decode(b"\x02\0\0\0{}").is_none());
        let state = u32::from_le_bytes(*bytes.first_chunk().expect("a length")) as usize + LENGTH_BYTES;
        let whole = [state, state + LENGTH_BYTES + 10, bytes.len()];
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length]).is_some(), whole.contains(&length), "{length}");
        }
    }
}
