//! CometD's clients with the code of the documents, behind a balancer that sends each request to the next of three nodes. Each of the
//! nodes is killed while messages flow.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use crate::histories::wait_until_in_sync;
use crate::nats::{Keeping, post};
use crate::node::Node;
use crate::proxy::Proxy;
use crate::{run, wait_until};

const KEY: &str = "publishing-key-0123456789";
const CHANNELS: [&str; 3] = ["/stock/a", "/stock/b", "/stock/c"];
/// The messages that each client gets between two kills.
const BETWEEN: usize = 60;

/// A program with a client. Dropping it kills it.
struct Program {
    child: Child,
    folder: PathBuf,
    printed: Arc<Mutex<Printed>>,
    /// The latest number of each channel that it had before each kill, when no node had to know yet what it has confirmed.
    before_kills: Vec<BTreeMap<String, usize>>,
}

/// The output of a program.
#[derive(Default, Debug)]
struct Printed {
    /// The numbers that came, of each channel.
    numbers: BTreeMap<String, Vec<usize>>,
    /// Lines that say that messages are gone.
    gone: Vec<String>,
    /// Sessions that have begun, if the program says so.
    handshakes: usize,
}

impl Program {
    /// Starts a command in a folder. It prints a line for each message: the channel and the number.
    fn start(folder: PathBuf, command: &mut Command) -> Program {
        let command = command.current_dir(&folder).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let printed = Arc::new(Mutex::new(Printed::default()));
        let (output, errors) = (child.stdout.take().expect("its output"), child.stderr.take().expect("its errors"));
        let of_output = printed.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let (channel, number) = line.split_once(' ').unwrap_or_default();
                if let (true, Ok(number)) = (channel.starts_with("/stock/"), number.parse()) {
                    let mut printed = of_output.lock().expect("no panic");
                    printed.numbers.entry(channel.into()).or_default().push(number);
                } else {
                    println!("{line}");
                }
            }
        });
        let of_errors = printed.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                println!("{line}");
                let mut printed = of_errors.lock().expect("no panic");
                match line.as_str() {
                    "handshake" => printed.handshakes += 1,
                    _ if line.starts_with("gone ") => printed.gone.push(line),
                    _ => {}
                }
            }
        });
        Program { child, folder, printed, before_kills: Vec::new() }
    }

    /// True if it has a number of a channel. Fails if the program has ended.
    fn has(&mut self, channel: &str, number: usize) -> bool {
        assert!(self.child.try_wait().expect("its state").is_none(), "the program has ended");
        let printed = self.printed.lock().expect("no panic");
        printed.numbers.get(channel).is_some_and(|numbers| numbers.contains(&number))
    }

    fn count(&self) -> usize {
        self.printed.lock().expect("no panic").numbers.values().map(Vec::len).sum()
    }

    fn note_latest(&mut self) {
        let printed = self.printed.lock().expect("no panic");
        let latest = printed.numbers.iter().map(|(channel, numbers)| (channel.clone(), *numbers.last().expect("one")));
        self.before_kills.push(latest.collect());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        _ = self.child.kill();
        _ = self.child.wait();
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("it is there")
}

/// The program of a page that contains a text, for this server.
fn program_of(page: &str, language: &str, contains: &str, url: &str) -> String {
    let page = std::fs::read_to_string(repository().join(page)).expect("a page");
    let mut blocks = page.split("\n```").filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n'));
    let program = blocks.find(|program| program.contains(contains)).expect("the page has the program");
    let replaced = program.replace("http://127.0.0.1:8080", url);
    assert!(replaced != program, "it names its server");
    replaced
}

/// A new folder with the extensions of the documents.
fn folder() -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("encke-cluster-client-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    for name in ["replay-extension.js", "ReplayExtension.java"] {
        std::fs::copy(repository().join("docs/clients").join(name), folder.join(name)).expect("an extension");
    }
    folder
}

/// The page of docs/clients.md in Node. CometD's client is made for browsers, so it gets their objects. It takes a WebSocket where there is one.
fn page(url: &str, transport: &str) -> Program {
    let folder = folder();
    let modules = repository().join("tests/interop/node_modules");
    std::os::unix::fs::symlink(modules, folder.join("node_modules")).expect("a link");
    let program = program_of("docs/clients.md", "js", "new ReplayExtension", url);
    let browser = match transport {
        "websocket" => "",
        _ => "delete window.WebSocket;\n",
    };
    let adapter = format!("import {{adapt}} from 'cometd-nodejs-client';\nadapt();\n{browser}");
    std::fs::write(folder.join("adapter.mjs"), adapter).expect("a file");
    std::fs::write(folder.join("package.json"), "{\"type\":\"module\"}").expect("a file");
    std::fs::write(folder.join("program.mjs"), program).expect("a file");
    Program::start(folder, Command::new("node").args(["--import", "./adapter.mjs", "program.mjs"]))
}

/// The program of docs/platforms.md, with one of its transports, and with both extensions or with `ack` alone.
fn java(url: &str, transport: &str, replays: bool) -> Program {
    let folder = folder();
    let program = program_of("docs/platforms.md", "java", "new ReplayExtension", url);
    let other = match transport {
        "websocket" => "new JettyHttpClientTransport(",
        _ => "new WebSocketTransport(",
    };
    let lines =
        program.lines().filter(|line| !line.contains(other) && (replays || !line.contains("new ReplayExtension")));
    let program = lines.collect::<Vec<_>>().join("\n");
    // The one that is left is the last parameter.
    let program =
        program.replace("getWebSocketContainer()),\n        client", "getWebSocketContainer()));\n        client");
    let begun = "if (reply.isSuccessful()) {";
    let program = program.replace(begun, &format!("{begun} System.err.println(\"handshake\");"));
    std::fs::write(folder.join("AllPrices.java"), program).expect("a file");
    let classes = std::env::var("COMETD_CLASSPATH").expect("COMETD_CLASSPATH has CometD's client: scripts/cluster.sh");
    let classes = format!("{classes}:.");
    let compiled = Command::new("javac").args(["-cp", &classes, "AllPrices.java"]).current_dir(&folder).status();
    assert!(compiled.expect("javac runs").success());
    let options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"];
    Program::start(folder, Command::new("java").args(options).args(["-cp", &classes, "AllPrices"]))
}

/// Three nodes, each of which can start again.
fn nodes(nats: &Keeping) -> [Node; 3] {
    let rules = format!(
        "[[channels]]\npattern = \"/stock/**\"\nhistory_messages = 100000\n\
         [[api_keys]]\nname = \"p\"\nkey = \"{KEY}\"\nscopes = [\"publish\"]"
    );
    let nodes = ["a", "b", "c"].map(|name| Node::lasting(&nats.nats, name, &rules));
    run(wait_until_in_sync(&nodes.each_ref()));
    nodes
}

/// Publishes the numbers from 0 on, each on the next node, until it is to end, and then until a number is confirmed. Returns those that
/// were confirmed: others may be stored or not.
fn publish(addresses: &[String], channel: &str, is_last: &AtomicBool) -> Vec<usize> {
    let mut confirmed = Vec::new();
    for number in 0.. {
        let body = json!({"channel": channel, "data": number}).to_string();
        let ends = is_last.load(Ordering::Relaxed);
        let answer = post(&addresses[number % addresses.len()], "/api/v1/publish", KEY, &body);
        if answer.contains("\"positions\":[{") {
            confirmed.push(number);
            if ends {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    confirmed
}

/// Kills each node while the programs read. Returns the confirmed numbers of each channel, of which the programs have the last. With
/// `are_marked` a node is killed when the others know what the programs have confirmed.
fn kill_each(nodes: &mut [Node; 3], programs: &mut [Program], are_marked: bool) -> BTreeMap<String, Vec<usize>> {
    let addresses = nodes.each_ref().map(|node| node.address().to_owned());
    let is_last = AtomicBool::new(false);
    let confirmed: BTreeMap<String, Vec<usize>> = std::thread::scope(|scope| {
        let publishers = CHANNELS.map(|channel| {
            let (addresses, is_last) = (&addresses, &is_last);
            (channel, scope.spawn(move || publish(addresses, channel, is_last)))
        });
        for killed in 0..=nodes.len() {
            let before: Vec<usize> = programs.iter().map(Program::count).collect();
            wait_until("all programs get messages", || {
                programs.iter().zip(&before).all(|(program, before)| program.count() >= before + BETWEEN)
            });
            programs.iter_mut().for_each(Program::note_latest);
            if are_marked {
                let marks = nodes.each_ref().map(|node| node.metric("encke_cluster_marks"));
                // Sessions whose client is slow have a mark in their record, which a busy machine writes late.
                wait_until("other nodes know that", || {
                    let have_marks =
                        nodes.iter().zip(marks).all(|(node, marks)| node.metric("encke_cluster_marks") > marks + 8);
                    have_marks && nodes.iter().all(|node| node.metric("encke_cluster_session_records_waiting") == 0)
                });
            }
            if let Some(node) = nodes.get_mut(killed) {
                node.restart();
                run(wait_until_in_sync(&nodes.each_ref()));
            }
        }
        is_last.store(true, Ordering::Relaxed);
        publishers.map(|(channel, publisher)| (channel.to_owned(), publisher.join().expect("no panic"))).into()
    });
    for (channel, numbers) in &confirmed {
        let last = *numbers.last().expect("a number");
        wait_until("the last messages come", || programs.iter_mut().all(|program| program.has(channel, last)));
    }
    confirmed
}

/// Checks that a program has all confirmed numbers, each once and in order.
fn check(program: &Program, confirmed: &BTreeMap<String, Vec<usize>>) {
    let printed = program.printed.lock().expect("no panic");
    assert!(printed.gone.is_empty(), "lost: {:?}", printed.gone);
    for (channel, confirmed) in confirmed {
        let is_confirmed = |number: &usize| confirmed.binary_search(number).is_ok();
        let (known, mut others): (Vec<usize>, Vec<usize>) =
            printed.numbers[channel].iter().partition(|number| is_confirmed(number));
        assert!(known == *confirmed, "lost, doubled or out of order on {channel}: not {confirmed:?}, but {known:?}");
        let count = others.len();
        others.sort_unstable();
        others.dedup();
        assert!(others.len() == count, "doubled on {channel}: {:?}", printed.numbers);
    }
}

/// Checks that a program whose session goes on has all confirmed numbers from its first one on, in order. After a kill those come
/// again that it has confirmed shortly before.
fn check_acknowledged(program: &Program, confirmed: &BTreeMap<String, Vec<usize>>) {
    let printed = program.printed.lock().expect("no panic");
    assert_eq!(printed.handshakes, 1, "the session has not gone on");
    for (channel, confirmed) in confirmed {
        let numbers = &printed.numbers[channel];
        let missing: Vec<&usize> =
            confirmed.iter().filter(|number| **number > numbers[0] && !numbers.contains(number)).collect();
        assert!(missing.is_empty(), "lost on {channel}: {missing:?}, of {numbers:?}");
        let known: Vec<usize> =
            numbers.iter().copied().filter(|number| confirmed.binary_search(number).is_ok()).collect();
        let again: Vec<&[usize]> = known.windows(2).filter(|pair| pair[0] >= pair[1]).collect();
        assert!(again.len() < program.before_kills.len(), "out of order on {channel}: {again:?} of {known:?}");
        for pair in again {
            let before =
                program.before_kills.iter().map(|latest| latest[channel]).filter(|latest| *latest <= pair[0]).max();
            assert!(
                before.is_none_or(|before| pair[1] > before),
                "doubled on {channel}: {pair:?}, and before {before:?}"
            );
        }
    }
}

fn balancer(nodes: &[Node; 3]) -> Proxy {
    Proxy::balancer(nodes.each_ref().map(|node| node.address().to_owned()).into())
}

const TRANSPORTS: [&str; 2] = ["websocket", "long-polling"];

/// Checks programs over all transports while each node is killed.
fn check_over_kills(
    name: &str,
    program: impl Fn(&str, &str) -> Program,
    are_marked: bool,
    check: fn(&Program, &BTreeMap<String, Vec<usize>>),
) {
    let nats = Keeping::start(name);
    let mut nodes = nodes(&nats);
    let balancer = balancer(&nodes);
    let mut programs = TRANSPORTS.map(|transport| program(&format!("http://{}", balancer.address()), transport));
    let confirmed = kill_each(&mut nodes, &mut programs, are_marked);
    programs.iter().for_each(|program| check(program, &confirmed));
}

#[test]
fn a_page_with_cometds_client_loses_and_doubles_nothing_when_its_nodes_are_killed() {
    check_over_kills("page", page, false, check);
}

#[test]
fn cometds_java_client_loses_and_doubles_nothing_when_its_nodes_are_killed() {
    check_over_kills("java", |url, transport| java(url, transport, true), false, check);
}

#[test]
fn sessions_of_cometds_java_client_that_acknowledge_go_on_and_lose_nothing_when_their_nodes_are_killed() {
    check_over_kills("java-acknowledging", |url, transport| java(url, transport, false), true, check_acknowledged);
}
