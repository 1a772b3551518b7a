//! Publishing. All publications of a request go to the shards that own their channels, as those of handles do, so that
//! two requests that follow each other publish in this order, on whichever connections they come.

use std::collections::HashMap;
use std::time::Duration;

use bayeux::{ChannelName, Publication, RawJson, ext};
use bytes::Bytes;
use encke_core::{ServerEntry, SessionOwner};
use foldhash::fast::RandomState;

use super::call::{Answer, Call, going_away};
use super::input::{self, broadcast_channel};
use super::problem::{Kind, Problem};
use super::types::{BatchMessage, ChannelPosition, Publish, PublishBatch, Published};
use crate::idempotency::{Known, sum_of};
use crate::net::published::{InBurst, Marks, Positions};
use crate::net::replicas::ReservedKey;

/// A checked publication: its channel, its data, and true if it is lazy.
type Checked<'a> = (ChannelName<'a>, RawJson<'a>, bool);

pub(super) async fn one(call: &Call<'_>) -> Result<Answer, Problem> {
    let Publish { channel, data, lazy, idempotency_key } = input::json(call.body)?;
    let limits = call.limits();
    let channel = broadcast_channel(&channel, &limits).map_err(|detail| Problem::field("/channel", detail))?;
    let data = call.data(data.get(), &limits).map_err(|detail| Problem::field("/data", detail))?;
    publish(call, idempotency_key, &[(channel, data, lazy)]).await
}

pub(super) async fn batch(call: &Call<'_>) -> Result<Answer, Problem> {
    let PublishBatch { messages, idempotency_key } = input::json(call.body)?;
    let limits = call.limits();
    let refused = |pointer: String, detail: String| Err(Problem::field(&pointer, detail));
    if messages.is_empty() {
        return refused("/messages".into(), "it is empty: one message or more".into());
    }
    let publications_max = call.settings.batch_messages_max;
    let count: usize = messages.iter().map(|message| message.channels.len()).sum();
    if count > publications_max {
        let detail = format!("{count} publications: at most {publications_max} (setting batch_messages_max)");
        return refused("/messages".into(), detail);
    }
    // The shards get a copy for each channel.
    let bytes: usize = messages.iter().map(|message| message.channels.len() * message.data.get().len()).sum();
    let bytes_max = call.settings.mailbox_bytes_max.max(call.settings.message_bytes_max);
    if bytes > bytes_max {
        let detail = format!("{bytes} bytes of data on all channels: at most {bytes_max} (setting mailbox_bytes_max)");
        return refused("/messages".into(), detail);
    }
    let mut checked = Vec::with_capacity(count);
    for (index, BatchMessage { channels, data, lazy }) in messages.iter().enumerate() {
        if channels.is_empty() {
            return refused(format!("/messages/{index}/channels"), "it is empty: one channel or more".into());
        }
        let data = match call.data(data.get(), &limits) {
            Ok(data) => data,
            Err(detail) => return refused(format!("/messages/{index}/data"), detail),
        };
        for (at, channel) in channels.iter().enumerate() {
            match broadcast_channel(&channel.0, &limits) {
                Ok(channel) => checked.push((channel, data, *lazy)),
                Err(detail) => return refused(format!("/messages/{index}/channels/{at}"), detail),
            }
        }
    }
    publish(call, idempotency_key, &checked).await
}

impl Call<'_> {
    /// Looks up the idempotency key of this request, if it has one.
    async fn reserve(&self, field: Option<String>) -> Result<Option<Known<ReservedKey>>, Problem> {
        let header = match self.headers.get_all("idempotency-key").iter().map(|key| key.to_str()).collect::<Vec<_>>()[..]
        {
            [] => None,
            [Ok(key)] => Some(key),
            _ => return Err(invalid_key("one key of visible ASCII characters")),
        };
        let key = match (header, field.as_deref()) {
            (Some(one), Some(other)) if one != other => return Err(invalid_key("the header and the field differ")),
            (one, other) => one.or(other),
        };
        let Some(key) = key else { return Ok(None) };
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(invalid_key("1 to 255 visible ASCII characters"));
        }
        let key = sum_of(&[self.key_name.as_bytes(), self.path.as_bytes(), key.as_bytes()]);
        let server = self.connection.node.server();
        Ok(Some(server.reserve_key((key, sum_of(&[self.body]))).await))
    }
}

fn invalid_key(detail: &'static str) -> Problem {
    Problem::new(Kind::INVALID, format!("Idempotency-Key: {detail}"))
}

/// Publishes, unless the request has been answered before.
async fn publish(call: &Call<'_>, key: Option<String>, publications: &[Checked<'_>]) -> Result<Answer, Problem> {
    let node = &call.connection.node;
    let reservation = match call.reserve(key).await? {
        None => None,
        Some(Known::New(reservation)) => Some(reservation),
        Some(Known::Answered((status, body))) => {
            node.shard().metrics().api_repeated.add(1);
            return Ok(Answer { status, body, is_repeated: true, compresses: false });
        }
        Some(Known::OtherRequest) => {
            return Err(Problem::new(Kind::KEY_REUSED, "the first request with this Idempotency-Key had another body"));
        }
        Some(Known::InProgress) => {
            return Err(Problem::new(Kind::IN_PROGRESS, "a request with this Idempotency-Key is in progress"));
        }
    };
    call.wait_for_turn().await?;
    let bursts = publish_now(call, publications)?;
    let mut usage = call.connection.usage().get();
    usage.add(node.now(), call.body.len() as u64);
    call.connection.usage().set(usage);
    let published = publications.len() as u64;
    let Some(reservation) = reservation else { return answer(published, bursts).await };
    if bursts.is_empty() {
        return complete(reservation, answer(published, bursts).await).await;
    }
    // The publications are on their way. If the client leaves before the answer, a later request must find it.
    let whole = tokio::task::spawn_local(async move { complete(reservation, answer(published, bursts).await).await });
    whole.await.map_err(|_| going_away())?
}

/// Remembers an answer, also one that the messages were not stored: they were delivered. A request of which nothing was published may
/// be repeated.
async fn complete(reservation: ReservedKey, answer: Result<Answer, Problem>) -> Result<Answer, Problem> {
    if answer.as_ref().is_err_and(Problem::is_busy) {
        return answer;
    }
    let answer = answer.unwrap_or_else(|problem| {
        let body = Bytes::from(problem.body());
        Answer { status: problem.status(), body, is_repeated: false, compresses: false }
    });
    reservation.complete((answer.status, answer.body.clone())).await;
    Ok(answer)
}

/// Sends publications to the shards that own their channels. Returns those that get a position, with their channels.
fn publish_now(call: &Call<'_>, publications: &[Checked<'_>]) -> Result<Vec<(String, InBurst)>, Problem> {
    let node = &call.connection.node;
    let shard = node.shard();
    let server_shared = &node.server();
    let timestamp = call.settings.timestamps.then(|| format!("\"{}\"", ext::timestamp(node.now().wall_ms as i64)));
    let timestamp = timestamp.as_deref().map(RawJson::trusted);
    let mut positions = Positions::new(&server_shared.outcomes);
    // Each key has its own share of what waits for the other nodes of a cluster.
    let publisher = Some(SessionOwner::of(server_shared.shared().limits.buckets.key(("api key", call.key_name))));
    for (index, (channel, data, is_lazy)) in publications.iter().enumerate() {
        let message = Publication { channel: channel.as_str(), data: Some(*data), timestamp, ..Publication::default() };
        let wanted = shard.has_history(*channel).then_some((&mut positions, index));
        let marks = Marks { publisher, is_lazy: *is_lazy };
        if !server_shared.publish(&message, marks, wanted, ServerEntry::ApiPublish.may()) {
            return Err(going_away());
        }
    }
    let with_channel = |burst: InBurst| {
        let channel = publications.get(burst.publication).map_or("", |(channel, ..)| channel.as_str());
        (channel.to_owned(), burst)
    };
    Ok(positions.bursts.into_iter().map(with_channel).collect())
}

/// Waits until the publications have their positions and are stored.
async fn answer(published: u64, bursts: Vec<(String, InBurst)>) -> Result<Answer, Problem> {
    let mut positions: Vec<ChannelPosition> = Vec::with_capacity(bursts.len());
    let mut known: HashMap<String, usize, RandomState> = HashMap::default();
    let (mut is_stored, mut is_refused) = (true, false);
    for (channel, InBurst { last, outcome, .. }) in bursts {
        let outcome = tokio::time::timeout(OUTCOME_TIMEOUT, outcome).await;
        let Ok(Ok(outcome)) = outcome else {
            return Err(Problem::new(Kind::NOT_STORED, "published; the server does not know yet if it is stored"));
        };
        is_stored &= outcome.is_persisted;
        is_refused |= outcome.is_refused();
        let Some((epoch, first)) = outcome.first else { continue };
        let position = ChannelPosition { channel, epoch: (*epoch).into(), offset: first + u64::from(last) };
        match known.get(&position.channel) {
            Some(at) => positions[*at] = position,
            None => {
                known.insert(position.channel.clone(), positions.len());
                positions.push(position);
            }
        }
    }
    if is_stored {
        return Ok(Answer::new(&Published { published, positions }));
    }
    if is_refused {
        let kind = if published == 1 { Kind::BUSY } else { Kind::PARTLY };
        let detail = "too much waits for the other nodes of the cluster, or the message is too large for it";
        return Err(Problem::new(kind, detail));
    }
    Err(Problem::new(Kind::NOT_STORED, "published; a history could not store it"))
}

/// The time for which a request waits until its publications are stored.
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum length of an idempotency key, in bytes.
const KEY_BYTES_MAX: usize = 255;
