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

mod cases;
mod checker;
mod client;
mod failure;
mod fixture;
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
use self::{failure::Outcome, limits::CASE_LIMIT, run::Run};
use crate::Clock;

/// One promise, tried out.
#[derive(Clone, Copy)]
pub struct Case {
    /// The promise as a sentence, with underscores for spaces.
    pub name: &'static str,
    steps: fn(Arc<Run>) -> Steps,
}

type Steps = Pin<Box<dyn Future<Output = Outcome> + Send>>;

impl Case {
    /// Tries it out on `fixture`. Needs a multi-threaded tokio runtime with its time and I/O drivers.
    ///
    /// # Errors
    /// What was not as promised.
    ///
    /// # Cancel safety
    /// Servers are left with whatever was held when the future is dropped.
    pub async fn run(&self, fixture: Arc<dyn Fixture>) -> Result<(), Failure> {
        let run = Arc::new(Run::new(self.name, fixture));
        let steps = Clock::boot().timeout(CASE_LIMIT, (self.steps)(Arc::clone(&run))).await;
        let outcome = steps.unwrap_or_else(|| Err(Failure::new(format!("it took longer than {CASE_LIMIT:?}"))));
        run.finish(outcome).await
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Case").field(&self.name).finish()
    }
}
