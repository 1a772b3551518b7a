//! `encke bench request-reply` against the order service, an example of the crate `encke`.

use std::sync::Arc;

use crate::program::run;

#[expect(dead_code, reason = "its main is not called")]
#[path = "../../../encke/examples/order_service.rs"]
mod example;

#[test]
fn request_reply_measures_the_order_service() {
    let running = example::server(Arc::default()).listen(([127, 0, 0, 1], 0).into()).start().expect("starts");
    let url = format!("http://{}", running.address());
    let line = "request-reply --clients 10 --channel /service/order --duration 1s --warm-up 300ms --csv --quiet";
    let (code, csv, printed) = run(&url, line);
    assert_eq!(code, Some(0), "{printed}");
    let answers = csv.lines().nth(1).and_then(|row| row.rsplit(',').next()?.parse::<u64>().ok());
    assert!(answers.is_some_and(|answers| answers > 20), "{csv}");
    running.handle().drain();
    running.join();
}
