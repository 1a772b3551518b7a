//! Each failure has one clear line and an exit code.

use std::io::{Read, Write};
use std::net::TcpListener;

use crate::program::{Server, run};

/// A listener that answers every request with `answer`.
fn answering(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = stream.write_all(answer.as_bytes());
                let _ = stream.read_to_end(&mut Vec::new());
            });
        }
    });
    url
}

fn check(url: &str, line: &str, code: i32, start: &str) {
    let (found, shown, printed) = run(url, line);
    assert_eq!(found, Some(code), "{line}: {printed}");
    assert!(printed.starts_with(start) && printed.lines().count() == 1, "{line}: {printed}");
    assert_eq!(shown, "", "{line}");
}

#[test]
fn an_unreachable_target_and_a_non_bayeux_server_are_distinguished() {
    let ssh = answering("SSH-2.0-something\r\n\r\n");
    let web = answering("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    for transport in ["websocket", "long-polling", "eventsource"] {
        let line = |scenario: &str| format!("{scenario} --quiet --transport {transport}");
        for scenario in ["chat --clients 3", "rooms --clients 30", "open --sessions 3", "reconnect --clients 3"] {
            check("http://127.0.0.1:1", &line(scenario), 3, "encke: cannot reach 127.0.0.1:1: ");
            check(&ssh, &line(scenario), 3, "encke: no Bayeux server at 127.0.0.1:");
            check(&web, &line(scenario), 3, "encke: no Bayeux server at 127.0.0.1:");
        }
    }
    for scenario in ["idle --sessions 5", "flood --over stream --connections 5", "flood --over long-polling", "replay"]
    {
        check("http://127.0.0.1:1", &format!("{scenario} --quiet"), 3, "encke: cannot reach 127.0.0.1:1: ");
    }
    check("http://nowhere.invalid", "chat --quiet", 3, "encke: cannot reach nowhere.invalid: ");
}

#[test]
fn wrong_usage_fails_before_anything_is_opened() {
    let cases = [
        ("chat --clients 0", "encke: invalid value '0' for '--clients <N>': "),
        ("chat --clients many", "encke: invalid value 'many' for '--clients <N>': "),
        ("chat --clents 5", "encke: --clents: there is no such flag; did you mean --clients?"),
        ("chat --nonsense", "encke: --nonsense: there is no such flag"),
        ("chat --duration 5", "encke: invalid value '5' for '--duration <TIME>': "),
        ("chat --duration 500us", "encke: invalid value '500us' for '--duration <TIME>': it must be at least 1ms"),
        ("chat --warm-up 500us", "encke: invalid value '500us' for '--warm-up <TIME>': it must be at least 1ms"),
        ("chat --p99 5ms", "encke: the following required arguments were not provided: --find-max"),
        ("chat --search-time 5s", "encke: the following required arguments were not provided: --find-max"),
        ("chat --messages 5 --rate 5", "encke: the argument '--messages <N>' cannot be used with '--rate <N>'"),
        ("rooms --batches 5 --find-max", "encke: the argument '--batches <N>' cannot be used with '--find-max'"),
        (
            "rooms --batch-pause 5ms --rate 5",
            "encke: the argument '--batch-pause <TIME>' cannot be used with '--rate <N>'",
        ),
        ("chat --find-max --rate 5,6", "encke: --find-max begins its search at one --rate"),
        ("chat --core 0,0", "encke: --core names 2 cores for 1 process; give as many --workers"),
        ("open --core 0,0", "encke: --core names 2 cores for 1 process"),
        ("chat --core 0,0,0 --workers 2", "encke: --core names 3 cores for 2 processes; give as many --workers"),
        ("chat --rate 0", "encke: invalid value '0' for '--rate <N>': "),
        ("chat --transport pigeon", "encke: invalid value 'pigeon' for '--transport <TRANSPORT>'"),
        ("chat --message-size 5", "encke: invalid value '5' for '--message-size <SIZE>': "),
        ("chat --pid 4000000000", "encke: there is no process 4000000000"),
        ("chat --json --csv", "encke: only one of "),
        ("chat --html /no/such/folder/page.html", "encke: cannot write /no/such/folder/page.html: "),
        (
            "chat --http2 --transport long-polling",
            "encke: --http2 is for WebSockets: it goes with --transport websocket or raw",
        ),
        ("chat --http2 --compress", "encke: the argument '--http2' cannot be used with '--compress'"),
        ("chat --streams-per-connection 3", "encke: the following required arguments were not provided: --http2"),
        (
            "chat --http2 --streams-per-connection 1001",
            "encke: invalid value '1001' for '--streams-per-connection <N>': a whole number from 1 to 1000",
        ),
        ("chat --workers 0", "encke: invalid value '0' for '--workers <N>': "),
        ("rooms --rooms 5 --rooms-per-client 6", "encke: --rooms-per-client 6: there are only 5 rooms"),
        ("rooms --channel bench", "encke: invalid value 'bench' for '--channel <CHANNEL>': "),
        ("random-channel --ramp 5", "encke: "),
        ("random-channel --ramp 5 --up-to 4", "encke: --up-to 4: the ramp begins at 5 clients, which is more"),
        ("request-reply --channel /chat", "encke: invalid value '/chat' for '--channel <CHANNEL>': "),
        ("request-reply --pause-min 1s --pause-max 50ms", "encke: --pause-min is above --pause-max"),
        ("nothing", "encke: unrecognized subcommand 'nothing'"),
        ("report", "encke: "),
        ("report /no/such/report.json", "encke: no such file: /no/such/report.json"),
    ];
    for (line, start) in cases {
        check("http://127.0.0.1:1", line, 2, start);
    }
    check("ftp://a", "chat", 2, "encke: ftp://a is not a URL");
}

#[test]
fn an_unsupported_extension_fails_before_the_load() {
    let server = Server::start();
    for (line, start) in [
        ("broadcast --clients 2 --replay", "encke: the server stores no history of /bench/fanout/00000"),
        ("open --sessions 2 --replay", "encke: the server stores no history of /bench/open/00000"),
        (
            "random-channel --clients 2 --replay --workers 2",
            // Either worker may be the first to report it.
            "encke: the server stores no history of /bench/channel/0000",
        ),
        ("replay --messages 5 --clients 2 --warm-up 0s", "encke: the server stores no history of /bench/replay/00000"),
    ] {
        check(&server.url, &format!("{line} --quiet"), 1, start);
    }
}

#[test]
fn too_many_clients_for_the_file_table_are_refused_with_the_figure() {
    let server = Server::start();
    for scenario in ["chat --clients 4000000", "open --sessions 4000000", "chat --clients 4000000 --workers 2"] {
        let (code, shown, printed) = run(&server.url, &format!("{scenario} --quiet"));
        assert_eq!((code, shown.as_str()), (Some(1), ""), "{printed}");
        assert!(printed.contains("open files are needed") && printed.lines().count() == 1, "{printed}");
    }
}

#[test]
fn a_server_that_cannot_be_watched_has_no_idle_sessions_to_measure() {
    // The address leads to this machine, but is not loopback, so its process is not searched for.
    let server = Server::start();
    let url = server.url.replace("127.0.0.1", "0.0.0.0");
    check(&url, "idle --sessions 5 --quiet", 2, "encke: the server's memory is measured here");
}

#[test]
fn the_short_help_is_shorter_and_every_scenario_names_its_benchmark() {
    let (_, list, _) = run("", "--help");
    let names: Vec<&str> = list
        .lines()
        .skip_while(|line| *line != "Scenarios:")
        .skip(1)
        .map_while(|line| line.split_whitespace().next())
        .collect();
    assert!(names.len() > 10, "{list}");
    for name in names.into_iter().filter(|name| !["report", "help"].contains(name)) {
        let (short_code, short, _) = run("", &format!("{name} -h"));
        let (long_code, long, _) = run("", &format!("{name} --help"));
        assert_eq!((short_code, long_code), (Some(0), Some(0)), "{name}");
        assert!(long.len() > short.len() && long.contains("--pid") && !short.contains("--pid"), "{name}");
        assert!(long.contains("--target"), "{name}");
    }
}
