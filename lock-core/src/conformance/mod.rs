//! The conformance suite: what every backend must do, as cases that a backend's tests run on its real servers.
//!
//! A backend's test implements [`Fixture`] and runs each of [`CASES`] on it, each as a test of its own:
//!
//! ```no_run
//! # async fn example(fixture: std::sync::Arc<dyn lock_core::conformance::Fixture>) -> Result<(), lock_core::conformance::Failure> {
//! for case in lock_core::conformance::CASES {
//!     let _kept_or_lacking = case.run(std::sync::Arc::clone(&fixture)).await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Cases see a backend only through [`Locks`](crate::Locks), and its servers only through the fixture. In every case, by
//! construction, a checker compares each holder's validity with the other holders' and with what the servers keep, and in
//! the end every connection must close cleanly and the servers must keep nothing for the names that were used. Where a
//! case waits, it waits for an event with a limit of fifty seconds; no case judges how long something took.
//!
//! A case may need a [`Feature`] that not every backend has: where one is missing, the case says so and does nothing. One case
//! tries out that whatever a backend lacks is refused by its name, so that every *no* of a backend is as well tested as every
//! *yes*.

mod cases;
mod checked_lock;
mod checker;
mod client;
mod failure;
mod fixture;
mod guards;
mod limits;
mod memory;
mod run;

use std::{fmt, pin::Pin, sync::Arc};

pub use self::{
    cases::CASES,
    failure::Failure,
    fixture::{Down, Fixture, Kept, LONG_TTL, Link, Severable},
    memory::MemoryFixture,
};
use self::{failure::CaseResult, limits::CASE_LIMIT, run::CaseRun};
use crate::{Clock, Feature};

/// One promise, tried out.
#[derive(Clone, Copy)]
pub struct Case {
    /// The promise as a sentence, with underscores for spaces.
    pub name: &'static str,
    /// What the backend must have for it.
    pub needs: &'static [Feature],
    /// Whether it depends on how requests and news find their way, and not only on what a server does with them. A backend
    /// that differs from another one in nothing else needs to be tried in these only.
    pub is_about_the_way: bool,
    /// Whether it takes a thousand grants or more. Of two deployments of a backend that keep its promises by the same means it
    /// is enough to try it on the cheaper one.
    pub is_long: bool,
    steps: fn(Arc<CaseRun>) -> CaseFuture,
}

/// What a case came to that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Tried {
    /// The promise was kept.
    Kept,
    /// The backend lacks this, and [`CASES`] has one that tries out how it is refused.
    Lacks(Feature),
}

/// The steps of one conformance case, as one boxed future.
type CaseFuture = Pin<Box<dyn Future<Output = CaseResult> + Send>>;

impl Case {
    /// Tries it out on `fixture`. Needs a tokio runtime with its time and I/O drivers: one with several
    /// threads, or a paused one where the fixture counts on its clock.
    ///
    /// # Errors
    /// What was not as promised.
    ///
    /// # Cancel safety
    /// Servers are left with whatever was held when the future is dropped.
    pub async fn run(&self, fixture: Arc<dyn Fixture>) -> Result<Tried, Failure> {
        let run = Arc::new(CaseRun::new(self, fixture));
        let steps = Clock::runtime().timeout(CASE_LIMIT, self.steps_if_possible(&run)).await;
        let outcome = steps.unwrap_or_else(|| Err(Failure::new(format!("it took longer than {CASE_LIMIT:?}"))));
        run.finish(outcome).await
    }

    async fn steps_if_possible(&self, run: &Arc<CaseRun>) -> CaseResult<Tried> {
        match run.missing(self.needs).await?.first() {
            Some(feature) => Ok(Tried::Lacks(*feature)),
            None => (self.steps)(Arc::clone(run)).await.map(|()| Tried::Kept),
        }
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Case").field(&self.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_is_named_by_a_case() {
        for feature in Feature::ALL {
            assert!(CASES.iter().any(|case| case.needs.contains(feature)), "no case needs {feature}");
        }
    }
}
