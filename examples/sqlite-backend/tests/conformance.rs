//! The conformance suite of `lock-core` on the example: one test for each case. Where the backend lacks what a case needs, the
//! case says so, and another one tries out that this is refused by its name.

#[path = "conformance/fixture.rs"]
mod fixture;
#[path = "conformance/link.rs"]
mod link;

use std::{process::ExitCode, sync::Arc};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use lock_core::conformance::{CASES, Case, Fixture, Tried};
use tokio::runtime::Runtime;

use self::fixture::SqliteFixture;

/// Most of a test's time is spent on waiting for leases to end.
const TESTS_AT_ONCE: usize = 6;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(TESTS_AT_ONCE);
    let prepared = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())
        .and_then(|runtime| Ok((runtime, SqliteFixture::new()?)));
    let (runtime, fixture) = match prepared {
        Ok((runtime, fixture)) => (Arc::new(runtime), Arc::new(fixture)),
        Err(error) => {
            eprintln!("no runtime or no database: {error}");
            return ExitCode::FAILURE;
        }
    };
    let trial = |case: &'static Case| {
        let (runtime, fixture) = (Arc::clone(&runtime), Arc::clone(&fixture));
        Trial::ignorable_test(case.name, move || run(&runtime, fixture, case))
    };
    libtest_mimic::run(&arguments, CASES.iter().map(trial).collect()).exit_code()
}

fn run(runtime: &Runtime, fixture: Arc<dyn Fixture>, case: &Case) -> Result<Completion, Failed> {
    match runtime.block_on(case.run(fixture)).map_err(Failed::from)? {
        Tried::Kept => Ok(Completion::Completed),
        Tried::Lacks(feature) => Ok(Completion::ignored_with(format!("the backend lacks {feature}"))),
    }
}
