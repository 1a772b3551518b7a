//! Publications, deliveries and histories by a handle, beside `in_process` and `api`.

use encke::{ChannelRule, Identity, Outgoing, PublishError, Server, Settings, StoreMessageError, SubscriptionError};
use serde_json::json;

use crate::common::{TestServer, publications, settings, wait_until};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

/// Settings with histories below `/stored`.
fn with_history(shards: usize) -> Settings {
    let rule = ChannelRule { pattern: "/stored/**".into(), history_messages: 3, ..ChannelRule::default() };
    Settings { shards, channels: vec![rule], ..settings() }
}

#[test]
fn typed_data_ext_and_bytes_reach_subscribers_and_single_sessions() {
    let server = TestServer::start(settings());
    let mut ws = server.session();
    ws.subscribe("/a");
    let handle = &server.handle;
    handle.publish_json("/a", &("x", 1)).expect("published");
    assert_eq!(ws.next_json(), json!([{"channel": "/a", "data": ["x", 1]}]));
    let traced = Outgoing::raw("2").ext(r#"{"trace":"7f"}"#);
    handle.publish_message("/a", &traced).expect("published");
    assert_eq!(ws.next_json(), json!([{"channel": "/a", "data": 2, "ext": {"trace": "7f"}}]));
    assert_eq!(handle.deliver_message(&ws.id, "/service/b", &traced), Ok(true));
    assert_eq!(ws.next_json(), json!([{"channel": "/service/b", "data": 2, "ext": {"trace": "7f"}}]));
    // As CometD's extension writes it.
    handle.publish_message("/a", &Outgoing::binary(b"\x86\x4f\xd2\x6f\xb5\x59\xf7\x5b")).expect("published");
    let bytes = json!({"channel": "/a", "data": {"data": "HelloWorld", "last": true}, "ext": {"binary": {}}});
    assert_eq!(ws.next_json(), json!([bytes]));
    for ext in ["1", "{", "[]"] {
        let refused = handle.publish_message("/a", &Outgoing::raw("1").ext(ext));
        assert_eq!(refused, Err(PublishError::Data), "{ext}");
    }
    let unwritable = std::collections::BTreeMap::from([((1, 2), 3)]);
    assert_eq!(handle.publish_json("/a", &unwritable), Err(PublishError::Data));
}

#[test]
fn a_lazy_message_waits_for_another_one_and_keeps_the_order() {
    for shards in [1, 3] {
        let server = TestServer::start(Settings { lazy_timeout_max_ms: 60_000, ..with_history(shards) });
        let (mut ws, mut poller) = (server.session(), server.poller());
        for channel in ["/a", "/stored/a"] {
            ws.subscribe(channel);
            poller.subscribe(channel);
        }
        poller.start_poll(json!({}));
        server.wait_for_exactly("encke_held_connects", 1);
        let publish = |channel, message| server.handle.publish_message(channel, &message).expect("published");
        publish("/stored/a", Outgoing::raw("1").lazy());
        let stored = || server.handle.read_history("/stored/a", None, 10).map_or(0, |page| page.messages.len());
        wait_until("the history has it at once", || stored() == 1);
        publish("/stored/a", Outgoing::raw("2").lazy());
        wait_until("the history has it at once", || stored() == 2);
        assert_eq!(server.metric("encke_held_connects"), 1, "nobody is woken for them");
        publish("/stored/a", Outgoing::raw("3"));
        let expected = [1, 2, 3].map(|data| json!({"channel": "/stored/a", "data": data}));
        let received: Vec<_> = std::iter::repeat_with(|| ws.next_json()[0].take()).take(3).collect();
        assert_eq!(received, expected);
        assert_eq!(publications(&poller.end_poll()), expected);
    }
}

#[test]
fn a_lazy_message_leaves_by_itself_after_the_time_of_its_channel() {
    let rule = ChannelRule { pattern: "/a".into(), lazy_timeout_ms: 50, ..ChannelRule::default() };
    let server = TestServer::start(Settings { channels: vec![rule], lazy_timeout_max_ms: 3_600_000, ..settings() });
    let mut ws = server.session();
    ws.subscribe("/a");
    server.handle.publish_message("/a", &Outgoing::raw("1").lazy()).expect("published");
    assert_eq!(ws.next_json(), json!([{"channel": "/a", "data": 1}]));
}

#[test]
fn a_stored_message_has_the_position_at_which_the_history_has_it() {
    for shards in [1, 3] {
        let server = TestServer::start(with_history(shards));
        for channel in ["/stored/a", "/stored/b", "/stored/c"] {
            let store = |data: &str| block_on(server.handle.publish_stored(channel, data));
            let positions: Vec<_> = ["1", "2", "3", "4"].map(|data| store(data).expect("is stored")).into();
            let page = server.handle.read_history(channel, None, 10).expect("a history");
            assert_eq!(page.messages.iter().map(|message| message.data()).collect::<Vec<_>>(), ["2", "3", "4"]);
            assert!(page.messages.iter().map(|message| &message.position).eq(&positions[1..]));
            assert!(page.is_complete && (page.oldest, page.next) == (positions[1].offset, positions[3].offset + 1));
            let after = |offset, limit| server.handle.read_history(channel, Some(offset), limit).expect("a history");
            let rest = after(positions[1].offset, 1);
            assert_eq!((rest.messages.len(), rest.messages[0].data()), (1, "3"));
            assert!(rest.is_complete && !after(positions[0].offset - 1, 1).is_complete);
            assert!(after(u64::MAX, 1).messages.is_empty());
        }
        let refused = block_on(server.handle.publish_stored("/plain", "1"));
        assert_eq!(refused, Err(StoreMessageError::NoHistory("/plain".into())));
        let refused = block_on(server.handle.publish_stored("/stored/*/x", "1"));
        assert!(matches!(refused, Err(StoreMessageError::Publish(PublishError::Channel(_)))), "{refused:?}");
        assert_eq!(server.handle.read_history("/plain", None, 10), None);
    }
}

#[test]
fn all_sessions_of_a_user_lose_a_subscription() {
    let by_header = async |handshake: encke::Handshake| Ok(Identity::of_user(handshake.header("x-user").unwrap_or("")));
    let server = Server::builder().settings(Settings { shards: 3, ..settings() }).authenticate(by_header);
    let server = TestServer::of(server);
    let open = |user: &str| {
        let mut ws = crate::common::Ws::connect(server.address(), &[("x-user", user)]);
        ws.handshake();
        ws.subscribe("/a");
        ws
    };
    let (_ann, _ann_again, mut bob) = (open("ann"), open("ann"), open("bob"));
    assert_eq!(block_on(server.handle.unsubscribe_user("ann", "/a")), Ok(2));
    server.wait_for_exactly("encke_subscriptions", 1);
    server.publish("/a", "1");
    assert_eq!(bob.next_json(), json!([{"channel": "/a", "data": 1}]));
    assert_eq!(block_on(server.handle.unsubscribe_user("nobody", "/a")), Ok(0));
    let refused = block_on(server.handle.unsubscribe_user("ann", "/meta/x"));
    assert_eq!(refused, Err(SubscriptionError::Channel("/meta/x".into())));
}
