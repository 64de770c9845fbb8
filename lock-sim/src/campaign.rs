//! A machine with all its safeguards, and without each of them.

use std::{fmt::Write, time::Duration};

use lock_core::Clock;

use crate::{
    Fact, Machine, Sort, Trace, Violation,
    machine::ENOUGH,
    runner::{Summary, Until, explore, play},
};

/// What a campaign does with one machine.
#[derive(Debug, Clone, Copy)]
pub struct Campaign {
    /// How many schedules are played with all safeguards.
    pub seeds: u64,
}

/// What a campaign found.
#[derive(Debug)]
pub struct Findings {
    /// With all safeguards.
    pub intact: Summary,
    /// How long that took.
    pub took: Duration,
    /// What never happened, although enough schedules were played.
    pub never: Vec<&'static str>,
    /// Without each safeguard, in their order.
    pub removed: Vec<Removed>,
}

/// What was found without one safeguard.
#[derive(Debug)]
pub struct Removed {
    /// Its name.
    pub name: &'static str,
    /// The lowest seed with a violation; `None` when there is none among the seeds that were given to it.
    pub caught: Option<(u64, Violation)>,
    /// How many schedules were played for that.
    pub schedules: u64,
    /// What the same schedule violates with the safeguard in place.
    pub with_it: Option<Violation>,
}

impl Removed {
    /// Whether the safeguard's absence shows, and only its absence.
    #[must_use]
    pub const fn is_as_it_should_be(&self) -> bool {
        self.caught.is_some() && self.with_it.is_none()
    }
}

impl Findings {
    /// Whether nothing is wrong: no violation with all safeguards, one without each, and nothing that never happened.
    #[must_use]
    pub fn is_as_it_should_be(&self) -> bool {
        self.intact.violations == 0 && self.never.is_empty() && self.removed.iter().all(Removed::is_as_it_should_be)
    }
}

impl Campaign {
    /// Plays it. `progress` is told what is played now, of how many seeds, and then how many more of these are done.
    pub fn run(
        &self,
        machine: &dyn Machine,
        begin: &mut dyn FnMut(String, u64),
        progress: &(dyn Fn(u64) + Sync),
    ) -> Findings {
        begin(format!("{}: all safeguards", machine.name()), self.seeds);
        let clock = Clock::boot();
        let started = clock.now();
        let intact = explore(machine, 0..self.seeds, None, Until::End, progress);
        let took = clock.now().saturating_since(started);
        let removed = (0..machine.safeguards().len()).map(|place| without(machine, place, begin, progress)).collect();
        let never = never(machine.facts(), &intact);
        Findings { intact, took, never, removed }
    }
}

/// Takes one safeguard out.
pub fn without(
    machine: &dyn Machine,
    place: usize,
    begin: &mut dyn FnMut(String, u64),
    progress: &(dyn Fn(u64) + Sync),
) -> Removed {
    let safeguard = machine.safeguards()[place];
    begin(format!("{}: without {}", machine.name(), safeguard.name), safeguard.seeds);
    let found = explore(machine, 0..safeguard.seeds, Some(place), Until::Violation, progress);
    let caught = found.first.into_iter().next();
    let with_it = caught.as_ref().and_then(|(seed, _)| play(machine, *seed, None, &mut Trace::silent()).violation);
    Removed { name: safeguard.name, caught, schedules: found.schedules, with_it }
}

fn never(facts: &[Fact], summary: &Summary) -> Vec<&'static str> {
    let enough = summary.schedules >= ENOUGH;
    let all = facts.iter().zip(summary.schedules_with);
    all.filter(|(_, schedules)| enough && *schedules == 0).map(|(fact, _)| fact.name).collect()
}

/// The command that replays a seed.
#[must_use]
pub fn replay(machine: &dyn Machine, seed: u64, without: Option<&str>) -> String {
    let without = without.map(|name| format!(" --without {name}")).unwrap_or_default();
    format!("cargo xtask simulate --machine {} --seed {seed}{without}", machine.name())
}

/// What a person reads of the findings.
#[must_use]
pub fn report(machine: &dyn Machine, findings: &Findings) -> String {
    let mut text = String::new();
    // A string takes everything.
    let _ = write_intact(&mut text, machine, findings);
    let _ = write_removed(&mut text, machine, findings);
    text
}

fn write_intact(text: &mut String, machine: &dyn Machine, findings: &Findings) -> std::fmt::Result {
    let Findings { intact, took, never, .. } = findings;
    let rate = u128::from(intact.schedules) * 1000 / took.as_millis().max(1);
    writeln!(text, "{}: {}", machine.name(), machine.about())?;
    writeln!(text, "  schedules  {:>12}   in {:.1} s, {rate} per second", intact.schedules, took.as_secs_f64())?;
    writeln!(text, "  events     {:>12}", intact.steps)?;
    writeln!(text, "  grants     {:>12}", intact.grants)?;
    for (sort, title) in [(Sort::Fault, "faults"), (Sort::Coverage, "what came about")] {
        writeln!(text, "  {title:<44} {:>12} {:>14}", "schedules", "times")?;
        for (place, fact) in machine.facts().iter().enumerate().filter(|(_, fact)| fact.sort == sort) {
            writeln!(text, "    {:<42} {:>12} {:>14}", fact.name, intact.schedules_with[place], intact.times[place])?;
        }
    }
    writeln!(text, "  violations {:>12}", intact.violations)?;
    for (seed, violation) in &intact.first {
        writeln!(text, "    seed {seed}: {}: {}", violation.invariant, violation.text)?;
        writeln!(text, "      {}", replay(machine, *seed, None))?;
    }
    for name in never {
        writeln!(text, "  NEVER HAPPENED: {name}")?;
    }
    Ok(())
}

fn write_removed(text: &mut String, machine: &dyn Machine, findings: &Findings) -> std::fmt::Result {
    for (removed, safeguard) in findings.removed.iter().zip(machine.safeguards()) {
        writeln!(text, "  without {}: {}", removed.name, safeguard.about)?;
        match &removed.caught {
            None => writeln!(text, "    NOT CAUGHT in {} schedules", removed.schedules)?,
            Some((seed, violation)) => {
                writeln!(text, "    seed {seed}: {}: {}", violation.invariant, violation.text)?;
                writeln!(text, "      {}", replay(machine, *seed, Some(removed.name)))?;
                if let Some(other) = &removed.with_it {
                    writeln!(text, "      THE SAME SCHEDULE WITH IT: {}: {}", other.invariant, other.text)?;
                } else {
                    writeln!(text, "      the same schedule with it: no violation")?;
                }
            }
        }
    }
    Ok(())
}
