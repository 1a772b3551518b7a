//! The HTTP API: what its operations do, and what it answers to bad input.

mod durable;
mod input;
mod keys;
mod lists;
mod publish;
mod users;

use encke::{ApiKey, ApiKeys, Scope, Settings};
use serde_json::Value;

use crate::common::{Http, Response, TestServer};

/// A key that may do everything.
const KEY: &str = "test-key-0123456789";

/// A server with this key.
fn serve(settings: Settings) -> TestServer {
    let server = TestServer::start(settings);
    server.handle.set_api_keys(keys(&[("all", KEY, &Scope::ALL)]));
    server
}

fn keys(keys: &[(&str, &str, &[Scope])]) -> ApiKeys {
    let api_key = |(name, key, scopes): &(&str, &str, &[Scope])| ApiKey {
        name: (*name).into(),
        key: (*key).into(),
        scopes: scopes.to_vec(),
        ..ApiKey::default()
    };
    ApiKeys::new(&keys.iter().map(api_key).collect::<Vec<_>>()).expect("valid keys")
}

/// A client of the API on one connection.
struct Api(Http);

impl Api {
    fn of(server: &TestServer) -> Api {
        Api(server.http())
    }

    #[track_caller]
    fn request(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let mut all = vec![("x-api-key", KEY)];
        if !body.is_empty() && !headers.iter().any(|(name, _)| *name == "content-type") {
            all.push(("content-type", "application/json"));
        }
        all.extend_from_slice(headers);
        self.0.request(method, &format!("/api/v1{path}"), &all, body.as_bytes())
    }

    /// The answer to a request that succeeds.
    #[track_caller]
    fn get(&mut self, path: &str) -> Value {
        answer(&self.request("GET", path, &[], ""))
    }

    #[track_caller]
    fn post(&mut self, path: &str, body: &Value) -> Value {
        answer(&self.request("POST", path, &[], &body.to_string()))
    }

    #[track_caller]
    fn delete(&mut self, path: &str) -> Value {
        answer(&self.request("DELETE", path, &[], ""))
    }

    /// The problem of a request that fails.
    #[track_caller]
    fn problem(&mut self, method: &str, path: &str, body: &str) -> Value {
        problem(&self.request(method, path, &[], body))
    }
}

#[track_caller]
fn answer(response: &Response) -> Value {
    assert_eq!(
        (response.status, response.header("content-type")),
        (200, Some("application/json")),
        "{}",
        response.text()
    );
    serde_json::from_slice(&response.body).expect("JSON")
}

/// Problem details: they are complete, and belong to the response.
#[track_caller]
fn problem(response: &Response) -> Value {
    let kind = response.header("content-type");
    assert_eq!(kind, Some("application/problem+json"), "{} {}", response.status, response.text());
    let problem: Value = serde_json::from_slice(&response.body).expect("JSON");
    assert_eq!(problem["status"], response.status);
    for member in ["type", "title", "detail"] {
        assert!(problem[member].as_str().is_some_and(|text| !text.is_empty()), "{problem}");
    }
    problem
}
