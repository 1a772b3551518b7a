//! Waits of the program itself: for the first of several channels, a time, a condition.

#[expect(dead_code, reason = "its main does not end")]
#[path = "../../examples/held_orders.rs"]
mod held_orders;

use std::cell::Cell;
use std::future::Future;
use std::time::Duration;

use encke::{ConditionPanicked, Data, Message, Raw, Release, RouteRequest, Server, SubscribeError};

use crate::common::{Http, TestServer, settings};

/// Runs a future with a clock.
fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(future)
}

fn data(release: Release) -> String {
    match release {
        Release::Message(message) => format!("{} {}", message.channel(), message.data()),
        other => format!("{other:?}"),
    }
}

#[test]
fn the_first_of_several_channels_releases_a_wait() {
    let server = TestServer::start(settings());
    let mut hold = server.handle.hold().on("/a").and_then(|hold| hold.on("/b/*")).expect("channels");
    server.publish("/other", "1");
    server.publish("/b/x", "2");
    assert_eq!(data(run(hold.next())), "/b/x 2");
    server.publish("/a", "3");
    assert_eq!(data(run(hold.next())), "/a 3");
    assert!(server.handle.hold().on("/a/").is_err());
}

#[test]
fn a_wait_ends_after_its_time() {
    let server = TestServer::start(settings());
    let hold = server.handle.hold().on("/a").expect("a channel");
    assert_eq!(data(run(hold.timeout(Duration::from_millis(20)).next())), "Timeout");
    // Without a channel it is a timer.
    assert_eq!(data(run(server.handle.hold().timeout(Duration::ZERO).next())), "Timeout");
}

/// It is evaluated before the first message, so a change before the wait is noticed.
#[test]
fn a_condition_is_evaluated_at_once_and_at_each_message() {
    let server = TestServer::start(settings());
    let mut hold = server.handle.hold().on("/a").expect("a channel");
    assert!(matches!(run(hold.until(|message| message.is_none())), Ok(Release::Met)));
    (0..5).for_each(|number| server.publish("/a", &number.to_string()));
    let looks = Cell::new(0);
    let is_three = |message: Option<&Message>| {
        looks.set(looks.get() + 1);
        message.is_some_and(|message| message.data() == "3")
    };
    assert_eq!(data(run(hold.until(is_three)).expect("no panic")), "/a 3");
    assert_eq!(looks.get(), 5, "once without a message, then at 0, 1, 2 and 3");
}

#[test]
fn a_condition_that_panics_fails_its_own_wait_only() {
    let server = TestServer::start(settings());
    let mut hold = server.handle.hold().on("/a").expect("a channel");
    let mut other = server.handle.hold().on("/a").expect("a channel");
    server.publish("/a", "1");
    let panics = |message: Option<&Message>| message.is_some_and(|_| panic!("a fault of the program"));
    assert_eq!(run(hold.until(panics)).map(|_| ()), Err(ConditionPanicked));
    assert_eq!(data(run(other.until(|message| message.is_some())).expect("no panic")), "/a 1");
    server.neighbour().lives(&server);
}

#[test]
fn waits_end_with_the_server() {
    let server = TestServer::start(settings());
    let mut hold = server.handle.hold().on("/a").expect("a channel");
    server.stop();
    assert_eq!(data(run(hold.next())), "Stopped");
}

/// Waits for a message on the channel `/orders/NAME`: at "panic" the condition panics.
async fn wait(request: RouteRequest) -> Result<Result<Raw, ConditionPanicked>, SubscribeError> {
    let mut hold = request.hold().on(&format!("/orders/{}", request.last_segment()))?;
    let is_done = |message: Option<&Message>| {
        let data = message.map_or("", Message::data);
        assert_ne!(data, "\"panic\"", "a fault of the program");
        data == "\"done\""
    };
    Ok(hold.until(is_done).await.map(|release| match release {
        Release::Message(message) => Raw(message.data().into()),
        _ => Raw("null".into()),
    }))
}

/// An application without another HTTP library holds requests by a route of the builder.
#[test]
fn a_condition_or_a_route_that_panics_fails_its_own_request_with_500() {
    let fails = async |request: RouteRequest| match request.last_segment() {
        "fails" => panic!("a fault of the program"),
        name => Data(name.len()),
    };
    let builder = Server::builder().settings(settings()).route("/wait/*", wait).route("/calls/**", fails);
    let server = TestServer::of(builder);
    let mut neighbour = server.neighbour();
    let mut held: Vec<Http> = ["tea", "coffee"]
        .into_iter()
        .zip(1..)
        .map(|(name, count)| {
            let mut http = server.http();
            http.send("GET", &format!("/wait/{name}"), &[], b"");
            server.wait_for("encke_in_process_subscriptions", count);
            http
        })
        .collect();
    server.publish("/orders/tea", "\"brewing\"");
    server.publish("/orders/coffee", "\"panic\"");
    let failed = held[1].receive();
    assert_eq!((failed.status, failed.text()), (500, "a condition has panicked\n".to_owned()));
    neighbour.lives(&server);
    assert_eq!(held[1].get("/calls/fails").status, 500);
    assert_eq!(held[1].get("/calls/a/four").text(), "4", "the connection goes on, and so does the route");
    assert_eq!(held[1].get("/wait/a%20b").status, 400, "no channel");
    assert_eq!(held[1].get("/wait").status, 404);
    server.publish("/orders/tea", "\"done\"");
    let done = held[0].receive();
    assert_eq!(
        (done.status, done.text(), done.header("content-type")),
        (200, "\"done\"".to_owned(), Some("application/json"))
    );
    neighbour.lives(&server);
}

/// The handler of the example: an ordinary request waits for a condition.
#[test]
fn a_handler_holds_its_request_until_a_condition_is_met() {
    let server = TestServer::of(held_orders::server().settings(settings()));
    let wait = |name: &str, count: u64| -> Http {
        let mut http = server.http();
        http.send("GET", &format!("/orders/wait/{name}"), &[], b"");
        server.wait_for("encke_in_process_subscriptions", count);
        http
    };
    let (mut tea, mut coffee) = (wait("tea", 1), wait("coffee", 2));
    server.wait_for_exactly("encke_held_requests", 2);
    for data in [r#"{"state":"brewing"}"#, r#"{"state":"complete"}"#] {
        server.publish("/orders/tea", data);
    }
    assert_eq!(tea.receive().text(), r#"{"state":"complete"}"#);
    assert_eq!(tea.get("/healthz").status, 200, "the connection goes on");
    // A client that leaves ends its wait.
    let left = wait("tea", 2);
    drop(left);
    server.wait_for_exactly("encke_in_process_subscriptions", 1);
    assert_eq!(tea.get("/orders/wait/a%20b").status, 400, "no channel");
    server.publish("/orders/coffee", r#"{"state":"complete"}"#);
    assert_eq!(coffee.receive().text(), r#"{"state":"complete"}"#);
    assert_eq!(coffee.get("/orders/other").status, 404, "no route");
}
