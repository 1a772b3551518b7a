//! The client against the server: the whole life of a session, and what it survives.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use encke::{Handle, Running, Server, Settings};
use encke_client::{Client, Error, Message, Options, RawValue};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Starts a server; it ends with [`end`].
fn start(settings: Settings) -> Running {
    Server::new(Settings { shards: 1, ..settings }).start().expect("starts")
}

fn any_port() -> Settings {
    Settings { listen: ([127, 0, 0, 1], 0).into(), drain_timeout_ms: 100, ..Settings::default() }
}

fn end(running: Running) {
    running.handle().drain();
    running.join();
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

fn json(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.into()).expect("JSON")
}

/// A client that tries again soon.
fn quick() -> Options {
    Options { backoff_step: Duration::from_millis(10), backoff_max: Duration::from_millis(50), ..Options::default() }
}

/// Runs a test, for a bounded time.
fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), test).await.expect("in time") })
}

/// Publishes until the client, on its way back, hears it.
async fn heard_again(client: &mut Client, handle: &Handle) -> Message {
    loop {
        handle.publish("/news", r#""again""#).expect("published");
        tokio::select! {
            message = client.next() => return message.expect("comes back"),
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
    }
}

/// Passes bytes on between a client and the server; what is sent to the returned switch cuts all connections.
async fn proxy(server: SocketAddr) -> (SocketAddr, watch::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("bound");
    let (cut, cuts) = watch::channel(());
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let mut cuts = cuts.clone();
            cuts.mark_unchanged();
            tokio::spawn(async move {
                let mut far = TcpStream::connect(server).await.expect("connects");
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    _ = cuts.changed() => {}
                }
            });
        }
    });
    (address, cut)
}

#[test]
fn what_is_published_after_subscribe_returned_is_received_in_order() {
    let running = start(any_port());
    run(async {
        let mut subscriber = Client::connect(&url(running.address())).await.expect("connects");
        let mut publisher = Client::connect(&format!("{}/bayeux", url(running.address()))).await.expect("connects");
        subscriber.subscribe("/news/*").await.expect("subscribes");
        for number in 0..100 {
            let data = json(&format!(r#"{{"n":1234567890123456789{number}, "x":1.50}}"#));
            publisher.publish("/news/today", &data).await.expect("publishes");
        }
        for number in 0..100 {
            let message = subscriber.next().await.expect("receives");
            assert_eq!(message.channel, "/news/today");
            assert_eq!(message.data.get(), format!(r#"{{"n":1234567890123456789{number}, "x":1.50}}"#));
        }
        subscriber.unsubscribe("/news/*").await.expect("unsubscribes");
        publisher.disconnect().await.expect("disconnects");
        subscriber.disconnect().await.expect("disconnects");
        assert_eq!(running.handle().sessions(), 0);
    });
    end(running);
}

#[test]
fn the_heartbeat_keeps_a_silent_session_alive() {
    let running = start(Settings { timeout_ms: 20, max_interval_ms: 50, ..any_port() });
    run(async {
        let mut client = Client::connect(&url(running.address())).await.expect("connects");
        client.subscribe("/news").await.expect("subscribes");
        // Several times as long as a silent session lives.
        let silence = tokio::time::timeout(Duration::from_millis(400), client.next()).await;
        assert!(silence.is_err(), "nothing was said: {silence:?}");
        assert_eq!(running.handle().sessions(), 1);
        running.handle().publish("/news", "1").expect("published");
        assert_eq!(client.next().await.expect("receives").data.get(), "1");
    });
    end(running);
}

#[test]
fn a_client_comes_back_to_a_new_server_with_its_subscriptions() {
    let running = start(any_port());
    let address = running.address();
    run(async {
        let mut client = Client::connect_with(&url(address), quick()).await.expect("connects");
        client.subscribe("/news").await.expect("subscribes");
        running.handle().drain();
        running.join();
        let running = start(Settings { listen: address, ..any_port() });
        let message = heard_again(&mut client, &running.handle()).await;
        assert_eq!(message.data.get(), r#""again""#);
        end(running);
    });
}

#[test]
fn a_cut_connection_goes_on_with_the_same_session() {
    let running = start(any_port());
    run(async {
        let (address, cut) = proxy(running.address()).await;
        let mut client = Client::connect_with(&url(address), quick()).await.expect("connects");
        client.subscribe("/news").await.expect("subscribes");
        cut.send(()).expect("a connection");
        let message = heard_again(&mut client, &running.handle()).await;
        assert_eq!(message.channel, "/news");
        assert_eq!(running.handle().sessions(), 1, "the old session was taken up");
    });
    end(running);
}

#[test]
fn without_reconnect_a_cut_connection_is_lost() {
    let running = start(any_port());
    run(async {
        let (address, cut) = proxy(running.address()).await;
        let options = Options { reconnect: false, ..Options::default() };
        let mut client = Client::connect_with(&url(address), options).await.expect("connects");
        cut.send(()).expect("a connection");
        assert!(matches!(client.next().await, Err(Error::Lost(_))));
        assert!(matches!(client.publish("/news", &json("1")).await, Err(Error::Lost(_))));
    });
    end(running);
}

#[test]
fn errors_tell_who_is_at_fault() {
    let running = start(any_port());
    run(async {
        let mut client = Client::connect(&url(running.address())).await.expect("connects");
        match client.subscribe("/a//b").await {
            Err(Error::Refused { channel, error }) => {
                assert_eq!(channel, "/meta/subscribe");
                assert!(error.starts_with("403:") || error.starts_with("405:"), "{error}");
            }
            other => panic!("{other:?}"),
        }
        // A refusal leaves the session as it was.
        client.subscribe("/news").await.expect("subscribes");

        let page = Client::connect(&format!("{}/demo/nothing", url(running.address()))).await;
        assert!(matches!(page, Err(Error::NotBayeux { .. })), "{page:?}");
        let nobody = Client::connect("http://127.0.0.1:1").await;
        assert!(matches!(nobody, Err(Error::Unreachable { .. })), "{nobody:?}");
    });
    end(running);
}

#[test]
fn messages_that_nobody_takes_are_bounded() {
    let running = start(any_port());
    run(async {
        let options = Options { inbox_messages_max: 3, ..Options::default() };
        let mut client = Client::connect_with(&url(running.address()), options).await.expect("connects");
        client.subscribe("/news").await.expect("subscribes");
        let mut outcome = Ok(());
        for _ in 0..10 {
            outcome = client.publish("/news", &json("1")).await;
            if outcome.is_err() {
                break;
            }
        }
        assert!(matches!(outcome, Err(Error::Overflow(3))), "{outcome:?}");
    });
    end(running);
}
