//! `encke sessions`, `presence`, `history`, `disconnect`: operations of the HTTP API, with a key or from loopback.

use std::io::Write as _;
use std::process::ExitCode;

use bytes::Bytes;
use clap::Args;
use encke_fetch::{FetchError, Fetcher, Limits};
use http::{Method, Request, StatusCode, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::complain;
use crate::talk::server::Server;
use crate::talk::{Failure, run};

/// List the sessions, one line of JSON each.
#[derive(Args)]
pub(crate) struct Sessions {
    #[command(flatten)]
    server: Server,
}

/// List the users on a channel with presence, one line of JSON each.
#[derive(Args)]
pub(crate) struct Presence {
    /// Such as /room/1.
    channel: String,
    #[command(flatten)]
    server: Server,
}

/// Print the stored messages of a channel, one line of JSON each.
#[derive(Args)]
pub(crate) struct History {
    /// Such as /stock/GOOG.
    channel: String,
    /// Only messages after this offset, or after this position.
    #[arg(long, value_name = "OFFSET", default_value = "0", value_parser = parse_offset)]
    after: u64,
    #[command(flatten)]
    server: Server,
}

/// End a session, or all sessions of a user.
#[derive(Args)]
pub(crate) struct Disconnect {
    /// The id of a session, as encke sessions prints it.
    #[arg(required_unless_present = "user", conflicts_with = "user")]
    session: Option<String>,
    /// All sessions of this user.
    #[arg(long)]
    user: Option<String>,
    #[command(flatten)]
    server: Server,
}

/// Prints all sessions.
pub(crate) fn sessions(Sessions { server }: Sessions) -> ExitCode {
    run(async { Api::of(server)?.print_pages("sessions", &[], "sessions").await.map(drop) })
}

/// Prints the users on a channel.
pub(crate) fn presence(Presence { channel, server }: Presence) -> ExitCode {
    run(async {
        if Api::of(server)?.print_pages("presence", &[("channel", &channel)], "members").await? == 0 {
            // Beside the output, which is for programs.
            complain(&format_args!("nobody is on {channel}"));
        }
        Ok(())
    })
}

/// Prints the messages of a channel.
pub(crate) fn history(History { channel, mut after, server }: History) -> ExitCode {
    run(async {
        let api = Api::of(server)?;
        loop {
            let query = [("channel", channel.as_str()), ("after", &after.to_string()), ("limit", PAGE)];
            let page = api.get("history", &query).await?;
            let messages = page["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
            let last = messages.last().and_then(|message| message["offset"].as_u64());
            if !print(messages) {
                return Ok(());
            }
            match last {
                Some(last) if last > after => after = last,
                _ => return Ok(()),
            }
        }
    })
}

/// Ends sessions.
pub(crate) fn disconnect(Disconnect { session, user, server }: Disconnect) -> ExitCode {
    run(async {
        let body = match (session, user) {
            (Some(session), _) => json!({ "session": session }),
            (None, user) => json!({ "user": user }),
        };
        let answer = Api::of(server)?.send(Method::POST, "disconnect", &[], Some(body)).await?;
        print(std::slice::from_ref(&answer));
        check_complete(&answer, "sessions of the others may be open")
    })
}

/// The HTTP API of a server.
struct Api {
    fetcher: Fetcher,
    base: String,
    key: Option<String>,
    headers: Vec<(String, String)>,
}

impl Api {
    fn of(server: Server) -> Result<Api, Failure> {
        let server = server.resolved()?;
        let limits = Limits { response_bytes_max: ANSWER_BYTES_MAX, ..Limits::default() };
        let fetcher = Fetcher::new(limits, server.ca()).map_err(|error| Failure::usage(error.to_string()))?;
        let base = base_of(server.url()).ok_or_else(|| Failure::usage(format!("{}: no URL", server.url())))?;
        Ok(Api { fetcher, base, key: server.api_key()?, headers: server.headers().to_vec() })
    }

    async fn get(&self, operation: &str, query: &[(&str, &str)]) -> Result<Value, Failure> {
        self.send(Method::GET, operation, query, None).await
    }

    async fn send(
        &self,
        method: Method,
        operation: &str,
        query: &[(&str, &str)],
        body: Option<Value>,
    ) -> Result<Value, Failure> {
        let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let mut request =
            Request::builder().method(method).uri(format!("{}/{operation}?{}", self.base, query.join("&")));
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let body = body.map(|body| body.to_string());
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let request = request.body(Bytes::from(body.unwrap_or_default()));
        let request = request.map_err(|error| Failure::usage(error.to_string()))?;
        let response = self.fetcher.send(request).await.map_err(failed)?;
        let answer: Value = serde_json::from_slice(response.body()).unwrap_or_default();
        if response.status().is_success() {
            return Ok(answer);
        }
        let hint = match response.status() {
            StatusCode::UNAUTHORIZED => "; --api-key-file or ENCKE_API_KEY has the key",
            _ => "",
        };
        Err(Failure::new(format!("{}: {}{hint}", response.status(), reason_of(&answer))))
    }

    /// Prints the items of all pages. Returns their number.
    async fn print_pages(&self, operation: &str, query: &[(&str, &str)], items: &str) -> Result<usize, Failure> {
        let (mut cursor, mut printed) = (None::<String>, 0);
        loop {
            let mut query = query.to_vec();
            query.push(("limit", PAGE));
            query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
            let page = self.get(operation, &query).await?;
            let of_page = page[items].as_array().map(Vec::as_slice).unwrap_or_default();
            printed += of_page.len();
            if !print(of_page) {
                return Ok(printed);
            }
            match page["next"].as_str() {
                Some(next) => cursor = Some(next.into()),
                None => return check_complete(&page, "the list is incomplete").map(|()| printed),
            }
        }
    }
}

/// The reason in an answer that is an error: what is wrong with each field or parameter, or what is wrong at all.
fn reason_of(answer: &Value) -> String {
    let errors = answer["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    let wrong = errors.iter().filter_map(|error| {
        let name = error["parameter"].as_str().or(error["pointer"].as_str())?;
        Some(format!("{name}: {}", error["detail"].as_str()?))
    });
    let wrong: Vec<String> = wrong.collect();
    if !wrong.is_empty() {
        return wrong.join("; ");
    }
    answer["detail"].as_str().or(answer["title"].as_str()).unwrap_or("no Encke server answers there").into()
}

/// Fails if some nodes of a cluster have not answered.
fn check_complete(answer: &Value, otherwise: &str) -> Result<(), Failure> {
    match (answer["answered"].as_u64(), answer["nodes"].as_u64()) {
        (Some(answered), Some(nodes)) if answered < nodes => {
            Err(Failure::new(format!("{answered} of {nodes} nodes have answered: {otherwise}")))
        }
        _ => Ok(()),
    }
}

/// An offset, or a position such as `k3jd9a2f-17`.
fn parse_offset(text: &str) -> Result<u64, String> {
    let offset = text.rsplit_once('-').map_or(text, |(_, offset)| offset);
    offset.parse().map_err(|_| "a number, or a position such as k3jd9a2f-17".into())
}

/// Prints values, one line each. False if the reader of the output is gone.
fn print(values: &[Value]) -> bool {
    let mut out = std::io::stdout().lock();
    values.iter().all(|value| writeln!(out, "{value}").is_ok())
}

fn failed(error: FetchError) -> Failure {
    Failure::unreachable(error.to_string())
}

/// The URL of the API of the server with this URL.
fn base_of(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    let scheme = match uri.scheme_str()? {
        "http" | "ws" => "http",
        "https" | "wss" => "https",
        _ => return None,
    };
    Some(format!("{scheme}://{}/api/v1", uri.authority()?))
}

/// A value for a query.
fn escaped(value: &str) -> impl std::fmt::Display {
    utf8_percent_encode(value, ENCODED)
}

/// All but what is unreserved, and slashes, stands encoded in a query (RFC 3986 §3.4).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// The items of a page.
const PAGE: &str = "1000";
/// The largest answer of the API.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_what_is_wrong_and_a_partial_answer_is_one() {
        let answer = json!({"detail": "see errors", "errors": [{"parameter": "channel", "detail": "no pattern"}]});
        assert_eq!(reason_of(&answer), "channel: no pattern");
        assert_eq!(reason_of(&json!({"detail": "full"})), "full");
        let complete = |nodes| check_complete(&json!({"nodes": nodes, "answered": 2}), "");
        assert!(complete(2).is_ok() && complete(3).is_err() && check_complete(&json!({}), "").is_ok());
    }

    #[test]
    fn the_api_is_beside_the_path_of_bayeux() {
        for (url, base) in [
            ("http://127.0.0.1:8080", Some("http://127.0.0.1:8080/api/v1")),
            ("wss://push.example.com/cometd", Some("https://push.example.com/api/v1")),
            ("ftp://a", None),
            ("127.0.0.1", None),
        ] {
            assert_eq!(base_of(url).as_deref(), base, "{url}");
        }
        assert_eq!(["17", "k3jd-17"].map(parse_offset), [Ok(17), Ok(17)]);
        assert!(["", "k3jd-", "-x"].iter().all(|text| parse_offset(text).is_err()));
        assert_eq!(escaped("/a b&c=\u{e9}").to_string(), "/a%20b%26c%3D%C3%A9");
    }
}
