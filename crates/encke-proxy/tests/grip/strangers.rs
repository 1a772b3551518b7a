//! Clients that try to reach more than the backend has for them, or to take what others need.

use std::future::Future;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use encke::RequestClient;
use encke_proxy::ProxySettings;
use http::Request;
use http_body_util::Full;

use crate::rig::*;

/// The status, the type and the cookies of another user's response are not a client's to decide.
#[test]
fn a_client_cannot_answer_a_held_request_with_a_response_of_its_own() {
    let rig = of(answering(answer("Grip-Hold: response\r\nGrip-Channel: orders\r\n", "nothing yet")));
    let forged = r#"{"http-response":{"headers":{"content-type":"text/html","set-cookie":"a=b"},"body":"<script>"}}"#;
    let publish = rig.by_client("/orders", forged);
    let response = rig.held(|_| publish());
    assert_eq!(response.headers()["content-type"], "application/json");
    assert_eq!(response.headers().get("set-cookie"), None);
    assert_eq!(run(body(response)), (200, forged.into()));
}

#[test]
fn a_client_cannot_close_a_stream_or_write_parts_of_it() {
    let rig = of(answering(answer("Grip-Hold: stream\r\nGrip-Channel: a\r\n", "first\n")));
    let forged = r#"{"http-stream":{"content":"x","action":"close"}}"#;
    let publish = rig.by_client("/a", forged);
    run(async {
        let response = rig.proxy.answer(request("/x"), RequestClient::default()).await;
        publish();
        rig.handle.publish("/a", r#"{"http-stream":{"content":"end","action":"close"}}"#).expect("taken");
        assert_eq!(body(response).await, (200, format!("first\n{forged}\nend")));
    });
}

/// A backend whose answer is the head of the request.
fn echoing() -> String {
    backend(|head, mut stream| _ = stream.write_all(answer("", &head.to_ascii_lowercase()).as_bytes()))
}

#[test]
fn an_upgrade_to_another_protocol_than_the_listed_ones_is_an_ordinary_request() {
    let rig = of(echoing());
    let request = Request::get("/x")
        .header("host", "a.example")
        .header("connection", "Upgrade, HTTP2-Settings")
        .header("upgrade", "h2c")
        .header("http2-settings", "AAMAAABkAAQAAP__")
        .body(Full::<Bytes>::default())
        .expect("a request");
    let (status, head) = run(async { body(rig.proxy.answer(request, RequestClient::default()).await).await });
    assert_eq!(status, 200);
    for word in ["upgrade", "h2c", "http2-settings"] {
        assert!(!head.contains(word), "{head}");
    }
}

#[test]
fn a_path_with_dot_segments_does_not_reach_the_backend() {
    let rig = rig(ProxySettings { backend: echoing(), paths: vec!["/app".into()], ..ProxySettings::default() });
    for path in ["/app/../admin", "/app/%2e%2e/admin", "/app/..%2fadmin", "/app/%252e%252e/admin", "/app/..%5cadmin"] {
        assert_eq!(rig.get(path).0, 400, "{path}");
    }
    assert_eq!(rig.get("/app/a..b?x=/../y").0, 200);
}

#[test]
fn headers_of_proxies_are_believed_from_named_proxies_only() {
    let said = [("x-forwarded-for", "198.51.100.9"), ("forwarded", "for=198.51.100.9"), ("grip-sig", "forged")];
    let rig = rig(ProxySettings { backend: echoing(), ..ProxySettings::default() });
    let mut proxy = at([10, 1, 2, 3]);
    (proxy.address, proxy.is_behind_proxy) = (Some([198, 51, 100, 9].into()), true);
    let heads = [at([192, 0, 2, 7]), proxy].map(|client| {
        let mut request = request("/x");
        for (name, value) in said {
            request.headers_mut().insert(name, value.parse().expect("a value"));
        }
        run(async { body(rig.proxy.answer(request, client).await).await }).1
    });
    assert!(heads[0].contains("x-forwarded-for: 192.0.2.7\r\n") && heads[0].contains("x-real-ip: 192.0.2.7\r\n"));
    assert!(!heads[0].contains("198.51.100.9") && !heads[0].contains("forged"), "{}", heads[0]);
    assert!(heads[1].contains("x-forwarded-for: 198.51.100.9, 10.1.2.3\r\n"), "{}", heads[1]);
    assert!(heads[1].contains("x-real-ip: 198.51.100.9\r\n") && heads[1].contains("forged"), "{}", heads[1]);
}

/// Requests, holds and upgrades of one address at a backend that does not answer, beside those of another one.
#[test]
fn one_address_leaves_requests_holds_and_connections_to_others() {
    let backend = backend(|head, mut stream| match head.split(' ').nth(1) {
        Some("/slow") => std::thread::sleep(TIMEOUT),
        Some("/hold") => {
            _ = stream.write_all(answer("Grip-Hold: stream\r\nGrip-Channel: a\r\n", "held").as_bytes());
        }
        _ => _ = stream.write_all(answer("", "done").as_bytes()),
    });
    let settings = ProxySettings { backend, requests_max: 16, held_max: 16, ..ProxySettings::default() };
    let rig = rig(ProxySettings { upgraded_connections_max: 16, ..settings });
    let greedy = || at([192, 0, 2, 1]);
    let other = |number: u8| at([198, 51, 100, number]);
    run(async {
        let mut held = Vec::new();
        let refused = loop {
            let response = rig.proxy.answer(request("/hold"), greedy()).await;
            if response.status() != 200 {
                break response.status();
            }
            held.push(response);
        };
        assert_eq!(refused, 503);
        assert_eq!(rig.proxy.answer(request("/hold"), other(1)).await.status(), 200);

        let mut slow: Vec<_> = (0..64)
            .map(|number| {
                let mut one = request("/slow");
                if number % 2 == 0 {
                    one.headers_mut().insert("connection", "upgrade".parse().expect("a value"));
                    one.headers_mut().insert("upgrade", "websocket".parse().expect("a value"));
                }
                Box::pin(rig.proxy.answer(one, greedy()))
            })
            .collect();
        let under_way = std::future::poll_fn(|cx| {
            slow.iter_mut().for_each(|one| _ = one.as_mut().poll(cx).is_ready());
            std::task::Poll::Ready(rig.metric("under_way"))
        })
        .await;
        assert!(under_way < 16, "upgrades count, too, and some requests are left: {under_way}");
        for number in 0..8 {
            let response = rig.proxy.answer(request("/fast"), other(number)).await;
            assert_eq!(body(response).await, (200, "done".into()));
        }
    });
}

#[test]
fn large_answers_of_the_backend_are_limited_together() {
    let backend = answering(answer("", &"x".repeat(300_000)));
    let rig = rig(ProxySettings { backend, responses_bytes_max: 100_000, ..ProxySettings::default() });
    assert_eq!(rig.get("/x").0, 200, "alone it has room");
    let (sent, sends) = std::sync::mpsc::channel::<TcpStream>();
    let half = format!("HTTP/1.1 200 OK\r\ncontent-length: 200000\r\n\r\n{}", "x".repeat(90_000));
    let slow = crate::rig::backend(move |head, mut stream| {
        if head.starts_with("GET /slow ") {
            _ = stream.write_all(half.as_bytes());
            sent.send(stream).expect("a receiver");
        } else {
            let bytes = if head.starts_with("GET /large ") { 200_000 } else { 1_000 };
            _ = stream.write_all(answer("", &"x".repeat(bytes)).as_bytes());
        }
    });
    let rig =
        crate::rig::rig(ProxySettings { backend: slow, responses_bytes_max: 100_000, ..ProxySettings::default() });
    run(async {
        let mut first = std::pin::pin!(rig.proxy.answer(request("/slow"), RequestClient::default()));
        let others = async {
            while rig.metric("answer_bytes") == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            assert_eq!(rig.proxy.answer(request("/large"), RequestClient::default()).await.status(), 503);
            assert_eq!(rig.proxy.answer(request("/small"), RequestClient::default()).await.status(), 200);
        };
        tokio::select! {
            biased;
            _ = &mut first => panic!("it is not complete"),
            () = others => {}
        }
    });
    drop(sends);
    assert_eq!(rig.metric("answer_bytes"), 0);
}
