//! `--at-least`: a lock that stays held for a while after its command has ended.

use std::io::{self, IsTerminal as _};

use lock::{BootInstant, Clock};

use crate::{
    failure::notice,
    held_lock::HeldLock,
    shown::rounded,
    signals::{SignalStream, signalled},
};

/// How the time of `--at-least` has ended.
pub(crate) enum HoldOutcome {
    /// It has passed.
    Passed,
    /// The lock was lost meanwhile, in words.
    Lost(String),
    /// Asked to end meanwhile; the exit status.
    Interrupted(u8),
}

/// Holds the lock until `until`. The command has ended, so nobody is harmed when the lock is lost or given back before.
pub(crate) async fn hold_on(held: &HeldLock, until: BootInstant, signals: &mut SignalStream) -> HoldOutcome {
    let (clock, name) = (Clock::boot(), held.name());
    let left = || rounded(until.saturating_since(clock.now()));
    // For who sits there. A line of every run would be a mail of cron.
    if io::stderr().is_terminal() && until > clock.now() {
        notice(format_args!("holding lock {name:?} for another {}, as --at-least says", left()));
    }
    tokio::select! {
        biased;
        // Safeguard: a lock is held for --at-least (lock run)
        () = clock.sleep_until(until) => HoldOutcome::Passed,
        loss = held.validity().lost() => HoldOutcome::Lost(format!(
            "lock {name:?} was lost after its command had ended, {} before the end of --at-least: {loss}",
            left()
        )),
        signal = signals.next_ending() => {
            notice(format_args!("lock {name:?} is given back {} before the end of --at-least", left()));
            HoldOutcome::Interrupted(signalled(signal))
        }
    }
}
