//! Several servers, the first connect, tokens, and the time of requests.

mod common;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use encke::{Authenticate, Caller, Handshake, Identity, Refusal, Running, Server, Settings};
use encke_client::{Client, Error, State, Transport};

use common::*;

/// An address at which nothing listens.
fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr()).expect("an address")
}

#[test]
fn of_several_servers_the_client_uses_those_that_answer() {
    for transport in TRANSPORTS {
        let (first, second) = (start(any_port()), start(any_port()));
        run(async {
            let urls = [url(free_address()), url(first.address()), url(second.address())];
            let client = quick(transport).connect_any(&urls).await.expect("the second answers");
            let mut news = client.subscribe("/news").await.expect("subscribes");
            assert_eq!(first.handle().sessions(), 1);
            end(first);
            received_again(&mut news, &second.handle()).await;
        });
        end(second);
    }
    run(async {
        let refused = Client::builder().connect_any::<&str>(&[]).await;
        assert!(matches!(refused, Err(Error::NoUrl)));
        let refused = quick(Transport::Auto).connect_any(&[url(free_address()), url(free_address())]).await;
        assert!(matches!(refused, Err(Error::Unreachable { .. })), "{refused:?}");
    });
}

#[test]
fn the_first_connect_is_repeated_until_the_server_is_there() {
    for transport in [Transport::Auto, Transport::LongPolling] {
        run(async {
            let address = free_address();
            let refused = quick(transport).connect(&url(address)).await;
            assert!(matches!(refused, Err(Error::Unreachable { .. })), "{refused:?}");
            let connecting =
                tokio::spawn(async move { quick(transport).retry_first_connect(true).connect(&url(address)).await });
            tokio::time::sleep(Duration::from_millis(50)).await;
            let running = start(Settings { listen: address, ..any_port() });
            let client = connecting.await.expect("runs").expect("connects");
            client.disconnect().await.expect("disconnects");
            end(running);
        });
    }
}

/// Takes each token once. It is a user and a life in milliseconds, such as `ann 200`.
#[derive(Clone, Default)]
struct Login {
    refreshed: Arc<AtomicUsize>,
}

impl Login {
    fn identity(token: &str) -> Result<Identity, Refusal> {
        let (user, life_ms) = token.split_once(' ').ok_or(Refusal::new(401, "no_token"))?;
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64;
        let life_ms: u64 = life_ms.parse().map_err(|_| Refusal::new(401, "no_life"))?;
        let mut identity = Identity::of_user(user);
        identity.expires_ms = Some(now_ms + life_ms);
        Ok(identity)
    }
}

impl Authenticate for Login {
    async fn authenticate(&self, handshake: Handshake) -> Result<Identity, Refusal> {
        let ext: serde_json::Value = serde_json::from_str(handshake.ext().unwrap_or("{}")).unwrap_or_default();
        Login::identity(ext["auth"]["token"].as_str().unwrap_or_default())
    }

    async fn refresh(&self, _: Caller<'static>, data: String) -> Result<Identity, Refusal> {
        let data: serde_json::Value = serde_json::from_str(&data).unwrap_or_default();
        let identity = Login::identity(data["token"].as_str().unwrap_or_default());
        self.refreshed.fetch_add(1, Ordering::Relaxed);
        identity
    }
}

fn start_with_login(notice_ms: u64) -> (Running, Login) {
    let login = Login::default();
    let settings = Settings { shards: 1, auth_expiry_notice_ms: notice_ms, ..any_port() };
    let running = Server::builder().settings(settings).authenticate(login.clone()).start().expect("starts");
    (running, login)
}

#[test]
fn a_client_with_a_source_of_tokens_outlives_them() {
    for transport in TRANSPORTS {
        // With a notice the session is refreshed. Without one it ends, and another one follows.
        for notice_ms in [200, 0] {
            let (running, login) = start_with_login(notice_ms);
            run(async {
                let tokens = Arc::<AtomicUsize>::default();
                let count = tokens.clone();
                let provider = move || {
                    count.fetch_add(1, Ordering::Relaxed);
                    async { Ok::<_, String>("ann 400".to_owned()) }
                };
                let client = quick(transport).token(provider).connect(&url(running.address())).await.expect("opens");
                let mut news = client.subscribe("/news").await.expect("subscribes");
                while tokens.load(Ordering::Relaxed) < 4 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                received_again(&mut news, &running.handle()).await;
                assert_eq!(login.refreshed.load(Ordering::Relaxed) > 0, notice_ms > 0);
                assert!(!matches!(*client.state().borrow(), State::Closed(_)));
            });
            end(running);
        }
    }
}

#[test]
fn a_source_of_tokens_that_fails_is_asked_again() {
    let (running, _) = start_with_login(0);
    run(async {
        let failing = quick(Transport::Auto).token(async || Err::<String, _>("login is away"));
        let refused = failing.connect(&url(running.address())).await;
        assert!(matches!(&refused, Err(Error::Token(reason)) if reason == "login is away"), "{refused:?}");
        let attempts = AtomicUsize::new(0);
        let recovering = quick(Transport::Auto).retry_first_connect(true).token(move || {
            let attempt = attempts.fetch_add(1, Ordering::Relaxed);
            async move { if attempt < 2 { Err("login is away") } else { Ok("ann 60000".to_owned()) } }
        });
        recovering.connect(&url(running.address())).await.expect("opens");
        let refused = quick(Transport::Auto).retry_first_connect(true).token(async || Ok::<_, String>("bad".into()));
        let refused = refused.connect(&url(running.address())).await;
        assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    });
    end(running);
}

#[test]
fn a_request_may_have_its_own_time() {
    let server = Server::builder().settings(Settings { shards: 1, ..any_port() });
    let running =
        server.service("/service/never", async || std::future::pending::<()>().await).start().expect("starts");
    run(async {
        let client = connected(running.address(), quick(Transport::WebSocket)).await;
        let time = Duration::from_millis(30);
        let late = client.request_within(time, "/service/never", &1).await;
        assert!(matches!(late, Err(Error::ReplyTimeout(waited)) if waited == time), "{late:?}");
    });
    end(running);
}
