//! `/service/demo/order`: an order service as the one of "Scaling Node.js" (2012), with the same orders and replies as the
//! example `order_service` of `encke`. A caller may also ask for a delay, a failure, or no answer at all.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use encke::{Data, Failure};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

/// Counts the orders.
#[derive(Debug, Default)]
pub(super) struct Orders(AtomicU64);

/// An order of several executions.
#[derive(Debug, Deserialize)]
pub(super) struct Order {
    /// Its number at the client.
    request: u64,
    /// The client's time, which the reply returns.
    #[serde(default)]
    timestamp: u64,
    #[serde(default)]
    execs: Vec<Exec>,
    #[serde(default)]
    ask: Ask,
}

/// One execution.
#[derive(Debug, Deserialize)]
struct Exec {
    #[serde(default)]
    symbol: String,
    qty: u32,
}

/// The behaviour that the caller asks for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Ask {
    /// The answer comes after this time, in milliseconds.
    delay_ms: u64,
    /// The order is refused.
    fails: bool,
    /// No answer comes: the server ends the call after its `call_timeout_ms`.
    never: bool,
}

/// The reply to an order.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Receipt {
    request: u64,
    timestamp: u64,
    /// The number that the service gives it.
    order: u64,
    shares: u64,
}

impl Orders {
    /// Answers an order.
    pub(super) async fn answer(&self, order: Order) -> Result<Data<Receipt>, Failure> {
        let Order { request, timestamp, execs, ask } = order;
        if ask.delay_ms > DELAY_MS_MAX {
            return Err(Failure::new("delay_too_long", &format!("a delay is at most {DELAY_MS_MAX} ms")));
        }
        if ask.never {
            std::future::pending::<()>().await;
        }
        // Without a delay the answer leaves at once, on the thread of the caller's shard.
        if ask.delay_ms > 0 {
            sleep(Duration::from_millis(ask.delay_ms)).await;
        }
        if ask.fails {
            return Err(Failure::new("refused", "the order was refused, as asked for"));
        }
        if let Some(exec) = execs.iter().find(|exec| exec.qty == 0) {
            return Err(Failure::new("no_shares", &format!("an execution of {:?} has no shares", exec.symbol)));
        }
        let shares = execs.iter().map(|exec| u64::from(exec.qty)).sum();
        let order = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(Data(Receipt { request, timestamp, order, shares }))
    }
}

/// The longest delay that a caller may ask for, in milliseconds.
const DELAY_MS_MAX: u64 = 20_000;

#[cfg(test)]
mod tests {
    use encke::{Call, FromCall};
    use tokio::time::timeout;

    use super::*;

    fn order(data: &str) -> Result<Order, Failure> {
        Data::from_call(&Call::new("session", "/service/demo/order", data).calling()).map(|Data(order)| order)
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(future)
    }

    fn answer(orders: &Orders, data: &str) -> Result<Receipt, String> {
        let answered = run(orders.answer(order(data).expect("an order")));
        answered.map(|Data(receipt)| receipt).map_err(|failure| failure.data().to_owned())
    }

    #[test]
    fn a_receipt_has_the_numbers_of_both_sides_and_all_shares() {
        let orders = Orders::default();
        let of_the_post = r#"{"request":7,"rows":2,"timestamp":99,"address":"x","execs":[
            {"sequence":0,"symbol":"QQQ","qty":30,"price":12,"transaction":"STO"},{"symbol":"QQQ","qty":12}]}"#;
        let receipt = answer(&orders, of_the_post);
        assert_eq!(receipt, Ok(Receipt { request: 7, timestamp: 99, order: 1, shares: 42 }));
        let delayed = answer(&orders, r#"{"request":8,"ask":{"delay_ms":1}}"#);
        assert_eq!(delayed, Ok(Receipt { request: 8, timestamp: 0, order: 2, shares: 0 }));
    }

    #[test]
    fn an_order_that_is_wrong_or_asks_for_it_fails() {
        let orders = Orders::default();
        for (data, class) in [
            (r#"{"request":1,"ask":{"fails":true}}"#, "refused"),
            (r#"{"request":1,"ask":{"delay_ms":20001}}"#, "delay_too_long"),
            (r#"{"request":1,"execs":[{"symbol":"QQQ","qty":0}]}"#, "no_shares"),
        ] {
            assert!(answer(&orders, data).expect_err(data).contains(class), "{data}");
        }
        for data in ["{}", "7", r#"{"request":-1}"#, r#"{"request":1,"execs":[{}]}"#, r#"{"request":1,"ask":1}"#] {
            assert!(order(data).is_err(), "{data}");
        }
    }

    #[test]
    fn an_order_that_asks_for_no_answer_gets_none() {
        let order = order(r#"{"request":1,"ask":{"never":true}}"#).expect("an order");
        let orders = Orders::default();
        assert!(run(async { timeout(Duration::from_millis(1), orders.answer(order)).await }).is_err());
    }
}
