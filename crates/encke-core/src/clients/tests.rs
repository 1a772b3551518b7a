//! Tests of the clients of a shard alone.

use super::*;

const NOW: Now = Now { ms: 1_000, wall_ms: 1_000_000 };

fn key(index: u32) -> SessionKey {
    SessionKey { index, generation: index + 1 }
}

fn clients() -> Clients {
    Clients::new(Policy::default(), RandomState::default(), &Rc::default())
}

fn identity(user: &str, expires_ms: Option<u64>) -> Arc<Identity> {
    Arc::new(Identity { expires_ms, token_id: Some("t".into()), ..Identity::of_user(user) })
}

#[test]
fn sessions_are_found_by_user_and_token_until_they_end() {
    let mut clients = clients();
    for index in 0..9 {
        clients.open(key(index), SessionOwner::default());
        clients.set_owner(key(index), identity(if index % 2 == 0 { "ann" } else { "ben" }, None), false, 0);
    }
    assert_eq!(
        (clients.owners.of_user("ann").len(), clients.owners.of_token("t").len(), clients.owners.len()),
        (5, 9, 3)
    );
    for index in [0, 4, 8, 2, 6] {
        assert!(clients.close(key(index)).1.is_some_and(|owner| &*owner.identity.user == "ann"));
        assert!(clients.identity(key(index)).is_none() && !clients.owners.of_token("t").contains(&key(index)));
    }
    assert_eq!((clients.owners.of_user("ann"), clients.owners.of_user("ben").len()), (Vec::new(), 4));
    assert!(clients.close(key(0)).1.is_none(), "it ends once");
}

#[test]
fn a_key_of_a_session_that_is_gone_finds_nobody() {
    let mut clients = clients();
    clients.open(key(1), SessionOwner::default());
    clients.set_owner(key(1), identity("ann", None), false, 0);
    clients.close(key(1));
    let next = SessionKey { index: 1, generation: 7 };
    clients.open(next, SessionOwner::default());
    clients.set_owner(next, identity("ben", None), false, 0);
    assert!(clients.identity(key(1)).is_none() && clients.identity(next).is_some());
}

#[test]
fn owners_count_in_the_account_while_they_live() {
    let account = Rc::<Account>::default();
    let mut clients = Clients::new(Policy::default(), RandomState::default(), &account);
    clients.open(key(1), SessionOwner::default());
    clients.set_owner(key(1), identity("ann", None), false, 0);
    assert!(account.bytes() > 0 && account.bytes() == clients.bytes_of(key(1)));
    clients.set_owner(key(1), identity("a much longer name", None), false, 0);
    assert_eq!(account.bytes(), clients.bytes_of(key(1)));
    clients.close(key(1));
    assert_eq!(account.bytes(), 0);
}

#[test]
fn credentials_are_announced_once_and_then_end() {
    let mut clients = clients();
    clients.open(key(1), SessionOwner::default());
    clients.set_owner(key(1), identity("ann", Some(NOW.wall_ms + 10_000)), false, 0);
    let at = |ms: u64| Now { ms: NOW.ms + ms, wall_ms: NOW.wall_ms + ms };
    let armed = |clients: &mut Clients, ms: u64| {
        let mut armed_ms = 0;
        clients.arm(key(1), 2_000, at(ms), |at_ms, _| {
            armed_ms = at_ms;
            at_ms
        });
        armed_ms - NOW.ms
    };
    assert_eq!(armed(&mut clients, 0), 8_000);
    assert_eq!(clients.due(key(1), 2_000, at(7_999)), None);
    assert_eq!(clients.due(key(1), 2_000, at(8_000)), Some(Credentials::EndSoon(2_000)));
    assert_eq!(armed(&mut clients, 8_000), 10_000);
    assert_eq!(clients.due(key(1), 2_000, at(10_000)), Some(Credentials::HaveEnded));
    clients.end_rights(key(1), EndReason::TokenExpired);
    assert!(clients.has_lost_its_rights(key(1)));
    assert_eq!(clients.close(key(1)).1.and_then(|owner| owner.ends), Some(EndReason::TokenExpired));
}

#[test]
fn a_new_identity_keeps_what_its_user_has_used() {
    let mut clients = clients();
    clients.open(key(1), SessionOwner::default());
    clients.set_owner(key(1), identity("ann", None), true, 0);
    clients.count_subscription(key(1));
    assert!(clients.take_refresh(key(1), Rate(1), NOW));
    assert_eq!(clients.set_owner(key(1), identity("ann", None), false, 0), Some(u64::MAX));
    assert!(clients.is_counted(key(1)) && !clients.take_refresh(key(1), Rate(1), NOW));
    assert_eq!(clients.count_subscriptions(key(1), 3), 2);
    assert_eq!((0..5).filter(|_| clients.uncount_subscription(key(1)).is_some()).count(), 3);
}

#[test]
fn messages_count_by_session() {
    let mut clients = clients();
    clients.open(key(1), SessionOwner::default());
    clients.open(key(2), SessionOwner::default());
    assert!(clients.take(key(1), 0, Rate(2), NOW, 2) && !clients.take(key(1), 0, Rate(2), NOW, 1));
    assert!(clients.take(key(1), 1, Rate(2), NOW, 1) && clients.take(key(2), 0, Rate(2), NOW, 1));
}

#[test]
fn newcomers_are_found_by_age_until_they_connect() {
    let mut clients = clients();
    for index in 0..4 {
        clients.open(key(index), SessionOwner::of(u64::from(index)));
        clients.is_new(key(index), [u64::from(index % 2) + 11, 19]);
    }
    assert_eq!((clients.newcomers.len(), clients.newcomers.of(11), clients.newcomers.of(19)), (4, 2, 4));
    assert!(clients.has_connected(key(0)) && !clients.has_connected(key(0)));
    assert_eq!((clients.newcomers.oldest(None), clients.newcomers.oldest(Some(11))), (Some(key(1)), Some(key(2))));
    assert_eq!(clients.close(key(1)).0, Some(SessionOwner::of(1)), "it counts for its owner while it is new, too");
    assert_eq!(clients.newcomers.len(), 2);
}

#[test]
fn clients_that_are_gone_leave_little_memory() {
    let mut clients = clients();
    (0..10_000).for_each(|index| clients.open(key(index), SessionOwner::default()));
    (10..10_000).for_each(|index| _ = clients.close(key(index)));
    clients.give_room_back();
    assert!(clients.clients.capacity() <= ROOM_RETAINED, "{}", clients.clients.capacity());
}

#[test]
fn a_refresh_renames_the_means_that_have_authenticated_a_session() {
    let mut clients = clients();
    let (before, now) = (Policy::default(), Policy::default().authenticated_by("tokens").decided_by("/a"));
    for index in 0..2 {
        clients.open(key(index), SessionOwner::default());
        clients.set_owner(key(index), identity("ann", None), false, clients.policy().authentication);
    }
    clients.are_admitted_by(now);
    assert_eq!([0, 1].map(|index| clients.policy_of(key(index))), [before; 2]);
    clients.set_owner(key(1), identity("ann", None), false, now.authentication);
    // Its subscriptions were decided about by other means.
    let refreshed = Policy { authentication: now.authentication, ..before };
    assert_eq!([0, 1].map(|index| clients.policy_of(key(index))), [before, refreshed]);
    clients.open(key(2), SessionOwner::default());
    assert_eq!(clients.policy_of(key(2)), now);
}

#[test]
fn policies_that_have_admitted_nobody_who_lives_are_forgotten() {
    let mut clients = clients();
    let policy = |number: u32| Policy::default().decided_by(&number.to_string());
    for number in 0..1_000 {
        clients.are_admitted_by(policy(number));
        clients.are_admitted_by(policy(number + 5_000));
        clients.are_admitted_by(policy(number));
        clients.open(key(number), SessionOwner::default());
        if number % 100 != 0 {
            clients.close(key(number));
        }
    }
    assert!(clients.policies.len() <= 2 * POLICIES_RETAINED, "{}", clients.policies.len());
    for number in (0..1_000).step_by(100) {
        assert_eq!(clients.policy_of(key(number)), policy(number));
    }
    assert_eq!(clients.policy(), policy(999));
}
