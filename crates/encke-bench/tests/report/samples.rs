//! Sample reports with made-up figures, to test pages with.

use encke_bench::report::{
    Curve, FORMAT_VERSION, Faults, Figure, Flow, Latency, Machine, Report, Sample, Server, Setting, Table, Trial,
};

/// Rooms over rising rates for three numbers of clients; the highest rates are too much for the server.
pub fn throughput(label: &str, speed: f64) -> Report {
    let mut trials = Vec::new();
    for clients in [1_000u64, 5_000, 20_000] {
        let most = speed * 900_000.0 / (1.0 + clients as f64 / 15_000.0);
        for rate in [10_000.0, 50_000.0, 100_000.0, 200_000.0, 400_000.0, 600_000.0, 800_000.0] {
            trials.push(rooms_trial(clients, rate, most));
        }
    }
    let result = trials.iter().rposition(|trial| trial.clients == 5_000 && trial.holds);
    Report {
        title: "Throughput against latency of chat rooms over rising rates".into(),
        stands_for: "CometD’s load client over rising rates, as in “CometD 2.4.0 WebSocket benchmarks” (2011): \
                     throughput on one axis, latency on the other."
            .into(),
        settings: settings(&[
            ("clients", "1000,5000,20000"),
            ("rooms", "100"),
            ("rooms-per-client", "10"),
            ("batch-size", "10"),
            ("message-size", "50"),
            ("rate", "100,500,1000,2000,4000,6000,8000"),
            ("transport", "websocket"),
            ("duration", "30s"),
            ("warm-up", "5s"),
        ]),
        result,
        trials,
        took_ms: 742_000,
        ..report("throughput", label)
    }
}

/// Clients in rooms, with the output of CometD's load client.
pub fn rooms() -> Report {
    let trial = Trial {
        figures: vec![figure("sessions opened per second", 15_568.0, "/s")],
        ..rooms_trial(1_000, 100_000.0, 900_000.0)
    };
    let transcript = [
        "Statistics Started at Sat Nov 21 10:57:34 UTC 2026",
        "Operative System: Linux 6.1.0 amd64",
        "Processors: 2",
        "System Memory: 21.3% used of 7.8 GiB",
        "- - - - - - - - - - - - - - - - - - - -",
        "Testing 1000 clients in 100 rooms, 10 rooms/client",
        "Sending 30000 batches of 10x50 bytes messages every 10000 µs",
        "- - - - - - - - - - - - - - - - - - - -",
        "Elapsed time: 30001 ms",
        "Average CPU Load: 41.2/200",
        "----------------------------------------",
        "Outgoing: Elapsed = 30001 ms | Rate = 1000 msg/s = 100 req/s =   0.4 Mbs",
        "All messages arrived 3000000/3000000",
        "Incoming - Elapsed = 30001 ms | Rate = 100000 msg/s = 91200 resp/s(91.20%) =  38.1 Mbs",
        "Messages - Wall Latency Min/Ave/Max = 0/2/31 ms",
    ];
    Report {
        title: "1,000 clients in 100 rooms, each in 10 of them".into(),
        stands_for: "CometDLoadClient, CometD’s own load tool.".into(),
        settings: settings(&[("clients", "1000"), ("rooms", "100"), ("rooms-per-client", "10"), ("duration", "30s")]),
        trials: vec![trial],
        result: Some(0),
        transcript: transcript.map(Into::into).into(),
        ..report("rooms", "encke")
    }
}

/// Streaming responses opened at a fixed rate until the server gives in.
pub fn flood(io: &str, most: u64) -> Report {
    let per_second = 20.0;
    let mut random = Random(most);
    let mut connected = 0.0;
    let pages = if io == "async" { 42_000.0 } else { 71_000.0 };
    let sample = |second: u64| {
        let full = connected / most as f64;
        let pace = if full < 0.45 { 1.0 } else { 1.0 - 0.75 * ((full - 0.45) / 0.55) };
        let wild = if full > 0.97 { 0.1 + 1.6 * random.next() } else { 0.98 + 0.04 * random.next() };
        connected = f64::min(connected + per_second * pace * wild, most as f64);
        Sample {
            at_ms: second * 1000,
            connected: connected as u64,
            received: (connected * second as f64 / 20.0) as u64,
            p99_us: (900.0 + 40_000.0 * full.powi(6) * random.next()) as u64,
            server_cores: Some(0.05 + 0.9 * full.powi(3) + 0.02 * random.next()),
            server_rss_bytes: Some((24 << 20) + (connected * pages) as u64),
            ..Sample::default()
        }
    };
    let samples: Vec<Sample> = (1..=1200).map(sample).collect();
    let trial = Trial {
        name: format!("{io}, 20 connections/s"),
        clients: most,
        figures: vec![figure("connections at the end", most as f64, ""), figure("expected per interval", 2_000.0, "")],
        samples,
        server: Some(Server {
            cores: pages / 100_000.0,
            rss_before_bytes: 24 << 20,
            rss_peak_bytes: (24 << 20) + (most as f64 * pages) as u64,
            rss_after_bytes: 460 << 20,
            ..Server::default()
        }),
        latency: Some(latency(pages / 30.0, 2.1, most)),
        holds: false,
        reasons: vec![format!("The target refused connection {most}: too many open files.")],
        ..Trial::default()
    };
    Report {
        title: format!("Streaming responses opened at 20 a second, served with {io}"),
        stands_for:
            "“NIO versus threads” for Comet (2008): connections opened at a fixed rate, each with a chunk every 10 s."
                .into(),
        settings: settings(&[("rate", "20"), ("io", io), ("duration", "20min")]),
        holds: false,
        reasons: trial.reasons.clone(),
        trials: vec![trial],
        result: Some(0),
        took_ms: 1_200_000,
        ..report("flood", io)
    }
}

/// All clients cut at once, and back again.
pub fn reconnect() -> Report {
    let back = |ms: u64| match ms {
        0..5_000 => 5_000.0,
        _ => 5_000.0 * (1.0 - (-((ms - 5_000) as f64) / 900.0).exp()),
    };
    let sample = |at: u64| Sample {
        at_ms: at * 100,
        connected: back(at * 100).round() as u64,
        server_cores: Some(if (50..80).contains(&at) { 0.9 } else { 0.02 }),
        ..Sample::default()
    };
    let trial = Trial {
        name: "5,000 clients".into(),
        clients: 5_000,
        figures: vec![
            figure("time until 50 % are back", 640.0, "ms"),
            figure("time until 99 % are back", 4_140.0, "ms"),
            figure("time until all are back", 8_200.0, "ms"),
        ],
        samples: (1..=150).map(sample).collect(),
        holds: true,
        ..Trial::default()
    };
    Report {
        title: "5,000 clients cut at once, and back again".into(),
        settings: settings(&[("clients", "5000")]),
        trials: vec![trial],
        result: Some(0),
        ..report("reconnect", "encke")
    }
}

/// Hours of steady load, one sample a second.
pub fn soak(samples: u64) -> Report {
    let mut random = Random(7);
    let sample = |at: u64| Sample {
        at_ms: at * 1000,
        connected: 2_000,
        sent: at * 500,
        received: at * 50_000 + (random.next() * 900.0) as u64,
        p99_us: (2_100.0 + 600.0 * random.next() + if at % 1_800 == 900 { 30_000.0 } else { 0.0 }) as u64,
        server_cores: Some(0.31 + 0.03 * random.next()),
        server_rss_bytes: Some((88 << 20) + ((at as f64).ln_1p() * 1.2e6 + 4e5 * random.next()) as u64),
    };
    let mut trial = rooms_trial(2_000, 50_000.0, 900_000.0);
    trial.samples = (1..=samples).map(sample).collect();
    trial.figures = vec![figure("memory slope", 0.4, "KiB/h")];
    Report {
        title: "Hours of steady load: does memory grow, is anything lost?".into(),
        settings: settings(&[("duration", "3h")]),
        trials: vec![trial],
        result: Some(0),
        took_ms: samples * 1000,
        ..report("soak", "encke")
    }
}

/// One channel for each subscriber, with the columns of the framework comparison.
pub fn random_channel() -> Report {
    let columns = ["clients", "connected", "sent", "received", "latency_ms_mean", "cpu_time", "load_avg", "heap_mib"];
    let row = |step: u64| {
        let figures = [500 * step, 500 * step, 15_000 * step, 15_000 * step, step + 1, 4 * step, 0, 40 + step];
        figures.iter().map(ToString::to_string).collect()
    };
    let trial = |step: u64| rooms_trial(500 * step, 5_000.0 * step as f64, 400_000.0);
    Report {
        title: "Messages to random channels, 500 more clients each step".into(),
        trials: (1..=8).map(trial).collect(),
        table: Some(Table { columns: columns.map(Into::into).into(), rows: (1..=8).map(row).collect() }),
        interrupted: true,
        ..report("random-channel", "encke")
    }
}

/// A run in which everything from outside tries to be something else.
pub fn hostile() -> Report {
    let evil = "<script>alert('x')</script> & \"quotes\" \u{1b}[2J\0 ]]> =1+1".to_owned();
    let mut report = throughput(&evil, 1.0);
    for text in [&mut report.title, &mut report.target, &mut report.stands_for, &mut report.scenario] {
        text.clone_from(&evil);
    }
    report.trials[0].name.clone_from(&evil);
    report.trials[0].reasons = vec![evil.clone()];
    report.trials[0].holds = false;
    report.trials[0].figures = vec![figure(&evil, 1.0, &evil)];
    report.settings = settings(&[(&evil, &evil), ("formula", "=cmd|'/C calc'!A0")]);
    report.transcript = vec![evil.clone()];
    report.table =
        Some(Table { columns: vec![evil.clone(), "b".into()], rows: vec![vec!["=1+1".into(), evil.clone()]] });
    report.machine.processor.clone_from(&evil);
    report.reasons = vec![evil];
    report.holds = false;
    report
}

/// A run whose figures are not numbers.
pub fn not_numbers() -> Report {
    let mut report = soak(50);
    let trial = &mut report.trials[0];
    trial.planned_per_s = Some(f64::INFINITY);
    trial.load_cores = f64::NAN;
    trial.others_cores = Some(f64::NEG_INFINITY);
    trial.figures = vec![
        figure("slope", f64::NAN, "KiB/h"),
        figure("ratio", f64::INFINITY, "s"),
        figure("less", f64::NEG_INFINITY, "bytes"),
    ];
    trial.server =
        Some(Server { cores: f64::NAN, ns_per_delivery: f64::INFINITY, rss_peak_bytes: u64::MAX, ..Server::default() });
    if let Some(latency) = &mut trial.latency {
        latency.mean_us = f64::NAN;
        latency.max_us = u64::MAX;
        latency.curve.push((f64::NAN, 0));
        latency.curve.push((f64::INFINITY, u64::MAX));
    }
    for sample in &mut trial.samples {
        sample.server_cores = Some(f64::NAN);
        sample.server_rss_bytes = Some(u64::MAX);
        sample.p99_us = u64::MAX;
    }
    report
}

fn rooms_trial(clients: u64, rate: f64, most: f64) -> Trial {
    let load = rate / most;
    let achieved = rate.min(most * (1.0 - 0.1 * (load - 1.0).clamp(0.0, 1.0)));
    let middle =
        if load < 1.0 { 350.0 + clients as f64 / 20.0 + 900.0 * load / (1.02 - load) } else { 900_000.0 * load };
    let holds = load < 0.97;
    let received = (achieved * 30.0) as u64;
    let lost = if holds { 0 } else { ((rate - achieved) * 3.0) as u64 };
    let mut random = Random(clients + rate as u64);
    let sample = |second: u64| Sample {
        at_ms: second * 1000 + (random.next() * 9.0) as u64,
        connected: clients,
        sent: (achieved / 100.0) as u64 * second,
        received: (achieved as u64) * second,
        p99_us: (middle * (2.5 + random.next())) as u64,
        server_cores: Some((load * 0.95).min(1.0) * (0.97 + 0.03 * random.next())),
        server_rss_bytes: Some(20_000_000 + clients * 9_000 + (random.next() * 2e6) as u64),
    };
    Trial {
        name: format!("{} clients, {} messages/s", grouped(clients), grouped((rate / 100.0) as u64)),
        clients,
        planned_per_s: Some(rate / 100.0),
        expected: received + lost,
        faults: Faults { lost, late: lost / 3, ..Faults::default() },
        outgoing: flow((achieved * 0.3) as u64),
        incoming: flow(received),
        latency: Some(latency(middle, if holds { 1.9 } else { 1.3 }, received.max(1))),
        server: Some(Server {
            cores: (load * 0.95).min(1.0),
            ns_per_delivery: 1e9 * (load * 0.95).min(1.0) / achieved,
            rss_before_bytes: 18 << 20,
            rss_peak_bytes: 20_000_000 + clients * 9_600,
            rss_after_bytes: 20_000_000 + clients * 9_100,
        }),
        load_cores: 0.2 + load * 0.5,
        others_cores: Some(0.03),
        samples: (1..=30).map(sample).collect(),
        holds,
        reasons: if holds { Vec::new() } else { vec![format!("{} deliveries were lost.", grouped(lost))] },
        ..Trial::default()
    }
}

/// A latency that rises by the factor `growth` at each further nine of the percentile.
fn latency(middle: f64, growth: f64, count: u64) -> Latency {
    let at = |share: f64| (middle * growth.powf(-(1.0 - share).log10() - 0.3)) as u64;
    let last = 1.0 - 1.0 / (count.max(10) as f64);
    let shares = (0..=60).map(|step| 1.0 - 10f64.powf(-f64::from(step) / 60.0 * -(1.0 - last).log10()));
    let curve: Curve = shares.map(|share| ((share * 1e9).round() / 1e9, at(share))).collect();
    Latency {
        count,
        min_us: at(0.0),
        mean_us: (middle * 1.2).round(),
        p50_us: at(0.5),
        p90_us: at(0.9),
        p99_us: at(0.99),
        p999_us: at(0.999),
        max_us: at(last),
        curve,
    }
}

fn report(scenario: &str, label: &str) -> Report {
    Report {
        format: FORMAT_VERSION,
        scenario: scenario.into(),
        label: label.into(),
        target: "http://127.0.0.1:8080/cometd".into(),
        began_unix_ms: 1_795_258_620_000,
        took_ms: 41_300,
        machine: Machine {
            system: "Linux 6.1.0 x86_64".into(),
            processor: "An imagined processor".into(),
            cores: 2,
            memory_bytes: 8 << 30,
            version: "0.1.0".into(),
        },
        holds: true,
        ..Report::default()
    }
}

fn flow(messages: u64) -> Flow {
    Flow { messages, batches: messages / 10 * 9, bytes: messages * 110, window_ms: 30_000 }
}

fn figure(name: &str, value: f64, unit: &str) -> Figure {
    Figure { name: name.into(), value, unit: unit.into() }
}

fn settings(pairs: &[(&str, &str)]) -> Vec<Setting> {
    pairs.iter().map(|(name, value)| Setting { name: (*name).into(), value: (*value).into() }).collect()
}

fn grouped(number: u64) -> String {
    encke_bench::report::units::count(number)
}

/// Repeatable random numbers between 0 and 1.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f64 / (1u64 << 24) as f64
    }
}
