//! Each scenario, small.

use serde_json::Value;

use crate::program::{Server, bench, report, run, text};

/// The transcript as one text.
fn transcript(report: &Value) -> String {
    let lines = report["transcript"].as_array().expect("lines").iter();
    lines.map(|line| line.as_str().expect("text").to_owned() + "\n").collect()
}

fn figure(trial: &Value, name: &str) -> f64 {
    let figures = trial["figures"].as_array().expect("figures");
    let found = figures.iter().find(|figure| figure["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {figures:?}"))["value"].as_f64().expect("a figure")
}

#[test]
fn chat_counts_each_message_for_each_client_and_prints_the_lines_of_the_post() {
    let server = Server::start();
    let report = report(&server.url, "chat --clients 50 --messages 200 --warm-up 100ms");
    let printed = transcript(&report);
    let target = server.url.trim_start_matches("http://");
    assert!(printed.starts_with(&format!("Opened 50 of 50 connections to {target} in ")), "{printed}");
    assert!(printed.contains("Sent/Received 200/10000 messages in ") && printed.contains("msg/s"), "{printed}");
    assert!(printed.contains(&format!("Closed 50 connections to {target} in ")), "{printed}");
    assert_eq!(report["trials"][0]["incoming"]["messages"], 10_000);
}

#[test]
fn rooms_accepts_the_names_of_cometds_load_client_and_prints_its_lines() {
    let server = Server::start();
    let line = "rooms --clients 40 --rooms 8 --roomsPerClient 3 --batches 20 --batchSize 5 --batchPause 2000 \
                --messageSize 60 --transport JAKARTA_WEBSOCKET --iterations 2 --warm-up 100ms";
    let report = report(&server.url, line);
    let printed = transcript(&report);
    for wanted in [
        "Statistics Started at ",
        "Testing 40 clients in 8 rooms, 3 rooms/client\n",
        "Sending 20 batches of 5x60 bytes messages every 2000 µs\n",
        "Outgoing: Elapsed = ",
        "All messages arrived ",
        "Messages - Wall Latency Min/Ave/Max = ",
    ] {
        assert_eq!(printed.matches(wanted).count(), 2, "{wanted} in {printed}");
    }
    for trial in report["trials"].as_array().expect("trials") {
        assert_eq!(trial["outgoing"]["messages"], 100);
        // A load that is late sends two at once.
        assert!(trial["outgoing"]["batches"].as_u64() <= Some(20), "no batch is sent in parts: {trial}");
        assert_eq!(trial["incoming"]["messages"], trial["expected"]);
    }
}

#[test]
fn rooms_runs_over_long_polling() {
    let server = Server::start();
    let report =
        report(&server.url, "rooms --clients 20 --rooms 4 --rooms-per-client 2 --batches 20 --transport long-polling");
    assert_eq!(report["trials"][0]["outgoing"]["messages"], 200);
    assert_eq!(report["trials"][0]["incoming"]["messages"], report["trials"][0]["expected"]);
}

#[test]
fn the_servers_process_is_found_and_watched() {
    let server = Server::start();
    let report = report(&server.url, "broadcast --clients 20 --rate 50 --duration 1200ms --warm-up 100ms");
    let trial = &report["trials"][0];
    assert!(trial["server"]["rss_peak_bytes"].as_u64().expect("watched") > 0, "{trial}");
    assert!(trial["server"]["ns_per_delivery"].as_f64().expect("watched") > 0.0, "{trial}");
    assert!(trial["latency"]["p99_us"].as_u64().expect("timed") > 0, "{trial}");
    let samples = trial["samples"].as_array().expect("samples");
    assert!(samples.iter().all(|sample| sample["server_rss_bytes"].is_u64()), "{samples:?}");
    assert!(samples.last().expect("one").get("received").and_then(Value::as_u64) >= Some(20 * 50));
}

#[test]
fn a_list_of_rates_is_a_trial_each() {
    let server = Server::start();
    let report = report(&server.url, "broadcast --clients 10 --rate 50,100 --duration 2s --warm-up 100ms");
    let planned: Vec<f64> = report["trials"]
        .as_array()
        .expect("trials")
        .iter()
        .filter_map(|trial| trial["planned_per_s"].as_f64())
        .collect();
    assert_eq!(planned, [50.0, 100.0]);
    // A trial that holds has sent nine tenths of the 200 messages that were planned, to ten clients each.
    assert!(
        (1_800..2_400).contains(&report["trials"][1]["incoming"]["messages"].as_u64().expect("a count")),
        "{report}"
    );
}

#[test]
fn a_search_ends_with_a_sustained_rate_or_reports_that_its_time_was_over() {
    let server = Server::start();
    let line = "chat --clients 5 --find-max --rate 2000 --duration 200ms --warm-up 0s --search-time 2s --p99 2s --quiet --json";
    let output = bench(&server.url, line).output().expect("runs");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(report["trials"].as_array().expect("trials").len() > 1, "{report}");
    match report["result"].as_u64() {
        Some(result) => assert_eq!(report["trials"][result as usize]["holds"], true, "{report}"),
        None => assert!(report["reasons"][0].as_str().expect("a reason").contains("search"), "{report}"),
    }
    assert_eq!(output.status.code(), Some(if report["holds"] == true { 0 } else { 1 }), "{}", text(&output.stderr));
}

#[test]
fn a_trial_in_which_nothing_was_measured_does_not_hold() {
    let server = Server::start();
    // The only message falls into the warm-up.
    let line = "broadcast --clients 3 --rate 0.1 --duration 200ms --warm-up 200ms --quiet --json";
    let output = bench(&server.url, line).output().expect("runs");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((output.status.code(), &report["holds"]), (Some(1), &Value::Bool(false)), "{report}");
    assert!(report["reasons"][0].as_str().is_some_and(|reason| reason.starts_with("nothing was measured")), "{report}");
}

#[test]
fn throughput_skips_steps_with_more_clients_than_open_files_allow() {
    let server = Server::start();
    let line = "throughput --clients 20,4000000 --rooms 5 --rate 200,400 --duration 500ms --warm-up 100ms";
    let report = report(&server.url, line);
    assert_eq!(report["trials"].as_array().map(Vec::len), Some(2));
    assert!(report["result"].is_u64());
    let printed = transcript(&report);
    assert!(printed.starts_with("4,000,000 clients skipped: this process may open "), "{printed}");
    let (code, _, printed) = run(&server.url, "throughput --clients 4000000 --quiet");
    assert!(code == Some(1) && printed.lines().count() == 1, "{printed}");
}

#[test]
fn random_channel_has_a_row_for_each_step_of_its_ramp() {
    let server = Server::start();
    let line = "random-channel --clients 10 --ramp 10 --up-to 30 --rate 200 --duration 2s --warm-up 0s --csv --quiet";
    let (code, csv, printed) = run(&server.url, line);
    assert_eq!(code, Some(0), "{printed}");
    let lines: Vec<&str> = csv.lines().collect();
    let heading = "connections,connected,average response (ms),average size,messages,msg/sec,walltime(secs)";
    assert_eq!((lines.len(), lines[0]), (4, heading), "{csv}");
    assert!(
        lines[1].starts_with("10,10,") && lines[2].starts_with("20,20,") && lines[3].starts_with("30,30,"),
        "{csv}"
    );
}

#[test]
fn request_reply_times_the_answers_of_a_service() {
    let server = Server::start();
    for transport in ["websocket", "long-polling", "eventsource"] {
        let line =
            format!("request-reply --clients 10 --duration 1s --warm-up 300ms --transport {transport} --csv --quiet");
        let (code, csv, printed) = run(&server.url, &line);
        assert_eq!(code, Some(0), "{printed}");
        let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!(
            rows[0].join(","),
            "count,average response (ms),average outlier high response (ms),average outlier low \
                                       response (ms),average message size,messages received"
        );
        let value = |column: usize| rows[1][column].parse::<f64>().expect("a number");
        assert!(value(0) == 10.0 && value(5) > 20.0, "{csv}");
        assert!(value(3) > 0.0 && value(3) <= value(1) && value(1) <= value(2), "{csv}");
    }
}

#[test]
fn request_reply_reports_a_missing_service() {
    let server = Server::start();
    let line =
        "request-reply --clients 2 --channel /service/none --duration 500ms --warm-up 0s --late-after 100ms --quiet";
    let (code, shown, _) = run(&server.url, line);
    assert!(code == Some(1) && shown.contains("/service/none"), "{shown}");
}

#[test]
fn reconnect_reports_when_half_and_all_of_the_clients_are_back() {
    let server = Server::start();
    let report = report(&server.url, "reconnect --clients 40 --rounds 2");
    let trials = report["trials"].as_array().expect("trials");
    assert_eq!(trials.len(), 2);
    for trial in trials {
        let back = ["50 % back after", "99 % back after", "100 % back after"].map(|name| figure(trial, name));
        assert!(back[0] > 0.0 && back.is_sorted(), "{back:?}");
        assert!(trial["expected"].as_u64() > Some(0), "messages arrive afterwards: {trial}");
        assert_eq!(trial["samples"].as_array().expect("samples").last().expect("one")["connected"], 40);
    }
}

#[test]
fn soak_reports_the_growth_of_memory_and_a_row_a_minute() {
    let server = Server::start();
    let line = "soak --clients 20 --rooms 5 --rooms-per-client 2 --rate 500 --duration 2500ms --warm-up 100ms";
    let report = report(&server.url, line);
    assert!(figure(&report["trials"][0], "server memory growth").is_finite());
    let rows = report["table"]["rows"].as_array().expect("rows");
    assert_eq!((rows.len(), &rows[0][0], &rows[0][1]), (1, &Value::from("1"), &Value::from("20")));
}

#[test]
fn idle_reports_the_memory_of_a_session() {
    let server = Server::start();
    let report = report(&server.url, &format!("idle --sessions 300 --own-channels --pid {}", server.id()));
    let trial = &report["trials"][0];
    assert!(figure(trial, "resident memory per session") > 0.0, "{trial}");
    let peak =
        trial["samples"].as_array().expect("samples").iter().filter_map(|sample| sample["connected"].as_u64()).max();
    assert_eq!(peak, Some(300));
}

#[test]
fn open_counts_sessions_per_second() {
    let server = Server::start();
    for transport in ["websocket", "long-polling", "eventsource"] {
        let report = report(&server.url, &format!("open --sessions 100 --transport {transport}"));
        assert!(figure(&report["trials"][0], "sessions opened per second") > 0.0);
    }
}

#[test]
fn reports_are_written_and_compared() {
    let server = Server::start();
    let folder = std::env::temp_dir().join(format!("encke-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = |name: &str| folder.join(name).display().to_string();
    for (label, file) in [("first", path("a.json")), ("second", path("b.json"))] {
        let line = format!("broadcast --clients 5 --duration 300ms --warm-up 0s --quiet --label {label} --json {file}");
        let (code, shown, printed) = run(&server.url, &format!("{line} --html {}", path("page.html")));
        assert!(code == Some(0) && shown.contains("broadcast"), "{printed}");
    }
    assert!(std::fs::read_to_string(path("page.html")).expect("a page").contains("<html"));
    let (code, shown, printed) = run(&server.url, &format!("report {} {}", path("a.json"), path("b.json")));
    assert!(code == Some(0) && shown.contains("first") && shown.contains("second"), "{shown}{printed}");
    let before = std::fs::read(path("a.json")).expect("a report");
    let (code, ..) = run(&server.url, &format!("report --json {} {}", path("a.json"), path("b.json")));
    assert_eq!(code, Some(0));
    assert_eq!(std::fs::read(path("a.json")).expect("a report"), before, "a report is not taken for the file to write");
    let _ = std::fs::remove_dir_all(&folder);
}
