//! The planned times of one worker's share of an order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::order::{ClientsSpec, Order, Senders, Size, Traffic};
use crate::random::Rng;

/// One worker of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its number, from 0.
    pub worker: u32,
    /// The number of workers.
    pub workers: u32,
}

/// The batches that one worker is still to send, in the order of their times.
#[derive(Debug)]
pub struct Plan {
    begin_us: u64,
    end_us: Option<u64>,
    kind: Kind,
}

/// A batch that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The number of the sender among this worker's senders.
    pub sender: u64,
    /// The planned send time, in microseconds of the load's clock.
    pub planned_us: u64,
}

#[derive(Debug)]
enum Kind {
    /// Batch `next`, then every `step`-th, until `end`; `next` as well as `end` count those of all workers.
    Steady { next: u64, step: u64, end: u64, batches_per_s: Option<f64>, senders: NextSender },
    /// Each sender has its own next time.
    Each { times: BinaryHeap<Reverse<(u64, u64)>>, pause_us: [u64; 2], rng: Rng },
}

#[derive(Debug)]
enum NextSender {
    InTurn { next: u64, count: u64 },
    Random { count: u64, rng: Rng },
}

impl Plan {
    /// The plan of one worker's share, from `begin_us` on.
    pub fn new(spec: &ClientsSpec, order: &Order, share: Share, begin_us: u64) -> Self {
        let (clients, publishers) = (of_share(spec.clients, share), of_share(spec.publishers, share));
        let duration_ms = match order.size {
            Size::Ms(ms) => Some(order.warm_up_ms + ms),
            Size::Batches(_) => None,
        };
        let end_us = duration_ms.map(|ms| begin_us + ms * 1000);
        let rng = Rng::new(order.traffic.seed, share.worker);
        let kind = match order.traffic.senders {
            Senders::Publishers => {
                let senders = NextSender::InTurn { next: 0, count: publishers };
                steady(order, share, spec.publishers, senders)
            }
            Senders::AnyClient => steady(order, share, spec.clients, NextSender::Random { count: clients, rng }),
            Senders::EachClient(pause_us) => each(clients, pause_us, begin_us, rng),
        };
        Plan { begin_us, end_us, kind }
    }

    /// Takes the next batch if it is due at `now_us`.
    pub fn take(&mut self, now_us: u64) -> Option<Due> {
        let planned_us = self.next_us(now_us).filter(|planned_us| *planned_us <= now_us)?;
        match &mut self.kind {
            Kind::Steady { next, step, senders, .. } => {
                *next += *step;
                Some(Due { sender: senders.choose(), planned_us })
            }
            Kind::Each { times, pause_us: [least, most], rng } => {
                let Reverse((_, sender)) = times.pop()?;
                let pause_us = *least + rng.below(most.saturating_sub(*least) + 1);
                times.push(Reverse((planned_us + pause_us.max(1), sender)));
                Some(Due { sender, planned_us })
            }
        }
    }

    /// The time of the next batch; none if there is none left.
    pub fn next_us(&self, now_us: u64) -> Option<u64> {
        let planned_us = match &self.kind {
            Kind::Steady { next, end, .. } if next >= end => return None,
            Kind::Steady { next, batches_per_s: Some(rate), .. } => {
                self.begin_us + (*next as f64 * 1e6 / rate).round() as u64
            }
            Kind::Steady { .. } => now_us.max(self.begin_us),
            Kind::Each { times, .. } => times.peek().map(|Reverse((planned_us, _))| *planned_us)?,
        };
        // A search's rates are fractional, so the count alone does not determine the end.
        self.end_us.is_none_or(|end_us| planned_us < end_us).then_some(planned_us)
    }

    /// Returns true if batches have planned times. Otherwise they are sent as fast as possible.
    pub fn is_timed(&self) -> bool {
        !matches!(self.kind, Kind::Steady { batches_per_s: None, .. })
    }
}

impl NextSender {
    fn choose(&mut self) -> u64 {
        match self {
            NextSender::InTurn { next, count } => {
                let chosen = *next % *count;
                *next += 1;
                chosen
            }
            NextSender::Random { count, rng } => rng.below(*count),
        }
    }
}

impl Traffic {
    /// Messages per second that are planned; none if they are sent as fast as it goes.
    pub fn messages_per_s(&self, clients: u32) -> Option<f64> {
        match self.senders {
            Senders::EachClient([least, most]) => {
                let mean_s = (least + most) as f64 / 2e6;
                Some(f64::from(clients) * f64::from(self.batch_size) / mean_s.max(1e-6))
            }
            _ => self.batches_per_s.map(|rate| rate * f64::from(self.batch_size)),
        }
    }
}

/// The number of members of a worker's share: those whose number modulo `workers` is the worker's.
pub fn of_share(all: u32, share: Share) -> u64 {
    u64::from(all.saturating_sub(share.worker).div_ceil(share.workers.max(1)))
}

fn steady(order: &Order, share: Share, senders_of_all: u32, senders: NextSender) -> Kind {
    // Workers without a sender send nothing; the others share the batches.
    let active = share.workers.min(senders_of_all);
    let batches_per_s = order.traffic.batches_per_s;
    let end = match (order.size, batches_per_s) {
        _ if share.worker >= active => 0,
        (Size::Batches(batches), _) => batches,
        (Size::Ms(ms), Some(rate)) => (rate * (order.warm_up_ms + ms) as f64 / 1000.0).ceil() as u64,
        (Size::Ms(_), None) => u64::MAX,
    };
    Kind::Steady { next: u64::from(share.worker), step: u64::from(active.max(1)), end, batches_per_s, senders }
}

fn each(clients: u64, pause_us: [u64; 2], begin_us: u64, mut rng: Rng) -> Kind {
    // The first times are spread over one pause, as if it had been going on.
    let first = |sender| Reverse((begin_us + rng.below(pause_us[1] + 1), sender));
    Kind::Each { times: (0..clients).map(first).collect(), pause_us, rng }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{Membership, Recovery, Transport, Trust};

    fn spec(clients: u32, publishers: u32) -> ClientsSpec {
        let membership = Membership { channel: "/a".into(), rooms: 1, per_client: 1, seed: 0, first: 0 };
        ClientsSpec {
            target: String::new(),
            publish_to: None,
            trust: Trust::default(),
            transport: Transport::Websocket,
            recovery: Recovery::default(),
            compress: false,
            streams_per_connection: None,
            clients,
            membership,
            publishers,
            opening_at_once: 1,
            opens_per_s: None,
            reconnect: false,
            no_reply: false,
        }
    }

    /// Everything due until `until_us`, taken in steps of a millisecond.
    fn all(plan: &mut Plan, until_us: u64) -> Vec<Due> {
        let snapshots = (0..=until_us).step_by(1000);
        snapshots.flat_map(|now_us| std::iter::from_fn(|| plan.take(now_us)).collect::<Vec<_>>()).collect()
    }

    const ONE: Share = Share { worker: 0, workers: 1 };

    #[test]
    fn times_are_even_and_do_not_depend_on_when_they_are_taken() {
        let order = Order::sample(Senders::Publishers, Some(1000.0), Size::Ms(10));
        let (mut late, mut soon) = (Plan::new(&spec(5, 1), &order, ONE, 500), Plan::new(&spec(5, 1), &order, ONE, 500));
        let expected: Vec<u64> = (0..10).map(|index| 500 + index * 1000).collect();
        let taken_late: Vec<u64> = std::iter::from_fn(|| late.take(1_000_000)).map(|due| due.planned_us).collect();
        let taken_soon: Vec<u64> = all(&mut soon, 20_000).iter().map(|due| due.planned_us).collect();
        assert_eq!((taken_late, taken_soon), (expected.clone(), expected));
    }

    #[test]
    fn nothing_is_sent_before_its_time_and_nothing_after_the_end() {
        let order = Order::sample(Senders::AnyClient, Some(333.3), Size::Ms(1000));
        let mut plan = Plan::new(&spec(10, 0), &order, ONE, 100);
        assert_eq!(plan.take(99), None);
        let dues = all(&mut plan, 2_000_000);
        assert_eq!(dues.len(), 334);
        assert!(dues.iter().all(|due| due.planned_us < 1_000_100 && due.sender < 10));
        assert_eq!(plan.next_us(2_000_000), None);
    }

    #[test]
    fn workers_share_the_batches_without_gap_or_overlap() {
        let order = Order::sample(Senders::AnyClient, Some(500.0), Size::Batches(101));
        let mut times: Vec<u64> = (0..3)
            .flat_map(|worker| all(&mut Plan::new(&spec(7, 0), &order, Share { worker, workers: 3 }, 0), 1_000_000))
            .map(|due| due.planned_us)
            .collect();
        times.sort_unstable();
        assert_eq!(times, (0..101).map(|index| index * 2000).collect::<Vec<_>>());
    }

    #[test]
    fn a_worker_without_a_publisher_sends_nothing_and_the_others_send_all() {
        let order = Order::sample(Senders::Publishers, Some(100.0), Size::Batches(50));
        let count = |worker| all(&mut Plan::new(&spec(9, 1), &order, Share { worker, workers: 2 }, 0), 1_000_000).len();
        assert_eq!([count(0), count(1)], [50, 0]);
    }

    #[test]
    fn without_a_rate_all_is_due_now() {
        let order = Order::sample(Senders::AnyClient, None, Size::Batches(3));
        let mut plan = Plan::new(&spec(4, 0), &order, ONE, 100);
        assert!(plan.take(50).is_none() && !plan.is_timed());
        let planned: Vec<u64> = std::iter::from_fn(|| plan.take(777)).map(|due| due.planned_us).collect();
        assert_eq!(planned, [777, 777, 777]);
    }

    #[test]
    fn each_client_sends_at_random_intervals_within_the_bounds() {
        let order = Order::sample(Senders::EachClient([50_000, 300_000]), None, Size::Ms(10_000));
        let mut plan = Plan::new(&spec(20, 0), &order, ONE, 0);
        let dues = all(&mut plan, 11_000_000);
        for client in 0..20 {
            let times: Vec<u64> = dues.iter().filter(|due| due.sender == client).map(|due| due.planned_us).collect();
            assert!(times.windows(2).all(|pair| (50_000..=300_000).contains(&(pair[1] - pair[0]))), "{times:?}");
        }
        let planned = order.traffic.messages_per_s(20).expect("timed") * 10.0;
        assert!((dues.len() as f64 / planned - 1.0).abs() < 0.1, "{} of {planned}", dues.len());
    }

    #[test]
    fn shares_add_up() {
        for all in [0, 1, 5, 1000] {
            let sum: u64 = (0..7).map(|worker| of_share(all, Share { worker, workers: 7 })).sum();
            assert_eq!(sum, u64::from(all));
        }
    }
}
