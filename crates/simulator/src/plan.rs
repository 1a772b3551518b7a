//! The plan of a seed in which a deliberate fault can be found.

use crate::claims::Claims;
use crate::rng::Rng;
use crate::sabotage::Sabotage;
use crate::script::{Scenario, Stop, TREE_RULE};

/// The plan of a seed, in which a sabotage can be found.
pub(crate) fn plan_of(rng: &mut Rng, sabotage: Sabotage) -> Scenario {
    let mut scenario = Scenario::new(rng);
    if let Some(stops) = stops_for(sabotage) {
        scenario.end(stops);
    }
    if sabotage == Sabotage::ReaderThatReadsOn {
        scenario.lateness = 300;
    }
    if sabotage != Sabotage::None {
        // Other subjects would make that of the fault rare.
        (scenario.feeds, scenario.crowded) = (0, false);
    }
    if sabotage == Sabotage::DroppedLatest {
        scenario.feeds = 60;
        scenario = scenario.with_feeds();
    }
    if sabotage.is_of_compression() {
        scenario.compress();
    }
    if sabotage.is_of_held() {
        (scenario.chains, scenario.users) = (2, vec![Claims::default(); 2]);
        scenario.settings.iter_mut().for_each(|settings| settings.in_process_messages_max = 2);
    }
    if sabotage.is_of_held_shares() {
        scenario.rush();
    }
    if sabotage == Sabotage::ForgottenClaims || sabotage == Sabotage::LeakedAnnouncement {
        scenario.users = (0..3).map(|_| Claims::some(rng)).collect();
    }
    if sabotage.is_of_presence() {
        scenario.crowded = true;
        scenario.users = vec![Claims::default(); if sabotage == Sabotage::LeaveOfAll { 1 } else { 2 }];
        let members_max = if sabotage == Sabotage::BoundlessTable { 1 } else { 1_000 };
        for settings in &mut scenario.settings {
            (settings.channels[TREE_RULE].presence, settings.presence_members_max) = (true, members_max);
            settings.presence_bytes_max = 1 << 20;
        }
    }
    if sabotage != Sabotage::None {
        // A session ended for memory is not missed: a fault could hide behind that.
        scenario.settings.iter_mut().for_each(|settings| settings.sessions_bytes_max = 1 << 30);
    }
    scenario
}

/// The kinds of restart that a sabotage needs, in order.
fn stops_for(sabotage: Sabotage) -> Option<&'static [Stop]> {
    match sabotage {
        Sabotage::FalsePersisted | Sabotage::FalseEnd => Some(&[Stop::Killed]),
        Sabotage::SkippedRewrite => Some(&[Stop::Killed, Stop::PowerLoss]),
        Sabotage::LostSession | Sabotage::LostOutbox | Sabotage::ForgottenEnd => Some(&[Stop::Clean]),
        _ => None,
    }
}
