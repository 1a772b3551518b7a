//! Tests of the messages between nodes.

use proptest::prelude::*;

use super::*;
use crate::sessions::tests::{id, tag};

fn questions() -> Vec<Question> {
    let serve = |address: Option<IpAddr>, browser, transport| {
        let body = "[{\"channel\":\"/meta/connect\"}]".into();
        Question::Serve(Serve { session: id(1, 0), node: tag(1), number: 7, address, browser, transport, body })
    };
    let release = |opener| Question::Release { session: id(3, 1), node: tag(1), bytes_max: 9, is_urgent: true, opener };
    let relay = RelayId { node: tag(4), number: 5 };
    let websocket = RelayRequest::WebSocket { opener: Opener::Page, address: None, compression: 9, text: "[]".into() };
    let address = Some([10, 0, 0, 2].into());
    let visitor = Visitor { session: id(5, 0), opener: Opener::Browser(id(6, 0)), address, is_multiplexed: false };
    vec![
        Question::Ping,
        serve(None, None, HttpTransport::LongPolling),
        serve(Some([10, 0, 0, 1].into()), Some(id(2, 0)), HttpTransport::CallbackPolling("a.b".into())),
        serve(Some(Ipv6Addr::LOCALHOST.into()), None, HttpTransport::LongPolling),
        Question::Settled(tag(2), u64::MAX, Fate::Lost),
        release(Opener::Program),
        release(Opener::Page),
        release(Opener::Browser(id(4, 0))),
        Question::Taken(Key::of(&id(1, 0)), tag(2), 11),
        Question::Open(relay, websocket),
        Question::Open(relay, RelayRequest::Stream(visitor, Format::Events)),
        Question::Open(relay, RelayRequest::Stream(Visitor { is_multiplexed: true, ..visitor }, Format::Lines)),
        Question::Carry(relay, Bytes::from_static(b"\x00\xff")),
        Question::Close(relay),
    ]
}

fn replies() -> Vec<Reply> {
    let body = Bytes::from_static(b"[]");
    let served = |set_browser, is_confirmed| Reply::Served {
        status: 200,
        set_browser,
        is_confirmed,
        compresses: !is_confirmed,
        body: body.clone(),
    };
    vec![
        Reply::Done,
        served(None, true),
        served(Some(id(1, 0)), false),
        Reply::Given(3, body.clone()),
        Reply::Unknown,
        Reply::Elsewhere(tag(9)),
        Reply::Busy,
        Reply::TooLarge,
        Reply::Full,
        Reply::Refused,
        Reply::Stays,
        Reply::TooMany,
    ]
}

fn read(bytes: &[u8]) -> Option<Question> {
    Question::read(&Bytes::copy_from_slice(bytes))
}

#[test]
fn questions_and_replies_read_back() {
    for question in questions() {
        assert_eq!(Question::read(&question.write().into()), Some(question));
    }
    for reply in replies() {
        assert_eq!(Reply::read(&reply.write().into()), Some(reply));
    }
}

#[test]
fn other_versions_cut_messages_and_trailing_bytes_are_refused() {
    for question in questions() {
        let bytes = question.write();
        assert_eq!(read(&[&[VERSION + 1], &bytes[1..]].concat()), None);
        let has_text = matches!(question, Question::Open(_, RelayRequest::WebSocket { .. }));
        if !has_text && !matches!(question, Question::Serve(_) | Question::Carry(..)) {
            assert_eq!(read(&[&bytes[..], b"x"].concat()), None);
            assert!((0..bytes.len()).all(|length| read(&bytes[..length]).is_none()));
        }
    }
    assert_eq!(read(&[VERSION, 1]), None);
}

proptest! {
    #[test]
    fn no_bytes_end_in_a_panic(bytes: Vec<u8>, kind in 0..11_u8) {
        let bytes = Bytes::from([&[VERSION, kind][..], &bytes].concat());
        let _read = (Question::read(&bytes), Reply::read(&bytes));
    }
}
