//! Breaks that lose nothing, against the real server: acknowledgement, replay, and both.

mod common;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use encke::{ChannelRule, Handle, Server, Settings};
use encke_client::{
    ClientBuilder, Gap, GapCause, HistoryPage, HistoryQuery, Position, ReplayFrom, Subscription, Transport,
};

use common::*;

#[test]
fn messages_that_a_broken_connection_took_along_come_again_once_and_in_order() {
    for transport in TRANSPORTS {
        for (ack, replay) in RECOVERIES {
            let running = start(keeping(100));
            run(async {
                let proxy = Proxy::open(running.address(), Upgrades::Pass).await;
                let client = connected(proxy.address, recovering(transport, ack, replay)).await;
                let mut news = client.subscribe(CHANNEL).await.expect("subscribes");
                let mut next = 0;
                for round in 1..=3 {
                    publish(&running.handle(), next..round * 20 - 10);
                    assert_eq!(numbers(&mut news, round * 20 - 10 - next).await, range(next..round * 20 - 10));
                    break_off(&proxy, &running.handle(), round * 20 - 10..round * 20 - 5).await;
                    publish(&running.handle(), round * 20 - 5..round * 20);
                    let received = numbers(&mut news, 10).await;
                    assert_eq!(received, range(round * 20 - 10..round * 20), "{transport:?} ack {ack} replay {replay}");
                    next = round * 20;
                }
                silent(&mut news).await;
                assert_eq!(running.handle().sessions(), 1, "the old session");
            });
            end(running);
        }
    }
}

#[test]
fn a_history_is_read_in_pages_without_a_subscription() {
    let running = start(keeping(100));
    publish(&running.handle(), 0..50);
    for transport in TRANSPORTS {
        run(async {
            let client = connected(running.address(), recovering(transport, false, false)).await;
            let numbers =
                |page: &HistoryPage| page.messages.iter().map(|it| it.json().expect("a number")).collect::<Vec<u64>>();
            let mut page = client.read_history(CHANNEL, &HistoryQuery::last(20)).await.expect("a page");
            let mut all = vec![numbers(&page)];
            assert!(!page.later && page.next().is_none());
            while let Some(earlier) = page.previous() {
                page = client.read_history(CHANNEL, &earlier.limit(20)).await.expect("a page");
                all.push(numbers(&page));
            }
            assert_eq!(all, [range(30..50), range(10..30), range(0..10)]);
            let later = page.next().expect("later messages").limit(5);
            assert_eq!(numbers(&client.read_history(CHANNEL, &later).await.expect("a page")), range(10..15));
            let nothing = client.read_history("/nothing", &HistoryQuery::default()).await.expect("a page");
            assert_eq!((nothing.messages.len(), nothing.latest), (0, None));
        });
    }
    end(running);
}

#[test]
fn a_session_that_is_forgotten_resumes_at_its_positions_in_a_new_one() {
    for transport in TRANSPORTS {
        for ack in [false, true] {
            let running = start(Settings { max_interval_ms: 500, ..keeping(100) });
            run(async {
                let proxy = Proxy::open(running.address(), Upgrades::Pass).await;
                let client = connected(proxy.address, recovering(transport, ack, true)).await;
                let mut news = client.subscribe(CHANNEL).await.expect("subscribes");
                publish(&running.handle(), 0..5);
                assert_eq!(numbers(&mut news, 5).await, range(0..5));
                let old = client.connected().expect("a session").client_id;
                proxy.blocks.send_replace(true);
                break_off(&proxy, &running.handle(), 5..10).await;
                while running.handle().sessions() > 0 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                publish(&running.handle(), 10..15);
                proxy.blocks.send_replace(false);
                assert_eq!(numbers(&mut news, 10).await, range(5..15), "{transport:?} ack {ack}");
                assert_ne!(client.connected().expect("a session").client_id, old);
                silent(&mut news).await;
            });
            end(running);
        }
    }
}

#[test]
fn messages_that_are_not_retained_any_more_are_a_gap_in_the_stream() {
    for transport in TRANSPORTS {
        let running = start(keeping(3));
        run(async {
            let proxy = Proxy::open(running.address(), Upgrades::Pass).await;
            let client = connected(proxy.address, recovering(transport, false, true)).await;
            let mut news = client.subscribe(CHANNEL).await.expect("subscribes");
            publish(&running.handle(), 0..1);
            let first = next(&mut news).await.position.expect("a position").offset;
            break_off(&proxy, &running.handle(), 1..10).await;
            let missed = gap(&mut news).await;
            assert_eq!((&*missed.channel, missed.offsets()), (CHANNEL, Some((first + 1, first + 6))));
            assert_eq!(numbers(&mut news, 3).await, range(7..10));
            silent(&mut news).await;
        });
        end(running);
    }
}

#[test]
fn a_server_that_has_forgotten_everything_is_a_gap() {
    for transport in TRANSPORTS {
        for (ack, replay) in RECOVERIES {
            let running = start(keeping(100));
            let address = running.address();
            run(async {
                let client = connected(address, recovering(transport, ack, replay)).await;
                let mut news = client.subscribe(CHANNEL).await.expect("subscribes");
                publish(&running.handle(), 0..3);
                assert_eq!(numbers(&mut news, 3).await, range(0..3));
                running.handle().drain();
                running.join();
                let running = start(Settings { listen: address, ..keeping(100) });
                let missed = gap(&mut news).await;
                assert_eq!((&*missed.channel, missed.cause), (CHANNEL, GapCause::Unknown));
                publish(&running.handle(), 3..6);
                assert_eq!(numbers(&mut news, 3).await, range(3..6));
                end(running);
            });
        }
    }
}

#[test]
fn a_pattern_with_more_channels_than_a_subscribe_takes_outlives_a_break() {
    for (transport, from) in
        [(Transport::WebSocket, ReplayFrom::Latest), (Transport::LongPolling, ReplayFrom::Earliest)]
    {
        let running = start(keeping(100));
        run(async {
            let proxy = Proxy::open(running.address(), Upgrades::Pass).await;
            let client = connected(proxy.address, quick(transport).replay(from)).await;
            let mut all = client.subscribe("/stored/**").await.expect("subscribes");
            let publish = |number: u64| {
                for channel in (0..CHANNELS).map(|channel| format!("/stored/{channel}")) {
                    while running.handle().publish(&channel, &number.to_string()).is_err() {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            };
            publish(1);
            assert_eq!(numbers(&mut all, CHANNELS).await, [1; CHANNELS as usize]);
            let old = client.connected().expect("a session").client_id;
            proxy.held().await;
            proxy.cut.send(()).expect("a connection");
            publish(2);
            // One for each known position; for the others there is a gap.
            let (mut received, mut gaps) = (BTreeSet::new(), Vec::new());
            while received.len() < 999 || gaps.is_empty() {
                match all.next().await.expect("reconnects") {
                    Ok(message) => assert!(received.insert(message.channel), "once"),
                    Err(gap) => gaps.push((gap.channel, gap.cause)),
                }
            }
            assert_eq!(gaps, [("/stored/**".into(), GapCause::Unknown)]);
            assert_eq!(client.connected().expect("a session").client_id, old);
            publish(3);
            let mut third = BTreeSet::new();
            while (third.len() as u64) < CHANNELS {
                let message = next(&mut all).await;
                // The rest of the second round comes before.
                let is_third = message.json::<u64>().expect("a number") == 3;
                assert!(
                    if is_third { third.insert(message.channel) } else { received.insert(message.channel) },
                    "once"
                );
            }
        });
        end(running);
    }
}

#[test]
fn a_program_resumes_at_a_position_that_it_has_stored() {
    let running = start(keeping(100));
    run(async {
        let builder = || quick(Transport::WebSocket).replay(ReplayFrom::Earliest);
        publish(&running.handle(), 0..10);
        let client = connected(running.address(), builder()).await;
        let mut news = client.subscribe(CHANNEL).await.expect("subscribes");
        let mut position: Option<Position> = None;
        for _ in 0..4 {
            position = next(&mut news).await.position;
        }
        client.disconnect().await.expect("disconnects");
        let client = connected(running.address(), builder()).await;
        let from = position.expect("a position").into();
        let mut news = client.subscribe_from(CHANNEL, from).await.expect("subscribes");
        assert_eq!(numbers(&mut news, 6).await, range(4..10));
        silent(&mut news).await;
    });
    end(running);
}

#[test]
fn a_publisher_gets_the_positions_of_its_messages_and_a_pattern_resumes_at_those_of_its_channels() {
    for transport in TRANSPORTS {
        // Some channels belong to other shards than their publisher.
        let running = Server::builder().settings(Settings { shards: 3, ..keeping(100) }).start().expect("starts");
        run(async {
            let builder = || quick(transport).replay(ReplayFrom::Latest);
            let client = connected(running.address(), builder()).await;
            let mut all = client.subscribe("/stored/**").await.expect("subscribes");
            let channels: Vec<String> = (0..8).map(|number| format!("/stored/{number}")).collect();
            for channel in &channels {
                client.publish_without_reply(channel, &0).await.expect("leaves");
                let first = client.publish(channel, &1).await.expect("is stored").position.expect("a position");
                let batch = client.batch().publish(channel, &2).and_then(|batch| batch.publish(channel, &3));
                let rest = batch.expect("JSON").send().await.expect("is stored");
                let offset = |at: usize| rest[at].position.as_ref().map(|position| position.offset);
                assert_eq!([offset(0), offset(1)], [Some(first.offset + 1), Some(first.offset + 2)]);
                for number in 0..4 {
                    let message = next(&mut all).await;
                    assert_eq!(message.json::<u64>().expect("a number"), number);
                    if number == 1 {
                        assert_eq!(message.position.as_ref(), Some(&first));
                    }
                }
            }
            assert_eq!(client.publish("/fleeting", &1).await.expect("is accepted").position, None);

            // The program ends, and has stored where it was, but for one channel.
            let mut positions = all.positions().await.expect("positions");
            positions.retain(|(channel, _)| channel != "/stored/7");
            let stored = serde_json::to_string(&positions).expect("JSON");
            client.disconnect().await.expect("disconnects");
            for channel in &channels {
                running.handle().publish(channel, "4").expect("published");
            }
            let positions: Vec<(String, Position)> = serde_json::from_str(&stored).expect("positions");
            let client = connected(running.address(), builder()).await;
            let begun = client.subscribe_from_positions("/stored/**", positions, ReplayFrom::Earliest).await;
            let mut received = numbers(&mut begun.expect("subscribes"), 7 + 5).await;
            received.sort_unstable();
            assert_eq!(received, [0, 1, 2, 3, 4, 4, 4, 4, 4, 4, 4, 4]);
        });
        end(running);
    }
}

/// The bytes that the server sends now get lost, and the connections break.
async fn break_off(proxy: &Proxy, handle: &Handle, numbers: std::ops::Range<u64>) {
    proxy.held().await;
    let lost = proxy.lost.load(Ordering::Relaxed);
    proxy.loses.send_replace(true);
    publish(handle, numbers);
    while proxy.lost.load(Ordering::Relaxed) == lost {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    proxy.cut.send(()).expect("a connection");
    proxy.loses.send_replace(false);
}

/// A client with these extensions.
fn recovering(transport: Transport, ack: bool, replay: bool) -> ClientBuilder {
    let builder = quick(transport).ack(ack);
    if replay { builder.replay(ReplayFrom::Latest) } else { builder }
}

#[test]
fn subscriptions_begin_with_the_latest_message_and_breaks_do_not_bring_it_again() {
    for transport in TRANSPORTS {
        for (ack, replay) in [(false, false), (true, false), (false, true), (true, true)] {
            let rule = ChannelRule { pattern: "/stored/**".into(), retain_last: true, ..ChannelRule::default() };
            let running = start(Settings { channels: vec![rule], ..any_port() });
            let handle = running.handle();
            run(async {
                publish(&handle, 1..4);
                handle.publish("/stored/other", "9").expect("published");
                metric(running.address(), "encke_history_messages", |messages| messages == 2).await;
                let proxy = Proxy::open(running.address(), Upgrades::Pass).await;
                let client = connected(proxy.address, recovering(transport, ack, replay)).await;
                let mut news = client.subscribe(CHANNEL).await.expect("subscribes");
                assert_eq!(numbers(&mut news, 1).await, [3], "{transport:?} {ack} {replay}");
                let mut all = client.subscribe("/stored/*").await.expect("subscribes");
                assert_eq!(numbers(&mut all, 1).await, [9], "{transport:?} {ack} {replay}: of the other channel");
                publish(&handle, 4..5);
                assert_eq!([numbers(&mut news, 1).await, numbers(&mut all, 1).await], [[4], [4]]);
                proxy.held().await;
                if ack || replay {
                    break_off(&proxy, &handle, 5..6).await;
                    assert_eq!(numbers(&mut news, 1).await, [5], "{transport:?} {ack} {replay}");
                }
                // The program may want new messages only, and at most one in an interval.
                let late = connected(running.address(), recovering(transport, ack, replay)).await;
                let mut paced =
                    late.subscribe_with_interval(CHANNEL, Duration::from_secs(1)).await.expect("subscribes");
                let latest = if ack || replay { 5 } else { 4 };
                assert_eq!(numbers(&mut paced, 1).await, [latest], "{transport:?} {ack} {replay}");
                if replay {
                    let mut new = late.subscribe_from("/stored/other", ReplayFrom::Latest).await.expect("subscribes");
                    handle.publish("/stored/other", "10").expect("published");
                    assert_eq!(numbers(&mut new, 1).await, [10], "{transport:?} {ack}: it has named a position");
                }
            });
            end(running);
        }
    }
}

async fn gap(news: &mut Subscription) -> Gap {
    news.next().await.expect("reconnects").expect_err("a gap")
}

/// The numbers in the next messages, without a gap between them.
async fn numbers(news: &mut Subscription, count: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    while (numbers.len() as u64) < count {
        match news.next().await.expect("reconnects") {
            Ok(message) => numbers.push(message.json().expect("a number")),
            Err(gap) => panic!("{gap} after {numbers:?}"),
        }
    }
    numbers
}

fn publish(handle: &Handle, numbers: std::ops::Range<u64>) {
    numbers.for_each(|number| handle.publish(CHANNEL, &number.to_string()).expect("published"));
}

fn range(numbers: std::ops::Range<u64>) -> Vec<u64> {
    numbers.collect()
}

/// A server that retains so many messages of each channel.
fn keeping(messages: usize) -> Settings {
    let rule = ChannelRule { pattern: "/stored/**".into(), history_messages: messages, ..ChannelRule::default() };
    Settings { channels: vec![rule], ..any_port() }
}

/// Acknowledgement and replay, at least one of them.
const RECOVERIES: [(bool, bool); 3] = [(true, false), (false, true), (true, true)];
const CHANNEL: &str = "/stored/news";
const CHANNELS: u64 = 1_050;
