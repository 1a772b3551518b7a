//! The example `comet_stream`: thousands of responses that stay open, each with a chunk for every event. This test has its own process,
//! because it needs many files.

#[expect(dead_code, reason = "its main does not end")]
#[path = "../examples/comet_stream.rs"]
mod comet_stream;
#[allow(dead_code, unused_imports)]
#[path = "wire/common/mod.rs"]
mod common;

use common::{Http, TestServer, settings};
use encke::Settings;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The responses, where the system allows so many files.
const RESPONSES: usize = 3_000;

/// The most responses for which this process may open both ends of the connections.
fn responses() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let files = limit.maximum.map_or(usize::MAX, |files| files as usize);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("more files");
    RESPONSES.min(files.saturating_sub(200) / 2)
}

/// A response over a connection.
struct Stream {
    http: Http,
    text: String,
}

impl Stream {
    /// Reads until the text of all chunks is this.
    fn shows(&mut self, wanted: &str) {
        while self.text.len() < wanted.len() {
            let more = self.http.tcp.read_some();
            assert!(!more.is_empty(), "the response has ended after {:?}", self.text);
            // The size of a chunk stands before it in a line, and a line ends it.
            let more = String::from_utf8(more).expect("text");
            let lines = more.split_inclusive("\r\n").filter(|line| line.contains("Id: "));
            self.text.extend(lines.map(|line| line.trim_end_matches("\r\n")));
        }
        assert_eq!(self.text, wanted);
    }
}

#[test]
fn thousands_of_responses_stay_open_and_each_event_is_a_chunk_of_all() {
    let server = TestServer::of(comet_stream::server().settings(settings()));
    let open = |id| {
        let mut http = server.http();
        http.send("GET", &format!("/comet?id={id}"), &[], b"");
        let head = http.tcp.head().expect("a head");
        assert_eq!((head.status, head.header("transfer-encoding")), (200, Some("chunked")), "{id}");
        Stream { http, text: String::new() }
    };
    let mut streams: Vec<Stream> = (0..responses()).map(open).collect();
    let mut wanted: Vec<String> = (0..streams.len()).map(|id| format!("Welcome! Your Id: {id}\n")).collect();
    for number in 1..=3 {
        for (stream, wanted) in streams.iter_mut().zip(&wanted) {
            stream.shows(wanted);
        }
        server.publish(comet_stream::EVENTS, "1");
        for (id, wanted) in wanted.iter_mut().enumerate() {
            wanted.push_str(&format!("Chunk {number} for Id: {id}\n"));
        }
    }
    for (stream, wanted) in streams.iter_mut().zip(&wanted) {
        stream.shows(wanted);
    }
    assert_eq!(server.metric("encke_in_process_subscriptions"), streams.len() as u64);
    drop(streams);
    server.wait_for_exactly("encke_in_process_subscriptions", 0);
    assert_eq!(server.http().get("/comet?id=x").status, 400);
}

/// A connection without a request ends after that time, one with an open response does not.
#[test]
fn a_response_without_events_outlives_the_time_of_an_idle_connection() {
    let settings = Settings { keep_alive_timeout_ms: 300, ..settings() };
    let server = TestServer::of(comet_stream::server().settings(settings));
    let mut http = server.http();
    http.send("GET", "/comet?id=7", &[], b"");
    assert_eq!(http.tcp.head().expect("a head").status, 200);
    let mut stream = Stream { http, text: String::new() };
    stream.shows("Welcome! Your Id: 7\n");
    let mut idle = server.http();
    assert_eq!(idle.get("/healthz").status, 200);
    assert!(idle.tcp.ends());
    server.publish(comet_stream::EVENTS, "1");
    stream.shows("Welcome! Your Id: 7\nChunk 1 for Id: 7\n");
}
