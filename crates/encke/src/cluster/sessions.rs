//! Sessions on their way between nodes, and in records, as bytes: their state as JSON, and behind it their messages as they are.
//!
//! ```text
//!   length │ JSON: policy, session without its id │ length │ message │ length │ message │ …
//! ```

use std::sync::Arc;

use bytes::Bytes;
use encke_cluster::{Past, RecordView, SessionsSettings, Subjects};
use encke_core::{Id, NodeTag, Policy, Saved, SavedSession, SessionTerms, SessionsMemory, Settings};
use serde::{Deserialize, Serialize};

use super::commands;
use super::settings::ClusterSettings;
use super::store::StoredSession;

/// The state of one session. Its id is not among it: records show no id, and who asks for a session knows it.
#[derive(Serialize, Deserialize)]
struct State {
    policy: Policy,
    session: SavedSession,
    /// The times that it was taken over from a record.
    #[serde(default)]
    take_overs: u32,
    /// The mark of its user that its node knew when it has connected.
    #[serde(default, skip_serializing_if = "commands::is_none")]
    user_mark: u64,
}

/// The settings of the sessions of a node.
pub(crate) fn settings(
    cluster: &ClusterSettings,
    server: &Settings,
    subjects: Subjects,
    (node, shards): (NodeTag, usize),
    memory: Arc<SessionsMemory>,
) -> SessionsSettings {
    SessionsSettings {
        node,
        subjects,
        bucket: format!("encke-{}-sessions", cluster.name),
        shards,
        forwarded_max: cluster.forwarded_max,
        forwarded_bytes_max: cluster.forwarded_bytes_max,
        // Half of what stops the reading of heavy messages on a shard, and at least two messages.
        served_bytes_max: (server.mailbox_bytes_max / 2).max(2 * server.message_bytes_max),
        message_bytes_max: server.message_bytes_max,
        hold_ms: server.timeout_ms,
        records_per_s_max: cluster.session_records_per_s_max,
        record_ttl_ms: cluster.session_record_ttl_ms,
        reply_delay_max_ms: cluster.reply_delay_max_ms,
        return_delay_ms: cluster.return_delay_ms,
        encode,
        decode,
        memory,
        responses_bytes_max: server.responses_bytes_max,
    }
}

/// A record with those of its fields that a store shows.
pub(crate) fn stored(record: Bytes, settings: &Settings) -> StoredSession {
    let mut stored = StoredSession { record, ..StoredSession::default() };
    let Some(RecordView::Live { node, state }) = RecordView::of(&stored.record) else { return stored };
    (stored.is_valid, stored.node) = (true, node.as_str().into());
    let session = decode(&state).and_then(|(saved, _)| saved.sessions.into_iter().next());
    stored.idle_max_ms = idle_max_ms(session.as_ref(), settings);
    if let Some(SavedSession { identity, attributes, .. }) = session {
        stored.user = identity.map(|identity| identity.user.into()).unwrap_or_default();
        stored.attributes = attributes.map(|attributes| attributes.to_json()).unwrap_or_default();
    }
    stored
}

/// The longest time for which the client of a session may stay away, in milliseconds.
fn idle_max_ms(session: Option<&SavedSession>, settings: &Settings) -> u64 {
    let of_token = session.and_then(|session| session.identity.as_ref()?.terms.as_deref());
    let of_application = session.and_then(|session| session.terms.as_ref());
    let terms = |of: fn(&SessionTerms) -> Option<u64>| of_application.and_then(of).or_else(|| of_token.and_then(of));
    let of_client = |of: fn(&SavedSession) -> Option<u32>| session.and_then(of).map(u64::from);
    let timeout_ms = terms(|terms| terms.timeout_ms).unwrap_or(settings.timeout_ms);
    let interval_ms = of_client(|session| session.interval_ms).max(terms(|terms| terms.interval_ms));
    let max_interval_ms = of_client(|session| session.max_interval_ms).max(terms(|terms| terms.max_interval_ms));
    let pauses_ms = interval_ms.unwrap_or(settings.interval_ms) + max_interval_ms.unwrap_or(settings.max_interval_ms);
    timeout_ms.saturating_add(pauses_ms)
}

/// Writes one session, and the times that it was taken over.
fn encode(saved: &Saved, Past { take_overs, user_mark }: Past) -> Vec<u8> {
    let Some(session) = saved.sessions.first() else { return Vec::new() };
    let session = SavedSession { id: no_id(), ..session.clone() };
    let state = State { policy: saved.policy, session, take_overs, user_mark };
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
fn decode(mut bytes: &[u8]) -> Option<(Saved, Past)> {
    let State { policy, session, take_overs, user_mark } = serde_json::from_slice(part(&mut bytes)?).ok()?;
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        messages.push(str::from_utf8(part(&mut bytes)?).ok()?.into());
    }
    Some((Saved { policy, messages, sessions: vec![session] }, Past { take_overs, user_mark }))
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
    use encke_core::{Attributes, Identity, SavedUnacked, Span, Stage};

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
            buckets_ms: [7, 0, 2_000],
            stage: Stage::Connected,
            interval_ms: Some(7),
            max_interval_ms: None,
            subscriptions: vec!["/a/*".into(), "/b".into()],
            intervals: vec![(1, 500)],
            by_server: vec![0],
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
        let past = Past { take_overs: 3, user_mark: u64::MAX };
        let bytes = encode(&saved, past);
        let id = saved.sessions[0].id;
        assert!(!String::from_utf8_lossy(&bytes).contains(id.as_str()));
        let (mut back, read) = decode(&bytes).expect("a session");
        back.sessions[0].id = id;
        assert_eq!((back, read), (saved, past));
    }

    #[test]
    fn a_store_shows_the_user_the_attributes_and_how_long_the_client_may_stay_away() {
        let settings = Settings { timeout_ms: 30, interval_ms: 5, max_interval_ms: 10, ..Settings::default() };
        let shown = |change: fn(&mut SavedSession)| {
            let mut saved = saved();
            change(&mut saved.sessions[0]);
            // A live record: its version, its kind, its node.
            let record = [&b"\x01\x01abcd"[..], &encode(&saved, Past::default())].concat();
            stored(record.into(), &settings)
        };
        let plain = shown(|_| {});
        assert_eq!((plain.is_valid, &*plain.node, &*plain.user, &*plain.attributes), (true, "abcd", "ann", ""));
        assert_eq!(plain.idle_max_ms, 30 + 7 + 10);
        let rich = shown(|session| {
            session.attributes = Some(Attributes::of([("cart", "[1]")]));
            session.terms = Some(SessionTerms { max_interval_ms: Some(900), ..SessionTerms::default() });
        });
        assert_eq!((&*rich.attributes, rich.idle_max_ms), ("{\"cart\":[1]}", 30 + 7 + 900));
        let empty = stored(Bytes::from_static(b"\x01\x01abcd"), &settings);
        assert_eq!((empty.is_valid, empty.idle_max_ms), (true, 30 + 5 + 10), "a state that was too large");
        assert_eq!(stored(RecordView::ended(), &settings).node, "");
    }

    #[test]
    fn a_record_without_what_older_nodes_do_not_know_has_no_field_for_it() {
        let mut saved = saved();
        let session = &mut saved.sessions[0];
        (session.by_server, session.buckets_ms) = (Vec::new(), [0; 3]);
        let bytes = encode(&saved, Past::default());
        let text = String::from_utf8_lossy(&bytes);
        assert!(!["by_server", "buckets_ms", "user_mark"].iter().any(|field| text.contains(field)), "{text}");
        let (back, _) = decode(&bytes).expect("a session");
        assert!(back.sessions[0].by_server.is_empty() && back.sessions[0].buckets_ms == [0; 3]);
    }

    #[test]
    fn what_is_cut_or_no_session_is_refused() {
        let bytes = encode(&saved(), Past::default());
        assert!(decode(&[]).is_none() && decode(b"\x02\0\0\0{}").is_none());
        let state = u32::from_le_bytes(*bytes.first_chunk().expect("a length")) as usize + LENGTH_BYTES;
        let whole = [state, state + LENGTH_BYTES + 10, bytes.len()];
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length]).is_some(), whole.contains(&length), "{length}");
        }
    }
}
