//! Seeds that must pass, and faults that must be found.

use simulator::checker::Invariant;
use simulator::tally::Tally;
use simulator::world::World;
use simulator::{Options, Sabotage, run};

#[test]
fn hundreds_of_seeds_violate_no_invariant() {
    let mut tally = Tally::default();
    for seed in 1..=700 {
        match run(seed, &Options::default()) {
            Ok(one) => tally.add(&one),
            Err(failure) => panic!("seed {}: {}", failure.seed, failure.broken),
        }
    }
    // A simulation without events would pass, too.
    for (what, count) in [
        ("messages that arrived", tally.arrived),
        ("messages lost with a connection", tally.lost),
        ("connections broken", tally.breaks),
        ("changes of transport", tally.switches),
        ("responses that were not taken", tally.refused_responses),
        ("messages dropped by policy", tally.dropped),
        ("slow sessions", tally.slow),
        ("times that messages were packed", tally.sweeps),
        ("WebSockets with compression", tally.compressing),
        ("messages compressed", tally.compressed),
        ("compressed messages that were read", tally.compressed_reads),
        ("sessions expired", tally.expired),
        ("sessions ended by the server", tally.kicked),
        ("sockets moved", tally.moves),
        ("messages from histories", tally.replayed),
        ("requested positions that were no longer retained", tally.gone),
        ("positions reported with connect replies", tally.heartbeats),
        ("restarts", tally.restarts),
        ("kills", tally.kills),
        ("starts on a full disk", tally.full_starts),
        ("starts after syncs that failed, three times", tally.lost_writes * 3),
        ("sessions restored after a restart", tally.restored),
        ("faults of the disk", tally.disk_faults),
        ("publications not stored", tally.pending_replies),
        ("replies that waited longer than their connection", tally.late_replies),
        ("unconfirmed messages lost with a process", tally.positions_lost),
        ("decisions that came later", tally.late_decisions),
        ("decisions that did not come in time, three times", tally.decisions_timed_out * 3),
        ("sessions ended for memory, ten times", tally.ended_for_memory * 10),
        ("ends of credentials", tally.rights_ended),
        ("new credentials", tally.refreshes),
        ("messages over a limit", tally.over_limits),
        ("reports of presence", tally.presence_reports),
        ("messages of feeds that newer ones replaced, three times", tally.superseded * 3),
        ("reads of a few bytes", tally.sips),
        ("answers of held requests", tally.held_answers),
        ("gaps in them", tally.held_gaps),
        ("held requests without rights", tally.held_refused),
        ("announcements of members", tally.announcements),
        ("members for whom there was no room, five times", tally.members_refused * 5),
        ("changes of subscriptions by handles", tally.changes),
        ("histories whose messages were removed", tally.histories_cleared),
        ("publications without the right", tally.publications_refused),
        ("calls without the right", tally.calls_refused),
        ("subscriptions without the right", tally.subscriptions_refused),
        ("subscriptions to announcements without the right, twice", tally.announcements_refused * 2),
        ("requests that were not held", tally.held_over_limit),
    ] {
        assert!(count >= 50, "{what}: only {count}");
    }
    assert!(tally.long_lost >= 5, "lost responses above the limit of a batch: only {}", tally.long_lost);
}

#[test]
fn seeds_that_found_a_defect_once_violate_no_invariant() {
    for seed in FAILED_ONCE {
        if let Err(failure) = run(seed, &Options::default()) {
            panic!("seed {}: {}", failure.seed, failure.broken);
        }
    }
}

#[test]
fn a_seed_runs_the_same_way_twice() {
    for seed in [3, 14, 159] {
        assert_eq!(run(seed, &Options::default()).ok(), run(seed, &Options { trace: true, ..Options::default() }).ok());
    }
}

#[test]
fn a_seed_takes_the_same_steps_twice() {
    for seed in [3, 14, 105, 150, 231] {
        let steps = || {
            let mut world = World::new(seed, &Options { trace: true, ..Options::default() });
            let result = world.run();
            // The epochs of histories are random, and frames have them.
            let is_seeded = |line: &String| !line.contains("frames: [");
            (result, world.history().into_iter().filter(is_seeded).collect::<Vec<_>>())
        };
        assert!(steps() == steps(), "seed {seed}");
    }
}

/// Seeds that found a defect in some state of the sources.
const FAILED_ONCE: [u64; 13] =
    [18_708, 19_328, 26_019, 40_311, 42_705, 52_393, 114_058, 120_987, 140_713, 185_098, 197_183, 337_801, 809_279];

/// Checks that a fault is found, and by the intended check.
fn finds(sabotage: Sabotage, invariants: &[Invariant]) {
    let failures: Vec<_> = (1..=200).filter_map(|seed| run(seed, &Options { sabotage, trace: false }).err()).collect();
    let found = failures.iter().filter(|failure| invariants.contains(&failure.broken.invariant)).count();
    let others: Vec<_> = failures.iter().filter(|failure| !invariants.contains(&failure.broken.invariant)).collect();
    assert!(found >= 5, "{sabotage:?}: found in {found} seeds only; others: {others:?}");
}

#[test]
fn a_duplicated_message_is_found() {
    finds(Sabotage::DoubledFrame, &[Invariant::NotTwice]);
}

#[test]
fn a_lost_message_is_found() {
    finds(Sabotage::DroppedFrame, &[Invariant::NothingLost]);
}

#[test]
fn messages_out_of_order_are_found() {
    finds(Sabotage::SwappedMessages, &[Invariant::InOrder]);
}

#[test]
fn changed_data_is_found() {
    finds(Sabotage::ChangedData, &[Invariant::ExactData]);
}

#[test]
fn advice_in_a_message_is_found() {
    finds(Sabotage::ForgedAdvice, &[Invariant::CleanMessages]);
}

#[test]
fn the_client_id_of_another_is_found() {
    finds(Sabotage::LeakedId, &[Invariant::SecretIds]);
}

#[test]
fn a_request_without_a_response_is_found() {
    finds(Sabotage::LostResponse, &[Invariant::OneResponse, Invariant::OneReply, Invariant::HeldInTime]);
}

#[test]
fn a_false_report_of_a_delivered_response_is_found() {
    finds(Sabotage::FalseReceipt, &[Invariant::NothingLost]);
}

#[test]
fn a_socket_that_is_never_closed_is_found() {
    // Mostly by a write to a closed socket, otherwise by the leftovers at the end.
    finds(Sabotage::ForgottenSocket, &[Invariant::CleanFrames, Invariant::NoLeak]);
}

#[test]
fn a_lost_history_message_is_found() {
    finds(Sabotage::DroppedPosition, &[Invariant::LossReported]);
}

#[test]
fn a_duplicated_history_message_is_found() {
    finds(Sabotage::DoubledPosition, &[Invariant::PositionsGrow]);
}

#[test]
fn a_message_with_the_position_of_another_is_found() {
    finds(Sabotage::ChangedPosition, &[Invariant::OneOrder]);
}

#[test]
fn an_unreported_loss_is_found() {
    finds(Sabotage::HushedLoss, &[Invariant::LossReported]);
}

#[test]
fn a_record_reported_as_stored_that_is_not_is_found() {
    finds(Sabotage::FalsePersisted, &[Invariant::ConfirmedPersisted]);
}

#[test]
fn offsets_assigned_again_after_a_kill_are_found() {
    finds(Sabotage::FalseEnd, &[Invariant::OneOrder]);
}

#[test]
fn a_start_that_trusts_the_cache_after_a_failed_sync_is_found() {
    finds(Sabotage::SkippedRewrite, &[Invariant::LogOpens]);
}

#[test]
fn a_session_that_is_not_restored_is_found() {
    finds(Sabotage::LostSession, &[Invariant::LivesOn]);
}

#[test]
fn queued_messages_that_are_not_restored_are_found() {
    finds(Sabotage::LostOutbox, &[Invariant::NothingLost, Invariant::LossReported]);
}

#[test]
fn a_revocation_that_a_shard_does_not_learn_of_is_found() {
    finds(Sabotage::ForgottenRevocation, &[Invariant::NothingAfterRights]);
}

#[test]
fn a_subscription_that_is_not_counted_is_found() {
    finds(Sabotage::ForgottenCount, &[Invariant::CountsAgree]);
}

#[test]
fn a_member_that_leaves_without_a_report_is_found() {
    finds(Sabotage::ForgottenLeave, &[Invariant::PresenceAgrees]);
}

#[test]
fn a_member_that_is_not_in_the_table_is_found() {
    finds(Sabotage::ForgottenMember, &[Invariant::PresenceAgrees]);
}

#[test]
fn a_user_that_is_gone_with_the_first_of_its_sessions_is_found() {
    // Mostly by the table, otherwise by the leave that is announced.
    finds(Sabotage::LeaveOfAll, &[Invariant::PresenceAgrees, Invariant::PresenceGrace]);
}

#[test]
fn a_user_that_stays_a_member_after_the_grace_is_found() {
    finds(Sabotage::EndlessGrace, &[Invariant::PresenceGrace]);
}

#[test]
fn a_reload_that_is_announced_as_a_leave_is_found() {
    finds(Sabotage::NoGrace, &[Invariant::PresenceGrace]);
}

#[test]
fn a_change_of_members_that_is_not_announced_is_found() {
    finds(Sabotage::ForgottenAnnouncement, &[Invariant::PresenceAnnounced]);
}

#[test]
fn a_change_of_members_that_a_restart_swallows_is_found() {
    finds(Sabotage::ForgottenEnd, &[Invariant::PresenceAnnounced]);
}

#[test]
fn a_table_of_members_without_a_limit_is_found() {
    finds(Sabotage::BoundlessTable, &[Invariant::PresenceBounded]);
}

#[test]
fn a_latest_message_that_never_arrives_is_found() {
    finds(Sabotage::DroppedLatest, &[Invariant::LatestArrives]);
}

#[test]
fn a_message_that_costs_a_search_through_all_queues_is_found() {
    finds(Sabotage::LinearSearch, &[Invariant::CostBounded]);
}

#[test]
fn a_gap_of_a_held_request_that_is_not_reported_is_found() {
    finds(Sabotage::HushedGap, &[Invariant::LossReported]);
}

#[test]
fn a_chain_of_held_requests_that_skips_a_message_is_found() {
    finds(Sabotage::SkippingHold, &[Invariant::LossReported, Invariant::PositionsGrow]);
}

#[test]
fn a_chain_of_held_requests_that_repeats_a_message_is_found() {
    finds(Sabotage::RepeatedHold, &[Invariant::PositionsGrow]);
}

#[test]
fn a_publication_that_the_dispatcher_loses_is_found() {
    // Announcements come through the dispatcher, too.
    finds(Sabotage::DeafDispatcher, &[Invariant::LossReported, Invariant::PresenceAnnounced]);
}

#[test]
fn a_held_request_that_is_answered_after_its_rights_have_ended_is_found() {
    finds(Sabotage::HeldBeyondRights, &[Invariant::NothingAfterRights]);
}

#[test]
fn a_queue_without_a_limit_is_found() {
    finds(Sabotage::BoundlessQueue, &[Invariant::QueueBounded]);
}

#[test]
fn held_requests_above_the_limit_are_found() {
    finds(Sabotage::GreedyAddress, &[Invariant::SharesHold]);
}

#[test]
fn a_request_that_is_refused_below_the_limit_is_found() {
    finds(Sabotage::RefusedRequest, &[Invariant::SharesHold]);
}

#[test]
fn a_share_that_is_not_given_back_is_found() {
    finds(Sabotage::ForgottenShare, &[Invariant::CountsAgree]);
}

#[test]
fn forgotten_claims_of_credentials_are_found() {
    finds(Sabotage::ForgottenClaims, &[Invariant::RightsHold]);
}

#[test]
fn an_announcement_for_a_session_without_the_right_is_found() {
    finds(Sabotage::LeakedAnnouncement, &[Invariant::RightsHold]);
}

#[test]
fn a_subscription_of_a_handle_that_is_never_made_is_found() {
    finds(Sabotage::ForgottenChange, &[Invariant::NothingLost]);
}

#[test]
fn a_history_that_is_not_removed_is_found() {
    finds(Sabotage::ForgottenRemoval, &[Invariant::ChangesDone]);
}

#[test]
fn a_message_that_is_compressed_without_an_agreement_is_found() {
    finds(Sabotage::UnaskedCompression, &[Invariant::CleanFrames]);
}

#[test]
fn a_byte_that_changes_in_a_compressed_message_is_found() {
    // It is invalid, or another text.
    finds(Sabotage::ChangedByte, &[Invariant::CleanFrames, Invariant::CleanMessages, Invariant::ExactData]);
}

#[test]
fn a_websocket_that_is_read_on_while_its_message_waits_is_found() {
    finds(Sabotage::ReaderThatReadsOn, &[Invariant::InOrder]);
}

#[test]
fn shards_that_ignore_the_time_are_found() {
    finds(Sabotage::StoppedClock, &[Invariant::HeldInTime]);
}
