//! Tests of nodes on an engine in memory, which sends in order and confirms when the test says so.

use std::collections::{HashMap, HashSet, VecDeque};

use encke_core::Side;

use super::*;
use crate::envelope::tests::frame_of;

const LIMITS: NodeLimits = NodeLimits {
    pending_bytes_max: 10_000,
    incoming_bytes_max: 12_000,
    leave_delay_ms: 5_000,
    shared_from: 64,
    subscriptions_max: 1_000,
    reply_delay_max_ms: 1_000,
    return_delay_ms: 500,
};

struct Member {
    node: Node,
    interest: Interest,
    /// The engine's side: subjects by key, requested confirmations, whether it is there.
    subscriptions: HashMap<u64, String>,
    confirms: VecDeque<u64>,
    /// Texts of the messages that shards got.
    got: Vec<String>,
    settled: HashSet<u64>,
}

struct Cluster {
    members: Vec<Member>,
    now_ms: u64,
    account: Arc<MailboxAccount>,
}

impl Cluster {
    fn new(nodes: u64) -> Cluster {
        let member = |origin| {
            let subjects = Subjects::of("test").expect("a valid name");
            let interest = Interest::default();
            interest.set_on_change(|| {});
            Member {
                node: Node::new(subjects, origin, LIMITS, Limits::default()),
                interest,
                subscriptions: HashMap::new(),
                confirms: VecDeque::new(),
                got: Vec::new(),
                settled: HashSet::new(),
            }
        };
        let account = Arc::<MailboxAccount>::default();
        account.set_bytes_max(1 << 30);
        let mut cluster = Cluster { members: (1..=nodes).map(member).collect(), now_ms: 0, account };
        (0..nodes as usize).for_each(|index| cluster.connect(index));
        cluster
    }

    fn connect(&mut self, index: usize) {
        self.members[index].node.connected(self.now_ms, 1 << 20);
        self.turn(index);
    }

    fn disconnect(&mut self, index: usize) {
        let Member { node, interest, confirms, .. } = &mut self.members[index];
        node.disconnected(interest);
        confirms.clear();
        self.turn(index);
    }

    fn publish(&mut self, index: usize, channel: &str, text: &str) {
        let frames: Box<[u8]> = frame_of(text).into();
        let charge = EncodedPublications::charge(&self.account, channel, &frames);
        let (side, channel) = (Side::Client, channel.into());
        self.members[index].node.publish(&EncodedPublications {
            channel,
            frames,
            messages: 1,
            side,
            is_lazy: false,
            except: None,
            position: None,
            token: None,
            publisher: None,
            charge,
        });
        self.turn(index);
    }

    fn turn(&mut self, index: usize) {
        let Member { node, interest, subscriptions, confirms, settled, .. } = &mut self.members[index];
        node.turn(self.now_ms, interest);
        settled.extend(node.take_settled().iter().map(|token| token.number));
        for command in node.take_commands() {
            match command {
                Command::Subscribe { key, subject } => _ = subscriptions.insert(key, subject),
                Command::Unsubscribe { key } => assert!(subscriptions.remove(&key).is_some()),
                Command::Confirm(number) => confirms.push_back(number),
                Command::Publish { subject, envelope } => {
                    node.sent(envelope.len());
                    return self.send(index, &subject, &envelope);
                }
                other => panic!("a node sends no {other:?}"),
            }
        }
    }

    fn send(&mut self, from: usize, subject: &str, envelope: &[u8]) {
        for (index, member) in self.members.iter_mut().enumerate().filter(|(index, _)| *index != from) {
            if !member.node.is_connected() {
                continue;
            }
            let matches = |wanted: &&String| {
                **wanted == subject || wanted.strip_suffix('>').is_some_and(|prefix| subject.starts_with(prefix))
            };
            for _ in member.subscriptions.values().filter(matches) {
                member.node.received(envelope, &member.interest, &mut String::new()).expect("valid");
            }
            for publication in std::iter::from_fn(|| Some(member.node.next_arrival(&self.account)))
                .take_while(|all| !all.is_empty())
                .flatten()
            {
                let text = String::from_utf8_lossy(&publication.frames[2..]).into_owned();
                member.got.push(format!("{index} {} {text}", publication.channel));
            }
        }
        self.turn(from);
    }

    fn confirm(&mut self, index: usize) {
        let Member { node, interest, confirms, .. } = &mut self.members[index];
        confirms.drain(..).for_each(|number| node.confirmed(number, interest));
        self.turn(index);
    }

    fn want(&mut self, index: usize, name: &str) {
        self.members[index].interest.add(name, 0);
        self.turn(index);
    }

    fn ask(&mut self, index: usize, name: &str, number: u64) {
        self.members[index].interest.add(name, 0);
        self.members[index].node.ask(vec![name.into()], PublishToken { shard: 0, number });
        self.turn(index);
    }

    fn has_left(&self, index: usize, number: u64) -> bool {
        self.members[index].settled.contains(&number)
    }
}

#[test]
fn publications_reach_the_nodes_that_want_them_once() {
    let mut cluster = Cluster::new(3);
    cluster.want(1, "/a");
    cluster.want(2, "/**");
    cluster.want(0, "/a");
    cluster.publish(0, "/a", "1");
    cluster.publish(0, "/b", "2");
    assert_eq!(cluster.members[1].got, ["1 /a [1]"]);
    assert_eq!(cluster.members[2].got, ["2 /a [1]", "2 /b [2]"]);
    assert!(cluster.members[0].got.is_empty(), "its own");
}

#[test]
fn a_reply_waits_for_the_confirmation_of_its_name() {
    let mut cluster = Cluster::new(1);
    cluster.confirm(0);
    cluster.ask(0, "/a", 1);
    cluster.ask(0, "/a", 2);
    assert!(!cluster.has_left(0, 1) && !cluster.has_left(0, 2) && !cluster.members[0].interest.is_known("/a"));
    cluster.confirm(0);
    assert!(cluster.has_left(0, 1) && cluster.has_left(0, 2) && cluster.members[0].interest.is_known("/a"));
    cluster.ask(0, "/a", 3);
    assert!(cluster.has_left(0, 3), "it is known already");
}

#[test]
fn a_reply_does_not_wait_longer_than_it_may_nor_for_an_engine_that_is_away() {
    let mut cluster = Cluster::new(1);
    cluster.ask(0, "/a", 1);
    cluster.now_ms = LIMITS.reply_delay_max_ms;
    cluster.turn(0);
    assert!(cluster.has_left(0, 1) && !cluster.members[0].interest.is_known("/a"));
    assert_eq!(cluster.members[0].node.counts().replies_unconfirmed, 1);
    cluster.ask(0, "/b", 2);
    cluster.disconnect(0);
    assert!(cluster.has_left(0, 2));
    cluster.ask(0, "/c", 3);
    assert!(cluster.has_left(0, 3));
}

#[test]
fn a_name_is_known_again_after_the_engine_was_away() {
    let mut cluster = Cluster::new(1);
    cluster.want(0, "/a");
    cluster.confirm(0);
    cluster.disconnect(0);
    assert!(!cluster.members[0].interest.is_known("/a"));
    cluster.want(0, "/b");
    cluster.connect(0);
    assert_eq!(cluster.members[0].subscriptions.len(), 2);
    assert!(!cluster.members[0].interest.is_known("/a"));
    cluster.confirm(0);
    assert!(cluster.members[0].interest.is_known("/a") && cluster.members[0].interest.is_known("/b"));
}

#[test]
fn what_waits_for_the_engine_is_sent_in_order_after_others_are_back() {
    let mut cluster = Cluster::new(2);
    cluster.want(1, "/a");
    cluster.disconnect(0);
    cluster.publish(0, "/a", "1");
    cluster.publish(0, "/a", "2");
    cluster.connect(0);
    cluster.publish(0, "/a", "3");
    assert!(cluster.members[1].got.is_empty());
    assert_eq!(cluster.members[0].node.next_ms(), Some(LIMITS.return_delay_ms));
    cluster.now_ms = LIMITS.return_delay_ms;
    cluster.turn(0);
    let frames = [frame_of("1"), frame_of("2"), frame_of("3")].concat();
    assert_eq!(cluster.members[1].got, [format!("1 /a {}", String::from_utf8_lossy(&frames[2..]))]);
}

#[test]
fn what_waits_for_the_engine_has_a_bound_and_the_rest_counts_as_lost() {
    let mut cluster = Cluster::new(2);
    cluster.disconnect(0);
    for number in 0..1_000 {
        cluster.publish(0, "/a", &format!("\"{number:050}\""));
    }
    let Counts { lost_out, .. } = cluster.members[0].node.counts();
    assert!(lost_out > 0 && cluster.members[0].node.waiting_bytes().0 <= LIMITS.pending_bytes_max);
    cluster.want(1, "/a");
    cluster.connect(0);
    cluster.now_ms += LIMITS.return_delay_ms;
    cluster.turn(0);
    assert_eq!(cluster.members[1].node.counts().publications_in, 1_000 - lost_out);
}

#[test]
fn nothing_comes_twice_while_subscriptions_change() {
    let mut cluster = Cluster::new(2);
    cluster.want(1, "/a/b");
    cluster.confirm(1);
    cluster.publish(0, "/a/b", "1");
    cluster.want(1, "/a/**");
    cluster.publish(0, "/a/b", "2");
    assert_eq!((cluster.members[1].subscriptions.len(), cluster.members[1].node.counts().doubled), (2, 1));
    cluster.confirm(1);
    cluster.now_ms = cluster.members[1].node.next_ms().expect("the old one ends");
    cluster.turn(1);
    cluster.publish(0, "/a/b", "3");
    assert_eq!(cluster.members[1].got, ["1 /a/b [1]", "1 /a/b [2]", "1 /a/b [3]"]);
    assert_eq!(cluster.members[1].subscriptions.len(), 1);
}

#[test]
fn what_nobody_wants_is_dropped_and_what_is_no_envelope_is_rejected() {
    let mut cluster = Cluster::new(2);
    cluster.want(1, "/a/*");
    cluster.publish(0, "/a/b", "1");
    cluster.members[1].interest.remove("/a/*", 0);
    cluster.publish(0, "/a/b", "2");
    let Member { node, interest, .. } = &mut cluster.members[1];
    assert!(node.received(b"nothing", interest, &mut String::new()).is_err());
    assert_eq!((node.counts().unwanted, node.counts().rejected), (0, 1));
}

#[test]
fn announcements_of_presence_stay_on_their_node() {
    let mut cluster = Cluster::new(1);
    cluster.want(0, "/presence/a");
    cluster.want(0, "/presence/**");
    assert!(cluster.members[0].subscriptions.is_empty());
}

#[test]
fn what_arrives_while_there_is_no_room_waits_within_a_bound() {
    let mut cluster = Cluster::new(2);
    cluster.want(1, "/a");
    let mut envelopes = Vec::new();
    for number in 0..200 {
        let mut outgoing = Outgoing::new(Origin(9), 1 << 20);
        outgoing.add("/a", (Side::Client, false), 1, &frame_of(&format!("\"{number:050}\"")));
        let mut bytes = outgoing.next().expect("one").expect("it fits").bytes;
        crate::envelope::seal(&mut bytes, Origin(9), number);
        envelopes.push(bytes);
    }
    let Member { node, interest, .. } = &mut cluster.members[1];
    for envelope in &envelopes {
        node.received(envelope, interest, &mut String::new()).expect("valid");
    }
    assert!(node.counts().lost_in > 0 && node.has_arrivals() && node.waiting_bytes().1 <= LIMITS.incoming_bytes_max);
    while node.has_arrivals() {
        node.next_arrival(&cluster.account);
    }
    assert_eq!(node.counts().publications_in + node.counts().lost_in, 200);
}
