//! The measured cases, the figures shown of each, and the demands on them.

use super::runs::Run;

/// One measurement that all servers go through.
#[derive(Debug)]
pub struct Case {
    /// Its name in files.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// The procedure, in a few sentences.
    pub what: &'static str,
    /// The figures that are shown; the first is the one that the case is about.
    pub rows: &'static [Row],
    /// The least value of the first figure, as a multiple of each rival's.
    pub demanded: &'static [(&'static str, f64)],
}

/// A figure.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The figure's name.
    pub what: &'static str,
    /// Its unit, as [`encke_bench::report::units::figure`] knows them.
    pub unit: &'static str,
    /// Reads the figure from a run.
    pub figure: fn(&Run) -> Option<f64>,
    /// True if the ratio to a rival's figure is meaningful.
    pub compared: bool,
}

/// All cases, in the order of the page.
pub const CASES: &[Case] = &[
    Case {
        name: "chat-max",
        title: "One room: most deliveries per second",
        what: "`encke bench chat --find-max`: 1,000 clients in one room over WebSocket; any of them publishes, all receive it. \
               The highest rate is searched at which nothing is lost, deliveries keep up with the plan, and p99 is \
               at most half a second.",
        rows: &[DELIVERIES, P50, P99, CPU, CORES, MEMORY, LOAD],
        demanded: &[("cometd", 20.0), ("faye", 30.0)],
    },
    Case {
        name: "burst",
        title: "Burst: 2,000 messages to 1,000 clients at once",
        what: "`encke bench chat --messages 2000`: a fifth of the flood of the chat example, two million deliveries, as \
               fast as the server takes them. (With all 10,000 messages CometD and Faye leave their clients without an \
               answer for so long that these give up.) Messages that a server cannot deliver at once take memory.",
        rows: &[DELIVERIES, ELAPSED, LOST, CPU, CORES, MEMORY, LOAD],
        demanded: &[],
    },
    Case {
        name: "rooms-max",
        title: "Rooms over WebSocket: most deliveries per second",
        what: "`encke bench rooms --find-max`: CometD's own load test, 1,000 clients, each in 10 of 100 rooms, messages \
               of 50 bytes in batches of 10, each message to a random room.",
        rows: &[DELIVERIES, P50, P99, CPU, CORES, MEMORY, LOAD],
        demanded: &[],
    },
    Case {
        name: "rooms-rate",
        title: "Rooms over WebSocket: the same load for all",
        what: "`encke bench rooms --rate`: the same rooms at a rate that every server can bear, so that latency and \
               processor time can be compared.",
        rows: &[CPU, DELIVERIES, P50, P99, LATEST, CORES, MEMORY],
        demanded: &[],
    },
    Case {
        name: "polling-max",
        title: "Rooms over long-polling: most deliveries per second",
        what: "`encke bench rooms --transport long-polling --find-max`: the same rooms, each client with one connection \
               for its held connect. Bun has no long-polling.",
        rows: &[DELIVERIES, P50, P99, CPU, CORES, MEMORY, LOAD],
        demanded: &[("cometd", 8.0)],
    },
    Case {
        name: "random-channel",
        title: "Random channels",
        what: "`encke bench random-channel`: each client has a separate channel; messages go to any of them, one \
               receiver each. It is the framework comparison's test.",
        rows: &[DELIVERIES, P50, P99, CPU, CORES, MEMORY, LOST],
        demanded: &[],
    },
    Case {
        name: "idle",
        title: "Idle sessions",
        what: "Idle sessions over WebSocket, each with its own channel: how much the server's resident \
               memory grew for each of them. Before that, as many are opened and closed, few at a time. CometD runs this one \
               with a heap that collects often and returns free memory, as a fixed heap would show no growth.",
        rows: &[PER_SESSION, CLIENTS, MEMORY],
        demanded: &[],
    },
];

const DELIVERIES: Row =
    Row { what: "deliveries/s", unit: "", figure: |run| Some(run.trial()?.incoming.messages_per_s()), compared: true };
const CPU: Row = Row {
    what: "server's processor time a delivery",
    unit: "ns",
    figure: |run| Some(run.trial()?.server?.ns_per_delivery).filter(|ns| *ns > 0.0),
    compared: true,
};
const P50: Row = Row {
    what: "p50 latency",
    unit: "µs",
    figure: |run| Some(run.trial()?.latency.as_ref()?.p50_us as f64),
    compared: true,
};
const P99: Row = Row { what: "p99 latency", figure: |run| Some(run.trial()?.latency.as_ref()?.p99_us as f64), ..P50 };
const LATEST: Row =
    Row { what: "highest latency", figure: |run| Some(run.trial()?.latency.as_ref()?.max_us as f64), ..P50 };
const CORES: Row =
    Row { what: "server, cores", unit: "", figure: |run| Some(run.trial()?.server?.cores), compared: false };
const LOAD: Row = Row { what: "load, cores", figure: |run| Some(run.trial()?.load_cores), ..CORES };
const MEMORY: Row = Row {
    what: "server's highest memory",
    unit: "B",
    figure: |run| {
        run.trial()?;
        run.report.trials.iter().filter_map(|trial| Some(trial.server?.rss_peak_bytes as f64)).reduce(f64::max)
    },
    compared: true,
};
const ELAPSED: Row = Row {
    what: "until all had arrived",
    unit: "ms",
    figure: |run| Some(run.trial()?.incoming.window_ms as f64),
    compared: true,
};
const LOST: Row = Row { what: "lost", unit: "", figure: |run| Some(run.trial()?.faults.lost as f64), compared: false };
const PER_SESSION: Row = Row {
    what: "memory a session",
    unit: "B",
    figure: |run| {
        let figures = &run.trial()?.figures;
        Some(figures.iter().find(|figure| figure.name == "resident memory per session")?.value)
    },
    compared: true,
};
const CLIENTS: Row =
    Row { what: "sessions", unit: "", figure: |run| Some(run.trial()?.clients as f64), compared: false };
