//! Requests to servers that are slow, huge, broken, or redirect for ever: each ends at a limit, and says which.

mod server;

use std::io::ErrorKind;
use std::net::TcpListener;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use encke_fetch::{FetchError, Fetcher, Limits};
use http::Request;
use server::Hostile;

/// Room for what the kernel has taken and the client has not read.
const SOCKET_BUFFERS_BYTES: usize = 32 * 1024 * 1024;

fn fetcher(limits: Limits) -> Fetcher {
    Fetcher::new(limits, None).expect("a client")
}

fn impatient() -> Fetcher {
    fetcher(Limits { total_timeout_ms: 200, ..Limits::default() })
}

async fn refusal(fetcher: &Fetcher, url: &str) -> FetchError {
    fetcher.get(url).await.expect_err("a response")
}

/// Waits for a server, while the client's connections go on.
async fn received<T: Send + 'static>(receiver: Receiver<T>) -> T {
    tokio::task::spawn_blocking(move || receiver.recv()).await.expect("no panic").expect("the server")
}

#[tokio::test]
async fn a_body_that_announces_a_gigabyte_is_not_read() {
    let (sender, written) = mpsc::channel();
    let server = Hostile::serve(move |mut connection| {
        connection.request();
        connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n");
        let _ = sender.send(connection.flood(&[b'x'; 65_536]));
    });
    let fetcher = fetcher(Limits { response_bytes_max: 1_000, ..Limits::default() });
    let error = refusal(&fetcher, &server.url).await;
    assert!(matches!(error, FetchError::ResponseTooLarge { response_bytes_max: 1_000 }), "{error}");
    assert!(error.to_string().contains("response_bytes_max"), "{error}");
    // The client closes the connection instead of reading it to its end.
    assert!(received(written).await < SOCKET_BUFFERS_BYTES);
}

#[tokio::test]
async fn a_body_without_end_is_read_to_the_limit_only() {
    let (sender, written) = mpsc::channel();
    let server = Hostile::serve(move |mut connection| {
        connection.request();
        connection.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(65_536));
        let _ = sender.send(connection.flood(chunk.as_bytes()));
    });
    let error = refusal(&fetcher(Limits::default()), &server.url).await;
    assert!(matches!(error, FetchError::ResponseTooLarge { .. }), "{error}");
    assert!(received(written).await < SOCKET_BUFFERS_BYTES);
}

#[tokio::test]
async fn a_body_of_exactly_the_limit_is_read() {
    let server = Hostile::answering("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
    let five = fetcher(Limits { response_bytes_max: 5, ..Limits::default() });
    assert_eq!(five.get(&server.url).await.expect("five bytes").body(), "hello");
    let error = refusal(&five.limited(Limits { response_bytes_max: 4, ..Limits::default() }), &server.url).await;
    assert!(matches!(error, FetchError::ResponseTooLarge { response_bytes_max: 4 }), "{error}");
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let (sender, written) = mpsc::channel();
    let server = Hostile::serve(move |mut connection| {
        connection.request();
        connection.write(b"HTTP/1.1 200 OK\r\nx: ");
        let _ = sender.send(connection.flood(&[b'x'; 4_096]));
    });
    let error = refusal(&fetcher(Limits::default()), &server.url).await;
    assert!(matches!(error, FetchError::Broken(_)), "{error}");
    assert!(received(written).await < SOCKET_BUFFERS_BYTES);
}

#[tokio::test]
async fn a_server_that_never_answers_meets_the_total_time() {
    let server = Hostile::serve(|connection| connection.wait());
    let error = refusal(&impatient(), &server.url).await;
    assert!(matches!(error, FetchError::TotalTimeout { total_timeout_ms: 200 }), "{error}");
    assert!(error.is_timeout());
}

#[tokio::test]
async fn a_server_that_sends_byte_by_byte_meets_the_total_time() {
    for begin in ["", "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n"] {
        let server = Hostile::serve(move |mut connection| {
            connection.request();
            connection.write(if begin.is_empty() { b"HTTP/1.1 200 OK\r\nx: " } else { begin.as_bytes() });
            while connection.write(b"x") {
                thread::sleep(Duration::from_millis(5));
            }
        });
        let error = refusal(&impatient(), &server.url).await;
        assert!(matches!(error, FetchError::TotalTimeout { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_never_speaks_tls_meets_the_time_to_connect() {
    let server = Hostile::serve(|connection| connection.wait());
    let hasty = fetcher(Limits { connect_timeout_ms: 100, ..Limits::default() });
    let error = refusal(&hasty, &server.url.replace("http", "https")).await;
    assert!(matches!(error, FetchError::ConnectTimeout { connect_timeout_ms: 100 }), "{error}");
}

#[tokio::test]
async fn a_server_that_is_gone_is_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let error = refusal(&fetcher(Limits::default()), &url).await;
    assert!(matches!(&error, FetchError::Connect(text) if text.contains("refused")), "{error}");
}

#[tokio::test]
async fn a_connection_that_closes_in_the_middle_is_a_broken_response() {
    for part in ["", "HTTP/1.1 200 OK\r\ncont", "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"] {
        let server = Hostile::serve(move |mut connection| {
            connection.request();
            connection.write(part.as_bytes());
        });
        let error = refusal(&fetcher(Limits::default()), &server.url).await;
        assert!(matches!(error, FetchError::Broken(_)), "{part}: {error}");
    }
}

#[tokio::test]
async fn garbage_is_a_broken_response() {
    for garbage in ["220 example ESMTP\r\n", "\0\u{1}\u{2}\u{3}\r\n\r\n", "HTTP/9.9 200 OK\r\n\r\n"] {
        let error = refusal(&fetcher(Limits::default()), &Hostile::answering(garbage).url).await;
        assert!(matches!(error, FetchError::Broken(_)), "{garbage}: {error}");
    }
}

#[tokio::test]
async fn redirects_for_ever_end_at_the_limit() {
    let server = Hostile::serve(|mut connection| {
        let mut number = 0;
        while connection.request().is_some() {
            number += 1;
            let response = format!("HTTP/1.1 302 Found\r\nlocation: /{number}\r\ncontent-length: 0\r\n\r\n");
            connection.write(response.as_bytes());
        }
    });
    let error = refusal(&fetcher(Limits { redirects_max: 3, ..Limits::default() }), &server.url).await;
    assert!(matches!(error, FetchError::TooManyRedirects { redirects_max: 3 }), "{error}");
    let error = refusal(&fetcher(Limits { redirects_max: 0, ..Limits::default() }), &server.url).await;
    assert!(matches!(error, FetchError::TooManyRedirects { redirects_max: 0 }), "{error}");
}

#[tokio::test]
async fn redirects_in_a_loop_end_at_once() {
    let server = Hostile::answering("HTTP/1.1 307 Temporary Redirect\r\nlocation: /a\r\ncontent-length: 0\r\n\r\n");
    let patient = fetcher(Limits { redirects_max: 1_000, ..Limits::default() });
    let error = refusal(&patient, &server.url).await;
    assert!(matches!(&error, FetchError::RedirectLoop { url } if url.ends_with("/a")), "{error}");
}

#[tokio::test]
async fn credentials_stay_with_the_server_they_are_for() {
    let (sender, heads) = mpsc::channel();
    let other = Hostile::serve(move |mut connection| {
        let head = connection.request().expect("a request").to_ascii_lowercase();
        let _ = sender.send(head);
        connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    });
    let to = &other.url;
    let first = Hostile::answering(format!("HTTP/1.1 302 Found\r\nlocation: {to}/x\r\ncontent-length: 0\r\n\r\n"));
    let request = Request::get(&first.url).header("authorization", "Bearer secret").header("x-other", "stays");
    let request = request.body(Bytes::new()).expect("a request");
    fetcher(Limits::default()).send(request).await.expect("a response");
    let head = received(heads).await;
    assert!(head.contains("x-other: stays") && !head.contains("secret"), "{head}");
}

#[tokio::test]
async fn a_redirected_post_is_not_repeated() {
    let server = Hostile::answering("HTTP/1.1 307 Temporary Redirect\r\nlocation: /a\r\ncontent-length: 0\r\n\r\n");
    let request = Request::post(&server.url).body(Bytes::new()).expect("a request");
    let response = fetcher(Limits::default()).send(request).await.expect("the redirect itself");
    assert_eq!(response.status(), 307);
}

#[tokio::test]
async fn a_connection_serves_several_requests() {
    let server = Hostile::answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let fetcher = fetcher(Limits::default());
    for _ in 0..5 {
        assert_eq!(fetcher.get(&server.url).await.expect("a response").body(), "ok");
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn requests_beyond_the_limit_of_a_host_wait_or_fail() {
    let (release, held) = mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let server = Hostile::serve(move |mut connection| {
        connection.request();
        let _ = held.lock().expect("unpoisoned").recv();
        connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    });
    let fetcher = fetcher(Limits { requests_per_host_max: 1, ..Limits::default() });
    let first = tokio::spawn({
        let (fetcher, url) = (fetcher.clone(), server.url.clone());
        async move { fetcher.get(&url).await.map(|response| response.status()) }
    });
    while server.connections() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let hasty = fetcher.limited(Limits { total_timeout_ms: 50, ..Limits::default() });
    let error = refusal(&hasty, &server.url).await;
    assert!(matches!(error, FetchError::HostBusy { requests_per_host_max: 1 }), "{error}");
    assert_eq!(server.connections(), 1);
    release.send(()).expect("the server");
    assert_eq!(first.await.expect("no panic").expect("a response"), 200);
}

#[tokio::test]
async fn other_addresses_than_those_of_http_are_refused() {
    let fetcher = fetcher(Limits::default());
    for url in ["", "nonsense", "ftp://a.example/", "file:///etc/passwd", "/relative", "http://"] {
        let error = refusal(&fetcher, url).await;
        assert!(matches!(error, FetchError::Url { .. }), "{url}: {error}");
    }
    let error = refusal(&fetcher, "http://me:secret@127.0.0.1/").await.to_string();
    assert!(error.contains("header") && !error.contains("secret"), "{error}");
}

#[test]
fn a_file_of_certificates_that_has_none_is_refused() {
    for (file, reason) in [("Cargo.toml", "no certificate"), ("missing", "No such file")] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let error = Fetcher::new(Limits::default(), Some(&path)).expect_err("no certificates").to_string();
        assert!(error.contains(file) && error.contains(reason), "{error}");
    }
    // The name of the error that a missing file has on Linux.
    assert_eq!(std::fs::read("missing").expect_err("no file").kind(), ErrorKind::NotFound);
}
