//! The host name in a request (RFC 9110 §7.2, RFC 9112 §3.2; rows 1 and 10 of `docs/contributing/bad-input.md`).

use encke::{ListenerSettings, Settings};

use crate::common::tls::scheme;
use crate::common::{TestServer, Ws, settings};

/// A callback-polling request with a handshake.
const SCRIPT: &str = "/cometd?jsonp=f&message=%5B%7B%22channel%22%3A%22%2Fmeta%2Fhandshake%22%7D%5D";
/// The same as a body.
const HANDSHAKE: &[u8] = br#"[{"channel":"/meta/handshake"}]"#;

fn get(server: &TestServer, target: &str, headers: &[(&str, &str)]) -> u16 {
    server.http().request("GET", target, headers, b"").status
}

fn post(server: &TestServer, headers: &[(&str, &str)]) -> u16 {
    server.http().request("POST", "/cometd", headers, HANDSHAKE).status
}

/// Sends a head and a body unchanged. Returns the status of the response.
fn status_of(server: &TestServer, request: impl AsRef<[u8]>) -> Option<u16> {
    let mut tcp = server.tcp();
    tcp.send(request);
    tcp.response().map(|response| response.status)
}

/// DNS rebinding: a page at `http://evil.example:8080`, whose name now points to this machine, has the same origin as
/// its requests. With `referrerPolicy: 'no-referrer'`, and because browsers do not trust its address, its scripts
/// reveal no page at all.
#[test]
fn a_foreign_name_that_resolves_to_loopback_reads_and_writes_nothing() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    let host = format!("evil.example:{}", server.address().port());
    let foreign = [("host", host.as_str())];
    for target in [SCRIPT, "/metrics", "/", "/nothing"] {
        assert_eq!(get(&server, target, &foreign), 421, "{target}");
    }
    assert_eq!(post(&server, &foreign), 421);
    let mut tcp = server.tcp();
    let upgrade = String::from_utf8(Ws::request(server.address(), &[])).expect("ASCII");
    tcp.send(upgrade.replace(&format!("host: {}", server.address()), &format!("host: {host}")));
    assert_eq!(tcp.response().map(|response| response.status), Some(421));
    assert_eq!(server.metric("encke_hosts_refused"), 6);
    assert_eq!(server.metric("encke_sessions"), 1, "the neighbour's");
    neighbour.lives(&server);
}

#[test]
fn programs_may_address_a_loopback_server_by_any_of_its_names() {
    let server = TestServer::start(settings());
    let port = server.address().port();
    for host in ["localhost", "LOCALHOST", "app.localhost", "127.0.0.1", "127.0.0.2", "[::1]"] {
        for host in [host.to_owned(), format!("{host}:{port}"), format!("{host}:")] {
            assert_eq!(post(&server, &[("host", &host)]), 200, "{host}");
            assert_eq!(get(&server, SCRIPT, &[("host", &host)]), 200, "{host}");
        }
    }
    for host in ["localhost.evil.example", "127.0.0.1.evil.example", "evil-localhost", "localhost."] {
        assert_eq!(post(&server, &[("host", host)]), 421, "{host}");
    }
    assert_eq!(post(&server, &[("host", "192.0.2.7:8080")]), 200, "no name, so nobody points it elsewhere");
}

#[test]
fn allowed_hosts_are_the_names_of_a_server_beside_addresses_and_localhost() {
    let server = TestServer::start(Settings { allowed_hosts: vec!["push.example".into()], ..settings() });
    for host in ["push.example", "PUSH.example:443", "localhost:1", "127.0.0.1"] {
        assert_eq!(post(&server, &[("host", host)]), 200, "{host}");
    }
    for host in ["evil.example", "push.example.evil.example", "a.push.example", "example"] {
        assert_eq!(post(&server, &[("host", host)]), 421, "{host}");
        assert_eq!(get(&server, SCRIPT, &[("host", host)]), 421, "{host}");
        assert_eq!(get(&server, "/metrics", &[("host", host)]), 421, "{host}");
    }
    let everywhere = Settings { listen: ([0, 0, 0, 0], 0).into(), ..settings() };
    let server = TestServer::start(Settings { allowed_hosts: vec!["push.example".into()], ..everywhere.clone() });
    assert_eq!((post(&server, &[("host", "push.example")]), post(&server, &[("host", "evil.example")])), (200, 421));
    let listeners = vec![ListenerSettings { address: "0.0.0.0:0".into(), ..ListenerSettings::default() }];
    for everywhere in [everywhere, Settings { listeners, ..settings() }] {
        let server = TestServer::start(everywhere);
        assert_eq!(post(&server, &[("host", "any.example")]), 200, "a server of the net, whatever it is called");
    }
}

/// Probing programs use any host name, and learn only that the server is up.
#[test]
fn probes_may_address_the_server_by_any_name() {
    let server = TestServer::start(settings());
    for target in ["/healthz", "/readyz"] {
        assert_eq!(get(&server, target, &[("host", "some.pod.example")]), 200, "{target}");
    }
}

/// RFC 9112 §3.2.
#[test]
fn a_missing_repeated_or_invalid_host_gets_400() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    let request = |version: &str, lines: &str| format!("GET /healthz HTTP/{version}\r\n{lines}\r\n");
    let long = format!("host: {}\r\n", "a".repeat(300));
    for lines in [
        "",
        "host: localhost\r\nhost: localhost\r\n",
        "host: localhost\r\nx: y\r\nhost: evil.example\r\n",
        "host:\r\n",
        "host: :8080\r\n",
        "host: localhost:port\r\n",
        "host: localhost:65536\r\n",
        "host: localhost:80:80\r\n",
        "host: local host\r\n",
        "host: localhost,evil.example\r\n",
        "host: user@localhost\r\n",
        "host: http://localhost\r\n",
        "host: localhost/\r\n",
        "host: [::1\r\n",
        "host: [localhost]\r\n",
        "host: ::1\r\n",
        "host: l\u{f6}calhost\r\n",
        &long,
    ] {
        let mut tcp = server.tcp();
        tcp.send(request("1.1", lines));
        let response = tcp.response().expect("a response");
        assert_eq!((response.status, response.header("connection")), (400, Some("close")), "{lines}");
        assert!(tcp.ends());
    }
    assert_eq!(status_of(&server, request("1.0", "")), Some(200), "HTTP/1.0 knows no host: a probe, never a browser");
    assert_eq!(status_of(&server, request("1.0", "host: a\r\nhost: b\r\n")), Some(400));
    neighbour.lives(&server);
}

/// RFC 9112 §3.2.2: the authority of the target counts, whatever the `Host` field holds.
#[test]
fn a_target_in_absolute_form_names_the_host() {
    let server = TestServer::start(settings());
    let request = |target: &str, host: &str| {
        format!("GET {target}/metrics HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")
    };
    assert_eq!(status_of(&server, request("http://localhost", "localhost")), Some(200));
    assert_eq!(status_of(&server, request("http://evil.example", "localhost")), Some(421));
    assert_eq!(status_of(&server, request("http://localhost", "evil.example")), Some(421));
    assert_eq!(status_of(&server, request("http://user@localhost", "localhost")), Some(400));
}

/// Browsers mark requests that another site caused, and no page can change that mark.
#[test]
fn cross_site_requests_are_refused_whatever_their_other_headers() {
    let server = TestServer::start(settings());
    let own = format!("http://{}", server.address());
    let cross = ("sec-fetch-site", "cross-site");
    for beside in [&[][..], &[("origin", own.as_str())], &[("referer", own.as_str())]] {
        let headers: Vec<_> = [cross].into_iter().chain(beside.iter().copied()).collect();
        assert_eq!(post(&server, &headers), 403, "{headers:?}");
        assert_eq!(get(&server, SCRIPT, &headers), 403, "{headers:?}");
        let mut tcp = server.tcp();
        tcp.send(Ws::request(server.address(), &headers));
        assert_eq!(tcp.response().map(|response| response.status), Some(403), "{headers:?}");
    }
    // No browser sends these.
    let same = ("sec-fetch-site", "same-origin");
    for strange in [&[same, cross][..], &[cross, same], &[same, same], &[("sec-fetch-site", "same-origin, none")]] {
        assert_eq!((post(&server, strange), get(&server, SCRIPT, strange)), (403, 403), "{strange:?}");
    }
    let allowed_origins = vec!["https://app.example".into()];
    let server = TestServer::start(Settings { allowed_origins, ..settings() });
    assert_eq!(post(&server, &[cross, ("origin", "https://app.example")]), 200);
    assert_eq!(get(&server, SCRIPT, &[cross, ("referer", "https://app.example/page")]), 200);
    assert_eq!(get(&server, SCRIPT, &[cross]), 403);
}

/// A page that hides itself (`referrerpolicy`), on a server whose address browsers do not trust: there they do not
/// send the site either.
#[test]
fn a_script_of_a_browser_that_hides_its_page_gets_nothing() {
    let browser = ("user-agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36");
    let server = TestServer::start(settings());
    assert_eq!(get(&server, SCRIPT, &[browser]), 403);
    assert_eq!(get(&server, SCRIPT, &[browser, ("referer", &format!("{}://{}/", scheme(), server.address()))]), 200);
    assert_eq!(get(&server, SCRIPT, &[("user-agent", "curl/8.0")]), 200, "a program");
    let server = TestServer::start(Settings { allowed_origins: vec!["*".into()], ..settings() });
    assert_eq!(get(&server, SCRIPT, &[browser]), 200, "anybody is anybody");
}

/// Requests that a proxy on this machine forwards come from this machine, and must not expose metrics to the proxy's
/// clients.
#[test]
fn metrics_are_not_served_through_a_proxy() {
    let server = TestServer::start(settings());
    let scrape = |headers: &[(&str, &str)]| get(&server, "/metrics", headers);
    assert_eq!(scrape(&[]), 200);
    assert_eq!(scrape(&[("host", "localhost:8080")]), 200);
    for (name, value) in [
        ("forwarded", "for=192.0.2.7"),
        ("x-forwarded-for", "192.0.2.7"),
        ("x-forwarded-proto", "https"),
        ("X-Forwarded-Host", ""),
        ("x-real-ip", "127.0.0.1"),
        ("via", "1.1 proxy"),
        ("host", "192.0.2.7"),
    ] {
        assert_eq!(scrape(&[(name, value)]), 403, "{name}: {value}");
    }
    // nginx uses HTTP/1.0 by default and adds no fields.
    let old = format!("GET /metrics HTTP/1.0\r\nhost: {}\r\n\r\n", server.address());
    assert_eq!(status_of(&server, old), Some(403));
    let named = Settings { allowed_hosts: vec!["push.example".into()], ..settings() };
    let server = TestServer::start(named);
    assert_eq!(get(&server, "/metrics", &[("host", "push.example")]), 403, "the name the proxy is called by");
}
