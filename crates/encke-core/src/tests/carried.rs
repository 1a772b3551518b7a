//! WebSockets that reached another node, which carries their bytes to the node of their session.

use std::sync::{Arc, Mutex};

use crate::application::{Answer, Application, Handshake, Refusal};
use crate::delivery::{Received, SocketOrigin};
use crate::events::SocketKey;
use crate::id::{Id, NodeTag, kernel_entropy};
use crate::identity::Identity;
use crate::node_messages::ForNodes;
use crate::opener::Opener;
use crate::settings::Settings;
use crate::shard::tests::nodes::{opened, reports_of, rig_with};
use crate::shard::tests::{NOW, Rig};

/// Notes the peers of handshakes.
#[derive(Clone, Default)]
struct Porter(Arc<Mutex<usize>>);

impl Application for Porter {
    fn handshake(&self, _: &Handshake<'_>) -> Answer<Result<Option<Identity>, Refusal>> {
        *self.0.lock().expect("no panic") += 1;
        Answer::Now(Ok(None))
    }
}

/// A WebSocket that another node carries, behind its way through two shards.
fn carried(rig: &mut Rig) -> SocketKey {
    let origin = SocketOrigin::of_node(Opener::Program, [0, 7], None);
    let first = rig.shard.socket_moved_here(NOW, origin);
    let origin = rig.shard.socket_origin(first).expect("an origin");
    rig.shard.socket_closed(NOW, first);
    rig.shard.socket_moved_here(NOW, origin)
}

#[test]
fn a_handshake_on_a_carried_websocket_is_not_answered_and_its_client_connects_again() {
    let porter = Porter::default();
    let mut rig = rig_with(Settings::default(), Box::new(porter.clone()));
    let (_, id) = opened(&mut rig, "{}");
    let handshake = r#"{"channel":"/meta/handshake","version":"1.0"}"#;
    let connect = format!(r#"{{"channel":"/meta/connect","clientId":"{id}","advice":{{"timeout":0}}}}"#);
    for (before, text) in [
        (None, handshake.to_owned()),
        (Some(&connect), handshake.to_owned()),
        (None, format!(r#"[{{"channel":"/b","clientId":"{id}","data":1}},{handshake}]"#)),
    ] {
        let socket = carried(&mut rig);
        if let Some(before) = before {
            assert_eq!(rig.shard.socket_text(NOW, socket, before), Received::Here);
            assert!(rig.flushed(socket).contains("\"successful\":true"));
        }
        assert_eq!(rig.shard.socket_text(NOW, socket, &text), Received::Here);
        let said = rig.flushed(socket);
        assert!(said.contains("connect again") && !said.contains("channel"), "{text}: {said}");
        assert_eq!((rig.shard.sessions(), *porter.0.lock().expect("no panic")), (1, 1), "{text}");
    }
}

#[test]
fn a_carried_websocket_is_never_carried_again() {
    let mut rig = rig_with(Settings::default(), Box::new(Porter::default()));
    let (_, id) = opened(&mut rig, "{}");
    let text = |id: &Id| format!(r#"{{"channel":"/meta/connect","clientId":"{id}","advice":{{"timeout":0}}}}"#);
    for has_had_another in [false, true] {
        let socket = carried(&mut rig);
        if has_had_another {
            rig.shard.socket_text(NOW, socket, &text(&id));
            rig.shard.socket_text(NOW, socket, &format!(r#"{{"channel":"/meta/disconnect","clientId":"{id}"}}"#));
            rig.flushed(socket);
        }
        let elsewhere = Id::of_node(0, NodeTag::new(&mut kernel_entropy()), &mut kernel_entropy());
        assert_eq!(rig.shard.socket_text(NOW, socket, &text(&elsewhere)), Received::Here);
        assert!(rig.flushed(socket).contains("connect again"), "{has_had_another}");
        let is_search = |report: &ForNodes| matches!(report, ForNodes::Search { .. });
        assert!(!reports_of(&mut rig, 0).iter().any(is_search), "no node is asked");
    }
}
