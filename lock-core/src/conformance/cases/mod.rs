//! The cases, by what they are about. This list is the contents of the contract.

mod arguments;
mod cancellation;
mod closing;
mod composed;
mod downgrade;
mod election;
mod exclusion;
mod forced_release;
mod holding;
mod listing;
mod lock_kinds;
mod looking;
mod loss;
mod names;
mod outage;
mod permits;
mod readers;
mod refusals;
mod release;
mod rwlock;
mod semaphore;
mod tokens;
mod waiting;

use super::Case;
use crate::Feature;

/// Promises by the file that tries them out, each with the features that it needs; `@way` before those that depend on how
/// requests and news find their way, and not only on what a server does with them; `@long` before those that take a thousand
/// grants or more.
macro_rules! cases {
    ($($about:ident :: { $($(@$kind:ident)* $promise:ident $([$($feature:ident),+])?),* $(,)? })*) => {
        /// Every case, each to be run on every backend.
        pub const CASES: &[Case] = &[$($(
            Case {
                name: stringify!($promise),
                needs: &[$($(Feature::$feature),+)?],
                is_about_the_way: false $(|| cases!(@way $kind))*,
                is_long: false $(|| cases!(@long $kind))*,
                steps: |run| Box::pin($about::$promise(run)),
            },
        )*)*];
    };
    (@way way) => { true };
    (@long long) => { true };
    (@$asked:ident $other:ident) => { false };
}

cases! {
    exclusion::{
        @way at_most_one_of_100_contenders_holds_the_lock,
        two_acquisitions_of_one_connection_exclude_each_other,
        @way every_waiter_is_granted_in_the_end,
        waiters_are_granted_in_the_order_of_their_arrival [Fifo, Queue],
        @way @long one_client_holds_1000_locks_at_once,
    }
    waiting::{
        @way an_attempt_without_waiting_takes_a_free_lock_and_leaves_a_held_one_alone,
        @way a_wait_limit_ends_and_leaves_nothing_on_the_server,
        a_wait_limit_of_zero_takes_a_free_lock_or_leaves_nothing,
        a_waiter_that_gave_up_does_not_hold_up_those_behind_it,
        @way a_look_at_a_lock_shows_its_holder_and_its_payload,
    }
    cancellation::{
        @way an_acquisition_dropped_after_any_poll_leaves_nothing_and_blocks_nobody,
        an_attempt_without_waiting_dropped_after_any_poll_leaves_nothing_and_blocks_nobody,
        @way a_waiting_acquisition_dropped_after_any_poll_leaves_nothing_and_blocks_nobody,
        a_release_dropped_after_any_poll_releases_all_the_same,
        an_acquisition_for_reading_dropped_after_any_poll_leaves_nothing_and_blocks_nobody [ReadWrite],
        an_acquisition_for_writing_dropped_after_any_poll_leaves_nothing_and_blocks_nobody [ReadWrite],
        the_acquisition_of_a_permit_dropped_after_any_poll_leaves_nothing_and_blocks_nobody [Semaphore],
        a_release_by_a_reader_dropped_after_any_poll_releases_all_the_same [ReadWrite],
        a_release_of_a_permit_dropped_after_any_poll_releases_all_the_same [Semaphore],
        a_downgrade_dropped_after_any_poll_releases_the_lock [ReadWrite, Downgrade],
    }
    release::{
        @way a_released_lock_goes_to_a_waiter,
        @way a_dropped_guard_releases_the_lock,
        a_release_after_the_lease_ended_never_removes_the_successors_lock [Expiry],
        a_release_after_a_deletion_never_removes_the_successors_lock,
        a_guard_dropped_after_its_lease_ended_never_removes_the_successors_lock [Expiry],
        @way a_release_that_does_not_reach_the_server_is_made_good [Expiry],
    }
    tokens::{
        @long tokens_rise_over_10000_grants_from_several_connections,
        tokens_rise_through_deletions_of_the_lock [ClocklessToken],
        @way validity_counts_from_the_sending_of_a_request_not_from_its_answer [Expiry],
        a_ttl_of_its_own_is_what_the_server_keeps [Ttl],
    }
    loss::{
        @way a_lease_whose_traffic_is_held_up_ends_and_its_guard_knows_before_the_next_grant [Expiry],
        @way a_lease_whose_connection_is_cut_ends_and_its_guard_knows_before_the_next_grant [Expiry],
        a_deleted_lock_is_noticed_as_lost,
        lost_is_final [Expiry],
        an_operation_under_a_guard_is_cut_off_when_the_lock_is_lost,
        @way a_lock_is_renewed_for_as_long_as_it_is_held [Expiry],
        @way a_broken_connection_that_is_mended_at_once_costs_no_lock [Expiry],
    }
    rwlock::{
        @way readers_share_the_lock [ReadWrite],
        @way a_writer_excludes_readers_and_other_writers [ReadWrite],
        the_mutex_and_the_write_side_of_one_name_are_the_same_lock [ReadWrite],
        no_reader_is_beside_a_writer_among_8_readers_and_2_writers [ReadWrite],
        a_hundred_readers_hold_the_lock_at_once_and_a_writer_waits_for_all_of_them [ReadWrite],
        a_waiting_writer_is_granted_before_a_reader_that_came_later [ReadWrite],
        an_attempt_to_read_behind_a_waiting_writer_is_refused_and_leaves_nothing [ReadWrite],
        a_readers_token_lies_between_those_of_the_writers_around_it [ReadWrite],
    }
    readers::{
        a_writer_that_gives_up_lets_the_readers_behind_it_in [ReadWrite],
        writers_are_granted_although_readers_never_stop_coming [ReadWrite],
        @way a_reader_that_died_holds_up_a_writer_no_longer_than_its_lease [ReadWrite, Expiry],
        each_readers_lease_is_its_own [ReadWrite, Expiry],
        a_writer_that_died_while_it_waited_does_not_keep_readers_out [ReadWrite, Expiry],
        a_deleted_reader_is_noticed_as_lost [ReadWrite],
    }
    downgrade::{
        @way a_downgraded_writer_reads_on_with_its_token_and_other_readers_come_in [ReadWrite, Downgrade],
        no_writer_comes_in_at_a_downgrade_also_none_that_waited_before [ReadWrite, Downgrade],
        a_downgraded_writer_is_renewed_on [ReadWrite, Downgrade, Expiry],
        a_downgrade_of_a_lost_lock_is_lost [ReadWrite, Downgrade],
        @way a_downgrade_that_does_not_reach_the_server_is_made_good [ReadWrite, Downgrade, Expiry],
    }
    semaphore::{
        never_more_holders_than_permits_among_many_contenders [Semaphore],
        @way a_permit_given_back_goes_to_a_waiter [Semaphore],
        a_semaphore_of_one_permit_is_exclusive [Semaphore],
        an_attempt_at_a_permit_takes_what_is_free_and_no_more [Semaphore],
        a_limited_wait_for_a_permit_ends_and_leaves_nothing [Semaphore],
        contenders_that_name_different_numbers_of_permits_are_refused_with_both [Semaphore],
        a_semaphore_of_no_permits_is_refused [Semaphore],
    }
    permits::{
        as_many_waiters_are_granted_as_permits_are_given_back [Semaphore],
        a_permit_that_is_freed_while_the_first_waiter_gives_up_goes_to_the_next [Semaphore],
        permits_go_to_waiters_in_the_order_of_their_arrival [Semaphore, Fifo, Queue],
        the_semaphore_and_the_lock_of_one_name_have_nothing_to_do_with_each_other [Semaphore],
        @way the_permit_of_a_dead_holder_comes_back_and_only_that [Semaphore, Expiry],
        a_contender_that_died_does_not_hold_up_those_who_wait_for_a_permit_behind_it [Semaphore, Expiry],
        a_deleted_permit_is_noticed_as_lost [Semaphore],
    }
    holding::{
        @way a_lock_delay_keeps_the_lock_closed_after_its_holder_was_lost [LockDelay, Expiry],
        the_delay_of_a_reader_that_was_lost_keeps_writers_out [LockDelay, ReadWrite, Expiry],
        the_delay_of_a_lost_permit_keeps_its_place_taken [LockDelay, Semaphore, Expiry],
        a_release_in_order_ends_a_lock_delay_at_once [LockDelay],
        a_guard_ends_after_its_maximum_time_and_the_lock_is_free_for_the_next_one,
        a_reader_ends_after_its_maximum_time [ReadWrite],
        a_permit_ends_after_its_maximum_time [Semaphore],
        a_release_before_the_maximum_time_is_an_ordinary_one,
    }
    election::{
        @way an_observer_sees_the_present_leader_and_then_each_next_one_in_the_order_of_their_tokens,
        a_leader_that_resigns_hands_over_to_a_candidate,
        an_attempt_to_lead_beside_a_leader_is_refused_and_leaves_nothing,
        an_observer_that_stopped_leaves_nothing,
        @way a_leader_that_died_is_succeeded_and_its_term_ends [Expiry],
        candidates_lead_in_the_order_in_which_they_came [Fifo, Queue],
        @way an_observer_that_was_out_of_reach_sees_errors_and_then_the_next_leader [Expiry],
    }
    composed::{
        an_owner_takes_its_lock_again_and_the_last_of_its_guards_releases_it,
        @way several_locks_are_taken_all_or_none,
        @way contenders_for_the_same_locks_in_any_order_do_not_wait_for_each_other,
        an_operation_counts_under_a_lock_and_is_undone_when_the_lock_is_lost,
    }
    looking::{
        a_look_shows_how_and_since_when_a_lock_is_held_as_far_as_the_servers_tell,
        a_look_shows_all_readers_and_that_they_read [ReadWrite],
        a_look_shows_all_who_hold_a_permit [Semaphore],
        a_look_shows_those_who_wait_in_the_order_of_their_arrival [Queue],
        @way who_follows_a_lock_sees_its_holders_come_and_go,
        @way who_follows_a_lock_is_told_the_end_when_the_connection_is_closed,
    }
    listing::{
        @way a_list_shows_what_is_held_by_whatever_name_and_nothing_else [Listing],
        @way a_list_begins_with_exactly_its_prefix [Listing],
        a_list_shows_each_name_once_however_it_is_held [Listing],
    }
    forced_release::{
        @way a_forced_release_ends_the_grant_of_its_token_and_the_next_in_line_is_granted [ForcedRelease],
        a_forced_release_by_another_token_ends_nothing [ForcedRelease],
        a_forced_release_ends_one_reader_and_leaves_the_others [ForcedRelease, ReadWrite],
        a_forced_release_of_a_downgraded_writer_ends_the_reader_that_it_became [ForcedRelease, ReadWrite, Downgrade],
        a_forced_release_ends_one_permit_and_leaves_the_others [ForcedRelease, Semaphore],
        the_lock_delay_of_a_holder_stays_after_a_forced_release [ForcedRelease, LockDelay],
        @way @long a_forced_release_in_a_race_with_the_holders_own_ends_exactly_one_grant [ForcedRelease],
    }
    names::{
        @way any_name_can_be_locked_and_excludes_only_itself,
        names_that_escape_alike_do_not_collide,
    }
    outage::{
        @way a_backend_that_refuses_connections_is_unavailable_within_the_connect_limit [Expiry],
        @way a_backend_that_never_answers_is_unavailable_within_the_connect_limit [Expiry],
        @way a_wait_that_outlasts_the_connect_limit_out_of_reach_ends_as_unavailable [Expiry],
        @way a_wait_goes_on_when_the_backend_was_out_of_reach_for_a_moment [Expiry],
        @way a_wait_limit_ends_while_the_backend_cannot_be_reached [Expiry],
        @way a_waiter_that_died_does_not_hold_up_those_behind_it [Expiry],
        @way close_ends_within_its_limit_while_the_backend_cannot_be_reached [Expiry],
    }
    closing::{
        @way close_releases_what_is_held_and_what_was_dropped,
        @way close_ends_a_waiting_acquisition_and_refuses_new_ones,
        close_releases_what_readers_hold [ReadWrite],
        close_gives_permits_back [Semaphore],
        @way drain_lets_holders_finish_and_nothing_begin,
        @way drain_ends_what_is_held_at_its_limit,
    }
    refusals::{
        @way what_a_backend_lacks_is_refused_by_its_name,
    }
    arguments::{
        a_name_that_is_not_allowed_is_refused,
        a_payload_that_is_too_long_is_refused,
        a_ttl_that_is_not_allowed_is_refused [Ttl],
    }
}
