//! Tests of budgets that several users share: calls, decisions and refreshes that wait.

use std::future::pending;

use super::{NOW, Rig, member_of};
use crate::application::{
    Actions, Answer, Application, Caller, Handshake, Pending, Publishing, Refusal, Service, Verdict,
};
use crate::decision::{Resolved, WaitKey};
use crate::events::{Effect, ShardMessage, SocketKey};
use crate::identity::Identity;
use crate::now::Now;
use crate::settings::Settings;

/// Gives each session the user that its `ext` names. Never answers a call, and decides nothing about a publication; a refresh
/// with `now` in it is granted at once.
struct Never;

impl Application for Never {
    fn handshake(&self, handshake: &Handshake<'_>) -> Answer<Result<Option<Identity>, Refusal>> {
        Answer::Now(Ok(handshake.ext.map(|ext| Identity::of_user(&member_of(ext, "user")))))
    }

    fn refresh(&self, caller: &Caller<'_>, credentials: &str) -> Answer<Result<Identity, Refusal>> {
        if credentials.contains("now") {
            Answer::Now(Ok(Identity::of_user(caller.user())))
        } else {
            Answer::Later(Box::pin(pending()))
        }
    }

    fn service(&self, _: &Service<'_>, _: &mut Actions) -> Option<Pending<Actions>> {
        Some(Box::pin(pending()))
    }

    fn publish(&self, _: &Publishing<'_>) -> Answer<Verdict> {
        Answer::Later(Box::pin(pending()))
    }
}

fn rig(settings: Settings) -> Rig {
    Rig::new(1, settings, Box::new(Never))
}

impl Rig {
    fn of_user(&mut self, user: &str) -> (SocketKey, String) {
        self.opened(&format!(r#"{{"user":"{user}"}}"#))
    }

    /// Sends a message of a session. Returns what its client gets.
    fn says(&mut self, (socket, client): &(SocketKey, String), fields: &str) -> String {
        self.says_at(NOW, (*socket, client), fields)
    }

    fn says_at(&mut self, now: Now, (socket, client): (SocketKey, &str), fields: &str) -> String {
        self.shard.socket_text(now, socket, &format!(r#"{{"clientId":"{client}",{fields}}}"#));
        self.flushed(socket)
    }
}

const CALL: &str = r#""channel":"/service/x","data":"x""#;
const PUBLISH: &str = r#""channel":"/a","data":"x""#;
const REFRESH: &str = r#""channel":"/service/auth/refresh","data":"later""#;
const SUCCESSFUL: &str = r#""successful":true"#;

/// Opens sessions of a user, each of which calls until it is refused. Returns one of them, and the number of calls.
fn greedy(rig: &mut Rig, user: &str, sessions: usize) -> ((SocketKey, String), usize) {
    let sessions: Vec<_> = (0..sessions).map(|_| rig.of_user(user)).collect();
    let mut calls = 0;
    for session in &sessions {
        let more = (0..200).take_while(|_| rig.says(session, CALL).contains(SUCCESSFUL)).count();
        calls += more;
    }
    (sessions.into_iter().next().expect("one"), calls)
}

#[test]
fn calls_of_one_user_that_nobody_answers_leave_room_for_others() {
    let mut rig = rig(Settings { calls_waiting_max: 800, ..Settings::default() });
    let (ann, of_ann) = greedy(&mut rig, "ann", 102);
    assert!((400..600).contains(&of_ann), "{of_ann} of 800");
    let refused = rig.says(&ann, CALL);
    assert!(refused.contains("503::calls_waiting_max"), "{refused}");
    // Others have calls, also when several users are greedy.
    let (_, of_bob) = greedy(&mut rig, "bob", 20);
    let (_, of_eve) = greedy(&mut rig, "eve", 20);
    assert!(of_bob > 20 && of_eve > 2, "{of_bob} and {of_eve}");
    for user in ["guest 1", "guest 2", "guest 3"] {
        let guest = rig.of_user(user);
        assert!(rig.says(&guest, CALL).contains(SUCCESSFUL), "{user}");
    }
    // Even the greedy user can refresh its credentials.
    let accepted = rig.says(&ann, REFRESH);
    assert!(accepted.contains(SUCCESSFUL), "{accepted}");
}

#[test]
fn refreshes_have_room_when_all_calls_are_taken() {
    let mut rig = rig(Settings { calls_waiting_max: 80, ..Settings::default() });
    let users: Vec<_> = (0..200).map(|nth| greedy(&mut rig, &format!("user {nth}"), 1)).collect();
    assert_eq!(users.iter().map(|(_, calls)| calls).sum::<usize>(), 70);
    let refreshed = users.iter().filter(|(session, _)| rig.says(session, REFRESH).contains(SUCCESSFUL)).count();
    assert_eq!(refreshed, 10);
}

#[test]
fn decisions_of_one_user_leave_room_for_others() {
    let mut rig = rig(Settings { decisions_waiting_max: 80, ..Settings::default() });
    let waits = |rig: &mut Rig, user: &str, sessions: usize| {
        let sessions: Vec<_> = (0..sessions).map(|_| rig.of_user(user)).collect();
        sessions.iter().filter(|session| !rig.says(session, PUBLISH).contains("503::decisions_waiting_max")).count()
    };
    let of_ann = waits(&mut rig, "ann", 100);
    assert!((50..65).contains(&of_ann), "{of_ann} of 80");
    assert!(waits(&mut rig, "bob", 100) > 3);
    assert_eq!(waits(&mut rig, "guest", 1), 1);
}

/// A connect with credentials counts for the rates of messages, and for the rate of refreshes. The connect itself goes on.
#[test]
fn refreshes_in_connects_count_and_the_connect_is_answered() {
    let connect = r#""channel":"/meta/connect","advice":{"timeout":0},"ext":{"auth":"now"}"#;
    for (settings, limit) in [
        (Settings { session_messages_per_s_max: 3, ..Settings::default() }, "session_messages_per_s_max"),
        (Settings { session_refreshes_per_s_max: 3, ..Settings::default() }, "session_refreshes_per_s_max"),
    ] {
        let mut rig =
            rig(Settings { session_refreshes_per_s_max: settings.session_refreshes_per_s_max.max(3), ..settings });
        let ann = rig.of_user("ann");
        let answers: Vec<_> = (0..124).map(|_| rig.says(&ann, connect)).collect();
        let connected = |text: &&String| text.contains(r#""channel":"/meta/connect","successful":true"#);
        assert_eq!(answers.iter().filter(connected).count(), 124, "{}", answers[0]);
        let refreshed = answers.iter().filter(|text| text.contains("expires_in_ms")).count();
        assert_eq!(refreshed, 3, "{}", answers[0]);
        let error = format!("429:{limit}:rate_exceeded");
        assert!(answers[3].contains("/service/auth/refresh") && answers[3].contains(&error), "{}", answers[3]);
        // A second later it is a new one.
        let later = Now { ms: NOW.ms + 1_000, wall_ms: NOW.wall_ms + 1_000 };
        let answer = rig.says_at(later, (ann.0, &ann.1), connect);
        assert!(answer.contains("expires_in_ms"), "{answer}");
    }
}

#[test]
fn one_refresh_of_a_session_is_under_way() {
    let mut rig = rig(Settings { session_refreshes_per_s_max: 0, ..Settings::default() });
    let ann = rig.of_user("ann");
    for fields in [REFRESH, r#""channel":"/meta/connect","advice":{"timeout":0},"ext":{"auth":"later"}"#] {
        rig.shard.take_effects();
        assert!(rig.says(&ann, fields).contains(SUCCESSFUL));
        let awaited = |effect: Effect| if let Effect::Await(key, _) = effect { Some(key) } else { None };
        let under_way: Vec<WaitKey> = rig.shard.take_effects().into_iter().filter_map(awaited).collect();
        let second = rig.says(&ann, fields);
        assert!(second.contains("429:refresh_under_way:refresh_denied"), "{second}");
        let granted = Resolved::Refresh(Ok(Identity::of_user("ann")));
        rig.shard.message(NOW, ShardMessage::Resolved(under_way[0], granted));
        assert!(rig.flushed(ann.0).contains("expires_in_ms"));
    }
}

#[test]
fn credentials_that_are_too_large_are_not_read() {
    let mut rig = rig(Settings { credentials_bytes_max: 1_024, ..Settings::default() });
    let long = "x".repeat(2_000);
    let socket = rig.shard.socket_opened(NOW, None);
    let handshake = format!(r#"{{"channel":"/meta/handshake","version":"1.0","ext":{{"user":"{long}"}}}}"#);
    rig.shard.socket_text(NOW, socket, &handshake);
    let refused = rig.flushed(socket);
    assert!(refused.contains("413::credentials_too_large") && refused.contains(r#""reconnect":"none""#), "{refused}");
    let ann = rig.of_user("ann");
    let refused = rig.says(&ann, &format!(r#""channel":"/service/auth/refresh","data":"now{long}""#));
    assert!(refused.contains("413::credentials_too_large"), "{refused}");
    let connect = format!(r#""channel":"/meta/connect","advice":{{"timeout":0}},"ext":{{"auth":"now{long}"}}"#);
    let refused = rig.says(&ann, &connect);
    assert!(refused.contains("413::credentials_too_large") && refused.contains(SUCCESSFUL), "{refused}");
    assert_eq!((rig.shard.sessions(), rig.shard.metrics().credentials_too_large.get()), (1, 3));
}
