//! The curves of the core alone.

use std::hint::black_box;

use encke_core::{Answer, Application, ChannelRule, Handshake, Identity, Refusal, Settings, SocketKey};

use super::floor::{FanOut, Ring};
use crate::lone_shard::{LoneShard, Session, subscription};

/// Does one unit of work.
pub type Unit = Box<dyn FnMut()>;

/// Work whose cost is measured at several sizes.
#[derive(Debug)]
pub struct Curve {
    /// The quantity that grows.
    pub over: &'static str,
    /// The unit of work.
    pub work: &'static str,
    /// The floor in a few words.
    pub beside: &'static str,
    /// The sizes.
    pub sizes: &'static [u32],
    /// Makes a core of this size; none if it does not do what is asked of it.
    pub encke: fn(u32) -> Option<Unit>,
    /// Makes the floor of this size.
    pub floor: fn(u32) -> Unit,
}

/// All of them.
pub const CURVES: &[Curve] = &[
    Curve {
        over: "channels, a subscriber each",
        work: "a publication on one of them",
        beside: "a map of channels, and a copy",
        sizes: &[1, 100, 10_000, 1_000_000],
        encke: |size| publications(plain(), size, |index| format!("/g/{index}"), |index| format!("/g/{index}")),
        floor: fan_out,
    },
    Curve {
        over: "patterns, a subscriber each",
        work: "a publication that one of them matches",
        beside: "a map of channels, and a copy",
        sizes: &[1, 100, 10_000],
        encke: |size| publications(plain(), size, |index| format!("/g/{index}/x"), |index| format!("/g/{index}/*")),
        floor: fan_out,
    },
    Curve {
        over: "rules of channels",
        work: "a publication to which one of them applies",
        beside: "a map of channels, and a copy",
        sizes: &[1, 100, 10_000],
        encke: |size| {
            let rule = |index| ChannelRule { pattern: format!("/g/{index}/*"), ..ChannelRule::default() };
            let settings = Settings { channels: (0..size).map(rule).collect(), ..plain() };
            publications(settings, size, |index| format!("/g/{index}/x"), |index| format!("/g/{index}/x"))
        },
        floor: fan_out,
    },
    Curve {
        over: "members of a channel",
        work: "a subscribe and an unsubscribe",
        beside: "a push to a list, and a removal",
        sizes: &[1, 100, 10_000],
        encke: joins,
        floor: |size| {
            let mut list: Vec<u32> = (0..size).collect();
            Box::new(move || {
                list.push(black_box(7));
                black_box(list.swap_remove(list.len() / 2));
            })
        },
    },
    Curve {
        over: "sessions of other users, with separate rights",
        work: "a publication by one of them",
        beside: "a map of channels, and a copy",
        sizes: &[1, 100, 10_000, 100_000],
        encke: identities,
        floor: fan_out,
    },
    Curve {
        over: "messages in a history",
        work: "a publication",
        beside: "a ring of texts",
        sizes: &[1, 100, 10_000, 1_000_000],
        encke: appends,
        floor: |size| {
            let text = publication("/g/0", "0123456789abcdefghijklmnop");
            let (mut ring, mut fan_out) = (Ring::new(size, &text), FanOut::new(std::iter::empty(), 1));
            Box::new(move || {
                ring.push(&text);
                fan_out.publish(&text);
            })
        },
    },
    Curve {
        over: "messages in a history, of which the last 100 are sent again",
        work: "a subscribe at a position",
        beside: "a copy of 100 texts",
        sizes: &[100, 10_000, 1_000_000],
        encke: replays,
        floor: |size| {
            let ring = Ring::new(size, &publication("/g/0", "0123456789abcdefghijklmnop"));
            Box::new(move || ring.last(REPLAYED as usize))
        },
    },
];

/// Settings without limits that these sizes would reach.
fn plain() -> Settings {
    Settings {
        channels_max: 4_000_000,
        handshakes_per_s_max: 0,
        subscriptions_max: 1_000_000,
        sessions_bytes_max: 64 << 30,
        history_bytes_max: 16 << 30,
        history_channels_max: 1_000_000,
        ..Settings::default()
    }
}

/// Publications on `size` channels in a fixed order that jumps; `subscriptions` names what is subscribed to for each.
fn publications(
    settings: Settings,
    size: u32,
    channel: fn(u32) -> String,
    subscriptions: fn(u32) -> String,
) -> Option<Unit> {
    let mut shard = LoneShard::new(settings);
    let publisher = shard.open()?;
    let subscribers: Option<Vec<Session>> = (0..SUBSCRIBERS.min(size)).map(|_| shard.open()).collect();
    let subscribers = subscribers?;
    for (index, session) in (0..size).zip(subscribers.iter().cycle()) {
        if !shard.subscribe(session, &subscriptions(index), "").contains(r#""successful":true"#) {
            return None;
        }
    }
    let texts = texts(size, |index| publication(&channel(index), &publisher.id));
    sends(shard, texts.into_iter().map(|text| (publisher.socket, text)).collect())
}

/// Sends one of these messages, in turn. None if the first one reaches no subscriber.
fn sends(mut shard: LoneShard, messages: Vec<(SocketKey, String)>) -> Option<Unit> {
    let mut next = (0..messages.len()).cycle();
    let mut unit = move || {
        if let Some((socket, text)) = next.next().map(|index| &messages[index]) {
            shard.send(*socket, text);
        }
        shard.turn();
        shard.take_written()
    };
    // The reply alone has fewer bytes.
    (unit() > 2 * DATA.len()).then(|| boxed(unit))
}

/// The floor of [`publications`].
fn fan_out(size: u32) -> Unit {
    let mut floor = FanOut::new((0..size).map(|index| format!("/g/{index}")), SUBSCRIBERS.min(size));
    let texts = texts(size, |index| publication(&format!("/g/{index}"), "0123456789abcdefghijklmnop"));
    let mut next = (0..texts.len()).cycle();
    Box::new(move || floor.publish(next.next().map_or("", |index| &texts[index])))
}

/// A session that joins and leaves a channel of `size` others.
fn joins(size: u32) -> Option<Unit> {
    let mut shard = LoneShard::new(plain());
    for _ in 0..size {
        let member = shard.open()?;
        shard.subscribe(&member, "/g/0", "");
    }
    let session = shard.open()?;
    let messages = ["subscribe", "unsubscribe"].map(|what| subscription(what, &session, "/g/0", ""));
    Some(Box::new(move || {
        for message in &messages {
            shard.send(session.socket, message);
            shard.turn();
        }
    }))
}

/// Sessions, each of a user who may publish on a separate channel.
fn identities(size: u32) -> Option<Unit> {
    let mut shard = LoneShard::with_application(plain(), Box::new(Users));
    let sessions: Option<Vec<Session>> =
        (0..size).map(|index| shard.open_with(&format!(r#"{{"user":"{index}"}}"#))).collect();
    let sessions = sessions?;
    for (index, session) in sessions.iter().enumerate() {
        shard.subscribe(session, &format!("/g/{index}"), "");
    }
    let of_session = |index: u32| {
        let session = &sessions[index as usize];
        (session.socket, publication(&format!("/g/{index}"), &session.id))
    };
    let messages = order(size).map(of_session).collect();
    sends(shard, messages)
}

/// A user for each session: its name is the `user` of the handshake's `ext`.
struct Users;

impl Application for Users {
    fn handshake(&self, handshake: &Handshake<'_>) -> Answer<Result<Option<Identity>, Refusal>> {
        let user = handshake.ext.and_then(|ext| bayeux::json::member(ext, "user")).unwrap_or_default();
        let user = user.trim_matches('"');
        let channel = format!("/g/{user}").into_boxed_str();
        let own = encke_core::Patterns::new([channel]).ok();
        Answer::Now(Ok(Some(Identity { subscribe: own.clone(), publish: own, ..Identity::of_user(user) })))
    }
}

/// A channel whose history has `size` messages.
fn history(size: u32) -> Option<(LoneShard, Session, String)> {
    let rule = ChannelRule { pattern: "/**".into(), history_messages: size as usize, ..ChannelRule::default() };
    let mut shard = LoneShard::new(Settings { channels: vec![rule], ..plain() });
    shard.replays = true;
    let publisher = shard.open()?;
    let text = publication("/g/0", &publisher.id);
    for _ in 0..size {
        shard.send(publisher.socket, &text);
        shard.turn();
    }
    shard.take_written();
    Some((shard, publisher, text))
}

fn appends(size: u32) -> Option<Unit> {
    let (mut shard, publisher, text) = history(size)?;
    Some(Box::new(move || {
        shard.send(publisher.socket, &text);
        shard.turn();
    }))
}

fn replays(size: u32) -> Option<Unit> {
    let (mut shard, _, _) = history(size)?;
    let session = shard.open()?;
    let reply = shard.subscribe(&session, "/g/0", r#","ext":{"replay":{"/g/0":-1}}"#);
    let member = |name: &str| Some(reply.split(&format!(r#""{name}":"#)).nth(1)?.split([',', '}']).next()?.to_owned());
    let (epoch, latest) = (member("epoch")?, member("latest")?.parse::<u64>().ok()?);
    let position = format!(
        r#","ext":{{"replay":{{"/g/0":{{"epoch":{epoch},"id":{}}}}}}}"#,
        latest.checked_sub(REPLAYED.min(size.into()))?
    );
    let messages =
        [subscription("unsubscribe", &session, "/g/0", ""), subscription("subscribe", &session, "/g/0", &position)];
    let wanted = REPLAYED.min(size.into()) as usize * DATA.len();
    let mut unit = move || {
        let mut written = 0;
        for message in &messages {
            shard.send(session.socket, message);
            shard.turn();
        }
        for _ in 0..TURNS_MAX {
            written += shard.take_written();
            if written >= wanted {
                break;
            }
            shard.turn();
        }
        written
    };
    (unit() >= wanted).then(|| boxed(unit))
}

fn boxed(mut unit: impl FnMut() -> usize + 'static) -> Unit {
    Box::new(move || {
        black_box(unit());
    })
}

/// Messages for [`TEXTS_MAX`] of `size` channels at most.
fn texts(size: u32, text: impl Fn(u32) -> String) -> Vec<String> {
    order(size).map(text).collect()
}

/// Numbers below `size` in a fixed order that jumps, [`TEXTS_MAX`] at most.
fn order(size: u32) -> impl Iterator<Item = u32> {
    (0..u64::from(size.min(TEXTS_MAX))).map(move |index| (index * 2_654_435_761 % u64::from(size)) as u32)
}

fn publication(channel: &str, client_id: &str) -> String {
    format!(r#"[{{"channel":"{channel}","id":"5","clientId":"{client_id}","data":"{DATA}"}}]"#)
}

const DATA: &str = "a text of fifty bytes, as long as those of a bench";
/// The sessions that share the channels.
const SUBSCRIBERS: u32 = 1_000;
const TEXTS_MAX: u32 = 65_536;
/// The messages of a replay.
const REPLAYED: u64 = 100;
/// The turns after which a replay should be complete.
const TURNS_MAX: u32 = 100;
