//! Breaks that lose nothing, against the real server: acknowledgement, replay, and both.

mod common;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use encke::{ChannelRule, Handle, Settings};
use encke_client::dialog::{Gap, Start};
use encke_client::{Client, Heard, Options, Transport, Value};

use common::*;

#[test]
fn what_a_broken_connection_took_along_comes_again_once_and_in_order() {
    for transport in TRANSPORTS {
        for (acknowledge, replay) in [(true, None), (false, Some(Start::Now)), (true, Some(Start::Now))] {
            let running = start(keeping(100));
            run(async {
                let proxy = Proxy::open(running.address(), Upgrades::Pass).await;
                let options = Options { acknowledge, replay: replay.clone(), ..quick(transport) };
                let mut client = connected(proxy.address, options).await;
                client.subscribe(CHANNEL).await.expect("subscribes");
                let mut next = 0;
                for round in 1..=3 {
                    publish(&running.handle(), next..round * 20 - 10);
                    assert_eq!(numbers(&mut client, round * 20 - 10 - next).await, range(next..round * 20 - 10));
                    break_off(&proxy, &mut client, &running.handle(), round * 20 - 10..round * 20 - 5).await;
                    publish(&running.handle(), round * 20 - 5..round * 20);
                    let heard = numbers(&mut client, 10).await;
                    assert_eq!(heard, range(round * 20 - 10..round * 20), "{transport:?} ack {acknowledge} {replay:?}");
                    next = round * 20;
                }
                silent(&mut client).await;
                assert_eq!(running.handle().sessions(), 1, "the old session");
            });
            end(running);
        }
    }
}

#[test]
fn a_session_that_is_forgotten_goes_on_at_its_places_in_a_new_one() {
    for transport in TRANSPORTS {
        for acknowledge in [false, true] {
            let running = start(Settings { max_interval_ms: 50, ..keeping(100) });
            run(async {
                let proxy = Proxy::open(running.address(), Upgrades::Pass).await;
                let pause = Duration::from_millis(400);
                let patient = Options { backoff_step: pause, backoff_max: pause, ..quick(transport) };
                let options = Options { acknowledge, replay: Some(Start::Now), ..patient };
                let mut client = connected(proxy.address, options).await;
                client.subscribe(CHANNEL).await.expect("subscribes");
                publish(&running.handle(), 0..5);
                assert_eq!(numbers(&mut client, 5).await, range(0..5));
                let old = client.client_id().expect("a session").to_string();
                break_off(&proxy, &mut client, &running.handle(), 5..10).await;
                while running.handle().sessions() > 0 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                publish(&running.handle(), 10..15);
                assert_eq!(numbers(&mut client, 10).await, range(5..15), "{transport:?} ack {acknowledge}");
                assert_ne!(client.client_id(), Some(&*old));
                silent(&mut client).await;
            });
            end(running);
        }
    }
}

#[test]
fn what_no_history_keeps_any_more_is_told() {
    for transport in TRANSPORTS {
        let running = start(keeping(3));
        run(async {
            let proxy = Proxy::open(running.address(), Upgrades::Pass).await;
            let options = Options { replay: Some(Start::Now), ..quick(transport) };
            let mut client = connected(proxy.address, options).await;
            client.subscribe(CHANNEL).await.expect("subscribes");
            publish(&running.handle(), 0..1);
            let Heard::Message(first) = listen(&mut client).await else { panic!("no message") };
            let first = first.place.expect("a place").id;
            break_off(&proxy, &mut client, &running.handle(), 1..10).await;
            let Heard::Gap(gap) = listen(&mut client).await else { panic!("no gap") };
            assert_eq!(gap, Gap { channel: CHANNEL.into(), lost: Some((first + 1, first + 6)) });
            assert_eq!(numbers(&mut client, 3).await, range(7..10));
            silent(&mut client).await;
        });
        end(running);
    }
}

#[test]
fn a_server_that_has_forgotten_everything_is_told_of() {
    for transport in TRANSPORTS {
        for (acknowledge, replay) in [(true, None), (false, Some(Start::Now)), (true, Some(Start::Now))] {
            let running = start(keeping(100));
            let address = running.address();
            run(async {
                let options = Options { acknowledge, replay, ..quick(transport) };
                let mut client = connected(address, options).await;
                client.subscribe(CHANNEL).await.expect("subscribes");
                publish(&running.handle(), 0..3);
                assert_eq!(numbers(&mut client, 3).await, range(0..3));
                running.handle().drain();
                running.join();
                let running = start(Settings { listen: address, ..keeping(100) });
                let Heard::Gap(gap) = listen(&mut client).await else { panic!("no gap") };
                assert_eq!(gap, Gap { channel: CHANNEL.into(), lost: None });
                publish(&running.handle(), 3..6);
                assert_eq!(numbers(&mut client, 3).await, range(3..6));
                end(running);
            });
        }
    }
}

#[test]
fn a_pattern_with_more_channels_than_a_subscribe_takes_outlives_a_break() {
    for (transport, replay) in [(Transport::WebSocket, Start::Now), (Transport::LongPolling, Start::Kept)] {
        let running = start(keeping(100));
        run(async {
            let proxy = Proxy::open(running.address(), Upgrades::Pass).await;
            let options = Options { replay: Some(replay), ..quick(transport) };
            let mut client = connected(proxy.address, options).await;
            client.subscribe("/kept/**").await.expect("subscribes");
            let publish = |number: u64| {
                for channel in (0..CHANNELS).map(|channel| format!("/kept/{channel}")) {
                    while running.handle().publish(&channel, &number.to_string()).is_err() {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            };
            publish(1);
            assert_eq!(numbers(&mut client, CHANNELS).await, [1; CHANNELS as usize]);
            let old = client.client_id().expect("a session").to_string();
            silent(&mut client).await;
            proxy.cut.send(()).expect("a connection");
            publish(2);
            // One for each place that is known; of the others it is told that something may be missing.
            let (mut heard, mut gaps) = (BTreeSet::new(), Vec::new());
            while heard.len() < 999 || gaps.is_empty() {
                match listen(&mut client).await {
                    Heard::Message(message) => assert!(heard.insert(message.channel), "once"),
                    Heard::Gap(gap) => gaps.push(gap),
                }
            }
            assert_eq!(gaps, [Gap { channel: "/kept/**".into(), lost: None }]);
            assert_eq!(client.client_id(), Some(&*old));
            while tokio::time::timeout(Duration::from_millis(60), client.listen()).await.is_ok() {}
            publish(3);
            assert_eq!(numbers(&mut client, CHANNELS).await, [3; CHANNELS as usize]);
        });
        end(running);
    }
}

#[test]
fn a_place_that_a_program_has_kept_is_where_it_goes_on() {
    let running = start(keeping(100));
    run(async {
        let options = Options { replay: Some(Start::Kept), ..quick(Transport::WebSocket) };
        publish(&running.handle(), 0..10);
        let mut client = connected(running.address(), options.clone()).await;
        client.subscribe(CHANNEL).await.expect("subscribes");
        let mut place = None;
        for _ in 0..4 {
            let Heard::Message(message) = listen(&mut client).await else { panic!("no message") };
            place = message.place;
        }
        client.disconnect().await.expect("goodbye");
        let mut client = connected(running.address(), options).await;
        client.subscribe_from(CHANNEL, place.expect("a place").into()).await.expect("subscribes");
        assert_eq!(numbers(&mut client, 6).await, range(4..10));
        silent(&mut client).await;
    });
    end(running);
}

/// What the server says now gets lost, and the connections break.
async fn break_off(proxy: &Proxy, client: &mut Client, handle: &Handle, numbers: std::ops::Range<u64>) {
    // Until its connect is held.
    silent(client).await;
    let lost = proxy.lost.load(Ordering::Relaxed);
    proxy.loses.send_replace(true);
    publish(handle, numbers);
    while proxy.lost.load(Ordering::Relaxed) == lost {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    proxy.cut.send(()).expect("a connection");
    proxy.loses.send_replace(false);
}

async fn listen(client: &mut Client) -> Heard {
    client.listen().await.expect("comes back")
}

/// The numbers in the next messages, between which nothing is missing.
async fn numbers(client: &mut Client, count: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    while (numbers.len() as u64) < count {
        match listen(client).await {
            Heard::Message(message) => {
                let data: Value = serde_json::from_str(message.data.get()).expect("JSON");
                numbers.push(data.as_u64().or(data["payload"].as_u64()).expect("a number"));
            }
            Heard::Gap(gap) => panic!("{gap:?} after {numbers:?}"),
        }
    }
    numbers
}

async fn silent(client: &mut Client) {
    let more = tokio::time::timeout(Duration::from_millis(60), client.listen()).await;
    assert!(more.is_err(), "nothing comes: {more:?}");
}

fn publish(handle: &Handle, numbers: std::ops::Range<u64>) {
    numbers.for_each(|number| handle.publish(CHANNEL, &number.to_string()).expect("published"));
}

fn range(numbers: std::ops::Range<u64>) -> Vec<u64> {
    numbers.collect()
}

/// A server that keeps so many messages of each channel.
fn keeping(messages: usize) -> Settings {
    let rule = ChannelRule { pattern: "/kept/**".into(), history_messages: messages, ..ChannelRule::default() };
    Settings { channels: vec![rule], ..any_port() }
}

const CHANNEL: &str = "/kept/news";
const CHANNELS: u64 = 1_050;
