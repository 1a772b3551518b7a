//! Hooks that a program adds to a running server, and removes.

use std::sync::{Arc, Mutex};

use encke::{
    Access, Actions, AppState, ChannelEvent, ChannelHook, Data, Grant, HookError, Operation, Publishing, Settings,
    SubscriptionEvent, Verdict,
};
use serde_json::json;
use tokio::sync::watch;

use super::{call, error, server, subscribe};
use crate::common::{Folder, TestServer, Ws, settings, wait, wait_until};

type Log = Arc<Mutex<Vec<String>>>;

fn taken(log: &Log) -> Vec<String> {
    std::mem::take(&mut *log.lock().expect("no panic"))
}

fn is_subscribed(ws: &mut Ws, channel: &str) -> bool {
    subscribe(ws, channel)["successful"] == true
}

#[test]
fn services_are_added_replaced_and_removed_while_the_server_runs() {
    let server = TestServer::of(server().state(Log::default()).service("/service/a/*", async || Data("any")));
    let (mut ws, hooks) = (server.session(), server.hooks());
    let mut answered = |channel: &str| call(&mut ws, channel, json!(1))["data"].clone();
    assert_eq!(answered("/service/a/b"), "any");
    let first = hooks.add("/service/a/b", ChannelHook::service(async || Data("first"))).expect("a service");
    assert_eq!((answered("/service/a/b"), answered("/service/a/c")), (json!("first"), json!("any")));
    let noting = async |AppState(log): AppState<Log>| {
        log.lock().expect("no panic").push("called".into());
        Data("second")
    };
    let second = hooks.add("/service/a/b", ChannelHook::service(noting)).expect("a service");
    assert_eq!(answered("/service/a/b"), "second");
    assert!(!hooks.remove(first) && hooks.remove(second) && !hooks.remove(second));
    assert_eq!(answered("/service/a/b"), "any", "the pattern again");
    assert_eq!((hooks.clear("/service/a/*"), hooks.clear("/service/a/*")), (1, 0));
    assert_eq!(error(&ws.call(json!({"id": "n", "channel": "/service/a/b", "data": 1}))), "404::service_unknown");
    let missing = hooks.add("/service/x", ChannelHook::service(async |AppState(_): AppState<u8>| ()));
    let missing = missing.expect_err("a state").to_string();
    assert_eq!(missing, "the service /service/x takes AppState<u8>, but Builder::state got none");
    let service = || ChannelHook::service(async || ());
    assert_eq!(hooks.add("/x", service()), Err(HookError::NotAService("/x".into())));
    assert_eq!(hooks.add("/service/*/x", service()), Err(HookError::Pattern("/service/*/x".into())));
}

#[test]
fn an_authorizer_decides_from_its_addition_to_its_removal() {
    let server = TestServer::of(server());
    let (mut early, mut ws) = (server.session(), server.session());
    early.subscribe("/room/1");
    let closed = |_: &Access| Grant::deny("closed");
    let hook = server.hooks().add("/room/**", ChannelHook::authorize(closed)).expect("an authorizer");
    assert_eq!(error(&subscribe(&mut ws, "/room/1")), "403:closed:subscribe_denied");
    assert_eq!(error(&subscribe(&mut ws, "/**")), "403:closed:subscribe_denied", "it reaches the rooms");
    assert_eq!(error(&ws.call(json!({"channel": "/room/1", "data": 1}))), "403:closed:publish_denied");
    assert!(is_subscribed(&mut ws, "/other"));
    // A subscription that exists stays, until the program ends it.
    server.publish("/room/1", "\"one\"");
    assert_eq!(early.next_json()[0]["data"], "one");
    wait(server.handle.unsubscribe_session(&early.id, "/room/1")).expect("a session");
    assert!(!is_subscribed(&mut early, "/room/1"));
    assert!(server.hooks().remove(hook));
    assert!(is_subscribed(&mut ws, "/room/1"));
    early.publish("/room/1", json!(2));
    assert_eq!(ws.next_json()[0]["data"], 2);
}

#[test]
fn an_operation_that_waits_goes_on_with_the_hooks_of_its_beginning() {
    let server = TestServer::of(server());
    let (go, went) = watch::channel("");
    let (asking, asked) = watch::channel(0);
    let asking = Arc::new(asking);
    let waiting = move |_: Access<'static>| {
        let (mut went, asking) = (went.clone(), asking.clone());
        async move {
            asking.send_modify(|asked| *asked += 1);
            let answer = *went.wait_for(|answer| !answer.is_empty()).await.expect("an answer");
            if answer == "yes" { Grant::Grant } else { Grant::deny("no") }
        }
    };
    for (times, answer) in [(1, "no"), (2, "yes")] {
        go.send_replace("");
        let hook = server.hooks().add("/w/**", ChannelHook::authorize_async(waiting.clone())).expect("an authorizer");
        let mut ws = server.session();
        let message = ws.mine(json!({"id": "s", "channel": "/meta/subscribe", "subscription": "/w/x"}));
        ws.send_json(&json!([message]));
        wait_until("it is asked about the creation of the channel", || *asked.borrow() == times);
        let denying = ChannelHook::authorize(|_: &Access| Grant::deny("closed"));
        let denying = server.hooks().add("/w/x", denying).expect("an authorizer");
        assert!(server.hooks().remove(hook));
        go.send_replace(answer);
        let reply = ws.next_json()[0].clone();
        match answer {
            "yes" => assert_eq!(reply["successful"], true, "{reply}"),
            _ => assert_eq!(error(&reply), "403:no:subscribe_denied"),
        }
        assert!(server.hooks().remove(denying));
    }
}

#[test]
fn a_new_authorizer_knows_the_channels_that_exist_and_a_new_listener_learns_of_changes() {
    let log = Log::default();
    let server = TestServer::of(server().settings(Settings { shards: 2, ..settings() }));
    let mut publisher = server.session();
    let mut sessions: Vec<Ws> = (0..4).map(|_| server.session()).collect();
    sessions.iter_mut().for_each(|ws| ws.subscribe("/c/x"));
    let noting = log.clone();
    let authorizer = server.hooks().add(
        "/c/**",
        ChannelHook::authorize(move |access: &Access| {
            noting.lock().expect("no panic").push(format!("{:?} {}", access.operation(), access.channel()));
            // Nothing arrives at those who subscribe.
            if access.operation() == Operation::Publish { Grant::deny("noted") } else { Grant::Grant }
        }),
    );
    wait_until("the shards have reported their channels", || {
        publisher.call(json!({"id": "p", "channel": "/c/x", "data": 1}));
        taken(&log) == ["Publish /c/x"]
    });
    publisher.call(json!({"id": "p", "channel": "/c/new", "data": 1}));
    assert_eq!(taken(&log), [format!("{:?} /c/new", Operation::Create), "Publish /c/new".into()]);
    let noting = log.clone();
    let listener = ChannelHook::on_channel(move |event: &ChannelEvent, _: &mut Actions| {
        noting.lock().expect("no panic").push(format!("{event:?}"));
    });
    let listener = server.hooks().add("/c/*", listener).expect("a listener");
    assert!(server.hooks().remove(authorizer.expect("an authorizer")));
    let noting = log.clone();
    let each = ChannelHook::on_subscription(move |event: &SubscriptionEvent, _: &mut Actions| {
        let is_begin = matches!(event, SubscriptionEvent::Subscribed { .. });
        noting.lock().expect("no panic").push(format!("each {is_begin}"));
    });
    let each = server.hooks().add("/c/x", each).expect("a listener");
    for ws in &mut sessions {
        ws.call(json!({"id": "u", "channel": "/meta/unsubscribe", "subscription": "/c/x"}));
    }
    let mut learned = taken(&log);
    learned.sort();
    let last = r#"LastUnsubscribed { channel: "/c/x" }"#;
    assert_eq!(learned, [last, "each false", "each false", "each false", "each false"]);
    sessions[0].subscribe("/c/x");
    assert_eq!(taken(&log), ["each true", r#"FirstSubscribed { channel: "/c/x" }"#]);
    assert!(server.hooks().remove(each) && server.hooks().remove(listener));
    sessions[0].call(json!({"id": "d", "channel": "/meta/disconnect"}));
    assert_eq!(taken(&log), Vec::<String>::new());
}

#[test]
fn a_filter_changes_messages_from_its_addition_to_its_removal() {
    let server = TestServer::of(server().filter("/f/**", |_: &Publishing| Verdict::Replace("\"one\"".into())));
    let (mut ws, mut reader) = (server.session(), server.session());
    reader.subscribe("/f/x");
    let mut arrives = |data: &str| {
        ws.publish("/f/x", json!("sent"));
        assert_eq!(reader.next_json()[0]["data"], data);
    };
    arrives("one");
    let second = ChannelHook::filter_json(|text: String| Some(text + " two"));
    let second = server.hooks().add("/f/**", second).expect("a filter");
    arrives("one two");
    assert!(server.hooks().remove(second));
    arrives("one");
    assert_eq!(server.hooks().clear("/f/**"), 1);
    arrives("sent");
}

/// Agrees, but not at once.
async fn late(_: Access<'static>) -> Grant {
    tokio::task::yield_now().await;
    Grant::Grant
}

/// A decision that comes late is not waited for at a restart: the earlier one holds if the same authorizers have made it.
#[test]
fn sessions_admitted_after_a_change_are_restored_under_the_same_authorizers() {
    for is_same in [true, false] {
        let folder = Folder::new();
        let settings = Settings { data: folder.name(), ..settings() };
        let first = TestServer::of(server().settings(settings.clone()));
        let early = first.session();
        first.hooks().add("/a/**", ChannelHook::authorize_async(late)).expect("an authorizer");
        // The shard has taken this behind the news of the hook.
        wait(first.handle.unsubscribe_session(&early.id, "/none")).expect("a session");
        let mut ws = first.session();
        assert!(is_subscribed(&mut ws, "/a/x"));
        first.stop();
        let second = server().settings(settings).authorize_async("/a/**", late);
        let second = if is_same { second } else { second.authorize_async("/a/*", late) };
        let second = TestServer::of(second);
        assert_eq!(second.metric("encke_sessions_restored"), 1 + u64::from(is_same));
    }
}
