//! A full disk: publishers and the log report it, and nobody else notices.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use encke_client::{Client, Error, Message, RawJson, ReplayFrom, Subscription};

/// The time after which the test gives up.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A running server. Dropping it kills it.
struct Server {
    child: Child,
    url: String,
    log: BufReader<ChildStderr>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// Starts the program on a data directory whose files may have `blocks` blocks of 512 bytes.
fn start(data: &std::path::Path, blocks: &str) -> Server {
    let config = data.with_extension("toml");
    std::fs::write(&config, "[[channels]]\npattern = \"/stored/*\"\nhistory_messages = 100000\n").expect("a file");
    // A write beyond the limit fails as on a full disk if the accompanying signal is ignored.
    let script = "trap '' XFSZ; ulimit -f \"$1\"; shift; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", blocks, env!("CARGO_BIN_EXE_encke"), "serve", "--port", "0", "--no-demo"]);
    command.args(["--history-commit", "always", "--data"]).arg(data).arg("--config").arg(config);
    // A variable with this prefix would be a setting.
    let settings = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ENCKE_"));
    settings.for_each(|(name, _)| _ = command.env_remove(name));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    let url = line.trim().strip_prefix("encke listening on ").expect("the address").to_string();
    let log = BufReader::new(child.stderr.take().expect("piped"));
    Server { child, url, log }
}

async fn next(subscription: &mut Subscription) -> Message {
    subscription.next().await.expect("the session is open").expect("no gap")
}

/// Publishes until the disk is full and a little longer, beside a subscriber. Returns the number of messages stored
/// before.
async fn fill(url: &str) -> Result<u64, Error> {
    let subscriber = Client::connect(url).await?;
    let mut subscription = subscriber.subscribe("/stored/a").await?;
    let publisher = Client::builder().reconnect(false).connect(url).await?;
    let (mut stored, mut refused) = (0, 0);
    let filler = "x".repeat(1_000);
    for number in 0.. {
        let data = format!("{{\"number\":{number},\"filler\":\"{filler}\"}}");
        match publisher.publish_raw("/stored/a", RawJson::trusted(&data)).await {
            Ok(_) => {
                assert_eq!(refused, 0, "there is no more room than before");
                stored += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains("507:/stored/a:history_not_stored"), "{error}");
                refused += 1;
            }
        }
        assert_eq!(next(&mut subscription).await.data().as_str(), data, "delivery goes on");
        if refused == 20 {
            break;
        }
    }
    // Messages in memory are still replayed; the very first message is there, too.
    let late = Client::builder().replay(ReplayFrom::Earliest).connect(url).await?;
    let mut late = late.subscribe("/stored/a").await?;
    for _ in 0..stored + refused {
        next(&mut late).await;
    }
    Ok(stored)
}

async fn replayed(url: &str, count: u64) -> Result<(), Error> {
    let client = Client::builder().replay(ReplayFrom::Earliest).connect(url).await?;
    let mut subscription = client.subscribe("/stored/a").await?;
    for number in 0..count {
        let message = next(&mut subscription).await;
        assert!(message.data().as_str().contains(&format!("\"number\":{number},")), "{number}: {}", message.data());
    }
    Ok(())
}

fn run<T>(work: impl Future<Output = Result<T, Error>>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let done = runtime.block_on(async { tokio::time::timeout(TIMEOUT, work).await });
    done.expect("it takes too long").unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_full_disk_is_an_error_for_publishers_is_logged_once_and_delivery_continues() {
    let folder = std::env::temp_dir().join(format!("encke-full-{}", std::process::id()));
    let data = folder.join("data");
    std::fs::create_dir_all(&data).expect("a folder");
    let mut server = start(&data, "64");
    let stored = run(fill(&server.url));
    assert!(stored > 5, "there was room for some: {stored}");
    let mut line = String::new();
    while !line.contains("histories are not stored on disk at the moment; delivery continues") {
        line.clear();
        assert_ne!(server.log.read_line(&mut line).expect("a line"), 0, "it is in the log");
    }
    assert!(line.contains("cannot write") && line.contains(".journal"), "{line}");
    server.child.kill().expect("it runs");
    let rest: Vec<String> = server.log.by_ref().lines().map_while(Result::ok).collect();
    assert!(!rest.iter().any(|line| line.contains("histories are not stored")), "logged once: {rest:?}");

    // It starts anyway with the stored messages, and reports again that nothing more is stored.
    drop(server);
    let mut server = start(&data, "64");
    run(replayed(&server.url, stored));
    assert_eq!(run(fill(&server.url)), 0, "there is no room");
    server.child.kill().expect("it runs");
    let log: Vec<String> = server.log.by_ref().lines().map_while(Result::ok).collect();
    assert_eq!(log.iter().filter(|line| line.contains("histories are not stored on disk")).count(), 1, "{log:?}");

    // With room it resumes: the stored messages are there.
    drop(server);
    let server = start(&data, "unlimited");
    run(replayed(&server.url, stored));
    drop(server);
    std::fs::remove_dir_all(&folder).expect("removed");
}
