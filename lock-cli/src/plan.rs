//! When a command is ended: before the validity of its lock, and before the limit of `--max-hold`.

use std::time::Duration;

use lock::BootInstant;

/// Which part of the validity that a grant begins with is kept to end the command in, when renewals fail. Small, because a
/// session's validity is always far below its time-out.
const PART: u32 = 8;

/// By how much the last signal comes before the end of the validity: a timer is a millisecond or two late, and the kernel
/// needs a moment.
const AHEAD: Duration = Duration::from_millis(10);

/// The moments at which a command's process group gets SIGTERM and SIGKILL, unless the lock is renewed before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SignalPlan {
    /// SIGTERM.
    pub(crate) ask: BootInstant,
    /// SIGKILL.
    pub(crate) kill: BootInstant,
}

impl SignalPlan {
    /// The plan of whoever looks after the command when `lock run` does not: it asks later, so that the command of a
    /// `lock run` that does its work is asked once.
    pub(crate) fn in_its_place(self) -> Self {
        Self { ask: self.ask.saturating_add(self.kill.saturating_since(self.ask) / 2), kill: self.kill }
    }

    /// When what is left of a command that is asked to end `now` gets SIGKILL.
    pub(crate) fn last(self, now: BootInstant, kill_after: Duration) -> BootInstant {
        // Safeguard: the last signal comes by the end of the validity, whatever --kill-after says (lock run)
        now.saturating_add(kill_after).min(self.kill)
    }
}

/// The grace times and the limit of `--max-hold` from which a command's [`SignalPlan`] is computed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SignalTiming {
    /// Between the two signals, when renewals fail.
    grace: Duration,
    ahead: Duration,
    /// Of `--max-hold`.
    limit: Option<SignalPlan>,
}

impl SignalTiming {
    /// For a lock that is granted `now` with that validity.
    ///
    /// Of the maximum time, the last `kill_after` is for the end of the command, but never more than half.
    pub(crate) fn new(now: BootInstant, validity: Duration, kill_after: Duration, max_hold: Option<Duration>) -> Self {
        let limit = max_hold.map(|limit| {
            let kill = now.saturating_add(limit);
            SignalPlan { ask: kill.saturating_sub(kill_after.min(limit / 2)), kill }
        });
        Self { grace: kill_after.min(validity / PART), ahead: AHEAD.min(validity / PART / 4), limit }
    }

    /// The plan while the lock is valid until then.
    pub(crate) fn plan(&self, until: BootInstant) -> SignalPlan {
        let kill = until.saturating_sub(self.ahead);
        let plan = SignalPlan { ask: kill.saturating_sub(self.grace), kill };
        // Safeguard: the last signal comes by the maximum time (lock run)
        self.limit.map_or(plan, |limit| SignalPlan { ask: plan.ask.min(limit.ask), kill: plan.kill.min(limit.kill) })
    }

    /// Whether the maximum time has come `now`, or the end of the command for its sake.
    pub(crate) fn is_held_too_long(&self, now: BootInstant) -> bool {
        self.limit.is_some_and(|limit| limit.ask <= now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> BootInstant {
        BootInstant::from_nanos(0).saturating_add(Duration::from_millis(millis))
    }

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn of_the_maximum_time_the_end_of_the_command_takes_kill_after_but_never_more_than_half() {
        let century = at(100 * 365 * 86_400_000);
        for (kill_after, ask) in [(0, 3000), (500, 2500), (1500, 1500), (10_000, 1500)] {
            let bounds =
                SignalTiming::new(at(7), century.saturating_since(at(7)), millis(kill_after), Some(millis(3000)));
            assert_eq!(bounds.plan(century), SignalPlan { ask: at(7 + ask), kill: at(3007) });
            assert!(!bounds.is_held_too_long(at(6 + ask)) && bounds.is_held_too_long(at(7 + ask)));
        }
    }

    proptest! {
        #[test]
        fn the_last_signal_never_comes_after_the_validity_or_the_maximum_time(
            now in 0_u64..1 << 40,
            validity in 1_u64..1 << 32,
            renewed in 0_u64..1 << 32,
            kill_after in 0_u64..1 << 40,
            max_hold in proptest::option::of(1_u64..1 << 33),
            asked in 0_u64..1 << 34,
        ) {
            let bounds = SignalTiming::new(at(now), millis(validity), millis(kill_after), max_hold.map(millis));
            let until = at(now + validity + renewed);
            let plan = bounds.plan(until);
            prop_assert!(plan.ask <= plan.kill && plan.kill < until);
            prop_assert!(max_hold.is_none_or(|limit| plan.kill <= at(now + limit)));
            let last = plan.last(at(now + asked), millis(kill_after));
            prop_assert!(last <= plan.kill && last <= at(now + asked + kill_after));
            let guardian = plan.in_its_place();
            prop_assert!(plan.ask <= guardian.ask && guardian.ask <= guardian.kill && guardian.kill == plan.kill);
        }
    }
}
