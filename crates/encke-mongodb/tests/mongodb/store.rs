//! The store alone.

use encke::{KeyFailure, SessionStore as _, SessionWrite, StoredSession};
use encke_mongodb::{MongoSettings, MongoStore};
use mongodb::bson::doc;

use crate::{Documents, mongodb_url};

fn store(cluster: &str) -> MongoStore {
    let settings = MongoSettings { url: Some(mongodb_url().into()), ..MongoSettings::default() };
    MongoStore::new(settings, cluster).expect("settings")
}

fn write(key: usize, expected: Option<u64>, record: &str) -> SessionWrite {
    let record = record.to_owned().into();
    let session = StoredSession { record, is_valid: true, node: "abcd".into(), ..StoredSession::default() };
    SessionWrite { key: format!("key-{key}"), expected, session }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(test);
}

#[test]
fn of_a_batch_only_the_writes_that_another_one_has_overtaken_are_refused() {
    let documents = Documents::of("batch");
    run(async {
        let store = store("batch");
        let all: Vec<SessionWrite> = (0..50).map(|key| write(key, None, "first")).collect();
        let first: Vec<u64> =
            store.write(&all).await.expect("written").into_iter().map(|one| one.expect("new")).collect();
        let again = store.write(&all[..2]).await.expect("an answer");
        assert_eq!(again, [Err(KeyFailure::Conflict), Err(KeyFailure::Conflict)], "they are there");
        // Another node writes every second one.
        let others: Vec<SessionWrite> = (0..50).step_by(2).map(|key| write(key, Some(first[key]), "other")).collect();
        assert!(store.write(&others).await.expect("written").iter().all(Result::is_ok));
        let own: Vec<SessionWrite> = (0..50).map(|key| write(key, Some(first[key]), "own")).collect();
        for (key, outcome) in store.write(&own).await.expect("an answer").into_iter().enumerate() {
            let expected = if key % 2 == 0 { Err(KeyFailure::Conflict) } else { Ok(first[key] + 1) };
            assert_eq!(outcome, expected, "{key}");
        }
        let keys: Vec<String> = (0..51).map(|key| format!("key-{key}")).collect();
        let found = store.read(&keys).await.expect("read");
        for (key, entry) in found[..50].iter().enumerate() {
            let record: &[u8] = if key % 2 == 0 { b"other" } else { b"own" };
            assert_eq!(entry.as_ref().map(|(version, record)| (*version, &record[..])), Some((first[key] + 1, record)));
        }
        assert_eq!(found[50], None);
        // One that is gone counts as one with the expected version.
        let gone = store.write(&[write(60, Some(8), "back")]).await.expect("an answer");
        assert_eq!(gone, [Ok(9)]);
    });
    assert_eq!(documents.count(doc! {}), 51);
}

#[test]
fn of_writes_at_the_same_time_one_succeeds_for_each_version() {
    let documents = Documents::of("race");
    run(async {
        let stores: Vec<MongoStore> = (0..4).map(|_| store("race")).collect();
        let mut version = stores[0].write(&[write(0, None, "0")]).await.expect("written")[0].clone().expect("new");
        for round in 1..=20 {
            let record = round.to_string();
            let tries = [write(0, Some(version), &record)];
            let outcomes = tokio::join!(
                stores[0].write(&tries),
                stores[1].write(&tries),
                stores[2].write(&tries),
                stores[3].write(&tries)
            );
            let outcomes =
                [outcomes.0, outcomes.1, outcomes.2, outcomes.3].map(|one| one.expect("an answer")[0].clone());
            let written = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
            assert_eq!(written, 1, "round {round}: {outcomes:?}");
            assert!(
                outcomes.iter().flat_map(|outcome| outcome.as_ref().err()).all(|error| *error == KeyFailure::Conflict)
            );
            version += 1;
        }
        assert_eq!(stores[0].read(&["key-0".into()]).await.expect("read")[0].clone().expect("there").0, version);
    });
    assert_eq!(documents.count(doc! {}), 1);
}

#[test]
fn sessions_of_a_node_end_and_old_ones_go_by_their_age() {
    let documents = Documents::of("ages");
    run(async {
        let store = store("ages");
        let mut all: Vec<SessionWrite> = (0..4).map(|key| write(key, None, "live")).collect();
        all[1].session.idle_max_ms = 5_000;
        all[2].session.node = "efgh".into();
        store.write(&all).await.expect("written");
        let mut nodes = store.nodes().await.expect("nodes");
        nodes.sort();
        assert_eq!(nodes, ["abcd", "efgh"]);
        let ended = bytes::Bytes::from_static(b"ended");
        assert_eq!(store.end_sessions("abcd", 4_999, &ended).await, Ok(2), "the one that may be away longer lives");
        assert_eq!(store.end_sessions("abcd", 4_999, &ended).await, Ok(0), "twice is once");
        assert_eq!(store.count().await, Ok((2, 2)));
        let refused = store.write(&[write(0, Some(1), "late")]).await.expect("an answer");
        assert_eq!(refused, [Err(KeyFailure::Conflict)]);
        assert_eq!(store.purge(3_600_000, Some(3_600_000)).await, Ok(0), "they are young");
        assert_eq!(store.purge(0, Some(3_600_000)).await, Ok(2));
        assert_eq!(store.purge(0, None).await, Ok(0));
        assert_eq!(store.count().await, Ok((2, 0)));
        assert_eq!(store.purge(0, Some(0)).await, Ok(2));
    });
    assert_eq!(documents.count(doc! {}), 0);
}
