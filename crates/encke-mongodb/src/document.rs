//! The document of a session, and the commands that write it.
//!
//! ```text
//!   { _id: key, version, valid, created, accessed, node, user, attributes: {…}, idle_max_ms, record }     while it lives
//!   { _id: key, version, valid: false, created, accessed, ended, node, record }                           when it has ended
//! ```
//!
//! `_id` is a hash of the session's id, which is a secret. `accessed` is the time of the last write: a session of which nothing changes is not
//! written. `node` names the node that has it, `record` has all that a node needs to go on with it.

use std::collections::HashMap;

use bytes::Bytes;
use encke::{KeyFailure, SessionWrite, StoredSession};
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document, doc, serialize_to_bson};
use serde_json::Value;

/// The statement of an `update` command that writes a session, and the version that the session gets.
///
/// It finds the document with the expected version. If there is another version, the statement inserts a second document with the
/// same `_id`, which the server refuses: so each statement of a batch has its own outcome.
pub(crate) fn write_statement(write: &SessionWrite, now: DateTime) -> (Document, u64) {
    let version = write.expected.map_or_else(|| first_version(now), |version| version + 1);
    let expected = write.expected.map_or(NO_VERSION, |version| version as i64);
    let StoredSession { record, is_valid, node, user, attributes, idle_max_ms } = &write.session;
    let mut set = doc! { "version": version as i64, "valid": *is_valid, "accessed": now, "record": binary(record) };
    let mut update = Document::new();
    if *is_valid {
        set.insert("node", node.as_str());
        set.insert("user", user.as_str());
        set.insert("attributes", attributes_as_bson(attributes));
        set.insert("idle_max_ms", i64::try_from(*idle_max_ms).unwrap_or(i64::MAX));
        update.insert("$unset", doc! { "ended": "" });
    } else {
        set.insert("ended", now);
        update.insert("$unset", of_living());
    }
    update.insert("$set", set);
    update.insert("$setOnInsert", doc! { "created": now });
    (doc! { "q": { "_id": &write.key, "version": expected }, "u": update, "upsert": true }, version)
}

/// The update that ends a session, for those of a node that is gone.
pub(crate) fn ended(record: &Bytes, now: DateTime) -> Document {
    let set = doc! { "valid": false, "accessed": now, "ended": now, "record": binary(record) };
    doc! { "$set": set, "$inc": { "version": 1_i64 }, "$unset": of_living() }
}

/// The fields that only a session that lives has. Its node stays: it shows where the session ended.
fn of_living() -> Document {
    doc! { "user": "", "attributes": "", "idle_max_ms": "" }
}

fn binary(bytes: &Bytes) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() }
}

/// The first version of a session: the time in microseconds. So no later document with the same `_id` begins with a version that an
/// earlier one had.
fn first_version(now: DateTime) -> u64 {
    now.timestamp_millis().max(1) as u64 * 1_000
}

/// A version that no document has.
const NO_VERSION: i64 = -1;

/// The outcomes of the statements of an `update` command, out of its answer, in their order. `versions`: those that they write.
pub(crate) fn outcomes(answer: &Document, versions: &[u64]) -> Vec<Result<u64, KeyFailure>> {
    // Written on the primary, and perhaps lost with it.
    let unsure = answer.get_document("writeConcernError").ok().map(message);
    let errors = answer.get_array("writeErrors").ok().into_iter().flatten().filter_map(Bson::as_document);
    let errors: HashMap<usize, &Document> =
        errors.filter_map(|error| Some((number(error, "index")? as usize, error))).collect();
    let outcome = |(index, version): (usize, &u64)| match (errors.get(&index), &unsure) {
        (Some(error), _) => Err(match number(error, "code") {
            Some(DUPLICATE_KEY | DUPLICATE_KEY_OF_UPDATE) => KeyFailure::Conflict,
            Some(TOO_LARGE | TOO_LARGE_FOR_UPDATE) => KeyFailure::TooLarge,
            _ => KeyFailure::Failed(message(error)),
        }),
        (None, Some(unsure)) => Err(KeyFailure::Failed(unsure.clone())),
        (None, None) => Ok(*version),
    };
    versions.iter().enumerate().map(outcome).collect()
}

fn message(error: &Document) -> String {
    error.get_str("errmsg").unwrap_or("a write has failed").to_owned()
}

fn number(document: &Document, name: &str) -> Option<i64> {
    match document.get(name)? {
        Bson::Int32(number) => Some((*number).into()),
        Bson::Int64(number) => Some(*number),
        Bson::Double(number) => Some(*number as i64),
        _ => None,
    }
}

const DUPLICATE_KEY: i64 = 11_000;
const DUPLICATE_KEY_OF_UPDATE: i64 = 11_001;
const TOO_LARGE: i64 = 10_334;
const TOO_LARGE_FOR_UPDATE: i64 = 17_280;

/// Attributes as fields that an operator can query; as a text, where MongoDB does not take a name or a number, or so many levels.
fn attributes_as_bson(json: &str) -> Bson {
    if json.is_empty() {
        return Document::new().into();
    }
    let value = serde_json::from_str::<Value>(json).ok().filter(|value| fits(value, LEVELS_MAX));
    value.and_then(|value| serialize_to_bson(&value).ok()).unwrap_or_else(|| json.into())
}

/// True if MongoDB takes a value as it is.
fn fits(value: &Value, levels: usize) -> bool {
    let is_name = |name: &str| !name.is_empty() && !name.starts_with('$') && !name.contains(['.', '\0']);
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| fits(item, levels - 1)),
        Value::Object(fields) => {
            levels > 0 && fields.iter().all(|(name, item)| is_name(name) && fits(item, levels - 1))
        }
        _ => true,
    }
}

/// Levels of arrays and objects. MongoDB takes 100 in a document.
const LEVELS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn session(attributes: &str) -> StoredSession {
        let record = Bytes::from_static(b"record");
        let (node, user) = ("abcd".into(), "ann".into());
        StoredSession { record, is_valid: true, node, user, attributes: attributes.into(), idle_max_ms: 7 }
    }

    #[test]
    fn a_write_names_the_expected_version_and_a_first_one_none_that_exists() {
        let now = DateTime::from_millis(1_700_000_000_000);
        let write = |expected| SessionWrite { key: "k".into(), expected, session: session("{\"cart\":[\"tea\"]}") };
        let (statement, version) = write_statement(&write(Some(41)), now);
        assert_eq!((statement.get("q"), version), (Some(&doc! { "_id": "k", "version": 41_i64 }.into()), 42));
        let set = statement.get_document("u").and_then(|update| update.get_document("$set")).expect("a set");
        assert_eq!(set.get("version"), Some(&Bson::Int64(42)));
        assert_eq!(set.get("attributes"), Some(&doc! { "cart": ["tea"] }.into()));
        let (statement, version) = write_statement(&write(None), now);
        assert_eq!(statement.get("q"), Some(&doc! { "_id": "k", "version": -1_i64 }.into()));
        assert_eq!(version, 1_700_000_000_000_000);
    }

    #[test]
    fn an_ended_session_shows_nothing_of_its_client() {
        let ended = SessionWrite { session: StoredSession::default(), expected: Some(1), key: "k".into() };
        let (statement, _) = write_statement(&ended, DateTime::now());
        let update = statement.get_document("u").expect("an update");
        assert_eq!(update.get("$unset"), Some(&doc! { "user": "", "attributes": "", "idle_max_ms": "" }.into()));
        assert!(update.get_document("$set").is_ok_and(|set| set.get("valid") == Some(&Bson::Boolean(false))));
    }

    #[test]
    fn each_statement_of_a_batch_has_its_outcome() {
        let answer = doc! { "ok": 1, "n": 2, "writeErrors": [
            { "index": 0, "code": 11_000, "errmsg": "E11000 duplicate key" },
            { "index": 2_i64, "code": 10_334_i64, "errmsg": "BSONObj size" },
            { "index": 3, "code": 112, "errmsg": "WriteConflict" },
        ]};
        let failed = KeyFailure::Failed("WriteConflict".into());
        let expected = [Err(KeyFailure::Conflict), Ok(8), Err(KeyFailure::TooLarge), Err(failed)];
        assert_eq!(outcomes(&answer, &[7, 8, 9, 10]), expected);
        let unsure = doc! { "ok": 1, "writeConcernError": { "code": 64, "errmsg": "timed out" } };
        assert_eq!(outcomes(&unsure, &[7]), [Err(KeyFailure::Failed("timed out".into()))]);
    }

    #[test]
    fn attributes_that_mongodb_does_not_take_are_a_text() {
        for json in ["{\"$set\":1}", "{\"a\":{\"b.c\":1}}", "{\"a\":18446744073709551615}", "{\"a\":[{\"\":1}]}"] {
            assert_eq!(attributes_as_bson(json), Bson::from(json));
        }
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(70), "]".repeat(70));
        assert_eq!(attributes_as_bson(&deep), Bson::from(&deep));
        assert_eq!(attributes_as_bson(""), Bson::Document(doc! {}));
        assert_eq!(
            attributes_as_bson("{\"a\":{\"b\":[1.5,null,true]}}"),
            doc! { "a": { "b": [1.5, null, true] } }.into()
        );
    }
}
