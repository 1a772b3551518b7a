//! The set of keys over time, which is virtual here.

use super::*;
use crate::KeyPair;

/// A set of keys that the test changes, with times of 10, 100 and 1000 s.
fn jwks() -> (Arc<Jwks>, watch::Sender<Option<String>>) {
    let (sender, receiver) = watch::channel(None);
    let terms = Terms {
        refresh_min: Duration::from_secs(10),
        max_age: Duration::from_secs(100),
        stale_max: Duration::from_secs(1_000),
        bytes_max: 10_000,
        keys_max: 2,
        algorithms: Vec::new(),
    };
    (Jwks::new(Source::Test(receiver), terms), sender)
}

fn set(kids: &[&str]) -> Option<String> {
    let jwks = KeyPair::generate("EdDSA").expect("a pair").jwks.expect("a set");
    let key = serde_json::from_str::<serde_json::Value>(&jwks).expect("JSON")["keys"][0].clone();
    let named = kids.iter().map(|kid| {
        let mut key = key.clone();
        key["kid"] = (*kid).into();
        key
    });
    Some(serde_json::json!({"keys": named.collect::<Vec<_>>()}).to_string())
}

async fn has(jwks: &Arc<Jwks>, kid: &str) -> Option<bool> {
    jwks.keys(Some(kid)).await.map(|keys| keys.has(Some(kid)))
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn requests(jwks: &Jwks) -> u64 {
    jwks.counts().0
}

#[tokio::test(start_paused = true)]
async fn the_first_tokens_wait_for_one_request() {
    let (jwks, url) = jwks();
    url.send_replace(set(&["a"]));
    let all = (0..20).map(|_| {
        let jwks = jwks.clone();
        tokio::spawn(async move { has(&jwks, "a").await })
    });
    for waiting in all.collect::<Vec<_>>() {
        assert_eq!(waiting.await.expect("no panic"), Some(true));
    }
    assert_eq!(requests(&jwks), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_key_asks_again_but_not_too_often() {
    let (jwks, url) = jwks();
    url.send_replace(set(&["a"]));
    assert_eq!(has(&jwks, "a").await, Some(true));
    url.send_replace(set(&["a", "b"]));
    for _ in 0..100 {
        assert_eq!(has(&jwks, "b").await, Some(false), "it is too early to ask again");
    }
    assert_eq!(requests(&jwks), 1);
    pass(10).await;
    assert_eq!(has(&jwks, "b").await, Some(true));
    for _ in 0..100 {
        assert_eq!(has(&jwks, "c").await, Some(false));
    }
    assert_eq!(requests(&jwks), 2);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_left_the_set_is_refused_when_the_set_is_old() {
    let (jwks, url) = jwks();
    url.send_replace(set(&["a"]));
    assert_eq!(has(&jwks, "a").await, Some(true));
    url.send_replace(set(&["b"]));
    // The set is not read in between: the first token after that time waits for the new set.
    pass(101).await;
    assert_eq!(has(&jwks, "a").await, Some(false));
}

#[tokio::test(start_paused = true)]
async fn a_set_that_is_about_to_be_old_is_read_again_without_waiting() {
    let (jwks, url) = jwks();
    url.send_replace(set(&["a"]));
    assert_eq!(has(&jwks, "a").await, Some(true));
    url.send_replace(set(&["b"]));
    pass(60).await;
    assert_eq!(has(&jwks, "a").await, Some(true));
    pass(1).await;
    assert_eq!((requests(&jwks), has(&jwks, "b").await), (2, Some(true)));
}

#[tokio::test(start_paused = true)]
async fn old_keys_serve_while_the_set_is_gone_but_not_for_ever() {
    let (jwks, url) = jwks();
    url.send_replace(set(&["a"]));
    assert_eq!(has(&jwks, "a").await, Some(true));
    url.send_replace(None);
    pass(1_000).await;
    assert_eq!(has(&jwks, "a").await, Some(true));
    assert!(jwks.counts().1 > 0, "the failure counts");
    pass(101).await;
    assert_eq!(has(&jwks, "a").await, None);
    url.send_replace(set(&["a"]));
    pass(10).await;
    assert_eq!(has(&jwks, "a").await, Some(true));
}

#[tokio::test(start_paused = true)]
async fn without_any_set_there_are_no_keys_and_few_requests() {
    let (jwks, _url) = jwks();
    for _ in 0..100 {
        assert_eq!(has(&jwks, "a").await, None);
    }
    assert_eq!((requests(&jwks), jwks.counts().1), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_gives_up_ends_no_request() {
    let (jwks, url) = jwks();
    url.send_replace(set(&["a"]));
    let impatient = tokio::time::timeout(Duration::from_millis(1), has(&jwks, "a")).await;
    assert!(impatient.is_err());
    assert_eq!((has(&jwks, "a").await, requests(&jwks)), (Some(true), 1));
}

#[tokio::test(start_paused = true)]
async fn a_set_of_too_many_keys_changes_nothing() {
    let (jwks, url) = jwks();
    url.send_replace(set(&["a"]));
    assert_eq!(has(&jwks, "a").await, Some(true));
    url.send_replace(set(&["a", "b", "c"]));
    pass(101).await;
    assert_eq!((has(&jwks, "a").await, has(&jwks, "b").await), (Some(true), Some(false)));
}
