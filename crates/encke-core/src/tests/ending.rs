//! Sessions that the server has ended, and whose clients have yet to fetch the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::application::{Actions, Application, Pending, Service};
use crate::events::ShardMessage;
use crate::id::Id;
use crate::node_messages::{ForNodes, FromNodes, Given};
use crate::settings::{ChannelRule, Settings};
use crate::shard::tests::nodes::{opened, release, reports_of, rig_with, tell};
use crate::shard::tests::{NOW, Rig};

/// Counts the calls of its service.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicUsize>);

impl Application for Counter {
    fn serves(&self, _: &str) -> bool {
        true
    }

    fn service(&self, _: &Service<'_>, _: &mut Actions) -> Option<Pending<Actions>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        None
    }
}

fn settings() -> Settings {
    let pattern = "/a".into();
    let rule = ChannelRule { pattern, history_messages: 10, presence: true, ..ChannelRule::default() };
    Settings { channels: vec![rule], trust_client_session: true, ..Settings::default() }
}

/// A session whose client is away, with a message that waits. The server has ended it.
fn kicked(rig: &mut Rig) -> Id {
    let (socket, id) = opened(rig, "{}");
    rig.shard.socket_closed(NOW, socket);
    rig.publish(1);
    rig.shard.message(NOW, ShardMessage::Disconnect(id, None));
    assert_eq!(rig.shard.sessions(), 1, "it waits for its client");
    id
}

#[test]
fn a_client_may_only_fetch_the_rest_once_the_server_has_ended_its_session() {
    for is_restored in [false, true] {
        let counter = Counter::default();
        let mut rig = Rig::new(1, settings(), Box::new(counter.clone()));
        let id = kicked(&mut rig);
        if is_restored {
            let saved = rig.shard.save(NOW);
            rig = Rig::new(1, settings(), Box::new(counter.clone()));
            rig.shard.restore(NOW, &saved);
        }
        let (published, calls) = (rig.shard.metrics().publications.get(), &counter.0);
        for (fields, error) in [
            (r#""channel":"/a","data":2"#, "publish_denied"),
            (r#""channel":"/service/x","data":2"#, "publish_denied"),
            (r#""channel":"/service/history/read","data":{"channel":"/a"}"#, "subscribe_denied"),
            (r#""channel":"/service/presence","data":{"channel":"/a"}"#, "subscribe_denied"),
            (r#""channel":"/meta/subscribe","subscription":"/b""#, "subscribe_denied"),
        ] {
            let exchange = rig.request(format!(r#"{{{fields},"clientId":"{id}","id":"1"}}"#));
            let said = rig.response(exchange).expect("a response");
            rig.shard.delivered(NOW, exchange, true);
            assert!(said.contains(&format!("\"403:session_ending:{error}\"")), "{is_restored} {fields}: {said}");
        }
        assert_eq!((rig.shard.metrics().publications.get(), calls.load(Ordering::Relaxed)), (published, 0));
        let exchange = rig.connect(id.as_str());
        let said = rig.response(exchange).expect("a response");
        rig.shard.delivered(NOW, exchange, true);
        assert!(said.contains("\"reconnect\":\"none\""), "{is_restored}: {said}");
        assert_eq!(rig.shard.sessions(), 0);
    }
}

#[test]
fn a_session_that_the_server_has_ended_moves_to_no_other_node() {
    let mut rig = rig_with(Settings::default(), Box::new(Counter::default()));
    let id = kicked(&mut rig);
    assert_eq!(release(&mut rig, id, 1 << 20, true), Given::Stays);
    assert_eq!(rig.shard.sessions(), 1);
}

#[test]
fn other_nodes_learn_that_the_server_has_ended_a_session_before_its_client_does_and_get_no_record_of_it_again() {
    let mut rig = rig_with(Settings::default(), Box::new(Counter::default()));
    let id = kicked(&mut rig);
    let reports = reports_of(&mut rig, 1_000);
    let is_end = |report: &ForNodes| matches!(report, ForNodes::Ended { session, binds: true, .. } if *session == id);
    assert!(reports.last().is_some_and(is_end), "{reports:?}");
    tell(&mut rig, FromNodes::Report(id));
    let reports = reports_of(&mut rig, 3_000);
    assert!(!reports.iter().any(|report| matches!(report, ForNodes::Changed { .. })), "{reports:?}");
}
