//! Limits on rates and numbers by session, user, address and server.

use encke::Settings;
use serde_json::{Value, json};

use crate::common::{TestServer, Ws, settings, wait_until};
use crate::presence::{serving, session, with_presence};

/// The reply to a handshake of this user, and its WebSocket.
fn opened(server: &TestServer, user: &str) -> (Value, Ws) {
    let mut ws = server.websocket();
    let handshake = json!([{"id": "h", "channel": "/meta/handshake", "version": "1.0", "ext": {"user": user}}]);
    ws.send_json(&handshake);
    let reply = ws.next_json()[0].clone();
    ws.id = reply["clientId"].as_str().unwrap_or_default().to_string();
    (reply, ws)
}

/// The errors of 30 publications of a session; those that were accepted have none.
fn errors(ws: &mut Ws) -> Vec<String> {
    let publish = |ws: &mut Ws| ws.call(json!({"id": "p", "channel": "/rates", "data": "x".repeat(40)}));
    (0..30).filter_map(|_| publish(ws)["error"].as_str().map(String::from)).collect()
}

/// A limit refuses some messages by its name, a metric counts them, and the session and its neighbours go on.
fn is_met(settings: Settings, limit: &str, metric: &str) {
    let server = serving(settings);
    let mut ws = opened(&server, "ann").1;
    let refused = errors(&mut ws);
    assert!((1..30).contains(&refused.len()), "{refused:?}");
    assert!(refused.iter().all(|error| *error == format!("429:{limit}:rate_exceeded")), "{refused:?}");
    assert_eq!(server.metric(metric), refused.len() as u64);
    assert_eq!(ws.call(json!({"id": "c", "channel": "/meta/connect", "advice": {"timeout": 0}}))["successful"], true);
    wait_until("it may publish again", || errors(&mut ws).len() < 30);
}

#[test]
fn session_messages_per_s_max_refuses_further_messages() {
    let settings = Settings { session_messages_per_s_max: 5, ..settings() };
    is_met(settings, "session_messages_per_s_max", "encke_session_rates_exceeded");
}

#[test]
fn session_bytes_per_s_max_refuses_further_bytes() {
    let settings = Settings { session_bytes_per_s_max: 200, ..settings() };
    is_met(settings, "session_bytes_per_s_max", "encke_session_rates_exceeded");
}

/// 20 connects with credentials in them: all are answered, and few refresh.
#[test]
fn session_refreshes_per_s_max_refuses_the_refresh_and_answers_the_connect() {
    let server = serving(Settings { session_refreshes_per_s_max: 2, ..settings() });
    let mut ws = opened(&server, "ann").1;
    let connect = json!({"id": "c", "channel": "/meta/connect", "advice": {"timeout": 0}, "ext": {"auth": "t"}});
    let (mut connected, mut refused) = (0, 0);
    for _ in 0..20 {
        ws.send_json(&json!([ws.mine(connect.clone())]));
        while let reply = ws.next_json()[0].take()
            && reply["channel"] != "/meta/connect"
        {
            refused += u64::from(reply["data"]["message"] == "429:session_refreshes_per_s_max:rate_exceeded");
        }
        connected += 1;
    }
    assert!(connected == 20 && refused > 0, "{connected} and {refused}");
    assert_eq!(server.metric("encke_session_rates_exceeded"), refused);
}

/// Neither the `ext` of a handshake nor the credentials of a refresh are read if they are too long.
#[test]
fn credentials_bytes_max_refuses_a_handshake_before_its_ext_is_read() {
    let server = serving(Settings { credentials_bytes_max: 1_024, ..settings() });
    let (reply, _) = opened(&server, &"x".repeat(2_000));
    assert_eq!(
        (&reply["error"], &reply["advice"]["reconnect"]),
        (&json!("413::credentials_too_large"), &json!("none"))
    );
    let mut ws = opened(&server, "ann").1;
    let refused = ws.call(json!({"id": "r", "channel": "/service/auth/refresh", "data": "x".repeat(2_000)}));
    assert_eq!(refused["error"], "413::credentials_too_large");
    assert_eq!(server.metric("encke_credentials_too_large"), 2);
}

#[test]
fn user_messages_per_s_max_refuses_further_messages() {
    let settings = Settings { user_messages_per_s_max: 5, ..settings() };
    is_met(settings, "user_messages_per_s_max", "encke_user_rates_exceeded");
}

#[test]
fn user_bytes_per_s_max_refuses_further_bytes() {
    let settings = Settings { user_bytes_per_s_max: 200, ..settings() };
    is_met(settings, "user_bytes_per_s_max", "encke_user_rates_exceeded");
}

#[test]
fn address_messages_per_s_max_refuses_further_messages() {
    let settings = Settings { address_messages_per_s_max: 5, ..settings() };
    is_met(settings, "address_messages_per_s_max", "encke_address_rates_exceeded");
}

#[test]
fn address_bytes_per_s_max_refuses_further_bytes() {
    let settings = Settings { address_bytes_per_s_max: 200, ..settings() };
    is_met(settings, "address_bytes_per_s_max", "encke_address_rates_exceeded");
}

#[test]
fn messages_per_s_max_refuses_further_messages() {
    let settings = Settings { messages_per_s_max: 5, ..settings() };
    is_met(settings, "messages_per_s_max", "encke_server_rates_exceeded");
}

#[test]
fn bytes_per_s_max_refuses_further_bytes() {
    let settings = Settings { bytes_per_s_max: 200, ..settings() };
    is_met(settings, "bytes_per_s_max", "encke_server_rates_exceeded");
}

/// 20 handshakes at once: some are refused with advice, and a later one is accepted.
fn handshakes_are_paced(settings: Settings, limit: &str, metric: &str) {
    let server = serving(settings);
    let replies: Vec<Value> = (0..20).map(|_| opened(&server, "ann").0).collect();
    let refused: Vec<&Value> = replies.iter().filter(|reply| reply["successful"] == false).collect();
    assert!((1..20).contains(&refused.len()), "{replies:?}");
    for reply in &refused {
        assert_eq!(reply["error"], format!("429:{limit}:rate_exceeded"));
        assert_eq!(reply["advice"]["reconnect"], "handshake");
    }
    assert_eq!(server.metric(metric), refused.len() as u64);
    wait_until("there is room again", || opened(&server, "ann").0["successful"] == true);
}

#[test]
fn handshakes_per_s_max_refuses_further_handshakes() {
    let settings = Settings { handshakes_per_s_max: 3, ..settings() };
    handshakes_are_paced(settings, "handshakes_per_s_max", "encke_server_rates_exceeded");
}

#[test]
fn address_handshakes_per_s_max_refuses_further_handshakes() {
    let settings = Settings { address_handshakes_per_s_max: 3, ..settings() };
    handshakes_are_paced(settings, "address_handshakes_per_s_max", "encke_address_rates_exceeded");
}

#[test]
fn user_handshakes_per_s_max_refuses_further_handshakes() {
    let settings = Settings { user_handshakes_per_s_max: 3, ..settings() };
    handshakes_are_paced(settings, "user_handshakes_per_s_max", "encke_user_rates_exceeded");
}

#[test]
fn user_sessions_max_refuses_one_more_session_of_a_user() {
    let server = serving(Settings { user_sessions_max: 2, shards: 2, ..settings() });
    let (_first, mut second) = (opened(&server, "ann"), opened(&server, "ann").1);
    let (refused, _) = opened(&server, "ann");
    assert_eq!(refused["error"], "413:user_sessions_max:sessions_max");
    assert_eq!(opened(&server, "bob").0["successful"], true);
    assert_eq!(server.metric("encke_sessions_refused"), 1);
    second.call(json!({"id": "d", "channel": "/meta/disconnect"}));
    assert_eq!(opened(&server, "ann").0["successful"], true);
}

#[test]
fn sessions_of_one_user_leave_room_for_others() {
    let server = serving(Settings { sessions_max: 16, shards: 2, ..settings() });
    let connect =
        json!({"id": "c", "channel": "/meta/connect", "connectionType": "websocket", "advice": {"timeout": 0}});
    let open = |user: &str| {
        let (reply, mut ws) = opened(&server, user);
        if reply["successful"] == false {
            assert_eq!((&reply["error"], &reply["advice"]["interval"]), (&json!("413::sessions_max"), &json!(5_000)));
            return None;
        }
        assert_eq!(ws.call(connect.clone())["successful"], true);
        Some(ws)
    };
    let mut greedy: Vec<Ws> = (0..20).map_while(|_| open("eve")).collect();
    assert!((8..16).contains(&greedy.len()), "{}", greedy.len());
    let _others = ["ann", "bob"].map(|user| open(user).expect("room for others"));
    assert!(open("eve").is_none());
    greedy.iter_mut().for_each(|ws| drop(ws.call(json!({"id": "d", "channel": "/meta/disconnect"}))));
    assert!(open("eve").is_some());
}

#[test]
fn user_subscriptions_max_counts_all_sessions_of_a_user() {
    let server = serving(Settings { user_subscriptions_max: 2, shards: 2, ..settings() });
    let (mut first, mut second) = (opened(&server, "ann").1, opened(&server, "ann").1);
    first.subscribe("/a");
    second.subscribe("/a");
    let reply = second.call(json!({"id": "s", "channel": "/meta/subscribe", "subscription": "/b"}));
    assert_eq!(reply["error"], "413:user_subscriptions_max:subscriptions_max");
    assert_eq!(server.metric("encke_subscriptions_refused"), 1);
    first.call(json!({"id": "u", "channel": "/meta/unsubscribe", "subscription": "/a"}));
    second.subscribe("/b");
}

#[test]
fn all_subscriptions_max_counts_all_sessions() {
    let server = serving(Settings { all_subscriptions_max: 2, shards: 2, ..settings() });
    let (mut first, mut second) = (opened(&server, "ann").1, opened(&server, "bob").1);
    first.subscribe("/a");
    second.subscribe("/a");
    let reply = second.call(json!({"id": "s", "channel": "/meta/subscribe", "subscription": "/b"}));
    assert_eq!(reply["error"], "413:all_subscriptions_max:subscriptions_max");
    assert_eq!(server.metric("encke_subscriptions_refused"), 1);
    first.call(json!({"id": "d", "channel": "/meta/disconnect"}));
    second.subscribe("/b");
}

/// A table for 8 rates meets 30 users. None is refused because of the others.
#[test]
fn rate_entries_max_forgets_the_rates_of_those_that_sent_least() {
    let server = serving(Settings { rate_entries_max: 8, user_messages_per_s_max: 2, shards: 1, ..settings() });
    for user in 0..30 {
        let mut ws = opened(&server, &format!("user{user}")).1;
        assert_eq!(ws.call(json!({"id": "p", "channel": "/a", "data": 1}))["successful"], true);
    }
    server.wait_for("encke_rates_forgotten", 1);
}

/// One connection more than four, a neighbour's among them, is refused with this status, until others are closed.
fn a_fifth_connection_is_refused(limited: Settings, status: u16, metric: &str) {
    let server = TestServer::start(limited);
    let mut neighbour = server.neighbour();
    let mut stored = Vec::new();
    let refusal = loop {
        let mut tcp = server.tcp();
        let _cut = tcp.try_send("GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n");
        let response = tcp.response().expect("an answer");
        if response.status != 200 {
            break response;
        }
        stored.push(tcp);
        assert!(stored.len() < 4, "with the neighbour's");
    };
    assert_eq!((refusal.status, refusal.header("retry-after")), (status, Some("5")));
    neighbour.lives(&server);
    stored.clear();
    wait_until("there is room again", || {
        let mut tcp = server.tcp();
        let _cut = tcp.try_send("GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n");
        tcp.response().is_some_and(|response| response.status == 200)
    });
    wait_until("the page is served", || server.http().get("/metrics").status == 200);
    assert!(server.metric(metric) >= 1);
}

#[test]
fn connections_max_answers_one_more_with_503() {
    let limited = Settings { connections_max: 4, ..settings() };
    a_fifth_connection_is_refused(limited, 503, "encke_connections_refused");
}

#[test]
fn address_connections_max_answers_one_more_with_429() {
    let limited = Settings { address_connections_max: 4, ..settings() };
    a_fifth_connection_is_refused(limited, 429, "encke_address_connections_refused");
}

#[test]
fn presence_members_max_lists_no_further_sessions() {
    let server = serving(Settings { presence_members_max: 2, ..with_presence() });
    let mut members: Vec<Ws> = (0..4).map(|user| session(&server, &format!("user{user}"))).collect();
    members.iter_mut().for_each(|ws| ws.subscribe("/room/1"));
    server.wait_for_exactly("encke_presence_refused", 2);
    assert_eq!(server.handle.presence("/room/1", "", 10).counts.users, 2);
    // They are subscribed all the same.
    server.publish("/room/1", "1");
    members.iter_mut().for_each(|ws| assert_eq!(ws.next_json()[0]["data"], 1));
}

#[test]
fn presence_bytes_max_lists_no_further_sessions() {
    let server = serving(Settings { presence_bytes_max: 10_000, ..with_presence() });
    let mut long = session(&server, &"x".repeat(20_000));
    let mut short = session(&server, "ann");
    long.subscribe("/room/1");
    short.subscribe("/room/1");
    server.wait_for_exactly("encke_presence_refused", 1);
    wait_until("the other is listed", || server.handle.presence("/room/1", "", 10).members[0].user == "ann");
}
