//! Fences: stores that refuse a fencing token lower than the highest they have seen.
//!
//! A lock alone cannot keep out a holder that was stopped past its lease: it does not know yet, and its write may be under
//! way already. The store can. It keeps the highest token beside what it protects, and each write compares and sets both *in
//! one step*. Equal tokens pass, since a holder may write more than once; lower ones are refused with [`StaleToken`].
//!
//! | the store | the fence |
//! |---|---|
//! | memory of one process | [`Fence`] |
//! | a table | the statements in [`sql`] |
//! | Redis | `lock_redis::fence` |
//! | ZooKeeper | `lock_zk::fence` |
//!
//! A store that is none of these compares one of the token's two forms: the text, byte by byte, or the integer, as a number
//! of 64 bits ([`FencingToken::to_i64`]). `lock run` gives its command both, as `LOCK_TOKEN` and `LOCK_TOKEN_INT`.
//! `docs/fencing.md` has examples, with one for a shell.
//!
//! What a fence must not do is forget: where the token is lost, with a backup that was restored or a key that was evicted,
//! an old holder is let in again. And a fence must see every write: one that goes around it is not checked.
//!
//! After a move to another lock service, or a restored backup of one, its numbers may start lower, and every fence would
//! refuse every holder. For that there is the era, the first part of a token: raise it
//! ([`LocksOptions::with_era`](crate::LocksOptions::with_era)), and the new holders are above all earlier ones.

pub mod sql;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::FencingToken;

/// A write with a token that is lower than one that the store has seen: it comes from a holder of the past. Nothing was
/// written. The holder has lost the lock, whatever it believes: it has to start again with a new acquisition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the fencing token {given} is stale for {resource:?}, which has seen {highest}")]
#[non_exhaustive]
pub struct StaleToken {
    /// What was to be written.
    pub resource: String,
    /// The token of the write.
    pub given: FencingToken,
    /// The highest token that the store had seen.
    pub highest: FencingToken,
}

impl StaleToken {
    /// For a store that refused `given` on account of `highest`.
    #[must_use]
    pub fn new(resource: impl Into<String>, given: FencingToken, highest: FencingToken) -> Self {
        Self { resource: resource.into(), given, highest }
    }

    /// Lets `given` pass where `highest` is the highest so far.
    ///
    /// # Errors
    /// [`StaleToken`] when `given` is lower.
    pub fn check(resource: &str, given: FencingToken, highest: Option<FencingToken>) -> Result<(), Self> {
        match highest {
            // Safeguard: a fence refuses a lower token (memory)
            Some(highest) if given < highest => Err(Self::new(resource, given, highest)),
            _ => Ok(()),
        }
    }
}

/// A fence in the memory of one process, for any number of resources. Share it by an [`Arc`].
///
/// It remembers one token for each resource for as long as it lives. A process that starts again begins with a fence that
/// has seen nothing: [`Fence::check`] it with the tokens that were kept elsewhere, if any were.
///
/// # Example
/// ```
/// use lock_core::{Fence, FencingToken};
///
/// let fence = Fence::new();
/// let (old, new) = (FencingToken { era: 0, number: 33 }, FencingToken { era: 0, number: 34 });
/// let mut report = String::new();
///
/// fence.admit("report", new, || report.push_str("new"))?;
/// fence.admit("report", new, || report.push('!'))?; // the same holder again
/// let stale = fence.admit("report", old, || report.clear()).unwrap_err();
/// assert_eq!((stale.given, stale.highest), (old, new));
/// assert_eq!(report, "new!");
/// # Ok::<(), lock_core::StaleToken>(())
/// ```
#[derive(Debug, Default)]
pub struct Fence {
    resources: Mutex<HashMap<String, HighestToken>>,
}

/// The highest token that a fence has admitted for one resource, locked while a write is under way. It is held locked
/// while something is written.
type HighestToken = Arc<Mutex<Option<FencingToken>>>;

impl Fence {
    /// A fence that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `write` if `token` is not lower than the highest that `resource` has seen, as one step: no other write to that
    /// resource comes between. `write` should be short, must not use this fence for the same resource (that would wait for
    /// itself), and waits for others on its thread.
    ///
    /// The token counts as seen even when `write` fails or panics: part of it may have been done.
    ///
    /// # Errors
    /// [`StaleToken`] when `token` is lower: `write` was not run.
    pub fn admit<R>(&self, resource: &str, token: FencingToken, write: impl FnOnce() -> R) -> Result<R, StaleToken> {
        let seen = self.seen(resource);
        let mut highest = seen.lock().unwrap_or_else(PoisonError::into_inner);
        StaleToken::check(resource, token, *highest)?;
        // Safeguard: check and write are one step of a fence (memory)
        *highest = Some(token);
        Ok(write())
    }

    /// Compares and advances, and no more: after it, `resource` refuses whatever is lower than `token`. A write that follows
    /// is not one step with it, and a later holder's may come between; [`Fence::admit`] is for that.
    ///
    /// # Errors
    /// [`StaleToken`] when `token` is lower than the highest that `resource` has seen.
    pub fn check(&self, resource: &str, token: FencingToken) -> Result<(), StaleToken> {
        self.admit(resource, token, || ())
    }

    /// The highest token that `resource` has seen.
    #[must_use]
    pub fn highest(&self, resource: &str) -> Option<FencingToken> {
        let seen = self.resources.lock().unwrap_or_else(PoisonError::into_inner).get(resource).cloned()?;
        *seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self, resource: &str) -> HighestToken {
        let mut resources = self.resources.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = resources.get(resource) {
            return Arc::clone(seen);
        }
        Arc::clone(resources.entry(resource.to_owned()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_tokens_that_pass_never_fall_and_the_highest_always_passes(
            tokens in prop::collection::vec((0_u32..3, 0_u64..5), 1..50),
        ) {
            let fence = Fence::new();
            let mut highest = None;
            for (era, number) in tokens {
                let given = FencingToken { era, number };
                let passed = fence.check("a", given);
                match highest.filter(|highest| given < *highest) {
                    None => {
                        prop_assert_eq!(passed, Ok(()));
                        highest = Some(given);
                    }
                    Some(highest) => {
                        prop_assert_eq!(passed, Err(StaleToken { resource: "a".to_owned(), given, highest }));
                    }
                }
                prop_assert_eq!(fence.highest("a"), highest);
                prop_assert_eq!(fence.highest("b"), None);
            }
        }
    }

    /// Many writers race; what the store has seen last must be the highest of them all.
    #[test]
    fn check_and_write_are_one_step() {
        let fence = Fence::new();
        let written = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let (fence, written) = (&fence, &written);
                scope.spawn(move || {
                    for number in (writer..2000).step_by(4) {
                        let token = FencingToken { era: 0, number };
                        let _ = fence.admit("a", token, || {
                            std::thread::yield_now();
                            written.lock().unwrap().push(token);
                        });
                    }
                });
            }
        });
        let written = written.into_inner().unwrap();
        assert!(written.is_sorted());
        assert_eq!(written.last(), Some(&FencingToken { era: 0, number: 1999 }));
    }
}
