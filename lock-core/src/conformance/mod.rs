//! The conformance suite: what every backend must do, as cases that a backend's tests run on its real servers.
//!
//! A backend's test implements [`Fixture`] and runs each of [`CASES`] on it, each as a test of its own:
//!
//! ```no_run
//! # async fn example(fixture: std::sync::Arc<dyn lock_core::conformance::Fixture>) -> Result<(), lock_core::conformance::Failure> {
//! for case in lock_core::conformance::CASES {
//!     case.run(std::sync::Arc::clone(&fixture)).await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Cases see a backend only through [`Locks`](crate::Locks), and its servers only through the fixture. In every case, by
//! construction, a checker compares each holder's validity with the other holders' and with what the servers keep, and in
//! the end every connection must close cleanly and the servers must keep nothing for the names that were used. Where a
//! case waits, it waits for an event with a limit of half a minute; no case judges how long something took.
//!
//! A case may need a [`Feature`] that not every backend has. Nothing is left out for that: where the feature is missing, the
//! case tries out that its refusal is honest instead, so that every *no* of a backend is as well tested as every *yes*.

mod cases;
mod checker;
mod client;
mod failure;
mod fixture;
mod held;
mod limits;
mod memory;
mod refusal;
mod run;
mod watched;

use std::{fmt, pin::Pin, sync::Arc};

pub use self::{
    cases::CASES,
    failure::Failure,
    fixture::{Down, Fixture, Kept, LONG_TTL, Link, Severable},
    memory::MemoryFixture,
};
use self::{failure::Outcome, limits::CASE_LIMIT, run::Run};
use crate::{Clock, Feature};

/// One promise, tried out.
#[derive(Clone, Copy)]
pub struct Case {
    /// The promise as a sentence, with underscores for spaces.
    pub name: &'static str,
    /// What the backend must have for it. Where something of it is missing, that is refused by its name, and this is tried
    /// out in place of the promise.
    pub needs: &'static [Feature],
    steps: fn(Arc<Run>) -> Steps,
}

/// The steps of one case, as one boxed future.
type Steps = Pin<Box<dyn Future<Output = Outcome> + Send>>;

impl Case {
    /// Tries it out on `fixture`. Needs a tokio runtime with its time and I/O drivers: one with several
    /// threads, or a paused one where the fixture counts on its clock.
    ///
    /// # Errors
    /// What was not as promised.
    ///
    /// # Cancel safety
    /// Servers are left with whatever was held when the future is dropped.
    pub async fn run(&self, fixture: Arc<dyn Fixture>) -> Result<(), Failure> {
        let run = Arc::new(Run::new(self, fixture));
        let steps = Clock::runtime().timeout(CASE_LIMIT, self.steps_or_refusals(&run)).await;
        let outcome = steps.unwrap_or_else(|| Err(Failure::new(format!("it took longer than {CASE_LIMIT:?}"))));
        run.finish(outcome).await
    }

    async fn steps_or_refusals(&self, run: &Arc<Run>) -> Outcome {
        let missing = run.missing(self.needs).await?;
        for feature in &missing {
            Box::pin(refusal::is_honest(run, *feature)).await?;
        }
        if missing.is_empty() { (self.steps)(Arc::clone(run)).await } else { Ok(()) }
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
