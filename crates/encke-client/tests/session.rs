//! The client against the server: the whole life of a session, over each transport.

mod common;

use std::time::Duration;

use encke::Settings;
use encke_client::dialog::ConnectionType;
use encke_client::{Client, Error, Options, Transport};

use common::{TRANSPORTS, any_port, connected, end, json, quick, run, start, url};

#[test]
fn what_is_published_after_subscribe_returned_is_received_in_order() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        run(async {
            let mut subscriber = connected(running.address(), quick(transport)).await;
            let other_mount = format!("{}/bayeux", url(running.address()));
            let mut publisher = Client::connect_with(&other_mount, quick(transport)).await.expect("connects");
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
            publisher.publish("/news/today", &json("1")).await.expect("publishes");
            let silence = tokio::time::timeout(Duration::from_millis(50), subscriber.next()).await;
            assert!(silence.is_err(), "{silence:?}");
            publisher.disconnect().await.expect("disconnects");
            subscriber.disconnect().await.expect("disconnects");
            assert_eq!(running.handle().sessions(), 0);
        });
        end(running);
    }
}

#[test]
fn the_heartbeat_keeps_a_silent_session_alive() {
    for transport in TRANSPORTS {
        let running = start(Settings { timeout_ms: 20, max_interval_ms: 50, ..any_port() });
        run(async {
            let mut client = connected(running.address(), quick(transport)).await;
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
}

#[test]
fn a_batch_is_done_together_and_in_order() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        run(async {
            let mut client = connected(running.address(), quick(transport)).await;
            let batch = client.batch(|batch| {
                batch.publish("/news", &json("0"));
                batch.subscribe("/news");
                batch.publish("/news", &json("1"));
                batch.publish("/news", &json("2"));
            });
            batch.await.expect("taken");
            for expected in ["1", "2"] {
                assert_eq!(client.next().await.expect("receives").data.get(), expected);
            }
            let refused = client.batch(|batch| {
                batch.publish("/a//b", &json("0"));
                batch.publish("/news", &json("3"));
            });
            assert!(matches!(refused.await, Err(Error::Refused { channel, .. }) if channel == "/a//b"));
            assert_eq!(client.next().await.expect("the rest was taken").data.get(), "3");
            client.batch(|_| {}).await.expect("nothing to do");
        });
        end(running);
    }
}

#[test]
fn many_publications_are_on_their_way_at_once() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        run(async {
            let mut subscriber = connected(running.address(), quick(transport)).await;
            subscriber.subscribe("/news").await.expect("subscribes");
            // So small that they have to wait for each other now and then.
            let options = Options { unsent_bytes_max: 1000, ..quick(transport) };
            let mut publisher = connected(running.address(), options).await;
            for number in 0..1000 {
                publisher.publish_soon("/news", &json(&number.to_string())).await.expect("goes out");
            }
            publisher.flush().await.expect("all were taken");
            for number in 0..1000 {
                assert_eq!(subscriber.next().await.expect("receives").data.get(), number.to_string());
            }
            publisher.publish_soon("/a//b", &json("1")).await.expect("goes out");
            assert!(matches!(publisher.flush().await, Err(Error::Refused { .. })));
            publisher.flush().await.expect("a refusal is told once");
        });
        end(running);
    }
}

#[test]
fn a_service_answers_a_call() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        run(async {
            let mut client = connected(running.address(), quick(transport)).await;
            let answer = client.call("/service/echo", &json(r#"{"a": 1}"#)).await.expect("answers");
            assert_eq!(answer.get(), r#"{"a": 1}"#);
            let refused = client.call("/service//echo", &json("1")).await;
            assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
        });
        end(running);
    }
}

#[test]
fn a_service_that_does_not_answer_is_waited_for_in_vain_and_nothing_else_breaks() {
    let running = start(any_port());
    run(async {
        let options = Options { network_delay_max: Duration::from_millis(100), ..Options::default() };
        let mut client = connected(running.address(), options).await;
        assert!(matches!(client.call("/service/nobody", &json("1")).await, Err(Error::Lost(_))));
        client.publish("/news", &json("1")).await.expect("goes on");
        assert_eq!(running.handle().sessions(), 1);
    });
    end(running);
}

#[test]
fn errors_tell_who_is_at_fault() {
    for transport in [Transport::Auto, Transport::WebSocket, Transport::LongPolling] {
        let running = start(any_port());
        run(async {
            let mut client = connected(running.address(), quick(transport)).await;
            match client.subscribe("/a//b").await {
                Err(Error::Refused { channel, error }) => {
                    assert_eq!(channel, "/meta/subscribe");
                    assert!(error.starts_with("403:") || error.starts_with("405:"), "{error}");
                }
                other => panic!("{other:?}"),
            }
            // A refusal leaves the session as it was.
            client.subscribe("/news").await.expect("subscribes");

            let nowhere = format!("{}/demo/nothing", url(running.address()));
            let page = Client::connect_with(&nowhere, quick(transport)).await.expect_err("no Bayeux there");
            let line = page.to_string();
            assert!(line.starts_with("no Bayeux server at 127.0.0.1:") && line.contains("HTTP status 4"), "{line}");
            let nobody = Client::connect_with("http://127.0.0.1:1", quick(transport)).await;
            assert!(matches!(nobody, Err(Error::Unreachable { .. })), "{nobody:?}");
        });
        end(running);
    }
}

#[test]
fn who_speaks_no_http_is_no_bayeux_server() {
    run(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, b"SSH-2.0-OpenSSH_9.2\r\n").await;
                tokio::spawn(async move {
                    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                });
            }
        });
        for transport in [Transport::Auto, Transport::WebSocket, Transport::LongPolling] {
            let outcome = Client::connect_with(&url(address), quick(transport)).await;
            assert!(matches!(outcome, Err(Error::NotBayeux { .. })), "{transport:?}: {outcome:?}");
        }
    });
}

#[test]
fn messages_that_nobody_takes_are_bounded() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        run(async {
            let options = Options { inbox_messages_max: 3, ..quick(transport) };
            let mut client = connected(running.address(), options).await;
            client.subscribe("/news").await.expect("subscribes");
            let mut outcome = Ok(());
            for _ in 0..10 {
                outcome = client.publish("/news", &json("1")).await;
                if outcome.is_err() {
                    break;
                }
            }
            assert!(matches!(outcome, Err(Error::Overflow(3))), "{outcome:?}");
            for _ in 0..3 {
                client.next().await.expect("what waits is still there");
            }
            assert!(matches!(client.next().await, Err(Error::Lost(_))), "and then it is over");
        });
        end(running);
    }
}

#[test]
fn an_idle_client_is_small() {
    let bytes = std::mem::size_of::<Client>();
    assert!(bytes <= 1024, "{bytes} bytes");
    let running = start(any_port());
    run(async {
        let client = connected(running.address(), Options::default()).await;
        assert_eq!(client.connection_type(), ConnectionType::WebSocket, "a WebSocket is the first choice");
    });
    end(running);
}
