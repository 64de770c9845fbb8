//! Which fault strikes which arrangement of servers, and how often.

use clap::Args;

use super::{fault::Fault, report::LeftOut};
use crate::{LabError, deployment::Deployment};

/// How often the full matrix repeats each pair.
pub const REPETITIONS: usize = 2;

/// One fault on one arrangement of servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // Named by what they are.
pub struct Pair {
    pub on: Deployment,
    pub fault: Fault,
}

/// What is wanted of the matrix.
#[derive(Debug, Clone, Default, Args)]
#[non_exhaustive]
pub struct Wanted {
    /// Only these arrangements of servers.
    #[arg(long = "backend", value_name = "KEY", value_delimiter = ',', num_args = 1.., value_parser = Deployment::parse_struck)]
    pub backends: Vec<Deployment>,

    /// Only these faults.
    #[arg(long = "fault", value_name = "KEY", value_delimiter = ',', num_args = 1..)]
    pub faults: Vec<Fault>,

    /// Everything that applies, of what --backend and --fault leave; the report lists what does not, and why.
    #[arg(long)]
    pub all: bool,

    /// As --all, twice each; takes more than an hour.
    #[arg(long)]
    pub full: bool,
}

/// What is run.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// In this order.
    pub pairs: Vec<Pair>,
    /// How often each.
    pub repetitions: usize,
    /// Whether it is a matrix, or what somebody picked out of it.
    pub is_picked: bool,
    /// What does not apply, and why.
    pub left_out: Vec<LeftOut>,
}

impl Plan {
    /// The plan for what is wanted.
    ///
    /// # Errors
    /// [`LabError::Refused`] when a pair that is asked for by name does not apply, or nothing is left.
    pub fn of(wanted: &Wanted) -> Result<Self, LabError> {
        let Wanted { backends, faults, all, full } = wanted;
        let is_picked = !backends.is_empty() || !faults.is_empty();
        let repetitions = if *full { REPETITIONS } else { 1 };
        let mut plan = Self { repetitions, is_picked, ..Self::default() };
        if !is_picked && !all && !full {
            plan.pairs = quick()?;
            return Ok(plan);
        }
        let by_name = !all && !full && !backends.is_empty() && !faults.is_empty();
        for pair in pairs(or_all(backends, &Deployment::struck()), or_all(faults, &Fault::ALL)) {
            match pair.fault.why_not(pair.on) {
                None => plan.pairs.push(pair),
                Some(why) if by_name => return Err(refused(pair, why)),
                Some(why) => plan.left_out.push(left_out(pair, why)),
            }
        }
        match plan.left_out.first() {
            Some(first) if plan.pairs.is_empty() => Err(LabError::Refused {
                reason: format!(
                    "nothing of this applies: {} does not to {}: {}",
                    first.fault, first.backend, first.why
                ),
            }),
            _ => Ok(plan),
        }
    }

    /// How many runs that is, second tries apart.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.pairs.len() * self.repetitions
    }
}

/// The quick matrix: each deployment with its most telling faults, and each backend with the workload of the published test of
/// etcd's locks.
fn quick() -> Result<Vec<Pair>, LabError> {
    let mut plan = Vec::new();
    for on in Deployment::struck() {
        for key in on.quick {
            let fault = key.parse().map_err(|known| LabError::run(format!("{on} names the fault {key}: {known}")))?;
            plan.push(Pair { on, fault });
        }
    }
    Ok(plan)
}

fn or_all<'a, T>(picked: &'a [T], all: &'a [T]) -> &'a [T] {
    if picked.is_empty() { all } else { picked }
}

fn pairs(backends: &[Deployment], faults: &[Fault]) -> Vec<Pair> {
    backends.iter().flat_map(|on| faults.iter().map(|fault| Pair { on: *on, fault: *fault })).collect()
}

fn refused(pair: Pair, why: &str) -> LabError {
    LabError::Refused { reason: format!("the fault {} does not apply to {}: {why}", pair.fault, pair.on) }
}

fn left_out(pair: Pair, why: &str) -> LeftOut {
    LeftOut { backend: pair.on.key.into(), fault: pair.fault.key().into(), why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_matrix_has_only_what_applies_and_nothing_twice() {
        let plan = Plan::of(&Wanted::default()).unwrap();
        for pair in &plan.pairs {
            assert_eq!(pair.fault.why_not(pair.on), None, "{pair:?}");
            assert_eq!(plan.pairs.iter().filter(|other| *other == pair).count(), 1, "{pair:?}");
        }
        assert!(plan.left_out.is_empty());
    }

    #[test]
    fn the_quick_matrix_shows_what_asynchronous_failover_and_a_bare_majority_do_not_promise() {
        let plan = Plan::of(&Wanted::default()).unwrap();
        for (on, fault) in [("sentinel", Fault::FailoverBeforeReplication), ("redlock5", Fault::ClockJumpMinimalQuorum)]
        {
            let on = on.parse().unwrap();
            assert!(plan.pairs.contains(&Pair { on, fault }));
        }
    }

    #[test]
    fn the_quick_matrix_has_the_workload_of_the_published_test_on_every_backend() {
        let plan = Plan::of(&Wanted::default()).unwrap();
        for on in Deployment::struck() {
            let same = |pair: &&Pair| pair.on.scheme == on.scheme;
            assert!(plan.pairs.iter().filter(same).any(|pair| pair.fault == Fault::Pauses), "{}", on.scheme);
        }
    }

    #[test]
    fn a_pair_asked_for_by_name_that_does_not_apply_is_refused_and_in_all_it_is_left_out() {
        let mut wanted = Wanted {
            backends: ["zk3", "redis"].map(|on| on.parse().unwrap()).to_vec(),
            faults: vec![Fault::ScriptFlush],
            ..Wanted::default()
        };
        let refused = Plan::of(&wanted).unwrap_err().to_string();
        assert!(refused.contains("script-flush") && refused.contains("zk3"), "{refused}");
        wanted.all = true;
        let plan = Plan::of(&wanted).unwrap();
        assert_eq!((plan.pairs.len(), plan.left_out.len()), (1, 1));
        assert!(!plan.left_out[0].why.is_empty());
    }

    #[test]
    fn the_full_matrix_has_every_pair_or_says_why_not() {
        let plan = Plan::of(&Wanted { full: true, ..Wanted::default() }).unwrap();
        assert_eq!(plan.pairs.len() + plan.left_out.len(), Deployment::struck().len() * Fault::ALL.len());
        assert_eq!(plan.runs(), plan.pairs.len() * REPETITIONS);
    }

    #[test]
    fn a_selection_of_which_nothing_applies_is_refused() {
        let wanted = Wanted {
            backends: vec!["zk3".parse().unwrap()],
            faults: vec![Fault::ScriptFlush],
            all: true,
            ..Wanted::default()
        };
        assert!(matches!(Plan::of(&wanted), Err(LabError::Refused { .. })));
    }
}
