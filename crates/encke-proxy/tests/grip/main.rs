//! The proxy in front of backends that hold responses, and of backends that misbehave.

mod rig;
mod strangers;

use bytes::Bytes;
use encke::RequestClient;
use encke_proxy::{Proxy, ProxySettings};
use http::Request;
use http_body_util::{BodyExt, Full};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::rig::*;

#[test]
fn a_request_goes_to_the_backend_and_its_answer_comes_back() {
    let rig = of(backend(|head, mut stream| {
        let (line, rest) = head.split_once("\r\n").expect("a head");
        let rest = rest.to_ascii_lowercase();
        let forwarded = ["x-forwarded-for: 192.0.2.7", "x-forwarded-host: a.example", "x-own: 1"];
        let is_right = forwarded.iter().all(|line| rest.contains(line)) && !rest.contains("te: ");
        let text = format!("{line} {is_right} {}", rest.rsplit("\r\n").next().unwrap_or_default());
        _ = stream.write_all(answer("x-answer: yes\r\nkeep-alive: 5\r\nset-cookie: a=b\r\n", &text).as_bytes());
    }));
    let request = Request::post("/path/%20?a=b&c")
        .header("host", "a.example")
        .header("x-own", "1")
        .header("te", "trailers")
        .body(Full::new(Bytes::from_static(b"the body")))
        .expect("a request");
    let response = run(rig.proxy.answer(request, at([192, 0, 2, 7])));
    let names: Vec<_> = response.headers().keys().map(|name| name.as_str().to_owned()).collect();
    assert_eq!(names, ["x-answer", "set-cookie"]);
    assert_eq!(run(body(response)), (200, "POST /path/%20?a=b&c HTTP/1.1 true the body".into()));
}

#[test]
fn a_redirect_is_passed_on() {
    let rig = of(answering("HTTP/1.1 302 Found\r\nlocation: /there\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"));
    assert_eq!(rig.get("/x").0, 302);
}

#[test]
fn a_held_response_is_the_message_that_comes() {
    let rig = of(answering(answer("Grip-Hold: response\r\nGrip-Channel: orders, other\r\n", "nothing yet")));
    let response = rig.held(|handle| handle.publish("/orders", r#"{"item":"tea"}"#).expect("taken"));
    assert_eq!(response.headers()["content-type"], "application/json");
    assert!(!response.headers().keys().any(|name| name.as_str().starts_with("grip")));
    assert_eq!(run(body(response)), (200, r#"{"item":"tea"}"#.into()));
    let formatted = r#"{"http-response":{"code":201,"headers":{"x-a":"b"},"body":"done"}}"#;
    let response = rig.held(|handle| handle.publish("/other", formatted).expect("taken"));
    assert_eq!(response.headers()["x-a"], "b");
    assert_eq!(run(body(response)), (201, "done".into()));
}

/// The answer of the backend is that at the end of the time.
#[test]
fn a_held_response_without_a_message_is_that_of_the_backend() {
    let headers = "Grip-Hold: response\r\nGrip-Channel: a\r\nGrip-Timeout: 0\r\nGrip-Status: 404\r\nx-own: 1\r\n";
    let rig = of(answering(answer(headers, "nothing yet")));
    let response = run(rig.proxy.answer(request("/x"), RequestClient::default()));
    assert_eq!(response.headers()["x-own"], "1");
    assert_eq!(run(body(response)), (404, "nothing yet".into()));
}

#[test]
fn an_instruction_may_be_a_json_body() {
    let instruct = r#"{"hold":{"mode":"response","timeout":0,"channels":[{"name":"a","prev-id":"x"}]},
        "response":{"code":202,"headers":{"x-a":"b"},"body":"later"}}"#;
    let rig = of(answering(answer("content-type: application/grip-instruct\r\n", instruct)));
    let response = run(rig.proxy.answer(request("/x"), RequestClient::default()));
    assert_eq!(response.headers()["x-a"], "b");
    assert_eq!(run(body(response)), (202, "later".into()));
}

#[test]
fn a_stream_goes_on_with_each_message_until_one_closes_it() {
    let headers = "Grip-Hold: stream\r\nGrip-Channel: a\r\nGrip-Keep-Alive: \\n; format=cstring; timeout=1\r\n";
    let rig = of(answering(answer(headers, "first\n")));
    run(async {
        let response = rig.proxy.answer(request("/x"), RequestClient::default()).await;
        rig.handle.publish("/a", "1").expect("taken");
        rig.handle.publish("/a", r#"{"http-stream":{"content":"two\n"}}"#).expect("taken");
        let mut stream = response.into_body();
        let mut text = String::new();
        // The line feed after the silence of a second.
        while text != "first\n1\ntwo\n\n" {
            let Ok(frame) = stream.frame().await.expect("more");
            text.push_str(str::from_utf8(frame.data_ref().expect("data")).expect("text"));
            assert!("first\n1\ntwo\n\n".starts_with(&text), "{text:?}");
        }
        rig.handle.publish("/a", r#"{"http-stream":{"action":"close"}}"#).expect("taken");
        while let Some(Ok(frame)) = stream.frame().await {
            assert_eq!(frame.data_ref().map(|data| &data[..]), Some(&b"\n"[..]), "only keep-alives");
        }
    });
    assert_eq!(rig.metric("held"), 0);
}

#[test]
fn instructions_that_cannot_be_followed_are_a_bad_gateway() {
    let hold = |headers: &str| answer(&format!("Grip-Hold: response\r\n{headers}"), "x");
    let many: Vec<String> = (0..17).map(|number| format!("c{number}")).collect();
    for text in [
        hold(""),
        hold("Grip-Channel: \r\n"),
        hold("Grip-Channel: a/\r\n"),
        hold("Grip-Channel: /meta/connect\r\n"),
        hold(&format!("Grip-Channel: {}\r\n", many.join(","))),
        hold("Grip-Channel: a\r\nGrip-Timeout: soon\r\n"),
        hold("Grip-Channel: a\r\nGrip-Status: 2000\r\n"),
        answer("Grip-Status: ok\r\n", "x"),
        answer("Grip-Status: 101\r\n", "x"),
        hold("Grip-Channel: a\r\nGrip-Keep-Alive: x; timeout=0\r\n"),
        answer("Grip-Hold: forever\r\nGrip-Channel: a\r\n", "x"),
        answer("content-type: application/grip-instruct\r\n", "not JSON"),
        answer("content-type: application/grip-instruct\r\n", r#"{"response":{"code":99}}"#),
        answer("content-type: application/grip-instruct\r\n", r#"{"hold":{"mode":"response"}}"#),
    ] {
        assert_eq!(of(answering(text.clone())).get("/x").0, 502, "{text}");
    }
}

#[test]
fn a_backend_that_misbehaves_is_a_bad_gateway_in_time() {
    let down = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    assert_eq!(of(format!("http://{down}")).get("/x").0, 502);
    let closes = backend(|_, stream| drop(stream));
    assert_eq!(of(closes).get("/x").0, 502);
    assert_eq!(of(answering("garbage\r\n\r\n")).get("/x").0, 502);
    let cut = answering("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly this");
    assert_eq!(of(cut).get("/x").0, 502);
    // A gigabyte, announced and not.
    let announced = answering("HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\nx");
    assert_eq!(of(announced).get("/x"), (502, "the backend's answer is too large\n".into()));
    let endless = backend(|_, mut stream| {
        let _head = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'x'; 65_536]).is_ok() {}
    });
    let settings = ProxySettings { backend: endless, response_bytes_max: 1 << 20, ..ProxySettings::default() };
    assert_eq!(rig(settings).get("/x"), (502, "the backend's answer is too large\n".into()));
    let slow = backend(|_, mut stream| {
        while stream.write_all(b"H").is_ok() {
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    let settings = ProxySettings { backend: slow, timeout_ms: 200, ..ProxySettings::default() };
    assert_eq!(rig(settings).get("/x").0, 504);
}

#[test]
fn requests_beyond_a_limit_do_not_reach_the_backend() {
    let backend = answering(answer("", "reached"));
    let rig = rig(ProxySettings { backend, request_bytes_max: 10, ..ProxySettings::default() });
    let post = Request::post("/x").body(Full::new(Bytes::from_static(b"eleven bytes"))).expect("a request");
    assert_eq!(run(async { body(rig.proxy.answer(post, RequestClient::default()).await).await }).0, 413);
    assert_eq!(rig.get("/x"), (200, "reached".into()));
}

/// The limit is of those that are held at once.
/// A body of which the rest does not come.
struct Stalled(Option<Bytes>);

impl hyper::body::Body for Stalled {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
        match self.0.take() {
            Some(bytes) => std::task::Poll::Ready(Some(Ok(hyper::body::Frame::data(bytes)))),
            None => std::task::Poll::Pending,
        }
    }
}

#[test]
fn large_bodies_of_requests_are_limited_together_and_small_ones_pass() {
    let settings = ProxySettings { backend: answering(answer("", "done")), ..ProxySettings::default() };
    let rig = rig(ProxySettings { requests_bytes_max: 100_000, ..settings });
    let post = |bytes: usize| Request::post("/x").header("host", "a.example").body(Full::from(vec![b'x'; bytes]));
    let stalled = Request::post("/x").body(Stalled(Some(vec![b'x'; 95_000].into()))).expect("a request");
    run(async {
        let mut stalled = std::pin::pin!(rig.proxy.answer(stalled, RequestClient::default()));
        tokio::select! {
            biased;
            _ = &mut stalled => panic!("it is not complete"),
            () = std::future::ready(()) => {}
        }
        for (bytes, expected) in [(60_000, 503), (16_000, 200)] {
            let answered = rig.proxy.answer(post(bytes).expect("a request"), RequestClient::default()).await;
            assert_eq!(answered.status(), expected, "{bytes}");
        }
    });
    assert_eq!(rig.metric("request_bytes"), 0);
    assert_eq!(run(rig.proxy.answer(post(60_000).expect("a request"), RequestClient::default())).status(), 200);
}

#[test]
fn the_bytes_of_held_responses_are_limited() {
    let backend = answering(answer("Grip-Hold: response\r\nGrip-Channel: a\r\n", &"x".repeat(600)));
    let rig = rig(ProxySettings { backend, held_bytes_max: 1_000, ..ProxySettings::default() });
    run(async {
        let first = rig.proxy.answer(request("/x"), RequestClient::default());
        let second = async {
            rig.when_held(|_| ()).await;
            assert_eq!(rig.proxy.answer(request("/x"), RequestClient::default()).await.status(), 503);
            rig.handle.publish("/a", "1").expect("taken");
        };
        assert_eq!(tokio::join!(first, second).0.status(), 200);
    });
    assert_eq!(rig.metric("held_bytes"), 0);
}

#[test]
fn a_response_beyond_held_max_is_refused() {
    let backend = answering(answer("Grip-Hold: stream\r\nGrip-Channel: a\r\n", "first"));
    let rig = rig(ProxySettings { backend, held_max: 1, ..ProxySettings::default() });
    run(async {
        let first = rig.proxy.answer(request("/x"), RequestClient::default()).await;
        assert_eq!(rig.proxy.answer(request("/x"), RequestClient::default()).await.status(), 503);
        drop(first);
        assert_eq!(rig.proxy.answer(request("/x"), RequestClient::default()).await.status(), 200);
    });
}

#[test]
fn settings_that_cannot_work_are_refused_by_name() {
    let backend = || "http://127.0.0.1:1".to_owned();
    let rig = of(backend());
    for (settings, name) in [
        (ProxySettings::default(), "proxy.backend"),
        (ProxySettings { backend: "127.0.0.1:3000".into(), ..ProxySettings::default() }, "proxy.backend"),
        (ProxySettings { backend: "ftp://a".into(), ..ProxySettings::default() }, "proxy.backend"),
        (ProxySettings { backend: backend(), paths: vec!["app".into()], ..ProxySettings::default() }, "proxy.paths"),
        (
            ProxySettings { backend: backend(), upgrade_protocols: vec!["a b".into()], ..ProxySettings::default() },
            "proxy.upgrade_protocols",
        ),
        (ProxySettings { backend: backend(), timeout_ms: 0, ..ProxySettings::default() }, "proxy.timeout_ms"),
    ] {
        let error = Proxy::new(settings, rig.handle.clone()).expect_err("an error").to_string();
        assert!(error.starts_with(name), "{error}");
    }
    let app = ProxySettings { backend: backend(), paths: vec!["/app".into()], ..ProxySettings::default() };
    let proxy = Proxy::new(app, rig.handle.clone()).expect("valid");
    assert!(proxy.takes("/app") && proxy.takes("/app/x") && !proxy.takes("/apple") && rig.proxy.takes("/any"));
}

/// A backend that switches to another protocol: it greets, and sends each line back in capitals.
fn shouting() -> String {
    backend(|head, mut stream| {
        let head = head.to_ascii_lowercase();
        for line in ["connection: upgrade", "upgrade: shout", "sec-websocket-key: abc", "x-forwarded-host: 127.0.0.1"] {
            assert!(head.contains(line), "{line}: {head}");
        }
        let switched =
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: shout\r\nx-own: 1\r\n\r\nhello\n";
        stream.write_all(switched.as_bytes()).expect("written");
        for line in BufReader::new(stream.try_clone().expect("a stream")).lines().map_while(Result::ok) {
            if line == "end" {
                return;
            }
            _ = stream.write_all(format!("{}\n", line.to_uppercase()).as_bytes());
        }
    })
}

/// A client that asks for another protocol, and sends a line with its request.
fn switching(rig: &Rig) -> BufReader<TcpStream> {
    let address = rig.running.as_ref().expect("it runs").address();
    let mut client = TcpStream::connect(address).expect("connects");
    client.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let head = "connection: keep-alive, Upgrade\r\nupgrade: shout\r\nsec-websocket-key: abc";
    write!(client, "GET /shout HTTP/1.1\r\nhost: {address}\r\n{head}\r\n\r\nearly\n").expect("written");
    BufReader::new(client)
}

fn line(client: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    client.read_line(&mut line).expect("a line");
    line
}

#[test]
fn a_connection_that_switches_its_protocol_passes_as_it_is_until_one_side_ends_it() {
    let settings = ProxySettings { backend: shouting(), upgraded_connections_max: 1, ..ProxySettings::default() };
    let rig = rig(ProxySettings { upgrade_protocols: vec!["shout".into()], ..settings });
    rig.handle.set_fallback(Some(Arc::new(rig.proxy.clone())));
    let wait_for = |upgraded: u64| {
        let began = Instant::now();
        while rig.metric("upgraded") != upgraded {
            assert!(began.elapsed() < TIMEOUT, "{upgraded}");
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    for ends_at_backend in [true, false] {
        let mut client = switching(&rig);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            head += &line(&mut client);
        }
        assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("upgrade: shout\r\n"), "{head}");
        assert!(head.contains("x-own: 1\r\n"), "{head}");
        assert_eq!((line(&mut client), line(&mut client)), ("hello\n".into(), "EARLY\n".into()));
        client.get_mut().write_all(b"more\n").expect("written");
        assert_eq!(line(&mut client), "MORE\n");
        // One at a time: the limit.
        assert!(line(&mut switching(&rig)).starts_with("HTTP/1.1 503 "));
        if ends_at_backend {
            client.get_mut().write_all(b"end\n").expect("written");
            assert_eq!(line(&mut client), "", "the end");
        }
        drop(client);
        wait_for(0);
    }
    let mut last = switching(&rig);
    while line(&mut last) != "EARLY\n" {}
    rig.handle.drain();
    assert!(matches!(last.read(&mut [0]), Ok(0) | Err(_)), "a drain ends it");
}

#[test]
fn a_backend_that_does_not_switch_answers_as_always() {
    let rig = of("http://127.0.0.1:1".into());
    let upgrade = || {
        let request = Request::get("/x").header("upgrade", "websocket").header("connection", "upgrade");
        request.body(Full::<Bytes>::default()).expect("a request")
    };
    assert_eq!(run(rig.proxy.answer(upgrade(), RequestClient::default())).status(), 502);
    let rig = of(answering("HTTP/1.1 403 Forbidden\r\ncontent-length: 3\r\nconnection: close\r\n\r\nno\n"));
    assert_eq!(
        run(async { body(rig.proxy.answer(upgrade(), RequestClient::default()).await).await }),
        (403, "no\n".into())
    );
    let connect = Request::connect("a.example:1").body(Full::<Bytes>::default()).expect("a request");
    assert_eq!(run(rig.proxy.answer(connect, RequestClient::default())).status(), 501);
}
