//! Sessions that move to another node: the limits and rights that go with them.

use crate::application::{Answer, Application, Caller, Handshake, Refusal};
use crate::events::SocketKey;
use crate::id::Id;
use crate::identity::Identity;
use crate::settings::Settings;
use crate::shard::tests::nodes::{connect, given, opened, release, restore, rig_with};
use crate::shard::tests::{NOW, Rig};

/// Everybody is ann.
struct OneUser;

impl Application for OneUser {
    fn handshake(&self, _: &Handshake<'_>) -> Answer<Result<Option<Identity>, Refusal>> {
        Answer::Now(Ok(Some(Identity::of_user("ann"))))
    }

    fn refresh(&self, _: &Caller<'_>, _: &str) -> Answer<Result<Identity, Refusal>> {
        Answer::Now(Ok(Identity::of_user("ann")))
    }
}

fn nodes(settings: &Settings) -> [Rig; 2] {
    [0; 2].map(|_| rig_with(settings.clone(), Box::new(OneUser)))
}

/// Moves a session to another node, where its client connects.
fn moved(from: &mut Rig, to: &mut Rig, id: &Id) -> SocketKey {
    let saved = given(release(from, *id, 1 << 20, true));
    restore(to, *id, saved, true);
    let socket = connect(to, id);
    to.flushed(socket);
    socket
}

/// The messages that succeed out of ten.
fn accepted(rig: &mut Rig, socket: SocketKey, id: &Id, fields: &str) -> usize {
    let text = format!(r#"{{{fields},"clientId":"{id}"}}"#);
    let mut succeeds = || {
        rig.shard.socket_text(NOW, socket, &text);
        rig.flushed(socket).contains(r#""successful":true"#)
    };
    (0..10).filter(|_| succeeds()).count()
}

#[test]
fn a_session_takes_what_it_has_used_of_its_rates_along_to_another_node() {
    let a_refresh = r#""channel":"/service/auth/refresh","data":{}"#;
    for (settings, fields, most) in [
        // The first one is its subscribe.
        (Settings { session_messages_per_s_max: 5, ..Settings::default() }, r#""channel":"/b","data":1"#, 4),
        (Settings { session_bytes_per_s_max: 1_000, ..Settings::default() }, r#""channel":"/b","data":1"#, 13),
        (Settings { session_refreshes_per_s_max: 2, ..Settings::default() }, a_refresh, 2),
    ] {
        let mut nodes = nodes(&settings);
        let (mut socket, id) = opened(&mut nodes[0], "{}");
        let mut sum = 0;
        for _ in 0..5 {
            let [here, there] = &mut nodes;
            sum += accepted(here, socket, &id, fields);
            socket = moved(here, there, &id);
            nodes.swap(0, 1);
        }
        assert!(sum > 0 && sum <= most, "{fields}: {sum} instead of {most}");
    }
}

#[test]
fn sessions_that_have_not_connected_are_limited_for_each_address_when_they_come_from_another_node() {
    let settings = Settings { unconnected_per_address_max: 3, ..Settings::default() };
    let [mut here, mut there] = nodes(&settings);
    for number in 1..=5 {
        let (_, client) = here.opened("{}");
        let id = Id::parse(&client).expect("an id");
        let saved = given(release(&mut here, id, 1 << 20, true));
        // All of them from one address.
        restore(&mut there, id, saved, true);
        assert_eq!(there.shard.sessions(), number.min(3));
    }
    assert_eq!(there.shard.metrics().unused_ended.get(), 2);
}
