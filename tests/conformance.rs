//! The conformance suite on every backend of the facade, on real servers: one test for each case and each arrangement of
//! servers, `redis::a_dropped_guard_releases_the_lock` and so on. Servers are started when the first test needs them, and
//! end with this program. Nothing is skipped: where a server is missing, its tests fail, and where a backend does not have
//! what a case needs, the case tries out that it is refused by its name.

#[path = "conformance/fixtures.rs"]
mod fixtures;
#[path = "conformance/links.rs"]
mod links;
#[path = "conformance/local.rs"]
mod local;
#[path = "conformance/redis_keys.rs"]
mod redis_keys;
#[path = "conformance/redis_nodes.rs"]
mod redis_nodes;
#[path = "conformance/rights.rs"]
mod rights;
#[path = "conformance/zookeeper.rs"]
mod zookeeper;

use std::{collections::BTreeSet, process::ExitCode, sync::Arc, time::Duration};

use libtest_mimic::{Arguments, Failed, Trial};
use lock_core::conformance::{CASES, Case};
use tokio::runtime::Runtime;

use self::fixtures::{Arrangement, FIXTURES, Started};

/// Most of a test's time is spent on waiting for servers and for leases to end.
const TESTS_AT_ONCE: usize = 6;

/// How long a connection without locks may take to close.
const CLOSING: Duration = Duration::from_secs(30);

/// What all tests share. Servers are in it, so that they end with it.
struct World {
    runtime: Runtime,
    started: Vec<Started>,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(TESTS_AT_ONCE);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let world = Arc::new(World { runtime, started: FIXTURES.iter().map(|_| Started::default()).collect() });
    let mut trials = trials(&world);
    trials.extend(drift(&trials));
    trials.extend(names(&world));
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Not `Conclusion::exit`: the servers end when the world is dropped.
    drop(world);
    conclusion.exit_code()
}

/// Every case on every fixture.
fn trials(world: &Arc<World>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (index, arrangement) in FIXTURES.iter().enumerate() {
        for case in CASES {
            let world = Arc::clone(world);
            trials.push(Trial::test(trial_name(arrangement, case), move || run(&world, index, case)));
        }
    }
    trials
}

fn trial_name(arrangement: &Arrangement, case: &Case) -> String {
    format!("{}::{}", arrangement.name, case.name)
}

fn run(world: &World, index: usize, case: &Case) -> Result<(), Failed> {
    world.runtime.block_on(async {
        let fixture = world.started[index].get(&FIXTURES[index]).await?;
        case.run(fixture).await.map_err(Failed::from)
    })
}

/// One test for each arrangement: what refusals and reports call the backend is what its URL calls it.
fn names(world: &Arc<World>) -> Vec<Trial> {
    let trial = |index: usize, arrangement: &'static Arrangement| {
        let world = Arc::clone(world);
        Trial::test(format!("{}::the_backend_is_called_as_in_its_url", arrangement.name), move || {
            let called = world.runtime.block_on(async {
                let locks = world.started[index].get(arrangement).await?.connect().await.map_err(Failed::from)?;
                let called = locks.capabilities().backend;
                locks.close(CLOSING).await.map_err(Failed::from)?;
                Ok::<_, Failed>(called)
            })?;
            if called == arrangement.scheme {
                return Ok(());
            }
            Err(format!("{} calls itself {called}", arrangement.scheme).into())
        })
    };
    FIXTURES.iter().enumerate().map(|(index, arrangement)| trial(index, arrangement)).collect()
}

/// Tests that fail when the suite no longer covers what there is.
fn drift(trials: &[Trial]) -> Vec<Trial> {
    let names: BTreeSet<String> = trials.iter().map(|trial| trial.name().to_owned()).collect();
    vec![
        Trial::test("every_backend_of_the_facade_is_built_in_and_has_a_fixture", || {
            let registry = lock::registry();
            if !registry.missing().is_empty() {
                return Err(format!("not built in, so their tests would say nothing: {:?}", registry.missing()).into());
            }
            for scheme in registry.schemes() {
                if !FIXTURES.iter().any(|arrangement| arrangement.scheme == scheme.name) {
                    return Err(format!("{} has no fixture in tests/conformance/fixtures.rs", scheme.name).into());
                }
            }
            Ok(())
        }),
        Trial::test("every_fixture_runs_every_case", move || {
            let expected: BTreeSet<String> = FIXTURES
                .iter()
                .flat_map(|arrangement| CASES.iter().map(|case| trial_name(arrangement, case)))
                .collect();
            let missing: Vec<_> = expected.difference(&names).collect();
            if !missing.is_empty() || expected.len() != FIXTURES.len() * CASES.len() {
                return Err(format!("cases that are not run, or share a name: {missing:?}").into());
            }
            Ok(())
        }),
    ]
}
