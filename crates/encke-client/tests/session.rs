//! The client against the server: the whole life of a session, over each transport.

mod common;

use std::time::Duration;

use encke::{ChannelRule, Server, Settings};
use encke_client::{ConnectionType, Error, GapCause, NotBayeux, RawJson, Transport};
use serde::{Deserialize, Serialize};

use common::*;

#[test]
fn messages_published_after_subscribe_returned_are_received_in_order() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        run(async {
            let subscriber = connected(running.address(), quick(transport)).await;
            let other_mount = format!("{}/bayeux", url(running.address()));
            let publisher = quick(transport).connect(&other_mount).await.expect("connects");
            let mut news = subscriber.subscribe("/news/*").await.expect("subscribes");
            for number in 0..100 {
                let data = format!(r#"{{"n":1234567890123456789{number}, "x":1.50}}"#);
                publisher.publish_raw("/news/today", RawJson::parse(&data).expect("JSON")).await.expect("publishes");
            }
            for number in 0..100 {
                let message = next(&mut news).await;
                assert_eq!(&*message.channel, "/news/today");
                assert_eq!(message.data().as_str(), format!(r#"{{"n":1234567890123456789{number}, "x":1.50}}"#));
            }
            news.unsubscribe().await.expect("unsubscribes");
            publisher.disconnect().await.expect("disconnects");
            subscriber.disconnect().await.expect("disconnects");
            assert_eq!(running.handle().sessions(), 0);
        });
        end(running);
    }
}

#[test]
fn compressed_messages_are_received_where_the_server_compresses() {
    let rule = ChannelRule { pattern: "/packed/**".into(), compress: true, ..ChannelRule::default() };
    for (channels, compressed) in [(vec![rule], 2), (Vec::new(), 0)] {
        let running = start(Settings { channels, ..any_port() });
        run(async {
            let client = connected(running.address(), quick(Transport::WebSocket).compress(true)).await;
            let mut news = client.subscribe("/packed/a").await.expect("subscribes");
            let text = "a text that comes again ".repeat(1_000);
            for data in [&text[..], "short", &text] {
                client.publish("/packed/a", data).await.expect("publishes");
                assert_eq!(next(&mut news).await.json::<String>().expect("a text"), data);
            }
            metric(running.address(), "encke_messages_compressed", |count| count == compressed).await;
        });
        end(running);
    }
}

#[test]
fn messages_published_without_a_reply_arrive_in_order_with_the_others() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        run(async {
            let client = connected(running.address(), quick(transport)).await;
            let mut all = client.subscribe("/a").await.expect("subscribes");
            // Refused, which nobody waits for.
            client.publish_without_reply("a", &0).await.expect("sends");
            for number in 0..100 {
                match number % 10 {
                    9 => drop(client.publish("/a", &number).await.expect("publishes")),
                    _ => client.publish_without_reply("/a", &number).await.expect("sends"),
                }
            }
            for number in 0..100 {
                let message = next(&mut all).await;
                assert_eq!(message.data().as_str(), number.to_string());
            }
            metric(running.address(), "encke_error_replies", |count| count == 1).await;
        });
        end(running);
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Price {
    symbol: String,
    cents: u64,
}

#[test]
fn typed_data_arrives_as_the_same_type() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        run(async {
            let client = connected(running.address(), quick(transport)).await;
            let mut prices = client.subscribe("/stock/**").await.expect("subscribes");
            let price = Price { symbol: "GOOG\n\"é\"".into(), cents: u64::MAX };
            client.publish("/stock/GOOG", &price).await.expect("publishes");
            assert_eq!(next(&mut prices).await.json::<Price>().expect("a price"), price);
            client.publish("/stock/GOOG", "no price").await.expect("publishes");
            let message = next(&mut prices).await;
            assert!(message.json::<Price>().is_err());
            assert_eq!(message.json::<String>().expect("a text"), "no price");
            let not_json = std::collections::BTreeMap::from([(vec![1], 2)]);
            let outcome = client.publish("/stock/GOOG", &not_json).await;
            assert!(matches!(outcome, Err(Error::Data(_))), "{outcome:?}");
        });
        end(running);
    }
}

#[test]
fn clones_of_a_client_share_its_session_among_tasks() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        run(async {
            let client = connected(running.address(), quick(transport)).await;
            let mut tasks = tokio::task::JoinSet::new();
            let (ready, mut are_ready) = tokio::sync::mpsc::channel(2);
            for channel in ["/a", "/b"] {
                let (client, ready) = (client.clone(), ready.clone());
                tasks.spawn(async move {
                    let mut own = client.subscribe(channel).await.expect("subscribes");
                    let mut both = client.subscribe("/**").await.expect("subscribes to the same as the other task");
                    ready.send(()).await.expect("somebody waits");
                    for number in 0..50 {
                        assert_eq!(next(&mut own).await.json::<u64>().expect("a number"), number);
                    }
                    let mut from_both = 0;
                    while from_both < 100 {
                        next(&mut both).await;
                        from_both += 1;
                    }
                });
            }
            are_ready.recv().await.expect("one");
            are_ready.recv().await.expect("the other");
            for number in 0..50 {
                let (one, other) = (client.publish("/a", &number), client.publish("/b", &number));
                let (one, other) = tokio::join!(one, other);
                one.and(other).expect("published");
            }
            while let Some(outcome) = tasks.join_next().await {
                outcome.expect("all came");
            }
            assert_eq!(running.handle().sessions(), 1);
        });
        end(running);
    }
}

#[test]
fn a_dropped_subscription_is_ended_at_the_server_and_others_of_its_channel_are_not() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        run(async {
            let proxy = Proxy::open(running.address(), Upgrades::Pass).await;
            // Plain text over long-polling; over a WebSocket the server's behaviour has to do.
            let client = connected(proxy.address, quick(transport)).await;
            let one = client.subscribe("/news").await.expect("subscribes");
            let mut other = client.subscribe("/news").await.expect("joins");
            drop(one);
            each_once(&mut other, &running.handle()).await;
            drop(other);
            // The server has no subscriber any more: a later subscription gets nothing from before.
            let mut all = client.subscribe("/**").await.expect("subscribes");
            running.handle().publish("/news", "1").expect("published");
            assert_eq!(next(&mut all).await.json::<u64>().expect("a number"), 1);
            silent(&mut all).await;
            if transport == Transport::LongPolling {
                let sent = proxy.recorded.lock().expect("whole").clone();
                assert_eq!(sent.matches("/meta/unsubscribe").count(), 1, "{sent}");
                assert_eq!(sent.matches("/meta/subscribe").count(), 2, "{sent}");
            }
            // The session ends with its last handle.
            drop((all, client));
            while running.handle().sessions() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        end(running);
    }
}

#[test]
fn a_slow_reader_gets_a_gap_and_other_subscriptions_get_everything() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        run(async {
            let builder = quick(transport).subscription_messages_max(10).slow_reader_timeout(Duration::from_millis(20));
            let client = connected(running.address(), builder).await;
            let mut slow = client.subscribe("/news").await.expect("subscribes");
            let mut other = client.subscribe("/*").await.expect("subscribes");
            // Each is read before the next, so the other buffer never fills.
            for number in 0..50 {
                client.publish("/news", &number).await.expect("publishes");
                assert_eq!(next(&mut other).await.json::<u64>().expect("a number"), number);
            }
            for number in 0..10 {
                assert_eq!(next(&mut slow).await.json::<u64>().expect("a number"), number);
            }
            let gap = slow.next().await.expect("open").expect_err("a gap");
            assert!(matches!(gap.cause, GapCause::SlowReader { messages: 40, .. }), "{gap:?}");
            client.publish("/news", &50).await.expect("publishes");
            assert_eq!(next(&mut slow).await.json::<u64>().expect("a number"), 50);
        });
        end(running);
    }
}

#[test]
fn a_reader_that_is_only_late_loses_nothing() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        run(async {
            let builder = quick(transport).subscription_messages_max(4).slow_reader_timeout(Duration::from_secs(60));
            let client = connected(running.address(), builder).await;
            let mut news = client.subscribe("/news").await.expect("subscribes");
            for number in 0..200 {
                running.handle().publish("/news", &number.to_string()).expect("published");
            }
            for number in 0..200 {
                assert_eq!(next(&mut news).await.json::<u64>().expect("a number"), number);
            }
        });
        end(running);
    }
}

#[test]
fn the_heartbeat_keeps_a_silent_session_alive() {
    for transport in TRANSPORTS {
        let running = start(Settings { timeout_ms: 20, ..any_port() });
        run(async {
            let client = connected(running.address(), quick(transport)).await;
            let mut news = client.subscribe("/news").await.expect("subscribes");
            // A handshake, a subscribe, and one connect after another.
            metric(running.address(), "encke_messages", |messages| messages > 12).await;
            metric(running.address(), "encke_handshakes", |handshakes| handshakes == 1).await;
            assert_eq!(running.handle().sessions(), 1);
            running.handle().publish("/news", "1").expect("published");
            assert_eq!(next(&mut news).await.data().as_str(), "1");
        });
        end(running);
    }
}

#[test]
fn a_batch_goes_together_and_in_order() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        run(async {
            let client = connected(running.address(), quick(transport)).await;
            let mut news = client.subscribe("/news").await.expect("subscribes");
            let batch = client.batch().publish("/news", &1).and_then(|batch| batch.publish("/news", &2));
            batch.expect("JSON").send().await.expect("taken");
            for expected in ["1", "2"] {
                assert_eq!(next(&mut news).await.data().as_str(), expected);
            }
            let batch = client.batch().publish("/a//b", &0).and_then(|batch| batch.publish("/news", &3));
            let refused = batch.expect("JSON").send().await;
            assert!(matches!(refused, Err(Error::Refused(refusal)) if refusal.channel == "/a//b"));
            assert_eq!(next(&mut news).await.data().as_str(), "3", "the rest was taken");
            client.batch().send().await.expect("nothing to do");
        });
        end(running);
    }
}

#[test]
fn many_publications_are_on_their_way_at_once_and_in_order() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        run(async {
            let subscriber = connected(running.address(), quick(transport)).await;
            let mut news = subscriber.subscribe("/news").await.expect("subscribes");
            // So small that they have to wait for each other now and then.
            let builder = quick(transport).unsent_bytes_max(1000).pending_replies_max(50);
            let publisher = connected(running.address(), builder).await;
            let mut pending = Vec::new();
            for number in 0..1000 {
                pending.push(publisher.start_publish("/news", &number).await.expect("is sent"));
            }
            for reply in pending {
                reply.await.expect("taken");
            }
            for number in 0..1000 {
                assert_eq!(next(&mut news).await.json::<u64>().expect("a number"), number);
            }
            let refused = publisher.start_publish("/a//b", &1).await.expect("is sent").await;
            assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
        });
        end(running);
    }
}

#[test]
fn a_service_answers_a_request() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        run(async {
            let client = connected(running.address(), quick(transport)).await;
            let price = Price { symbol: "A".into(), cents: 1 };
            let answer = client.request("/service/echo", &price).await.expect("answers");
            assert_eq!(answer.json::<Price>().expect("a price"), price);
            let refused = client.request("/service//echo", &1).await;
            assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
        });
        end(running);
    }
}

#[test]
fn a_service_that_does_not_answer_is_a_time_out_and_one_that_nobody_offers_is_refused_at_once() {
    let server = Server::builder().settings(Settings { shards: 1, ..any_port() });
    let running = server.service("/service/silent", async || ()).start().expect("starts");
    run(async {
        let client = connected(running.address(), quick(Transport::Auto).reply_timeout(Duration::from_secs(2))).await;
        let outcome = client.request("/service/silent", &1).await;
        assert!(matches!(outcome, Err(Error::ReplyTimeout(_))), "{outcome:?}");
        match client.request("/service/nobody", &1).await {
            Err(Error::Refused(refusal)) => assert_eq!(refusal.error, "404::service_unknown"),
            other => panic!("{other:?}"),
        }
        client.publish("/news", &1).await.expect("goes on");
        assert_eq!(running.handle().sessions(), 1);
    });
    end(running);
}

#[test]
fn errors_tell_who_is_at_fault() {
    for transport in [Transport::Auto, Transport::WebSocket, Transport::LongPolling] {
        let running = start(any_port());
        run(async {
            let client = connected(running.address(), quick(transport)).await;
            match client.subscribe("/a//b").await {
                Err(Error::Refused(refusal)) => {
                    assert_eq!(refusal.channel, "/meta/subscribe");
                    assert_eq!((refusal.code(), refusal.name()), (Some(405), "channel_invalid"));
                }
                other => panic!("{other:?}"),
            }
            // A refusal leaves the session as it was.
            let _news = client.subscribe("/news").await.expect("subscribes");
            let outcome = client.subscribe_from("/news", encke_client::ReplayFrom::Earliest).await;
            assert!(matches!(outcome, Err(Error::AlreadySubscribed(_))), "{outcome:?}");

            let nowhere = format!("{}/demo/nothing", url(running.address()));
            let page = quick(transport).connect(&nowhere).await.expect_err("no Bayeux there");
            assert!(matches!(page, Error::NotBayeux { reason: NotBayeux::Status(400..500), .. }), "{page}");
            let nobody = quick(transport).connect("http://127.0.0.1:1").await;
            assert!(matches!(nobody, Err(Error::Unreachable { .. })), "{nobody:?}");
            let header = quick(transport).header("a b", "c").connect("http://127.0.0.1:1").await;
            assert!(matches!(header, Err(Error::Header { .. })), "{header:?}");
        });
        end(running);
    }
}

#[test]
fn a_server_that_does_not_speak_http_is_no_bayeux_server() {
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
            let outcome = quick(transport).connect(&url(address)).await;
            assert!(matches!(outcome, Err(Error::NotBayeux { .. })), "{transport:?}: {outcome:?}");
        }
    });
}

#[test]
fn headers_of_the_program_go_with_each_request() {
    for transport in TRANSPORTS {
        let running = start(any_port());
        run(async {
            let proxy = Proxy::open(running.address(), Upgrades::Pass).await;
            let client = connected(proxy.address, quick(transport).header("x-token", "secret")).await;
            client.publish("/news", &1).await.expect("publishes");
            let sent = proxy.recorded.lock().expect("whole").clone();
            let requests = sent.matches("HTTP/1.1").count();
            assert!(requests >= 1 && sent.matches("x-token: secret").count() == requests, "{sent}");
        });
        end(running);
    }
}

#[test]
fn a_websocket_is_the_first_choice() {
    let running = start(any_port());
    run(async {
        let client = connected(running.address(), encke_client::Client::builder()).await;
        assert_eq!(client.connected().expect("open").connection_type, ConnectionType::WebSocket);
    });
    end(running);
}
