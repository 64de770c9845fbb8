//! A machine with all its safeguards, and without each of them.

use std::{fmt::Write, time::Duration};

use lock_core::Clock;

use crate::{
    Fact, Machine, Missed, Sort, Trace, Violation,
    machine::ENOUGH,
    runner::{Summary, Told, Until, explore, play},
};

/// With so many violations a machine is wrong: more of them would only take time.
const TOO_MANY: u64 = 10;

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
    /// Without each safeguard, in their order; nothing of them when something is violated already.
    pub removed: Vec<Removed>,
}

/// What was found without one safeguard.
#[derive(Debug)]
pub struct Removed {
    /// Its name.
    pub name: &'static str,
    /// The invariant that it stands for; `None` when nobody has said which.
    pub invariant: Option<&'static str>,
    /// A seed with a violation of that invariant: the known one, or the lowest; `None` when there is none among the seeds
    /// that were given to it.
    pub caught: Option<(u64, Violation)>,
    /// How many schedules were played for that.
    pub schedules: u64,
    /// What the same schedule violates with the safeguard in place.
    pub with_it: Option<Violation>,
}

impl Removed {
    /// Whether the safeguard's absence shows, in what it stands for, and only its absence.
    #[must_use]
    pub const fn is_as_it_should_be(&self) -> bool {
        self.invariant.is_some() && self.caught.is_some() && self.with_it.is_none()
    }
}

impl Findings {
    /// Whether nothing is wrong: no violation with all safeguards, one without each, and nothing that never happened.
    #[must_use]
    pub fn is_as_it_should_be(&self) -> bool {
        self.intact.violations == 0 && self.never.is_empty() && self.removed.iter().all(Removed::is_as_it_should_be)
    }
}

/// How a campaign is followed.
pub trait Audience: Sync {
    /// Schedules will be played, so many at most.
    fn begins(&self, _title: &str, _seeds: u64) {}

    /// Schedules are being played. Called by many threads.
    fn told(&self, _told: &Told<'_>) {}

    /// A part is over, and this is what a person reads of it.
    fn found(&self, _text: &str) {}
}

/// Nobody follows it.
impl Audience for () {}

impl Campaign {
    /// Plays it: the machine as it is; and when that is as it should be, without each of its safeguards.
    pub fn run(&self, machine: &dyn Machine, audience: &dyn Audience) -> Findings {
        audience.begins(&format!("{}: all safeguards", machine.name()), self.seeds);
        let clock = Clock::boot();
        let started = clock.now();
        let intact = explore(machine, 0..self.seeds, None, Until::Violations(TOO_MANY), &|told| audience.told(&told));
        let took = clock.now().saturating_since(started);
        let never = never(machine.facts(), &intact);
        let mut findings = Findings { intact, took, never, removed: Vec::new() };
        audience.found(&text(|text| write_intact(text, machine, &findings)));
        if findings.intact.violations > 0 {
            return findings;
        }
        for place in 0..machine.safeguards().len() {
            let removed = known(machine, place).unwrap_or_else(|| search(machine, place, 0, audience));
            audience.found(&text(|text| write_removed(text, machine, place, &removed)));
            findings.removed.push(removed);
        }
        findings
    }
}

/// What is violated in a schedule with the safeguard, once it is known to be without it.
fn with_it(machine: &dyn Machine, seed: u64) -> Option<Violation> {
    play(machine, seed, None, &mut Trace::silent()).violation
}

/// Takes one safeguard out of the schedule that is known to miss it; nothing when it does not any more.
fn known(machine: &dyn Machine, place: usize) -> Option<Removed> {
    let name = machine.safeguards()[place].name;
    let Missed { invariant, seed } = machine.missed(name)?;
    let violation = play(machine, seed, Some(place), &mut Trace::silent()).violation?;
    let removed = Removed {
        name,
        invariant: Some(invariant),
        caught: Some((seed, violation)).filter(|(_, violation)| violation.invariant == invariant),
        schedules: 1,
        with_it: with_it(machine, seed),
    };
    removed.caught.is_some().then_some(removed)
}

/// Takes one safeguard out, and looks for the first schedule that misses it: for a violation of the invariant that it stands
/// for, or of any when it is not known which that is. Begins with the schedule `from`.
pub fn search(machine: &dyn Machine, place: usize, from: u64, audience: &dyn Audience) -> Removed {
    let safeguard = machine.safeguards()[place];
    let invariant = machine.missed(safeguard.name).map(|missed| missed.invariant);
    audience.begins(&format!("{}: without {}", machine.name(), safeguard.name), safeguard.seeds.saturating_sub(from));
    let until = invariant.map_or(Until::Violations(1), Until::Violated);
    let found = explore(machine, from..safeguard.seeds, Some(place), until, &|told| {
        // A violation is what is looked for.
        if matches!(told, Told::Played(_)) {
            audience.told(&told);
        }
    });
    let caught = found.first.into_iter().next();
    let with_it = caught.as_ref().and_then(|(seed, _)| with_it(machine, *seed));
    Removed { name: safeguard.name, invariant, caught, schedules: found.schedules, with_it }
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

fn text(write: impl FnOnce(&mut String) -> std::fmt::Result) -> String {
    let mut text = String::new();
    // A string takes everything.
    let _ = write(&mut text);
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
    if intact.violations > 0 {
        writeln!(text, "  nothing is taken out of a machine that is wrong as it is")?;
    }
    Ok(())
}

fn write_removed(text: &mut String, machine: &dyn Machine, place: usize, removed: &Removed) -> std::fmt::Result {
    let Removed { name, invariant, caught, schedules, with_it } = removed;
    writeln!(text, "  without {name}: {}", machine.safeguards()[place].about)?;
    if invariant.is_none() {
        writeln!(text, "    NOT KNOWN which invariant it stands for")?;
    }
    let Some((seed, violation)) = caught else {
        return writeln!(text, "    NOT CAUGHT in {schedules} schedules: {}", invariant.unwrap_or("any invariant"));
    };
    let known = machine.missed(name).is_some_and(|missed| missed.seed == *seed);
    let how = if known { "the known schedule" } else { "the first schedule" };
    writeln!(text, "    {how}, seed {seed}: {}: {}", violation.invariant, violation.text)?;
    writeln!(text, "      {}", replay(machine, *seed, Some(name)))?;
    match with_it {
        Some(other) => writeln!(text, "      THE SAME SCHEDULE WITH IT: {}: {}", other.invariant, other.text),
        None => writeln!(text, "      the same schedule with it: no violation"),
    }
}

/// What a person reads of one safeguard that was taken out.
#[must_use]
pub fn report(machine: &dyn Machine, place: usize, removed: &Removed) -> String {
    text(|text| write_removed(text, machine, place, removed))
}
