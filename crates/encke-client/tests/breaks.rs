//! Breaks that a session survives: cuts, restarts, and proxies that block WebSockets.

mod common;

use std::time::Duration;

use encke::{Settings, TransportName};
use encke_client::{ConnectionType, Error, State, Transport};

use common::*;

#[test]
fn a_client_reconnects_to_a_new_server_with_its_subscriptions() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        let address = running.address();
        run(async {
            let client = connected(address, quick(transport)).await;
            let mut news = client.subscribe("/news").await.expect("subscribes");
            running.handle().drain();
            running.join();
            let running = start(Settings { listen: address, ..any_port() });
            let message = received_again(&mut news, &running.handle()).await;
            assert_eq!(message.data().as_str(), r#""again""#);
            each_once(&mut news, &running.handle()).await;
            assert_eq!(running.handle().sessions(), 1);
            end(running);
        });
    }
}

#[test]
fn after_a_cut_the_same_session_is_resumed() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        run(async {
            let proxy = Proxy::open(running.address(), Upgrades::Pass).await;
            let client = connected(proxy.address, quick(transport)).await;
            let mut news = client.subscribe("/news").await.expect("subscribes");
            for _ in 0..3 {
                proxy.cut.send(()).expect("a connection");
                let message = received_again(&mut news, &running.handle()).await;
                assert_eq!(&*message.channel, "/news");
                each_once(&mut news, &running.handle()).await;
            }
            assert_eq!(running.handle().sessions(), 1, "the old session was resumed");
        });
        end(running);
    }
}

#[test]
fn a_subscribe_outlives_a_break_and_a_publication_fails_as_it_may_be_lost() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        run(async {
            let proxy = Proxy::open(running.address(), Upgrades::Pass).await;
            let client = connected(proxy.address, quick(transport)).await;
            proxy.cut.send(()).expect("a connection");
            // The client has not noticed yet.
            let _news = client.subscribe("/news").await.expect("subscribes over the next connection");
            // The replies get lost, so publications are on their way when the connection breaks.
            proxy.loses.send_replace(true);
            let lost = client.start_publish("/news", &1).await.expect("is sent");
            while proxy.lost.load(std::sync::atomic::Ordering::Relaxed) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            proxy.loses.send_replace(false);
            proxy.cut.send(()).expect("a connection");
            let outcome = lost.await;
            assert!(matches!(outcome, Err(Error::ConnectionLost(_))), "{outcome:?}");
            client.publish("/news", &2).await.expect("publishes over the next connection");
        });
        end(running);
    }
}

#[test]
fn without_reconnect_a_cut_connection_closes_the_session() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        run(async {
            let proxy = Proxy::open(running.address(), Upgrades::Pass).await;
            let client = connected(proxy.address, quick(transport).reconnect(false)).await;
            let mut news = client.subscribe("/news").await.expect("subscribes");
            // Over long-polling nothing breaks before a connect is held.
            proxy.held().await;
            proxy.cut.send(()).expect("a connection");
            assert!(news.next().await.is_none(), "the stream ends");
            assert!(matches!(client.closed().await, Err(Error::ConnectionLost(_))));
            assert!(matches!(client.publish("/news", &1).await, Err(Error::ConnectionLost(_))));
        });
        end(running);
    }
}

#[test]
fn a_server_that_ends_the_session_is_obeyed() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        run(async {
            let proxy = Proxy::open(running.address(), Upgrades::Pass).await;
            let client = connected(proxy.address, quick(transport)).await;
            let mut news = client.subscribe("/news").await.expect("subscribes");
            let id = client.connected().expect("a session").client_id;
            assert!(running.handle().disconnect(&id));
            assert!(news.next().await.is_none(), "the stream ends");
            let outcome = client.closed().await;
            assert!(matches!(outcome, Err(Error::Refused(_))), "{outcome:?}");
            assert!(client.subscribe("/news").await.is_err(), "permanently");
        });
        end(running);
    }
}

#[test]
fn the_state_tells_of_breaks_and_of_the_end() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        run(async {
            let proxy = Proxy::open(running.address(), Upgrades::Pass).await;
            let client = connected(proxy.address, quick(transport)).await;
            let mut state = client.state();
            assert!(matches!(&*state.borrow_and_update(), State::Connected(connected) if !connected.resumed));
            proxy.held().await;
            proxy.cut.send(()).expect("a connection");
            state.wait_for(|state| matches!(state, State::Reconnecting(_))).await.expect("a break");
            assert!(client.connected().is_none());
            let connected = |state: &State| matches!(state, State::Connected(connected) if connected.resumed);
            state.wait_for(connected).await.expect("the old session");
            client.disconnect().await.expect("disconnects");
            assert!(matches!(&*state.borrow_and_update(), State::Closed(None)));
        });
        end(running);
    }
}

#[test]
fn where_no_websocket_gets_through_long_polling_does() {
    let no_websocket = Settings { transports: vec![TransportName::LongPolling], ..any_port() };
    for (settings, upgrades) in
        [(no_websocket, Upgrades::Pass), (any_port(), Upgrades::Close), (any_port(), Upgrades::Swallow)]
    {
        let running = start(settings);
        run(async {
            let proxy = Proxy::open(running.address(), upgrades).await;
            // It is waited out only where the upgrade gets no answer.
            let timeout = Duration::from_secs(if upgrades == Upgrades::Swallow { 2 } else { 60 });
            let client = connected(proxy.address, quick(Transport::Auto).reply_timeout(timeout)).await;
            assert_eq!(client.connected().expect("open").connection_type, ConnectionType::LongPolling);
            let mut news = client.subscribe("/news").await.expect("subscribes");
            each_once(&mut news, &running.handle()).await;

            let websocket = quick(Transport::WebSocket).reply_timeout(timeout);
            let outcome = websocket.connect(&url(proxy.address)).await;
            assert!(matches!(outcome, Err(Error::NotBayeux { .. })), "{outcome:?}");
        });
        end(running);
    }
}
