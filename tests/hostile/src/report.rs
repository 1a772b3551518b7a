//! The result of a run, its verdict and its report.

use std::fmt;
use std::time::Duration;

use crate::attack::mib;
use crate::control::Curve;

/// A run of a scenario.
#[derive(Clone, Debug)]
pub struct Report {
    /// The scenario's name.
    pub name: String,
    /// The number of shards of the server.
    pub shards: usize,
    /// The amount of the attack; 0 if it did not take place.
    pub amount: u64,
    /// A description of the attack.
    pub did: String,
    /// The latency of the witnesses.
    pub latency: Latency,
    /// The latency of others, who compete with the attackers for a shared limit.
    pub others: Latency,
    /// The server's memory.
    pub memory: Memory,
    /// The machine's share of the time of the attack, 0 to 1: the time that the server, the witnesses or a bare timer
    /// lost to it.
    pub machine: f64,
    /// Broken promises other than latency.
    pub broken: Vec<String>,
}

/// The way of a message or of a request, in times since zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trip {
    /// Its planned departure.
    pub left: Duration,
    /// Its arrival.
    pub came: Duration,
}

/// The latency of the witnesses' messages, or of the requests of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// The number of messages.
    pub messages: usize,
    /// The 99th percentile.
    pub p99: Duration,
    /// The same without the delay of the machine.
    pub judged: Duration,
    /// The 99th percentile at the server that nobody attacks.
    pub alone: Duration,
}

/// The resident memory of the server, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Before the attack, with all witnesses.
    pub before: u64,
    /// The peak.
    pub peak: u64,
    /// The limit of the peak.
    pub peak_max: u64,
    /// After the attackers had gone and it had settled, or had not in time.
    pub after: u64,
    /// The limit after settling.
    pub after_max: u64,
    /// The time until it had settled.
    pub settled: Option<Duration>,
    /// The most bytes that the kernel held for clients.
    pub kernel: u64,
    /// The bytes it held after settling.
    pub kernel_after: u64,
    /// The limit of these bytes.
    pub kernel_max: Option<u64>,
}

/// The verdict on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The server held all promises.
    Passed,
    /// The witnesses were late, on a machine with too little processor time to decide whether the server caused it.
    NotMeasured,
    /// A promise was broken.
    Failed,
}

impl Trip {
    /// The time it took.
    pub fn time(self) -> Duration {
        self.came.saturating_sub(self.left)
    }
}

impl Latency {
    /// The latency of all messages. `alone` has the times of those at the server that nobody attacks.
    pub fn of(trips: impl Iterator<Item = Trip>, mut alone: Vec<Duration>, machine: &Curve) -> Latency {
        let (mut taken, mut judged) = (Vec::new(), Vec::new());
        for trip in trips {
            taken.push(trip.time());
            judged.push(trip.time() - machine.between(trip.left, trip.came));
        }
        Latency { messages: taken.len(), p99: p99(&mut taken), judged: p99(&mut judged), alone: p99(&mut alone) }
    }

    /// The 99th percentile as a multiple of that at the server that nobody attacks.
    fn times_alone(&self) -> f64 {
        self.p99.as_secs_f64() / self.alone.as_secs_f64().max(1e-6)
    }

    /// The complaint if it is longer than `most`, and much longer than at the server that nobody attacks.
    fn lateness(&self, of: &str, most: Duration) -> Option<String> {
        (self.judged > most && self.times_alone() > ALONE_TIMES_MAX).then(|| format!("{of} {self}"))
    }
}

impl Memory {
    /// The violations in it.
    fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        if self.peak > self.peak_max {
            complaints.push(format!("{} resident, at most {} allowed", mib(self.peak), mib(self.peak_max)));
        }
        if self.settled.is_none() {
            complaints.push(format!("{} still resident, at most {} allowed", mib(self.after), mib(self.after_max)));
        }
        if self.kernel_max.is_some() && self.kernel_after > KERNEL_NOISE_BYTES {
            complaints.push(format!("the kernel still holds {}", mib(self.kernel_after)));
        }
        if let Some(kernel_max) = self.kernel_max.filter(|max| self.kernel > *max) {
            complaints.push(format!("the kernel held {}, at most {} allowed", mib(self.kernel), mib(kernel_max)));
        }
        complaints
    }
}

impl Report {
    /// All violations, including latency.
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = self.broken.clone();
        if self.is_idle() {
            complaints.push(format!("the attackers did nothing: {}", self.did));
        }
        complaints.extend(self.memory.complaints());
        complaints.extend(self.lateness());
        complaints
    }

    /// The verdict.
    pub fn verdict(&self) -> Verdict {
        if self.complaints().is_empty() {
            Verdict::Passed
        } else if self.is_only_late() && self.machine > MACHINE_SHARE_MAX {
            Verdict::NotMeasured
        } else {
            Verdict::Failed
        }
    }

    /// The first violation that no second run excuses; see `scripts/final-failures.txt`.
    pub fn final_complaint(&self) -> Option<String> {
        self.complaints().into_iter().find(|complaint| is_final(complaint))
    }

    /// True if the attackers did nothing, and nothing else says why.
    pub fn is_idle(&self) -> bool {
        self.amount == 0 && self.broken.is_empty()
    }

    /// True if latency is the only violation.
    pub fn is_only_late(&self) -> bool {
        let late = self.lateness().count();
        late > 0 && self.complaints().len() == late
    }

    fn lateness(&self) -> impl Iterator<Item = String> {
        self.latency.lateness("witnesses'", P99_MAX).into_iter().chain(self.others.lateness("others'", OTHERS_P99_MAX))
    }

    /// The figures in one line.
    pub fn figures(&self) -> String {
        let Memory { before, peak, peak_max, after, after_max, settled, kernel, kernel_max, .. } = self.memory;
        let kernel = kernel_max.map(|max| format!("; kernel {} of {}", mib(kernel), mib(max))).unwrap_or_default();
        let others = match self.others {
            Latency { messages: 0, .. } => String::new(),
            others => format!("; {} requests of others, {others}", others.messages),
        };
        let settled = settled.map_or("not in time".into(), |time| format!("in {:.1} s", time.as_secs_f64()));
        format!(
            "{}; {} messages, {}{others}; resident {} → {} (of {}) → {} (of {}) {settled}{kernel}; machine {:.0} %",
            self.did,
            self.latency.messages,
            self.latency,
            mib(before),
            mib(peak),
            mib(peak_max),
            mib(after),
            mib(after_max),
            self.machine * 100.0,
        )
    }
}

impl Report {
    /// The figures in a row of the table.
    pub fn row(&self) -> String {
        let Memory { peak, peak_max, after, after_max, .. } = self.memory;
        let [peak, peak_max, after, after_max] = [peak, peak_max, after, after_max].map(|bytes| bytes >> 20);
        let word = self.verdict().word();
        let late = [self.latency, self.others].map(|latency| match latency.messages {
            0 => format!("{:13}", ""),
            _ => format!("{:6} {:6.1}", latency.p99.as_millis(), latency.times_alone()),
        });
        let [witnesses, others] = late;
        format!(
            "{:22} {:6}  {word:12} {witnesses} {others}  {peak:8} {peak_max:4} {after:9} {after_max:4}",
            self.name, self.shards
        )
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p99, judged, alone] = [self.p99, self.judged, self.alone].map(|time| time.as_millis());
        write!(
            formatter,
            "p99 {p99} ms ({judged} the server's), {:.1} × the {alone} ms where nobody attacks",
            self.times_alone()
        )
    }
}

impl Verdict {
    /// The verdict in one word.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::NotMeasured => "not measured",
            Verdict::Failed => "FAILED",
        }
    }
}

/// True if a complaint contains one of the words of failures that are never retried.
pub fn is_final(complaint: &str) -> bool {
    let words = |text: &str| {
        let words = text.split(|character: char| !character.is_alphanumeric() && character != '_');
        let words: Vec<String> = words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
        format!(" {} ", words.join(" "))
    };
    let complaint = words(complaint);
    let phrases = FINAL_FAILURES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    phrases.map(words).any(|phrase| complaint.contains(&phrase))
}

/// The words, which all suites share.
const FINAL_FAILURES: &str = include_str!("../../../scripts/final-failures.txt");

/// The 99th percentile.
fn p99(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    (times.len() * 99).div_ceil(100).checked_sub(1).map_or(Duration::ZERO, |index| times[index])
}

/// The limit of the 99th percentile of a witness's messages.
const P99_MAX: Duration = Duration::from_secs(1);
/// The limit of that of the requests of others, who compete for a shared limit.
const OTHERS_P99_MAX: Duration = Duration::from_millis(250);
/// A longer one may be this many times that at the server that nobody attacks.
const ALONE_TIMES_MAX: f64 = 3.0;
/// Bytes that are on their way to healthy clients at any time.
pub const KERNEL_NOISE_BYTES: u64 = 1 << 20;
/// The machine's share above which latency is not judged.
const MACHINE_SHARE_MAX: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

    fn report(judged_ms: u64, machine: f64, broken: &[&str]) -> Report {
        let judged = Duration::from_millis(judged_ms);
        let latency = Latency { messages: 9, p99: Duration::from_secs(3), judged, alone: Duration::from_millis(900) };
        let others = Latency::default();
        let memory = Memory { settled: Some(Duration::ZERO), ..Memory::default() };
        let broken = broken.iter().map(|text| text.to_string()).collect();
        Report { name: "a".into(), shards: 1, amount: 1, did: String::new(), latency, others, memory, machine, broken }
    }

    #[test]
    fn lateness_is_the_servers_unless_the_machine_took_most_of_the_time() {
        assert_eq!(report(900, 0.9, &[]).verdict(), Verdict::Passed);
        assert_eq!(report(1100, 0.2, &[]).verdict(), Verdict::Failed);
        assert_eq!(report(1100, 0.9, &[]).verdict(), Verdict::NotMeasured);
        assert_eq!(report(1100, 0.9, &["lost"]).verdict(), Verdict::Failed);
    }

    #[test]
    fn lateness_is_not_the_servers_where_a_server_that_nobody_attacks_is_as_late() {
        let late = report(1100, 0.2, &[]);
        let alone = |alone_ms| Latency { alone: Duration::from_millis(alone_ms), ..late.latency };
        assert_eq!(Report { latency: alone(999), ..late.clone() }.verdict(), Verdict::Failed);
        assert_eq!(Report { latency: alone(1000), ..late.clone() }.verdict(), Verdict::Passed);
        let others = |judged_ms| {
            let others = Latency { judged: Duration::from_millis(judged_ms), ..late.latency };
            Report { latency: Latency::default(), others, ..late.clone() }
        };
        assert_eq!((others(251).verdict(), others(251).is_only_late()), (Verdict::Failed, true));
        assert_eq!(others(250).verdict(), Verdict::Passed, "small times are shown, and no failure");
    }

    #[test]
    fn attackers_that_did_nothing_are_a_failure_that_says_so() {
        let idle = Report { amount: 0, did: "0 calls".into(), ..report(0, 0.9, &[]) };
        assert_eq!(
            (idle.verdict(), idle.complaints()),
            (Verdict::Failed, vec!["the attackers did nothing: 0 calls".into()])
        );
        assert_eq!(idle.final_complaint(), None, "it runs once more");
        let broken = Report { amount: 0, ..report(0, 0.9, &["an attacker: closed"]) };
        assert_eq!(broken.complaints(), ["an attacker: closed"]);
    }

    #[test]
    fn memory_has_exact_bounds_whatever_the_machine_does() {
        let memory = Memory { peak: 11, peak_max: 10, settled: Some(Duration::ZERO), ..Memory::default() };
        let over = Report { memory, ..report(0, 0.9, &[]) };
        assert_eq!(over.verdict(), Verdict::Failed);
        let stays = Report { memory: Memory::default(), ..report(0, 0.9, &[]) };
        assert_eq!(stays.verdict(), Verdict::Failed);
    }

    #[test]
    fn a_violation_that_speaks_of_loss_is_final_and_others_are_not() {
        for complaint in
            ["got message 7 in place of 5", "3 messages were LOST.", "a publication arrived more  than once"]
        {
            assert_eq!(report(0, 0.0, &["slow", complaint]).final_complaint().as_deref(), Some(complaint));
        }
        assert_eq!(report(2000, 0.0, &["a glossary", "never", "the_lost_one"]).final_complaint(), None);
    }

    #[test]
    fn of_a_hundred_times_the_last_may_be_long() {
        let mut times: Vec<Duration> = (1..=100).rev().map(Duration::from_secs).collect();
        assert_eq!(p99(&mut times), Duration::from_secs(99));
        assert_eq!(p99(&mut []), Duration::ZERO);
    }
}
