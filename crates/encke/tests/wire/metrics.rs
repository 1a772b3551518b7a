//! `/metrics` with the metrics of the program around the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use encke::Metric;

use crate::common::{TestServer, settings};

#[test]
fn a_program_adds_its_metrics_to_those_of_the_server() {
    let server = TestServer::start(settings());
    let done = Arc::new(AtomicU64::new(0));
    let read = done.clone();
    server.handle.add_metrics(move || {
        let jobs = Metric::counter("shop_jobs", "Jobs done.").with(&[("queue", "a\"b"), ("kind", "x")], 3);
        vec![jobs.with(&[("queue", "c"), ("kind", "y")], read.load(Ordering::Relaxed))]
    });
    server.handle.add_metrics(|| vec![Metric::gauge("shop_workers", "Workers.").with(&[], 2)]);
    done.store(7, Ordering::Relaxed);
    let page = server.http().get("/metrics").text().to_string();
    for line in [
        "# HELP shop_jobs Jobs done\n# TYPE shop_jobs counter\n",
        "shop_jobs_total{queue=\"a\\\"b\",kind=\"x\"} 3\n",
        "shop_jobs_total{queue=\"c\",kind=\"y\"} 7\n",
        "# TYPE shop_workers gauge\nshop_workers 2\n",
        "encke_sessions 0\n",
    ] {
        assert!(page.contains(line), "no {line} in {page}");
    }
}
