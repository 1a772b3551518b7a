//! The reading of a client's batches, case by case.

use bayeux::{
    BatchError, ChannelName, ClientAdvice, Id, Limits, Message, MessageError, Publication, RawJson, Reply, escape_into,
    parse_batch,
};

fn batch(text: &str) -> Result<Vec<Message<'_>>, BatchError> {
    parse_batch(text, &Limits::default())
}

fn one(text: &str) -> Message<'_> {
    let mut messages = batch(text).expect(text);
    assert_eq!(messages.len(), 1, "{text}");
    messages.remove(0)
}

fn raw(text: &str) -> RawJson<'_> {
    RawJson::trusted(text)
}

fn id_of<'a>(message: &'a Message<'_>) -> Option<&'a str> {
    message.id.as_ref().map(Id::as_str)
}

/// Bayeux 1.0, "Message field definitions": each field is read.
#[test]
fn all_fields_of_a_message_are_read() {
    let message = one(
        r#" [ { "channel" : "/meta/handshake", "clientId":"c1", "id":"a1", "version":"1.0", "minimumVersion":"0.9",
        "supportedConnectionTypes":["long-polling", "websocket"], "connectionType":"websocket", "subscription":["/a", 3],
        "data": { "x": [1e400, -0, 12345678901234567890, "\ud800"] } , "ext":{ "ack":true }, "timestamp":"now",
        "advice":{"timeout":60000,"interval":0.5,"maxInterval":-7} } ] "#,
    );
    assert_eq!(message.channel.as_deref(), Some("/meta/handshake"));
    assert_eq!(message.client_id.as_deref(), Some("c1"));
    assert_eq!(id_of(&message), Some("a1"));
    assert_eq!(message.version, Some(raw(r#""1.0""#)));
    assert_eq!(message.supported_connection_types, Some(raw(r#"["long-polling", "websocket"]"#)));
    assert_eq!(message.connection_type.as_deref(), Some("websocket"));
    assert_eq!(message.subscription, Some(raw(r#"["/a", 3]"#)));
    assert_eq!(message.data, Some(raw(r#"{ "x": [1e400, -0, 12345678901234567890, "\ud800"] }"#)));
    assert_eq!(message.ext, Some(raw(r#"{ "ack":true }"#)));
    assert_eq!(message.timestamp, Some(raw(r#""now""#)));
    let advice = ClientAdvice { timeout_ms: Some(60_000), interval_ms: Some(0), max_interval_ms: Some(-7) };
    assert_eq!(message.advice, Some(advice));
    assert!(message.custom.is_empty());
    assert_eq!(message.fault, None);
}

/// Bayeux 1.0, "Message": an array must be taken, and a lone object may be.
#[test]
fn a_batch_is_an_array_or_a_lone_object() {
    let channels = |text| {
        batch(text).map(|all| all.iter().map(|m| m.channel.as_deref().unwrap_or("-").to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(channels(r#"{"channel":"/a"}"#), Ok(vec!["/a".to_owned()]));
    assert_eq!(
        channels(r#"[{"channel":"/a"},{},{"channel":"/b"}]"#),
        Ok(vec!["/a".to_owned(), "-".to_owned(), "/b".to_owned()])
    );
}

#[test]
fn a_batch_that_is_no_batch_is_refused_whole() {
    for (text, status, error) in [
        ("", 400, "400::json_invalid"),
        ("  \n", 400, "400::json_invalid"),
        ("{", 400, "400::json_invalid"),
        (r#"[{"channel":"/a"}"#, 400, "400::json_invalid"),
        (r#"[{"channel":"/a"},]"#, 400, "400::json_invalid"),
        (r#"[{"channel":"/a"}] x"#, 400, "400::json_invalid"),
        (r#"[{"channel":"/a"}{}]"#, 400, "400::json_invalid"),
        (r#"{"channel":"/a"}{"channel":"/b"}"#, 400, "400::json_invalid"),
        ("[] x", 400, "400::json_invalid"),
        ("\u{feff}[{}]", 400, "400::json_invalid"),
        ("message=[{}]", 400, "400::json_invalid"),
        (r#"{"channel":"/a","data":NaN}"#, 400, "400::json_invalid"),
        ("[]", 400, "400::batch_empty"),
        (" [ ] ", 400, "400::batch_empty"),
        ("[[]]", 400, "400::message_not_object"),
        ("[null]", 400, "400::message_not_object"),
        ("42", 400, "400::message_not_object"),
        ("\"x\"", 400, "400::message_not_object"),
        (r#"[{"channel":"/a"},1]"#, 400, "400::message_not_object"),
    ] {
        let refused = batch(text).expect_err(text);
        assert_eq!((refused.status(), refused.error()), (status, error), "{text}");
    }
}

#[test]
fn batches_are_bounded_in_messages_and_depth() {
    let limits = Limits { batch_messages_max: 3, json_depth_max: 4, ..Limits::default() };
    let error =
        |text: &str| parse_batch(text, &limits).map(|all| all.len()).map_err(|error| (error.status(), error.error()));
    assert_eq!(error("[{},{},{}]"), Ok(3));
    assert_eq!(error("[{},{},{},{}]"), Err((413, "413::batch_too_long")));
    assert_eq!(error(r#"[{"data":[[[{}]]]}]"#), Ok(1));
    assert_eq!(error(r#"[{"data":[[[[1]]]]}]"#), Ok(1));
    assert_eq!(error(r#"[{"data":[[[[{}]]]]}]"#), Err((400, "400::json_too_deep")));
    assert_eq!(error(&"[".repeat(1_000_000)), Err((400, "400::json_too_deep")));
    assert_eq!(error(&r#"{"a":"#.repeat(1_000_000)), Err((400, "400::json_too_deep")));
}

/// A faulty message keeps what its reply needs, and the others of its batch go on.
#[test]
fn faults_concern_one_message() {
    for (text, error, channel, id) in [
        (r#"{"id":"1"}"#, "400::channel_missing", None, Some("1")),
        (r#"{"channel":null,"id":"1"}"#, "400::channel_missing", None, Some("1")),
        (r#"{"channel":3,"id":"1"}"#, "405::channel_invalid", None, Some("1")),
        (r#"{"channel":["/a"]}"#, "405::channel_invalid", None, None),
        (r#"{"channel":"/\ud800"}"#, "405::channel_invalid", None, None),
        (r#"{"channel":"/a","id":{}}"#, "405::message_id_invalid", Some("/a"), None),
        (r#"{"channel":"/a","id":true}"#, "405::message_id_invalid", Some("/a"), None),
        (r#"{"channel":"/a","id":""}"#, "405::message_id_invalid", Some("/a"), Some("")),
        (r#"{"channel":"/a","id":"a-b"}"#, "405::message_id_invalid", Some("/a"), Some("a-b")),
        (r#"{"channel":"/a","id":"é"}"#, "405::message_id_invalid", Some("/a"), Some("é")),
        (r#"{"channel":"/a","id":"\ud800"}"#, "405::message_id_invalid", Some("/a"), None),
        (r#"{"channel":"/a","id":-1.5}"#, "405::message_id_invalid", Some("/a"), Some("-1.5")),
        (r#"{"channel":"/a","id":"1","ext":[]}"#, "400::ext_invalid", Some("/a"), Some("1")),
        (r#"{"channel":"/a","id":"1","ext":"x"}"#, "400::ext_invalid", Some("/a"), Some("1")),
    ] {
        let text = format!(r#"[{{"channel":"/before"}},{text},{{"channel":"/after"}}]"#);
        let messages = batch(&text).expect(&text);
        assert_eq!([messages[0].fault, messages[2].fault], [None, None], "{text}");
        let faulty = &messages[1];
        assert_eq!(faulty.fault.map(|fault| fault.error()), Some(error), "{text}");
        assert_eq!((faulty.channel.as_deref(), id_of(faulty)), (channel, id), "{text}");
        assert_eq!(faulty.ext, None);
    }
}

/// CometD 9: a number is taken as an id and echoed as a string.
#[test]
fn ids_are_strings_or_numbers() {
    for (raw, text) in
        [(r#""a1""#, "a1"), ("17", "17"), ("12345678901234567890", "12345678901234567890"), (r#""\u0041""#, "A")]
    {
        let text_of_message = format!(r#"{{"channel":"/a","id":{raw}}}"#);
        let message = one(&text_of_message);
        assert_eq!((id_of(&message), message.fault), (Some(text), None));
        let mut echoed = Vec::new();
        message.id.expect("an id").into_owned().write(&mut echoed);
        assert_eq!(echoed, format!("\"{text}\"").into_bytes());
    }
    assert_eq!(id_of(&one(r#"{"channel":"/a","id":null}"#)), None);
}

#[test]
fn ids_are_bounded() {
    let with_id = |bytes: usize| format!(r#"{{"channel":"/a","id":"{}"}}"#, "x".repeat(bytes));
    assert_eq!(one(&with_id(128)).fault, None);
    let text = with_id(129);
    let message = one(&text);
    assert_eq!((message.fault, message.id), (Some(MessageError::IdInvalid), None));
}

#[test]
fn fields_that_are_null_or_of_another_kind_are_as_good_as_absent() {
    let message = one(
        r#"{"channel":"/a","clientId":null,"ext":null,"subscription":null,"advice":null,"connectionType":7,"version":null,
        "supportedConnectionTypes":null,"timestamp":null,"data":null}"#,
    );
    assert_eq!(message.fault, None);
    assert!(
        message.client_id.is_none()
            && message.ext.is_none()
            && message.subscription.is_none()
            && message.advice.is_none()
    );
    assert!(
        message.connection_type.is_none() && message.version.is_none() && message.supported_connection_types.is_none()
    );
    assert!(message.timestamp.is_none());
    assert_eq!(message.data, Some(RawJson::NULL));
    assert_eq!(one(r#"{"channel":"/a","clientId":["c1"]}"#).client_id, None);
    assert_eq!(one(r#"{"channel":"/a","advice":[]}"#).advice, None);
}

#[test]
fn absurd_advice_is_passed_to_the_session_unchanged() {
    let advice = |raw: &str| {
        one(&format!(r#"{{"channel":"/a","advice":{raw}}}"#))
            .advice
            .map(|advice| (advice.timeout_ms, advice.interval_ms))
    };
    assert_eq!(advice("{}"), Some((None, None)));
    assert_eq!(advice(r#"{"timeout":0}"#), Some((Some(0), None)));
    assert_eq!(advice(r#"{"timeout":1e12,"interval":-1}"#), Some((Some(1_000_000_000_000), Some(-1))));
    assert_eq!(advice(r#"{"timeout":1e400,"interval":-99999999999999999999}"#), Some((Some(i64::MAX), Some(i64::MIN))));
    assert_eq!(advice(r#"{"timeout":"5","interval":null}"#), Some((None, None)));
    assert_eq!(advice(r#"{"timeout":5,"time\u006fut":6}"#), Some((Some(6), None)));
}

/// Clients' parsers keep the last of two equal keys, so a check of the first would be a way around it.
#[test]
fn the_last_of_equal_keys_wins() {
    let message = one(
        r#"{"channel":3,"channel":"/a","id":{},"id":"2","data":1,"data":2,"x":1,"y":2,"\u0078":3,"ext":1,"ext":{}}"#,
    );
    assert_eq!((message.channel.as_deref(), id_of(&message), message.fault), (Some("/a"), Some("2"), None));
    assert_eq!(message.data, Some(raw("2")));
    assert_eq!(message.custom.as_slice(), [(raw("\"x\""), raw("3")), (raw("\"y\""), raw("2"))]);
    assert_eq!(one(r#"{"channel":"/a","channel":3}"#).fault, Some(MessageError::ChannelInvalid));
}

#[test]
fn keys_with_escapes_are_recognised() {
    let message =
        one(r#"{"chann\u0065l":"\/a","\u0061dvice":{"reconnect":"none"},"\u0063lientId":"c","err\u006fr":"x"}"#);
    assert_eq!(message.channel.as_deref(), Some("/a"));
    assert_eq!(message.client_id.as_deref(), Some("c"));
    assert!(message.advice.is_some());
    assert!(message.custom.is_empty());
    let every_letter: String = "supportedConnectionTypes".bytes().map(|byte| format!("\\u{byte:04x}")).collect();
    let text = format!(r#"{{"channel":"/a","{every_letter}":[]}}"#);
    assert_eq!(one(&text).supported_connection_types, Some(raw("[]")));
}

#[test]
fn keys_that_javascript_objects_have_are_ordinary() {
    let message =
        one(r#"{"channel":"/a","__proto__":{"x":1},"constructor":2,"toString":3,"":4,"\ud800":5,"Channel":6}"#);
    let custom = [
        ("\"__proto__\"", "{\"x\":1}"),
        ("\"constructor\"", "2"),
        ("\"toString\"", "3"),
        ("\"\"", "4"),
        (r#""\ud800""#, "5"),
        ("\"Channel\"", "6"),
    ];
    assert_eq!(message.custom.as_slice(), custom.map(|(key, value)| (raw(key), raw(value))));
    assert_eq!(message.fault, None);
}

#[test]
fn custom_fields_are_bounded() {
    let with_fields = |count: usize| {
        format!(r#"{{"channel":"/a"{}}}"#, (0..count).map(|n| format!(r#","k{n}":{n}"#)).collect::<String>())
    };
    assert_eq!(one(&with_fields(16)).fault, None);
    let text = with_fields(17);
    let message = one(&text);
    assert_eq!(message.fault.map(|fault| fault.error()), Some("413::custom_fields_max"));
    assert_eq!(message.custom.len(), 16);
    let repeated = format!(r#"{{"channel":"/a"{}}}"#, r#","k":1"#.repeat(100));
    assert_eq!(one(&repeated).fault, None);
}

/// CometD 9.0.0 forwards all top-level fields but two, so that a publisher could disconnect subscribers with `advice`.
#[test]
fn a_publication_holds_only_what_may_be_forwarded() {
    let limits = Limits::default();
    let message = one(
        r#"{"channel":"/a","clientId":"c","id":"1","advice":{"reconnect":"none"},"successful":false,"error":"402::x","subscription":"/a",
        "connectionType":"websocket","version":"1.0","minimumVersion":"1.0","supportedConnectionTypes":[],"authSuccessful":true,
        "connectionId":1,"json-comment-filtered":true,"x-messages":3,"data":{ "b":1 },"ext":{"k":1},"timestamp":"t","foo":"\u0062ar"}"#,
    );
    let channel = ChannelName::parse(message.channel.as_deref().expect("a channel"), &limits).expect("a valid one");
    let written = |publication: Publication<'_>| {
        let mut out = Vec::new();
        publication.write(&mut out);
        assert_eq!(publication.encoded_bytes(), out.len());
        String::from_utf8(out).expect("UTF-8")
    };
    let with_ext = Publication::from_message(channel, &message, true);
    assert_eq!(
        written(with_ext),
        r#"{"channel":"/a","data":{ "b":1 },"ext":{"k":1},"timestamp":"t","foo":"\u0062ar"}"#
    );
    let without_ext = Publication::from_message(channel, &message, false);
    assert_eq!(written(without_ext), r#"{"channel":"/a","data":{ "b":1 },"timestamp":"t","foo":"\u0062ar"}"#);
    let to_service = Publication { id: message.id.as_ref(), custom: &[], ..without_ext };
    assert_eq!(written(to_service), r#"{"channel":"/a","data":{ "b":1 },"timestamp":"t","id":"1"}"#);
    assert_eq!(written(Publication { channel: "/a", ..Publication::default() }), r#"{"channel":"/a"}"#);
}

/// Bayeux 1.0, "Meta Channel Response Messages"; CometD's handshake reply, field for field.
#[test]
fn a_reply_holds_what_it_is_given() {
    let id = Id::new("a\"1");
    let reply = Reply {
        channel: Some("/meta/handshake"),
        id: Some(&id),
        client_id: Some("c1"),
        successful: Some(false),
        error: Some("403::\"x\""),
        subscription: Some(raw(r#"[ "/a" ]"#)),
        advice: Some(raw(r#"{"reconnect":"none"}"#)),
        ext: Some(raw("{}")),
        data: Some(raw("1")),
        version: Some("1.0"),
        minimum_version: Some("1.0"),
        supported_connection_types: Some(raw(r#"["websocket"]"#)),
        timestamp: Some("now"),
        custom: r#""more":{}"#,
    };
    let mut out = Vec::new();
    reply.write(&mut out);
    assert_eq!(
        String::from_utf8_lossy(&out),
        concat!(
            r#"{"channel":"/meta/handshake","id":"a\"1","clientId":"c1","successful":false,"error":"403::\"x\"","subscription":[ "/a" ],"#,
            r#""advice":{"reconnect":"none"},"ext":{},"data":1,"version":"1.0","minimumVersion":"1.0","#,
            r#""supportedConnectionTypes":["websocket"],"timestamp":"now","more":{}}"#,
        )
    );
}

/// RFC 8259 §7.
#[test]
fn junk_is_escaped_on_its_way_out() {
    let mut out = Vec::new();
    escape_into("\"\\/\n\r\t\u{0}\u{1f}\u{7f}é😀", &mut out);
    assert_eq!(String::from_utf8_lossy(&out), "\"\\\"\\\\/\\n\\r\\t\\u0000\\u001f\u{7f}é😀\"");
}

/// A message without a channel is answered without one: CometD's Java client waits for exactly that.
#[test]
fn a_reply_to_a_message_without_a_channel_has_none() {
    let written = |reply: Reply<'_>| {
        let mut out = b"[".to_vec();
        reply.write(&mut out);
        String::from_utf8(out).expect("a text")
    };
    let id = Id::new("7");
    assert_eq!(written(Reply { id: Some(&id), error: Some("x"), ..Reply::default() }), r#"[{"id":"7","error":"x"}"#);
    assert_eq!(written(Reply { successful: Some(false), ..Reply::default() }), r#"[{"successful":false}"#);
    assert_eq!(written(Reply::default()), "[{}");
    assert_eq!(written(Reply::new("")), r#"[{"channel":""}"#);
}
