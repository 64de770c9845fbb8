//! The conformance suite on the memory backend, and that it can fail: each sabotaged backend is found out by a case.

mod sabotage;

use std::sync::Arc;

use lock_core::{
    Clock,
    conformance::{CASES, Case, Failure, Fixture, MemoryFixture, Tried},
};
use tokio::task::JoinSet;

use self::sabotage::{Sabotage, Sabotaged};

fn case(name: &str) -> &'static Case {
    CASES.iter().find(|case| case.name == name).unwrap_or_else(|| panic!("there is no case {name}"))
}

async fn found_out(sabotage: Sabotage, by: &str) -> String {
    let fixture: Arc<dyn Fixture> = Arc::new(Sabotaged::new(sabotage));
    match case(by).run(fixture).await {
        Ok(_) => panic!("{by} did not find out {sabotage:?}"),
        Err(failure) => failure.to_string(),
    }
}

#[tokio::test(start_paused = true)]
async fn the_memory_backend_passes_every_case() {
    let fixture = Arc::new(MemoryFixture::with_clock(Clock::runtime()));
    let mut runs = JoinSet::new();
    for case in CASES {
        let fixture = fixture.clone();
        runs.spawn(async move { (case.name, case.run(fixture).await) });
    }
    let mut failures: Vec<(&str, Failure)> = Vec::new();
    while let Some(run) = runs.join_next().await {
        match run.unwrap() {
            // It has all there is.
            (_, Ok(tried)) => assert_eq!(tried, Tried::Kept),
            (name, Err(failure)) => failures.push((name, failure)),
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_is_left_alone_passes_in_the_saboteurs_hands() {
    let fixture: Arc<dyn Fixture> = Arc::new(Sabotaged::new(Sabotage::None));
    for name in [
        "at_most_one_of_100_contenders_holds_the_lock",
        "a_dropped_guard_releases_the_lock",
        "a_waiting_acquisition_dropped_after_any_poll_leaves_nothing_and_blocks_nobody",
        "no_reader_is_beside_a_writer_among_8_readers_and_2_writers",
        "a_waiting_writer_is_granted_before_a_reader_that_came_later",
        "a_downgraded_writer_reads_on_with_its_token_and_other_readers_come_in",
        "never_more_holders_than_permits_among_many_contenders",
        "a_lock_delay_keeps_the_lock_closed_after_its_holder_was_lost",
        "an_observer_sees_the_present_leader_and_then_each_next_one_in_the_order_of_their_tokens",
    ] {
        assert_eq!(case(name).run(Arc::clone(&fixture)).await.unwrap(), Tried::Kept);
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_grants_twice_is_found_out() {
    let why = found_out(Sabotage::GrantsTwice, "at_most_one_of_100_contenders_holds_the_lock").await;
    assert!(why.contains("was granted while"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_overstates_validity_is_found_out_by_any_case_that_holds_a_lock() {
    let why = found_out(Sabotage::OverstatesValidity, "a_released_lock_goes_to_a_waiter").await;
    assert!(why.contains("beyond"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_goes_on_believing_after_a_loss_is_found_out() {
    let why = found_out(
        Sabotage::NeverLoses,
        "a_lease_whose_traffic_is_held_up_ends_and_its_guard_knows_before_the_next_grant",
    )
    .await;
    assert!(why.contains("valid after the next grant") || why.contains("was granted while"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_does_not_release_a_dropped_guard_is_found_out() {
    found_out(Sabotage::NeverReleases, "a_dropped_guard_releases_the_lock").await;
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_leaves_a_stopped_attempt_in_the_queue_is_found_out() {
    found_out(
        Sabotage::LeavesTheQueue,
        "a_waiting_acquisition_dropped_after_any_poll_leaves_nothing_and_blocks_nobody",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_backend_whose_tokens_fall_is_found_out() {
    let why = found_out(Sabotage::TokensFall, "tokens_rise_over_10000_grants_from_several_connections").await;
    assert!(why.contains("token"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_waits_when_told_not_to_is_found_out() {
    found_out(Sabotage::AlwaysWaits, "an_attempt_without_waiting_takes_a_free_lock_and_leaves_a_held_one_alone").await;
}

#[tokio::test(start_paused = true)]
async fn a_backend_whose_names_collide_is_found_out() {
    found_out(Sabotage::FoldsNames, "names_that_escape_alike_do_not_collide").await;
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_lets_readers_in_beside_a_writer_is_found_out() {
    let why = found_out(Sabotage::ReadsBesideWriters, "a_writer_excludes_readers_and_other_writers").await;
    assert!(why.contains("a reader was granted beside a writer"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_grants_one_permit_too_many_is_found_out() {
    let why = found_out(Sabotage::OnePermitTooMany, "an_attempt_at_a_permit_takes_what_is_free_and_no_more").await;
    assert!(why.contains("one permit too many was granted"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_backend_whose_readers_overtake_a_waiting_writer_is_found_out() {
    let why = found_out(Sabotage::ReadersOvertake, "a_waiting_writer_is_granted_before_a_reader_that_came_later").await;
    assert!(why.contains("although a writer waited before it came") || why.contains("granted were"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_backend_whose_forced_release_ends_whatever_is_held_is_found_out() {
    let failure = found_out(Sabotage::RevokesWhoeverHolds, "a_forced_release_by_another_token_ends_nothing").await;
    assert!(failure.contains("a forced release ended"), "{failure}");
    let race = "a_forced_release_in_a_race_with_the_holders_own_ends_exactly_one_grant";
    found_out(Sabotage::RevokesWhoeverHolds, race).await;
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_lists_by_a_pattern_is_found_out() {
    let failure = found_out(Sabotage::ListsByPattern, "a_list_begins_with_exactly_its_prefix").await;
    assert!(failure.contains("shows"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_ignores_a_lock_delay_is_found_out() {
    let why =
        found_out(Sabotage::IgnoresLockDelays, "a_lock_delay_keeps_the_lock_closed_after_its_holder_was_lost").await;
    assert!(why.contains("the next was granted at"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_refuses_in_anothers_name_is_found_out() {
    let why = found_out(Sabotage::RefusesInAnothersName, "what_a_backend_lacks_is_refused_by_its_name").await;
    assert!(why.contains("was refused without the names of"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_pretends_to_have_a_feature_is_found_out() {
    let by = "a_downgraded_writer_reads_on_with_its_token_and_other_readers_come_in";
    let why = found_out(Sabotage::PretendsToDowngrade, by).await;
    assert!(why.contains("is not supported by the backend memory"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_backend_whose_readers_have_tokens_out_of_order_is_found_out() {
    let why = found_out(Sabotage::TokensFall, "a_readers_token_lies_between_those_of_the_writers_around_it").await;
    assert!(why.contains("token"), "{why}");
}
