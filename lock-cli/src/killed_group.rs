//! What may be left of a command that got the last signal.
//!
//! Not every process can be ended: one that has become another user (by `sudo`, say) gets no signal from this one. Then the
//! lock must not be given to another while that process lives, for as long as it can be held at all.

use std::{mem::ManuallyDrop, time::Duration};

use lock::Clock;
use nix::unistd::Pid;
use tokio::process::Child;

use crate::{
    failure::{LOST, NOT_ENDED, say},
    group,
    held_lock::HeldLock,
};

/// How long the kernel may take to end a process that got SIGKILL, before somebody is told; some milliseconds are usual.
const KILLING: Duration = Duration::from_secs(1);
/// How long what cannot be ended is waited for when the lock is lost: there is nothing more to wait for then.
const GIVING_UP: Duration = Duration::from_secs(5);
/// How long a command that is gone may take to be waited for.
const REAPING: Duration = Duration::from_secs(5);

/// The process group of a command that got SIGKILL, some processes of which may still live.
#[derive(Debug)]
pub(crate) struct KilledGroup {
    pub(crate) group: Pid,
    pub(crate) command: Child,
}

impl KilledGroup {
    /// Gives the lock back once nobody of the group is left. Returns the exit status, and what became of the command, in words.
    /// Whoever cannot be ended is waited for while the lock is held.
    ///
    /// When the future is dropped before that, the lock is not given back: it is left to its ttl.
    pub(crate) async fn settle(mut self, held: HeldLock) -> (u8, String) {
        let held = ManuallyDrop::new(held);
        let left = self.end(&held).await;
        drop(ManuallyDrop::into_inner(held));
        match left {
            None => (LOST, "the command was ended".to_owned()),
            Some(left) => (NOT_ENDED, format!("{left} of the command could not be ended, and went on")),
        }
    }

    /// Returns once nobody of the group is left; or who is, when that could not be waited for.
    async fn end(&mut self, held: &HeldLock) -> Option<String> {
        let clock = Clock::boot();
        let began = clock.now();
        let mut said = false;
        // Safeguard: the lock is held while somebody lives who cannot be ended (lock run)
        while let Some(left) = group::left(self.group) {
            // The command itself is our child, and stays in the group until it is waited for.
            let _ = self.command.try_wait();
            let past = clock.now().saturating_since(began);
            if past >= GIVING_UP && !held.validity().is_valid() {
                // Safeguard: what could not be ended is said (lock run)
                return Some(left);
            }
            if past >= KILLING && !said && held.validity().is_valid() {
                let name = held.name();
                say(format_args!(
                    "{left} of the command cannot be ended; lock {name:?} is held for as long as that lives"
                ));
                said = true;
            }
            clock.sleep(group::LOOK).await;
        }
        let _ = clock.timeout(REAPING, self.command.wait()).await;
        None
    }
}
