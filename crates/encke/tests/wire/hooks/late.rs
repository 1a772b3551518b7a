//! Hooks that wait, that panic, and that never answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use encke::{
    Access, Actions, Call, ChannelEvent, Data, Grant, Operation, Publishing, Server, Settings, Verdict, with_timeout,
};
use serde_json::json;

use super::{call, error, server, subscribe};
use crate::common::{TestServer, settings};

#[test]
fn hooks_that_panic_refuse_their_message_and_nothing_else() {
    let server = TestServer::of(
        server()
            .authorize("/p/subscribe", |access: &Access| match access.operation() {
                Operation::Subscribe => panic!("as planned"),
                _ => Grant::Grant,
            })
            .filter("/p/publish", |_: &Publishing| -> Verdict { panic!("as planned") })
            .filter_async("/p/later", async |_: Publishing| panic!("as planned"))
            .service("/service/panic", async |_: Call| -> () { panic!("as planned") })
            .on_channel("/p/**", |_: &ChannelEvent, _: &mut Actions| -> () { panic!("as planned") }),
    );
    let mut neighbour = server.neighbour();
    let mut ws = server.session();
    assert_eq!(subscribe(&mut ws, "/p/subscribe")["successful"], false);
    assert_eq!(subscribe(&mut ws, "/p/fine")["successful"], true);
    for channel in ["/p/publish", "/p/later"] {
        assert_eq!(ws.call(json!({"channel": channel, "data": 1}))["successful"], false, "{channel}");
    }
    assert_eq!(call(&mut ws, "/service/panic", json!(1))["successful"], false);
    neighbour.lives(&server);
}

#[test]
fn a_handler_that_never_answers_fails_its_call_alone() {
    let server = TestServer::of(
        Server::builder()
            .settings(Settings { call_timeout_ms: 300, decision_timeout_ms: 300, ..settings() })
            .service("/service/never", async || std::future::pending::<()>().await)
            .service(
                "/service/late",
                with_timeout(Duration::from_millis(20), async || std::future::pending::<()>().await),
            )
            .filter_async("/never", async |_: Publishing| std::future::pending().await),
    );
    let mut neighbour = server.neighbour();
    let mut ws = server.session();
    assert_eq!(call(&mut ws, "/service/never", json!(1))["successful"], false);
    assert_eq!(call(&mut ws, "/service/late", json!(1))["data"]["class"], "timeout");
    let refused = ws.call(json!({"channel": "/never", "data": 1}));
    assert!(error(&refused).starts_with("503:"), "{refused}");
    neighbour.lives(&server);
}

#[test]
fn an_answer_after_the_session_has_ended_goes_nowhere() {
    let (sender, waiting) = tokio::sync::watch::channel(false);
    let answered = Arc::new(AtomicUsize::new(0));
    let count = answered.clone();
    let server = TestServer::of(server().service("/service/wait", move || {
        let (mut waiting, count) = (waiting.clone(), count.clone());
        async move {
            _ = waiting.wait_for(|go| *go).await;
            count.fetch_add(1, Ordering::Relaxed);
            Data("late")
        }
    }));
    let mut neighbour = server.neighbour();
    let mut ws = server.session();
    ws.publish("/service/wait", json!(1));
    ws.call(json!({"id": "d", "channel": "/meta/disconnect"}));
    sender.send_replace(true);
    neighbour.lives(&server);
}
