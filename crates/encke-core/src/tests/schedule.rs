//! The schedule: each session and each socket is queued for writing once.

use super::{NOW, rig};

fn queued(rig: &super::Rig) -> usize {
    rig.shard.holdings().iter().find(|(name, _)| name.starts_with("waiting writes")).map_or(0, |(_, len)| *len)
}

#[test]
fn a_session_that_changes_its_socket_again_and_again_is_queued_for_writing_once() {
    let mut rig = rig();
    let (first, client) = rig.socket();
    let second = rig.shard.socket_opened(NOW, None);
    rig.subscribe(first, &client);
    rig.flushed(first);
    rig.publish(1);
    let connect = format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#);
    for _ in 0..10 {
        rig.shard.socket_text(NOW, second, &connect);
        rig.shard.socket_text(NOW, first, &connect);
    }
    assert!(queued(&rig) <= 3, "{} entries for a session and two sockets", queued(&rig));
    assert_eq!(rig.flushed(first).matches(r#""channel":"/a""#).count(), 1);
    assert_eq!(queued(&rig), 0);
}

#[test]
fn a_session_goes_on_if_the_kernel_takes_bytes_again_before_its_socket_is_notified() {
    let mut rig = rig();
    let (first, client) = rig.socket();
    let second = rig.shard.socket_opened(NOW, None);
    rig.publish(1);
    rig.shard.socket_text(NOW, second, "no JSON");
    rig.shard.socket_text(NOW, second, &format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#));
    rig.kernel.refusals = 1;
    rig.flushed(first);
    rig.publish(2);
    let text = rig.flushed(second);
    assert_eq!(text.matches(r#""channel":"/a""#).count(), 2, "{text}");
}

#[test]
fn replies_of_a_turn_leave_in_one_write_with_the_messages_of_their_session() {
    let mut rig = rig();
    let (publisher, client) = rig.socket();
    let before = rig.kernel.writes;
    for id in 1..=3 {
        let text = format!(r#"[{{"channel":"/a","clientId":"{client}","id":"{id}","data":1}}]"#);
        rig.shard.socket_text(NOW, publisher, &text);
    }
    rig.publish(1);
    let written = rig.flushed(publisher);
    assert_eq!((written.matches("\"data\":1").count(), written.matches("\"successful\":true").count()), (4, 3));
    assert_eq!(rig.kernel.writes - before, 1);
}
