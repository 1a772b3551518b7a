//! Limits of subscriptions in the process.

use encke::{Gap, Settings};

use crate::common::{TestServer, data, is_silent, next, settings};

/// A reader that is too slow gets a gap with the number of messages, then the latest ones. Another one misses nothing.
#[test]
fn in_process_messages_max_discards_the_oldest_with_a_gap() {
    let server = TestServer::start(Settings { in_process_messages_max: 10, ..settings() });
    let mut slow = server.handle.subscribe("/a").expect("a channel");
    let mut fast = server.handle.subscribe("/a").expect("a channel");
    for number in 0..100 {
        server.handle.publish("/a", &number.to_string()).expect("taken");
        // So each message is a burst.
        assert_eq!(data(&mut fast, 1), [number.to_string()]);
    }
    assert_eq!(next(&mut slow).map(|message| message.data().to_owned()), Err(Gap::Slow { messages: 90 }));
    assert_eq!(data(&mut slow, 10), (90..100).map(|number| number.to_string()).collect::<Vec<_>>());
    assert!(is_silent(&mut slow));
    assert_eq!(server.metric("encke_in_process_messages_discarded"), 90);
}

/// The latest message is there even if it alone exceeds the limit.
#[test]
fn in_process_bytes_max_discards_the_oldest_with_a_gap() {
    let server = TestServer::start(Settings { in_process_bytes_max: 1_000, ..settings() });
    let mut slow = server.handle.subscribe("/a").expect("a channel");
    let mut fast = server.handle.subscribe("/a").expect("a channel");
    let long = format!("\"{}\"", "x".repeat(2_000));
    for text in ["1", "2", &long] {
        server.handle.publish("/a", text).expect("taken");
        assert_eq!(data(&mut fast, 1), [text]);
    }
    assert_eq!(next(&mut slow).map(|message| message.data().to_owned()), Err(Gap::Slow { messages: 2 }));
    assert_eq!(data(&mut slow, 1), [long]);
}
