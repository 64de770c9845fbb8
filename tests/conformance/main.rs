//! The conformance suite on every deployment of the laboratory, on real servers: one test for each case,
//! `redis::a_dropped_guard_releases_the_lock` and so on. Servers are started when the first test needs them, and end with this
//! program. Nothing is skipped silently: where a server is missing, its tests fail; where a backend lacks what a case needs,
//! the case says so, and another one tries out that this is refused by its name.
//!
//! Beside them, one test for each way to wait cancels acquisitions at random moments, and looks what is left.

mod cancellations;
mod fixture;

use std::{collections::BTreeSet, process::ExitCode, sync::Arc, time::Duration};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use lock_core::conformance::{CASES, Case, Fixture, Tried};
use lock_lab::deployment::{Deployment, Trials};
use tokio::{runtime::Runtime, sync::OnceCell};

use self::fixture::DeploymentFixture;

/// Most of a test's time is spent on waiting for servers and for leases to end.
const TESTS_AT_ONCE: usize = 12;

/// The case that takes longest everywhere.
const LONGEST: &str = "::tokens_rise_over_10000_grants_from_several_connections";

/// How long a connection without locks may take to close.
const CLOSING: Duration = Duration::from_secs(30);

/// What all tests share. Servers are in it, so that they end with it.
struct World {
    runtime: Runtime,
    fixtures: Vec<Shared>,
}

/// A deployment that is started when it is first asked for.
struct Shared {
    deployment: Deployment,
    started: OnceCell<Result<Arc<dyn Fixture>, String>>,
}

impl Shared {
    /// The running fixture, or why it does not run: each of its tests fails with that.
    async fn get(&self) -> Result<Arc<dyn Fixture>, String> {
        let start = async || match DeploymentFixture::start(self.deployment).await {
            Ok(fixture) => Ok(Arc::new(fixture) as Arc<dyn Fixture>),
            Err(error) => Err(error.with_causes()),
        };
        self.started.get_or_init(start).await.clone()
    }
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
    let deployments = Deployment::those(|one| one.trials != Trials::None);
    let fixtures = deployments.into_iter().map(|deployment| Shared { deployment, started: OnceCell::new() }).collect();
    let world = Arc::new(World { runtime, fixtures });
    let mut trials = trials(&world);
    trials.push(drift(&trials));
    trials.extend(names(&world));
    trials.extend(cancelled(&world));
    // What takes longest does not begin last, with nothing beside it.
    trials.sort_by_key(|trial| !trial.name().ends_with(LONGEST));
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Not `Conclusion::exit`: the servers end when the world is dropped.
    drop(world);
    conclusion.exit_code()
}

/// The cases that are tried out on that deployment.
fn cases(deployment: Deployment) -> impl Iterator<Item = &'static Case> {
    let asked = CASES.iter().filter(move |case| match deployment.trials {
        Trials::All => true,
        Trials::AllButLong => !case.is_long,
        Trials::OfTheWay => case.is_about_the_way,
        Trials::OfTheWayAndLong => case.is_about_the_way || case.is_long,
        Trials::None => false,
    });
    asked.filter(move |case| !deployment.except.contains(&case.name))
}

fn trials(world: &Arc<World>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (index, shared) in world.fixtures.iter().enumerate() {
        for case in cases(shared.deployment) {
            let world = Arc::clone(world);
            let name = format!("{}::{}", shared.deployment, case.name);
            trials.push(Trial::ignorable_test(name, move || run(&world, index, case)));
        }
    }
    trials
}

fn run(world: &World, index: usize, case: &Case) -> Result<Completion, Failed> {
    world.runtime.block_on(async {
        let fixture = world.fixtures[index].get().await?;
        match case.run(fixture).await.map_err(Failed::from)? {
            Tried::Kept => Ok(Completion::Completed),
            Tried::Lacks(feature) => Ok(Completion::ignored_with(format!("the backend lacks {feature}"))),
        }
    })
}

/// One test for each deployment: what refusals and reports call the backend is what its URL calls it.
fn names(world: &Arc<World>) -> Vec<Trial> {
    let trial = |index: usize, deployment: Deployment| {
        let world = Arc::clone(world);
        Trial::test(format!("{deployment}::the_backend_is_called_as_in_its_url"), move || {
            let called = world.runtime.block_on(async {
                let locks = world.fixtures[index].get().await?.connect().await.map_err(Failed::from)?;
                let called = locks.capabilities().backend;
                locks.close(CLOSING).await.map_err(Failed::from)?;
                Ok::<_, Failed>(called)
            })?;
            if called == deployment.scheme {
                return Ok(());
            }
            Err(format!("{} calls itself {called}", deployment.scheme).into())
        })
    };
    world.fixtures.iter().enumerate().map(|(index, shared)| trial(index, shared.deployment)).collect()
}

/// One test for each way to wait: nothing is left of acquisitions that are cancelled at random moments.
fn cancelled(world: &Arc<World>) -> Vec<Trial> {
    let trial = |deployment: Deployment| {
        let world = Arc::clone(world);
        Trial::test(format!("{deployment}::nothing_is_left_of_cancelled_acquisitions"), move || {
            world.runtime.block_on(cancellations::check(deployment));
            Ok(())
        })
    };
    cancellations::deployments().into_iter().map(trial).collect()
}

/// A test that fails when the suite no longer covers what there is: each backend of the facade is built in and tried, in every
/// case or beside another one that differs only in the way; that of this program's memory is tried in lock-core's own tests,
/// in simulated time.
fn drift(trials: &[Trial]) -> Trial {
    let names: BTreeSet<String> = trials.iter().map(|trial| trial.name().to_owned()).collect();
    Trial::test("every_backend_of_the_facade_is_built_in_and_tried", move || {
        let registry = lock::registry();
        if !registry.missing().is_empty() {
            return Err(format!("not built in, so their tests would say nothing: {:?}", registry.missing()).into());
        }
        for scheme in registry.schemes().filter(|scheme| scheme.name != "memory") {
            let those = Deployment::those(|one| one.scheme == scheme.name && one.trials != Trials::None);
            let excepted = those.iter().flat_map(|one| one.except);
            if let Some(unknown) = excepted.copied().find(|name| CASES.iter().all(|case| case.name != *name)) {
                return Err(format!("{}: there is no case {unknown}", scheme.name).into());
            }
            if those.is_empty() {
                return Err(format!("{} is tried on no deployment", scheme.name).into());
            }
            if scheme.with_tls.is_some() && those.iter().all(|one| one.is_in_clear) {
                return Err(format!("{} is not tried by TLS", scheme.name).into());
            }
            let missing =
                |one: &&Deployment| cases(**one).any(|case| !names.contains(&format!("{one}::{}", case.name)));
            if let Some(one) = those.iter().find(missing) {
                return Err(format!("not all cases are run on {one}").into());
            }
        }
        Ok(())
    })
}
