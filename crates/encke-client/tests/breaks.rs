//! What a session survives: cuts, restarts, and things on the way that do not like WebSockets.

mod common;

use std::time::Duration;

use encke::{Settings, TransportName};
use encke_client::dialog::ConnectionType;
use encke_client::{Client, Error, Options, Transport};

use common::*;

#[test]
fn a_client_comes_back_to_a_new_server_with_its_subscriptions() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        let address = running.address();
        run(async {
            let mut client = connected(address, quick(transport)).await;
            client.subscribe("/news").await.expect("subscribes");
            running.handle().drain();
            running.join();
            let running = start(Settings { listen: address, ..any_port() });
            let message = heard_again(&mut client, &running.handle()).await;
            assert_eq!(message.data.get(), r#""again""#);
            each_once(&mut client, &running.handle()).await;
            assert_eq!(running.handle().sessions(), 1);
            end(running);
        });
    }
}

#[test]
fn a_cut_connection_goes_on_with_the_same_session() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        run(async {
            let proxy = Proxy::open(running.address(), Upgrades::Pass).await;
            let mut client = connected(proxy.address, quick(transport)).await;
            client.subscribe("/news").await.expect("subscribes");
            for _ in 0..3 {
                proxy.cut.send(()).expect("a connection");
                let message = heard_again(&mut client, &running.handle()).await;
                assert_eq!(message.channel, "/news");
                each_once(&mut client, &running.handle()).await;
            }
            assert_eq!(running.handle().sessions(), 1, "the old session was taken up");
        });
        end(running);
    }
}

#[test]
fn a_subscribe_outlives_a_break_and_a_publication_says_that_it_may_be_lost() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        run(async {
            let proxy = Proxy::open(running.address(), Upgrades::Pass).await;
            let mut client = connected(proxy.address, quick(transport)).await;
            proxy.cut.send(()).expect("a connection");
            // The client has not noticed yet.
            client.subscribe("/news").await.expect("subscribes over the next connection");
            proxy.cut.send(()).expect("a connection");
            let outcome = client.publish("/news", &json("1")).await;
            assert!(matches!(outcome, Err(Error::Lost(_))), "{outcome:?}");
            client.publish("/news", &json("2")).await.expect("publishes");
            proxy.cut.send(()).expect("a connection");
            client.publish_soon("/news", &json("3")).await.expect("begins");
            let outcome = client.flush().await;
            assert!(matches!(outcome, Err(Error::Lost(_))), "{outcome:?}");
        });
        end(running);
    }
}

#[test]
fn without_reconnect_a_cut_connection_is_lost() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        run(async {
            let proxy = Proxy::open(running.address(), Upgrades::Pass).await;
            let options = Options { reconnect: false, ..quick(transport) };
            let mut client = connected(proxy.address, options).await;
            // Over long-polling nothing breaks before a connect is held.
            let silence = tokio::time::timeout(Duration::from_millis(50), client.next()).await;
            assert!(silence.is_err(), "{silence:?}");
            proxy.cut.send(()).expect("a connection");
            assert!(matches!(client.next().await, Err(Error::Lost(_))));
            assert!(matches!(client.publish("/news", &json("1")).await, Err(Error::Lost(_))));
            client.disconnect().await.expect("there is nothing to say goodbye to");
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
            let mut client = connected(proxy.address, quick(transport)).await;
            client.subscribe("/news").await.expect("subscribes");
            let id = client.client_id().expect("a session").to_string();
            assert!(running.handle().disconnect(&id));
            let outcome = client.next().await;
            assert!(matches!(outcome, Err(Error::Refused { .. })), "{outcome:?}");
            assert!(client.next().await.is_err(), "it has ended permanently");
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
            let options = Options { network_delay_max: Duration::from_millis(300), ..quick(Transport::Auto) };
            let mut client = connected(proxy.address, options.clone()).await;
            assert_eq!(client.connection_type(), ConnectionType::LongPolling);
            client.subscribe("/news").await.expect("subscribes");
            each_once(&mut client, &running.handle()).await;

            let websocket = Options { transport: Transport::WebSocket, ..options };
            let outcome = Client::connect_with(&url(proxy.address), websocket).await;
            assert!(matches!(outcome, Err(Error::NotBayeux { .. })), "{outcome:?}");
        });
        end(running);
    }
}
