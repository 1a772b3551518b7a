//! Hooks for channels with parameters, such as `/room/{id}`.

use std::sync::{Arc, Mutex};

use encke::{
    Access, Actions, Call, ChannelEvent, ChannelHook, Data, Grant, HookError, Params, Publishing, RouteRequest,
    SessionEvent, SubscriptionEvent, Verdict,
};
use serde_json::json;

use super::{call, error, server, subscribe};
use crate::common::TestServer;

#[derive(serde::Deserialize)]
struct Seat {
    seat: String,
    room: u32,
}

#[test]
fn all_hooks_take_the_parameters_of_their_template() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let (of_channels, of_subscriptions, of_seats) = (log.clone(), log.clone(), log.clone());
    let server = TestServer::of(
        server()
            .authorize("/room/{id}", |_: &Access, Params(id): Params<u32>| match id {
                0..10 => Grant::Grant,
                _ => Grant::deny("no_such_room"),
            })
            .authorize_async(
                "/room/{id}/{user}",
                async |access: Access<'static>, Params((id, user)): Params<(u8, String)>| {
                    if access.channel() == format!("/room/{id}/{user}") { Grant::Grant } else { Grant::deny("other") }
                },
            )
            .filter("/room/{id}", |_: &Publishing, Params(id): Params<u32>| Verdict::Replace(id.to_string()))
            .filter_async(
                "/room/{id}/{user}",
                async |_: Publishing<'static>, Params((_, user)): Params<(u8, String)>| Verdict::from(Data(user)),
            )
            .service("/service/{room}/take/{seat}", async |Params(Seat { room, seat }): Params<Seat>| {
                Data(format!("{seat} in {room}"))
            })
            .on_channel("/room/{id}", move |_: &ChannelEvent, _: &mut Actions, Params(id): Params<String>| {
                of_channels.lock().expect("no panic").push(format!("channel {id}"));
            })
            .on_subscription("/room/{id}", move |_: &SubscriptionEvent, _: &mut Actions, Params(id): Params<String>| {
                of_subscriptions.lock().expect("no panic").push(format!("subscription {id}"));
            })
            .on_subscription("/seat/{n}", move |_: &SubscriptionEvent, _: &mut Actions, Params(n): Params<u32>| {
                of_seats.lock().expect("no panic").push(format!("seat {n}"));
            })
            .route("/orders/{number}/lines", async |_: RouteRequest, Params(number): Params<u32>| Data(number + 1)),
    );
    let (mut ws, mut publisher) = (server.session(), server.session());
    ws.subscribe("/room/7");
    assert_eq!(*log.lock().expect("no panic"), ["subscription 7", "channel 7"]);
    for seat in ["/seat/*", "/seat/x", "/seat/5"] {
        ws.subscribe(seat);
    }
    assert_eq!(log.lock().expect("no panic")[2..], ["seat 5"], "the others are of other types");
    publisher.publish("/room/7", json!("x"));
    assert_eq!(ws.next_json()[0]["data"], 7);
    ws.subscribe("/room/7/ann");
    publisher.publish("/room/7/ann", json!("x"));
    assert_eq!(ws.next_json()[0]["data"], "ann");
    assert_eq!(error(&subscribe(&mut ws, "/room/70")), "403:no_such_room:subscribe_denied");
    assert_eq!(error(&subscribe(&mut ws, "/room/lobby")), "403:invalid_parameters:subscribe_denied");
    assert_eq!(error(&ws.call(json!({"channel": "/room/x", "data": 1}))), "403:invalid_parameters:publish_denied");
    assert_eq!(call(&mut ws, "/service/3/take/a 5", json!(1))["data"], "a 5 in 3");
    let failed = call(&mut ws, "/service/three/take/a 5", json!(1));
    assert_eq!((&failed["successful"], &failed["data"]["class"]), (&json!(false), &json!("invalid_parameters")));
    assert_eq!(server.http().get("/orders/41/lines").text(), "42");
    assert_eq!(server.http().get("/orders/41").status, 404);
}

#[test]
fn the_exact_name_answers_before_the_template_and_the_template_before_the_stars() {
    let names = ["/service/a/b", "/service/a/{x}", "/service/{x}/b", "/service/a/*", "/service/**"];
    let server = names.iter().fold(server(), |server, name| {
        let name = name.to_string();
        server.service(&name.clone(), move |_: Call| std::future::ready(Data(name.clone())))
    });
    let server = TestServer::of(server);
    let mut ws = server.session();
    for name in names {
        assert_eq!(call(&mut ws, "/service/a/b", json!(1))["data"], name);
        assert_eq!(server.hooks().clear(name), 1);
    }
    assert_eq!(error(&ws.call(json!({"id": "n", "channel": "/service/a/b", "data": 1}))), "404::service_unknown");
}

/// Whoever subscribes to a pattern gets the messages of all channels that it reaches.
#[test]
fn the_authorizer_of_a_template_is_asked_about_every_pattern_that_reaches_its_channels() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noting = asked.clone();
    let server =
        TestServer::of(server().authorize("/room/{id}/log", move |access: &Access, Params(id): Params<Option<u8>>| {
            noting.lock().expect("no panic").push(format!("{} {id:?}", access.channel()));
            id.map_or(Grant::deny("not_all"), |_| Grant::Grant)
        }));
    let mut ws = server.session();
    for (name, allowed) in [
        ("/room/1/log", true),
        ("/room/1/*", true),
        ("/room/1/**", true),
        ("/room/**", false),
        ("/**", false),
        ("/room/*", true),
        ("/room/1/log/*", true),
        ("/room/1", true),
    ] {
        let reply = subscribe(&mut ws, name);
        assert_eq!(reply["successful"], allowed, "{name}");
        assert!(allowed || error(&reply) == "403:not_all:subscribe_denied", "{reply}");
    }
    let mut asked = std::mem::take(&mut *asked.lock().expect("no panic"));
    asked.dedup();
    assert_eq!(asked, ["/room/1/log Some(1)", "/room/1/* Some(1)", "/room/1/** Some(1)", "/room/** None", "/** None"]);
}

/// A user may have any name.
#[test]
fn a_pattern_that_leaves_a_parameter_open_is_refused_to_a_user_with_the_name_of_a_star() {
    let of = |name: &str| if name == "*" { Grant::Grant } else { Grant::deny("another_user") };
    let server = TestServer::of(
        server()
            .authorize("/user/{name}", move |_: &Access, Params(name): Params<String>| of(&name))
            .authorize_async("/later/{name}", move |_: Access<'static>, Params(name): Params<String>| async move {
                of(&name)
            }),
    );
    let mut ws = server.session();
    for name in ["/user/*", "/user/**", "/later/*", "/later/**", "/**"] {
        assert_eq!(error(&subscribe(&mut ws, name)), "403:invalid_parameters:subscribe_denied", "{name}");
    }
    assert_eq!(error(&subscribe(&mut ws, "/user/ann")), "403:another_user:subscribe_denied");
}

#[test]
fn mistakes_in_templates_are_refused_at_the_start_and_later() {
    let start = |server: encke::Builder| match server.start() {
        Err(encke::StartError::Hook(error)) => error.to_string(),
        _ => panic!("it started"),
    };
    let filter = |_: &Publishing| Verdict::Forward;
    let authorizer = |_: &Access| Grant::Grant;
    assert_eq!(
        start(server().filter("/room/x{id}", filter)),
        "\"/room/x{id}\" is no template: a parameter is a whole segment such as {id}, and each has another name"
    );
    assert_eq!(
        start(server().filter("/room/{id}/a", filter).authorize("/room/{room}/a", authorizer)),
        "the templates /room/{id}/a and /room/{room}/a stand for the same channels: name their parameters alike"
    );
    let takes = |_: &Access, Params(_): Params<u8>| Grant::Grant;
    let takes_none = "the authorizer of /room/* takes Params, but has no parameter such as {id}";
    assert_eq!(start(server().authorize("/room/*", takes)), takes_none);
    let listener = |_: &SessionEvent, _: &mut Actions, Params(_): Params<u8>| {};
    assert!(start(server().on_session(listener)).starts_with("a listener for sessions takes Params"));
    let route = async |_: RouteRequest, Params(_): Params<u8>| "";
    assert!(start(server().route("/orders", route)).starts_with("the route /orders takes Params"));
    assert!(start(server().route("/orders/{", route)).contains("is no template"));
    let server = TestServer::of(server().authorize("/room/{id}", authorizer));
    let add = |pattern, hook| server.hooks().add(pattern, hook).map(|_| ());
    let two = HookError::TwoTemplates("/room/{id}".into(), "/room/{name}".into());
    assert_eq!(add("/room/{name}", ChannelHook::authorize(authorizer)), Err(two));
    assert_eq!(add("/room/*", ChannelHook::authorize(takes)).expect_err("no parameter").to_string(), takes_none);
    assert_eq!(add("/room/{id}", ChannelHook::authorize(takes)), Ok(()));
}
