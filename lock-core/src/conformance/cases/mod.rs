//! The cases, by what they are about. This list is the contents of the contract.

mod arguments;
mod cancellation;
mod closing;
mod exclusion;
mod loss;
mod names;
mod outage;
mod release;
mod tokens;
mod waiting;

use super::Case;

macro_rules! cases {
    ($($about:ident :: { $($promise:ident),* $(,)? })*) => {
        /// Every case, each to be run on every backend.
        pub const CASES: &[Case] = &[$($(
            Case { name: stringify!($promise), steps: |run| Box::pin($about::$promise(run)) },
        )*)*];
    };
}

cases! {
    exclusion::{
        at_most_one_of_100_contenders_holds_the_lock,
        two_acquisitions_of_one_connection_exclude_each_other,
        waiters_are_granted_in_the_order_of_their_arrival_where_that_is_promised,
        one_client_holds_1000_locks_at_once,
    }
    waiting::{
        an_attempt_without_waiting_takes_a_free_lock_and_leaves_a_held_one_alone,
        a_wait_limit_ends_and_leaves_nothing_on_the_server,
        a_wait_limit_of_zero_takes_a_free_lock_or_leaves_nothing,
        a_waiter_that_gave_up_does_not_hold_up_those_behind_it,
        a_look_at_a_lock_shows_its_holder_and_its_payload,
    }
    cancellation::{
        an_acquisition_dropped_after_any_poll_leaves_nothing_and_blocks_nobody,
        an_attempt_without_waiting_dropped_after_any_poll_leaves_nothing_and_blocks_nobody,
        a_waiting_acquisition_dropped_after_any_poll_leaves_nothing_and_blocks_nobody,
        a_release_dropped_after_any_poll_releases_all_the_same,
    }
    release::{
        a_released_lock_goes_to_a_waiter,
        a_dropped_guard_releases_the_lock,
        a_release_after_the_lease_ended_never_removes_the_successors_lock,
        a_release_after_a_deletion_never_removes_the_successors_lock,
        a_guard_dropped_after_its_lease_ended_never_removes_the_successors_lock,
        a_release_that_does_not_reach_the_server_is_made_good,
    }
    tokens::{
        tokens_rise_over_10000_grants_from_several_connections,
        validity_counts_from_the_sending_of_a_request_not_from_its_answer,
        a_ttl_of_its_own_is_what_the_server_keeps_where_that_is_possible,
    }
    loss::{
        a_lease_whose_traffic_is_held_up_ends_and_its_guard_knows_before_the_next_grant,
        a_lease_whose_connection_is_cut_ends_and_its_guard_knows_before_the_next_grant,
        a_deleted_lock_is_noticed_as_lost,
        lost_is_final,
        an_operation_under_a_guard_is_cut_off_when_the_lock_is_lost,
        a_lock_is_renewed_for_as_long_as_it_is_held,
        a_broken_connection_that_is_mended_at_once_costs_no_lock,
    }
    names::{
        any_name_can_be_locked_and_excludes_only_itself,
        names_that_escape_alike_do_not_collide,
    }
    outage::{
        a_backend_that_refuses_connections_is_unavailable_within_the_connect_limit,
        a_backend_that_never_answers_is_unavailable_within_the_connect_limit,
        a_wait_that_outlasts_the_connect_limit_out_of_reach_ends_as_unavailable,
        a_wait_limit_ends_while_the_backend_cannot_be_reached,
        a_waiter_that_died_does_not_hold_up_those_behind_it,
        close_ends_within_its_limit_while_the_backend_cannot_be_reached,
    }
    closing::{
        close_releases_what_is_held_and_what_was_dropped,
        close_ends_a_waiting_acquisition_and_refuses_new_ones,
    }
    arguments::{
        a_name_that_is_not_allowed_is_refused,
        a_payload_or_ttl_that_is_not_allowed_is_refused,
    }
}
