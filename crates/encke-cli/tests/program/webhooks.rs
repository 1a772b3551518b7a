//! `[[webhooks]]` in the configuration of the program, with a small backend.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use encke_client::{Client, Error, Extension, Outgoing};
use serde_json::{Value, json};

use crate::common::{Folder, Server, run, text};

/// A backend that answers each event, until it has to fail.
struct Backend {
    address: SocketAddr,
    /// The events so far, and the headers with which they came.
    events: Arc<Mutex<Vec<(String, Value)>>>,
    fails: Arc<AtomicBool>,
}

impl Backend {
    fn start() -> Backend {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        let address = listener.local_addr().expect("bound");
        let (events, fails) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicBool>::default());
        let (seen, failing) = (events.clone(), fails.clone());
        std::thread::spawn(move || {
            for tcp in listener.incoming().map_while(Result::ok) {
                let (seen, failing) = (seen.clone(), failing.clone());
                std::thread::spawn(move || while answer(&tcp, &seen, &failing).is_some() {});
            }
        });
        Backend { address, events, fails }
    }
}

/// Answers one request. None at the end of the connection.
fn answer(mut tcp: &TcpStream, seen: &Mutex<Vec<(String, Value)>>, fails: &AtomicBool) -> Option<()> {
    let (mut reader, mut head) = (BufReader::new(tcp), String::new());
    while !head.ends_with("\r\n\r\n") {
        reader.read_line(&mut head).ok().filter(|bytes| *bytes > 0)?;
    }
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok())?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let event: Value = serde_json::from_slice(&body).expect("JSON");
    let data = &event["data"];
    let answer = match event["type"].as_str()? {
        "handshake" if data["ext"]["name"].is_null() => json!({"allow": false, "code": 401, "reason": "no_name"}),
        "handshake" => json!({"allow": true, "user": data["ext"]["name"]}),
        "publish" => json!({"allow": true, "data": {"by": data["user"], "text": data["data"]}}),
        "service" => json!({"reply": {"hello": data["user"]}}),
        _ => json!({}),
    }
    .to_string();
    seen.lock().expect("whole").push((head, event));
    let status = if fails.load(Ordering::Relaxed) { "500 Broken" } else { "200 OK" };
    write!(tcp, "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{answer}", answer.len()).ok()
}

/// Puts a name into the `ext` of handshakes.
struct Name;

impl Extension for Name {
    fn outgoing(&mut self, message: &mut Outgoing<'_>) {
        if message.channel == "/meta/handshake" {
            message.ext.insert("name".into(), "ann".into());
        }
    }
}

#[tokio::test]
async fn a_backend_of_the_configuration_decides_and_its_absence_refuses() {
    let (folder, backend) = (Folder::new(), Backend::start());
    let path = folder.write(
        "encke.toml",
        &format!(
            "[[webhooks]]\nurl = \"http://{}/hook\"\nsecret = \"{SECRET}\"\n\
             events = [\"handshake\", \"publish\", \"service\", \"opened\"]\n\
             channels = [\"/chat/**\", \"/service/**\"]\ndecision_timeout_ms = 1000\n",
            backend.address
        ),
    );
    let shown = text(&run(&["config", "show", "--config", &path]).stdout);
    assert!(!shown.contains(SECRET), "{shown}");
    let server = Server::start(&["--config", &path, "--no-demo"]);
    let refused = Client::builder().reconnect(false).connect(&server.url).await.expect_err("no name").to_string();
    assert!(refused.contains("401:no_name:handshake_denied"), "{refused}");
    let client = Client::builder().extension(Name).connect(&server.url).await.expect("allowed");
    let mut room = client.subscribe("/chat/a").await.expect("nobody decides about a subscribe");
    client.publish("/chat/a", &"hi").await.expect("allowed");
    let message: Value = room.next().await.expect("open").expect("no gap").json().expect("JSON");
    assert_eq!(message, json!({"by": "ann", "text": "hi"}));
    let reply: Value = client.request("/service/hello", &1).await.expect("answered").json().expect("JSON");
    assert_eq!(reply, json!({"hello": "ann"}));
    for (head, event) in backend.events.lock().expect("whole").iter() {
        assert!(head.starts_with("post /hook http/1.1"), "{head}");
        assert!(head.contains("webhook-signature: v1,") && head.contains("webhook-timestamp: "), "{head}");
        assert!(event["id"].as_str().is_some_and(|id| head.contains(&format!("webhook-id: {id}"))), "{head}: {event}");
    }
    backend.fails.store(true, Ordering::Relaxed);
    match client.publish("/chat/a", &"lost").await {
        Err(Error::Refused(refusal)) => assert_eq!(refusal.error, "403:backend_unavailable:publish_denied"),
        other => panic!("{other:?}"),
    }
    client.publish("/news", &1).await.expect("the webhook has no part in it");
}

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
