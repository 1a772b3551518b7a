//! The verdict on a trial.

use std::time::Duration;

use crate::order::{ClientsSpec, Order, Recipients, Size};
use crate::outcome::{CutShort, Outcome};
use crate::report::units::{count, micros, number, span};
use crate::report::{Latency, Trial};

/// The limits of a trial, besides that everything arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The highest p99 that a search lets pass.
    pub p99_max: Option<Duration>,
}

/// Fills a trial with the outcome of its order, and judges it. The load has at most `cores` cores.
pub fn judged(
    spec: &ClientsSpec,
    order: &Order,
    outcome: Outcome,
    latency: Option<Latency>,
    limits: Limits,
    cores: f64,
) -> Trial {
    let mut reasons = reasons(spec, order, &outcome, latency.as_ref(), limits);
    let load_cores = outcome.usage.cpu_s / outcome.usage.window_s.max(1e-6);
    let is_full = load_cores > cores * FULL;
    let load_is_limit = is_full || load_behind(spec, order, &outcome).is_some();
    if is_full && !reasons.is_empty() {
        reasons.push(format!("The load had no core left ({}), so it may have been the limit", number(load_cores)));
    }
    let reasons: Vec<String> = reasons.into_iter().map(|reason| reason + ".").collect();
    let mut faults = outcome.faults;
    faults.lost += outcome.refused;
    Trial {
        clients: u64::from(spec.clients),
        planned_per_s: order.traffic.messages_per_s(spec.clients),
        expected: outcome.expected,
        faults,
        outgoing: outcome.outgoing,
        incoming: outcome.incoming,
        latency,
        load_cores,
        load_is_limit,
        holds: reasons.is_empty(),
        reasons,
        ..Trial::default()
    }
}

fn reasons(
    spec: &ClientsSpec,
    order: &Order,
    outcome: &Outcome,
    latency: Option<&Latency>,
    limits: Limits,
) -> Vec<String> {
    let mut reasons = Vec::new();
    let faults = outcome.faults;
    let why = outcome.first_error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default();
    for (number, what) in [
        (faults.lost, "never arrived".to_string()),
        (faults.doubled, "arrived more than once".into()),
        (faults.reordered, "arrived out of order".into()),
        (faults.misdelivered, "arrived at sessions that had not subscribed".into()),
        (faults.late, format!("took longer than {}", micros(order.late_after_us as f64))),
    ] {
        if number > 0 {
            reasons.push(format!("{} of {} messages {what}", count(number), count(outcome.expected)));
        }
    }
    if outcome.refused > 0 {
        reasons.push(format!("{} messages could not be sent{why}", count(outcome.refused)));
    }
    if outcome.denied > 0 {
        reasons.push(format!("{} publications were refused{why}", count(outcome.denied)));
    }
    if faults.dropped_sessions > 0 {
        reasons.push(format!("{} sessions were dropped{why}", count(faults.dropped_sessions)));
    }
    match outcome.cut_short {
        Some(CutShort::Hopeless) => {
            reasons.push(format!("given up at a latency of {}", micros(outcome.latencies.max_us() as f64)));
        }
        Some(CutShort::Asked) => return reasons,
        // Lost messages already mean that the server did not keep up.
        None if faults.lost > 0 => {}
        None => reasons.extend(load_behind(spec, order, outcome).or_else(|| server_behind(spec, order, outcome))),
    }
    if reasons.is_empty()
        && let Size::Ms(ms @ 1..) = order.size
        && (latency.is_none() || outcome.incoming.messages == 0)
    {
        reasons.push(format!("nothing was measured: nothing arrived in the window of {}", span(ms)));
    }
    if let (Some(max), Some(latency)) = (limits.p99_max, latency) {
        let max_us = max.as_micros() as u64;
        if latency.p99_us > max_us {
            reasons.push(format!("p99 is {}, over {}", micros(latency.p99_us as f64), micros(max_us as f64)));
        }
    }
    reasons
}

/// The reason that the load itself fell behind its plan in the measured window: it was halted for most of it, as on a
/// machine with too few cores, or it sent too little.
fn load_behind(spec: &ClientsSpec, order: &Order, outcome: &Outcome) -> Option<String> {
    let (planned_per_s, Size::Ms(ms)) = (order.traffic.messages_per_s(spec.clients)?, order.size) else { return None };
    if outcome.cut_short.is_some() {
        return None;
    }
    let window_ms = outcome.outgoing.window_ms;
    if window_ms < ms / 2 {
        let (measured, whole) = (span(window_ms), span(ms));
        return Some(format!("the load itself stayed behind: halted meanwhile, it measured {measured} of {whole}"));
    }
    let window_s = window_ms as f64 / 1000.0;
    let (sent, planned) = (outcome.outgoing.messages as f64, planned_per_s * window_s);
    // Random pauses make a random rate.
    let random_spread = if order.traffic.batches_per_s.is_none() { planned.sqrt() * 3.0 } else { 0.0 };
    if sent + edges(order) + random_spread < planned * ON_TIME {
        let (sent_per_s, planned_per_s) = (number(sent / window_s.max(1e-9)), number(planned_per_s));
        return Some(format!("the load itself stayed behind: it sent {sent_per_s}/s of {planned_per_s}/s"));
    }
    None
}

/// The reason that the server fell behind a planned rate in the measured window.
fn server_behind(spec: &ClientsSpec, order: &Order, outcome: &Outcome) -> Option<String> {
    let (Some(_), Size::Ms(_)) = (order.traffic.messages_per_s(spec.clients), order.size) else { return None };
    if order.cuts.is_some() {
        // Offline clients receive messages later.
        return None;
    }
    let window_s = outcome.outgoing.window_ms as f64 / 1000.0;
    let sent = outcome.outgoing.messages as f64;
    let fan_out = outcome.expected as f64 / outcome.sent.max(1) as f64;
    // Rooms differ in size, so random rooms make a random fan-out.
    let chosen_at_random = order.traffic.recipients == Recipients::AnyRoom && spec.membership.rooms > 1;
    let spread = if chosen_at_random { sent.sqrt() * ROOM_SPREAD } else { 0.0 };
    let received = outcome.incoming.messages as f64;
    if received + (edges(order) + spread) * fan_out < sent * fan_out * ON_TIME {
        let (received, due) = (received / window_s.max(1e-9), sent * fan_out / window_s.max(1e-9));
        return Some(format!("did not keep up: {}/s arrived of {}/s", number(received), number(due)));
    }
    None
}

/// Messages by which a window may miss its plan: its edges cut through batches.
fn edges(order: &Order) -> f64 {
    2.0 * f64::from(order.traffic.batch_size)
}

/// The share of its cores from which on the load counts as full.
const FULL: f64 = 0.95;
/// Below 1, since the messages under way at the window's edges vary.
const ON_TIME: f64 = 0.98;
/// Three times the spread of a room's size in a share of it, for rooms of a hundred and more.
const ROOM_SPREAD: f64 = 0.3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{Membership, Recovery, Senders, Traffic, Transport, Trust};
    use crate::outcome::Usage;
    use crate::report::{Faults, Flow};

    fn spec() -> ClientsSpec {
        ClientsSpec {
            target: String::new(),
            publish_to: None,
            trust: Trust::default(),
            transport: Transport::Websocket,
            recovery: Recovery::default(),
            compress: false,
            streams_per_connection: None,
            clients: 100,
            membership: Membership { channel: "/a".into(), rooms: 1, per_client: 1, seed: 0, first: 0 },
            publishers: 1,
            opening_at_once: 1,
            opens_per_s: None,
            reconnect: false,
            no_reply: false,
        }
    }

    fn order() -> Order {
        Order::sample(Senders::Publishers, Some(1000.0), Size::Ms(1000))
    }

    fn outcome(sent: u64, received: u64) -> Outcome {
        let flow = |messages| Flow { messages, batches: 1, bytes: 1, window_ms: 1000 };
        Outcome {
            expected: sent * 100,
            outgoing: flow(sent),
            incoming: flow(received),
            sent,
            received,
            ..Outcome::default()
        }
    }

    fn reasons_of(outcome: Outcome, p99_us: u64, limits: Limits) -> Vec<String> {
        let latency = Latency { count: 1, p99_us, ..Latency::default() };
        let trial = judged(&spec(), &order(), outcome, Some(latency), limits, 1.0);
        assert_eq!(trial.holds, trial.reasons.is_empty());
        trial.reasons
    }

    #[test]
    fn deliveries_at_the_planned_rate_hold() {
        assert!(reasons_of(outcome(1000, 100_000), 5, Limits::default()).is_empty());
        assert!(reasons_of(outcome(1000, 98_000), 5, Limits::default()).is_empty());
    }

    #[test]
    fn each_fault_is_a_reason() {
        let faults = Faults { lost: 1, doubled: 2, reordered: 3, misdelivered: 4, late: 5, dropped_sessions: 6 };
        let error = Some("closed the connection".to_string());
        let reasons =
            reasons_of(Outcome { faults, first_error: error, ..outcome(1000, 100_000) }, 5, Limits::default());
        assert_eq!(
            reasons,
            [
                "1 of 100,000 messages never arrived.",
                "2 of 100,000 messages arrived more than once.",
                "3 of 100,000 messages arrived out of order.",
                "4 of 100,000 messages arrived at sessions that had not subscribed.",
                "5 of 100,000 messages took longer than 1 ms.",
                "6 sessions were dropped (closed the connection).",
            ]
        );
    }

    #[test]
    fn a_slow_server_and_a_slow_load_are_distinguished() {
        let server = reasons_of(outcome(1000, 90_000), 5, Limits::default());
        assert_eq!(server, ["did not keep up: 90,000/s arrived of 100,000/s."]);
        let load = reasons_of(outcome(900, 90_000), 5, Limits::default());
        assert_eq!(load, ["the load itself stayed behind: it sent 900/s of 1,000/s."]);
    }

    #[test]
    fn a_load_that_was_halted_for_most_of_its_window_does_not_judge_the_server() {
        // A thousand messages within 10 ms, of which none had the time to arrive.
        let mut halted = outcome(1000, 0);
        halted.outgoing.window_ms = 10;
        let trial = judged(&spec(), &order(), halted, None, Limits::default(), 1.0);
        assert_eq!(trial.reasons, ["the load itself stayed behind: halted meanwhile, it measured 10 ms of 1 s."]);
        assert!(trial.load_is_limit);
    }

    #[test]
    fn a_search_has_a_bound_for_the_latency() {
        let limits = Limits { p99_max: Some(Duration::from_millis(100)) };
        assert!(reasons_of(outcome(1000, 100_000), 100_000, limits).is_empty());
        assert_eq!(reasons_of(outcome(1000, 100_000), 101_000, limits), ["p99 is 101 ms, over 100 ms."]);
    }

    #[test]
    fn an_interrupted_trial_is_judged_by_its_faults_only() {
        let cut = Outcome { cut_short: Some(CutShort::Asked), ..outcome(10, 500) };
        assert!(reasons_of(cut, 5, Limits::default()).is_empty());
        let faults = Faults { doubled: 1, ..Faults::default() };
        let cut = Outcome { cut_short: Some(CutShort::Asked), faults, ..outcome(10, 500) };
        assert_eq!(reasons_of(cut, 5, Limits::default()).len(), 1);
    }

    #[test]
    fn publications_that_the_server_refused_are_a_reason_though_they_arrived() {
        let error = Some("/a refused: 507:/a:history_not_stored".to_string());
        let denied = Outcome { denied: 3, first_error: error, ..outcome(1000, 100_000) };
        let reasons = reasons_of(denied, 5, Limits::default());
        assert_eq!(reasons, ["3 publications were refused (/a refused: 507:/a:history_not_stored)."]);
    }

    #[test]
    fn refused_messages_count_as_lost() {
        let refused = Outcome { refused: 7, ..outcome(1000, 100_000) };
        assert_eq!(judged(&spec(), &order(), refused, None, Limits::default(), 1.0).faults.lost, 7);
    }

    #[test]
    fn a_trial_in_which_nothing_was_measured_does_not_hold() {
        let bounded = Limits { p99_max: Some(Duration::from_micros(5)) };
        for limits in [Limits::default(), bounded] {
            // One message a second: it fell into the warm-up, and the window is within its edges.
            let order = Order { traffic: Traffic { batches_per_s: Some(1.0), ..order().traffic }, ..order() };
            let trial = judged(&spec(), &order, Outcome { sent: 1, ..outcome(0, 0) }, None, limits, 1.0);
            assert_eq!(trial.reasons, ["nothing was measured: nothing arrived in the window of 1 s."]);
            assert!(!trial.holds);
        }
    }

    #[test]
    fn a_warm_up_has_nothing_to_be_measured() {
        let order = Order { size: Size::Ms(0), warm_up_ms: 100, ..order() };
        let nothing = Outcome { outgoing: Flow::default(), ..outcome(0, 0) };
        assert!(judged(&spec(), &order, nothing, None, Limits::default(), 1.0).holds);
    }

    #[test]
    fn a_load_without_a_core_left_is_reported_in_a_failed_trial_and_noted_in_a_held_one() {
        let full = Usage { window_s: 1.0, cpu_s: 0.96 };
        let latency = || Some(Latency { count: 1, ..Latency::default() });
        let at = |messages, usage, cores| {
            let outcome = Outcome { usage, ..outcome(1000, messages) };
            judged(&spec(), &order(), outcome, latency(), Limits::default(), cores)
        };
        let held = at(100_000, full, 1.0);
        assert!(held.holds && held.load_is_limit);
        assert!(!at(100_000, full, 2.0).load_is_limit, "a second core was free");
        let failed = at(90_000, full, 1.0);
        assert_eq!(failed.reasons[1], "The load had no core left (0.96), so it may have been the limit.");
        assert!(!at(90_000, Usage { cpu_s: 0.5, ..full }, 1.0).load_is_limit);
    }

    #[test]
    fn a_load_that_stays_behind_is_the_limit_whatever_it_uses() {
        let behind = outcome(900, 90_000);
        assert!(judged(&spec(), &order(), behind, None, Limits::default(), 1.0).load_is_limit);
    }
}
