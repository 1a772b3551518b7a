//! Tests of the attributes of sessions: who sees them, their limits, their memory, their way over restarts and to other nodes.

use std::sync::{Arc, Mutex};

use super::{NOW, Rig};
use crate::application::{
    Actions, Answer, Application, Caller, Decision, EndReason, NoApplication, Pending, Publishing, Service,
    Subscribing, Verdict,
};
use crate::attributes::{AttributeChange, Attributes};
use crate::events::{AskedBy, Changed, Effect, OTHER_NODES, PublishToken, Report, ShardMessage, SocketKey};
use crate::id::{Id, NodeTag, kernel_entropy};
use crate::node_messages::{Elsewhere, ForNodes, FromNodes, Restored};
use crate::now::Now;
use crate::settings::Settings;
use crate::shard::Shared;

const TOKEN: PublishToken = PublishToken { shard: PublishToken::HANDLES, number: 1 };

/// Its service sets the attribute `cart` of the caller to the data, and each hook notes the attribute that it sees.
#[derive(Clone, Default)]
struct Shop(Arc<Mutex<Vec<String>>>);

impl Shop {
    fn note(&self, hook: &str, caller: &Caller<'_>) {
        self.0.lock().expect("no panic").push(format!("{hook} {}", caller.attribute("cart").unwrap_or("-")));
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no panic"))
    }
}

impl Application for Shop {
    fn subscribe(&self, subscribing: &Subscribing<'_>) -> Answer<Decision> {
        self.note("subscribe", &subscribing.caller);
        Answer::Now(Decision::Allow)
    }

    fn publish(&self, publishing: &Publishing<'_>) -> Answer<Verdict> {
        self.note("publish", &publishing.caller);
        Answer::Now(Verdict::Forward)
    }

    fn service(&self, message: &Service<'_>, actions: &mut Actions) -> Option<Pending<Actions>> {
        self.note("service", &message.caller);
        match message.data.unwrap_or("null") {
            "null" => actions.remove_attribute(message.caller.id, "cart"),
            data => actions.set_attribute(message.caller.id, "cart", data),
        }
        None
    }

    fn ended(&self, caller: &Caller<'_>, _: EndReason, _: &mut Actions) {
        self.note("ended", caller);
    }
}

fn set_by_handle(rig: &mut Rig, client: &str, change: AttributeChange) -> Changed {
    let id = Id::parse(client).expect("an id");
    rig.shard.message(NOW, ShardMessage::ChangeAttribute(id, Box::new(change), AskedBy::Handle(TOKEN)));
    let outcome = rig.shard.take_effects().into_iter().find_map(|effect| match effect {
        Effect::SendToShard(_, ShardMessage::Report(Report::Changed(_, outcome))) => Some(outcome),
        _ => None,
    });
    outcome.expect("an outcome")
}

fn send(rig: &mut Rig, socket: SocketKey, client: &str, fields: &str) -> String {
    rig.shard.socket_text(NOW, socket, &format!(r#"{{"clientId":"{client}",{fields}}}"#));
    rig.flushed(socket)
}

fn connect(rig: &mut Rig, socket: SocketKey, client: &str) {
    send(rig, socket, client, r#""channel":"/meta/connect","advice":{"timeout":0}"#);
}

#[test]
fn hooks_see_the_attributes_of_the_session_until_its_end_and_its_client_does_not() {
    let shop = Shop::default();
    let mut rig = Rig::new(1, Settings::default(), Box::new(shop.clone()));
    let (socket, client) = rig.opened("{}");
    let (other, other_client) = rig.opened("{}");
    connect(&mut rig, socket, &client);
    // The batch that sets it sees it, too.
    let batch = [
        r#"{"channel":"/service/cart","clientId":"ID","data":["secret tea"]}"#,
        r#"{"channel":"/meta/subscribe","clientId":"ID","subscription":"/a"}"#,
        r#"{"channel":"/a","clientId":"ID","data":1}"#,
    ];
    rig.shard.socket_text(NOW, socket, &format!("[{}]", batch.join(",")).replace("ID", &client));
    let mut seen = rig.flushed(socket);
    send(&mut rig, other, &other_client, r#""channel":"/a","data":2"#);
    seen += &send(&mut rig, socket, &client, r#""channel":"/meta/disconnect""#);
    assert!(!seen.contains("secret"), "{seen}");
    let cart = r#"["secret tea"]"#;
    let expected = ["service -".into(), format!("subscribe {cart}"), format!("publish {cart}"), "publish -".into()];
    assert_eq!(shop.taken(), [&expected[..], &[format!("ended {cart}")]].concat());
}

#[test]
fn an_attribute_is_removed_and_the_version_goes_on() {
    let shop = Shop::default();
    let mut rig = Rig::new(1, Settings::default(), Box::new(shop.clone()));
    let (socket, client) = rig.opened("{}");
    let id = Id::parse(&client).expect("an id");
    let known = |rig: &Rig| rig.shard.attributes(&id).map(|own| (own.to_json(), own.version()));
    assert_eq!(known(&rig), Some(("{}".into(), 0)));
    for (data, expected) in [("1", r#"{"cart":1}"#), ("2", r#"{"cart":2}"#), ("null", "{}"), ("3", r#"{"cart":3}"#)] {
        send(&mut rig, socket, &client, &format!(r#""channel":"/service/cart","data":{data}"#));
        assert_eq!(known(&rig).map(|known| known.0).as_deref(), Some(expected));
    }
    assert_eq!(known(&rig).map(|known| known.1), Some(4));
    let late = AttributeChange::set("cart", "4").if_version(3);
    assert_eq!(set_by_handle(&mut rig, &client, late), Changed::Conflict(4));
    let fresh = AttributeChange::set("cart", "4").if_version(4);
    assert_eq!(set_by_handle(&mut rig, &client, fresh), Changed::Version(5));
    send(&mut rig, socket, &client, r#""channel":"/meta/disconnect""#);
    assert_eq!(known(&rig), None);
    assert_eq!(set_by_handle(&mut rig, &client, AttributeChange::remove("cart")), Changed::SessionUnknown);
}

#[test]
fn the_attributes_of_a_session_have_limits_and_their_memory_is_counted() {
    let settings = Settings { session_attributes_max: 2, session_attributes_bytes_max: 1_000, ..Settings::default() };
    let mut rig = Rig::new(1, settings, Box::new(NoApplication));
    let (socket, client) = rig.opened("{}");
    let (before, walked) = rig.shard.memory();
    assert_eq!(before, walked);
    let value = |bytes: usize| format!("\"{}\"", "x".repeat(bytes));
    assert_eq!(set_by_handle(&mut rig, &client, AttributeChange::set("a", &value(900))), Changed::Version(1));
    assert_eq!(set_by_handle(&mut rig, &client, AttributeChange::set("b", &value(100))), Changed::Full);
    assert_eq!(set_by_handle(&mut rig, &client, AttributeChange::set("b", &value(50))), Changed::Version(2));
    assert_eq!(set_by_handle(&mut rig, &client, AttributeChange::set("c", "1")), Changed::Full);
    assert_eq!(rig.shard.metrics().attributes_refused.get(), 2);
    let (counted, walked) = rig.shard.memory();
    assert_eq!(counted, walked);
    assert!(counted - before > 950 && counted - before < 2_000, "{}", counted - before);
    send(&mut rig, socket, &client, r#""channel":"/meta/disconnect""#);
    let (after, walked) = rig.shard.memory();
    assert_eq!(after, walked);
    assert!(after <= before, "{after} of {before}");
}

#[test]
fn attributes_of_many_sessions_count_for_the_memory_of_all_sessions() {
    let settings = Settings {
        sessions_bytes_max: 1 << 20,
        session_attributes_bytes_max: 300_000,
        unconnected_per_connection_max: 10,
        ..Settings::default()
    };
    let mut rig = Rig::new(1, settings, Box::new(NoApplication));
    let value = format!("\"{}\"", "x".repeat(250_000));
    for _ in 0..10 {
        let (socket, client) = rig.opened("{}");
        connect(&mut rig, socket, &client);
        assert_eq!(set_by_handle(&mut rig, &client, AttributeChange::set("a", &value)), Changed::Version(1));
    }
    // The server ends sessions until an eighth of the limit is free.
    for turn in 0..400 {
        let now = Now { ms: NOW.ms + 10 * turn, ..NOW };
        rig.shard.advance(now);
        rig.shard.flush(now, &mut rig.kernel, &mut || false);
        rig.shard.take_effects();
    }
    let ended = rig.shard.metrics().ended_for_memory.get();
    assert!((6..10).contains(&ended), "{ended}");
    assert!(rig.shard.held_bytes() < 1 << 20, "{}", rig.shard.held_bytes());
}

#[test]
fn attributes_survive_a_restart_with_their_version() {
    let mut rig = Rig::new(1, Settings::default(), Box::new(NoApplication));
    let (socket, client) = rig.opened("{}");
    connect(&mut rig, socket, &client);
    set_by_handle(&mut rig, &client, AttributeChange::set("cart", "[1]"));
    set_by_handle(&mut rig, &client, AttributeChange::set("seat", "7"));
    let saved = rig.shard.save(NOW);
    let mut next = Rig::new(1, Settings::default(), Box::new(NoApplication));
    next.shard.restore(NOW, &saved);
    let own = next.shard.attributes(&Id::parse(&client).expect("an id")).expect("restored");
    assert_eq!((own.to_json(), own.version()), (r#"{"cart":[1],"seat":7}"#.into(), 2));
    let (counted, walked) = next.shard.memory();
    assert_eq!(counted, walked);
}

/// The messages of a shard for the cluster, after this time.
fn for_nodes(rig: &mut Rig, after_ms: u64) -> Vec<ForNodes> {
    rig.shard.advance(Now { ms: NOW.ms + after_ms, ..NOW });
    let of = |effect| match effect {
        Effect::SendToShard(shard, ShardMessage::ForNodes(message)) if shard == usize::from(OTHER_NODES) => {
            Some(message)
        }
        _ => None,
    };
    rig.shard.take_effects().into_iter().filter_map(of).collect()
}

#[test]
fn a_change_of_attributes_is_recorded_for_other_nodes_which_go_on_with_them() {
    let node = || {
        let mut shared = Shared::new(1, Box::new(NoApplication));
        shared.node = Some(NodeTag::new(&mut kernel_entropy()));
        Rig::with(shared, Settings::default())
    };
    let mut rig = node();
    let (socket, client) = rig.opened("{}");
    let id = Id::parse(&client).expect("an id");
    connect(&mut rig, socket, &client);
    for_nodes(&mut rig, 1_000);
    set_by_handle(&mut rig, &client, AttributeChange::set("cart", "[1]"));
    let record = for_nodes(&mut rig, 2_000).into_iter().find_map(|message| match message {
        ForNodes::Changed { saved, .. } => Some(*saved),
        _ => None,
    });
    let mut other = node();
    let restored = Restored { saved: record.expect("a record"), is_whole: false, has_mark: false, origins: [0, 5] };
    other.shard.message(NOW, ShardMessage::FromNodes(FromNodes::Restore(id, Box::new(restored))));
    let own = other.shard.attributes(&id).expect("attributes");
    assert_eq!(own.to_json(), r#"{"cart":[1]}"#);
    assert!(
        own.version() > 1 << 20,
        "the program may have seen versions that the record does not know: {}",
        own.version()
    );

    // A hook of a node that does not have the session.
    let there = Id::of_node(0, NodeTag::new(&mut kernel_entropy()), &mut kernel_entropy());
    let change = AttributeChange::set("cart", "[2]");
    rig.shard.message(NOW, ShardMessage::ChangeAttribute(there, Box::new(change.clone()), AskedBy::Hook(None)));
    let elsewhere = for_nodes(&mut rig, 2_000).into_iter().find_map(|message| match message {
        ForNodes::Elsewhere(action, _) => Some(action),
        _ => None,
    });
    assert_eq!(elsewhere, Some(Elsewhere::ChangeAttribute(there, Box::new(change))));
}

#[test]
fn a_hook_sets_attributes_of_sessions_of_other_shards_and_only_json() {
    let mut rig = Rig::new(2, Settings::default(), Box::new(NoApplication));
    let there = Id::new(1, &mut kernel_entropy());
    let mut actions = Actions::default();
    actions.set_attribute(there.as_str(), "a", "[1]");
    actions.set_attribute(there.as_str(), "b", "no JSON");
    actions.set_attribute(there.as_str(), "", "1");
    rig.shard.act(actions, None);
    let sent: Vec<String> = rig
        .shard
        .take_effects()
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::SendToShard(1, ShardMessage::ChangeAttribute(id, change, AskedBy::Hook(_))) if id == there => {
                Some(change.name.into())
            }
            _ => None,
        })
        .collect();
    assert_eq!(sent, ["a"]);
}

/// A decision that waits sees the attributes as they were when it was asked for.
#[test]
fn a_view_of_attributes_does_not_change_under_its_holder() {
    let mut rig = Rig::new(1, Settings::default(), Box::new(NoApplication));
    let (_, client) = rig.opened("{}");
    let id = Id::parse(&client).expect("an id");
    set_by_handle(&mut rig, &client, AttributeChange::set("cart", "1"));
    let view: Arc<Attributes> = rig.shard.attributes(&id).expect("it lives");
    set_by_handle(&mut rig, &client, AttributeChange::set("cart", "2"));
    assert_eq!((view.get("cart"), view.version()), (Some("1"), 1));
    assert_eq!(rig.shard.attributes(&id).and_then(|own| own.get("cart").map(String::from)).as_deref(), Some("2"));
}

/// Grants subscriptions to sessions with an attribute, or to those without it.
struct Gate(bool);

impl Application for Gate {
    fn subscribe(&self, subscribing: &Subscribing<'_>) -> Answer<Decision> {
        let is_member = subscribing.caller.attribute("member").is_some();
        Answer::Now(if is_member == self.0 { Decision::Allow } else { Decision::Deny("gate".into()) })
    }
}

#[test]
fn a_restart_decides_with_the_attributes_of_the_session() {
    let set = AttributeChange::set("member", "true");
    let mut rig = Rig::new(1, Settings::default(), Box::new(Gate(true)));
    let (socket, client) = rig.opened("{}");
    assert_eq!(set_by_handle(&mut rig, &client, set.clone()), Changed::Version(1));
    let reply = send(&mut rig, socket, &client, r#""channel":"/meta/subscribe","subscription":"/a""#);
    assert!(reply.contains("\"successful\":true"), "{reply}");
    let saved = rig.shard.save(NOW);
    let mut next = Rig::new(1, Settings::default(), Box::new(Gate(true)));
    next.shard.restore(NOW, &saved);
    let granted = next.shard.sessions();
    // One whose attribute shuts it out since.
    let mut rig = Rig::new(1, Settings::default(), Box::new(Gate(false)));
    let (socket, client) = rig.opened("{}");
    send(&mut rig, socket, &client, r#""channel":"/meta/subscribe","subscription":"/a""#);
    set_by_handle(&mut rig, &client, set);
    let saved = rig.shard.save(NOW);
    let mut next = Rig::new(1, Settings::default(), Box::new(Gate(false)));
    next.shard.restore(NOW, &saved);
    assert_eq!((granted, next.shard.sessions()), (1, 0), "(the member, the one that is shut out)");
}
