//! `cargo xtask simulate`: plays schedules by the million.

mod screen;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use lock_sim::{
    Machine, Trace,
    campaign::{Audience, Campaign, report, search},
    machines,
    runner::play,
};

use self::screen::{Screen, print};

/// Plays the algorithms of the locks on simulated servers.
///
/// Each machine is played with all its safeguards, which must find nothing, and once without each of them, which must find
/// a violation. It ends with an error when that is not so.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask simulate", bin_name = "cargo xtask simulate")]
struct Arguments {
    /// How many schedules are played with all safeguards in place.
    #[arg(long, default_value_t = 100_000)]
    seeds: u64,
    /// Only this machine.
    #[arg(long)]
    machine: Option<String>,
    /// Replays this one schedule and shows what happens in it. Needs `--machine`.
    #[arg(long, requires = "machine")]
    seed: Option<u64>,
    /// Takes only this safeguard out; with `--seed`, in the replay.
    #[arg(long, requires = "machine")]
    without: Option<String>,
    /// Goes on with this schedule in the search for one that misses the safeguard. Needs `--without`.
    #[arg(long, value_name = "SEED", default_value_t = 0, requires = "without", conflicts_with = "seed")]
    from: u64,
}

fn main() -> ExitCode {
    match work(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn work(arguments: &Arguments) -> Result<bool> {
    let mut chosen = machines();
    if let Some(name) = &arguments.machine {
        let names: Vec<_> = chosen.iter().map(|machine| machine.name()).collect();
        chosen.retain(|machine| machine.name() == name);
        if chosen.is_empty() {
            bail!("there is no machine {name:?}; there are {}", names.join(", "));
        }
    }
    let mut fine = true;
    for machine in chosen {
        let place = arguments.without.as_deref().map(|name| safeguard(machine, name)).transpose()?;
        fine &= match (arguments.seed, place) {
            (Some(seed), place) => show(machine, seed, place),
            (None, Some(place)) => take_out(machine, place, arguments.from),
            (None, None) => campaign(machine, arguments.seeds),
        };
    }
    Ok(fine)
}

fn safeguard(machine: &dyn Machine, name: &str) -> Result<usize> {
    let all = machine.safeguards();
    all.iter().position(|safeguard| safeguard.name == name).with_context(|| {
        let names: Vec<_> = all.iter().map(|safeguard| safeguard.name).collect();
        format!("{} has no safeguard {name:?}; it has {}", machine.name(), names.join(", "))
    })
}

/// Replays one schedule.
fn show(machine: &dyn Machine, seed: u64, without: Option<usize>) -> bool {
    let mut trace = Trace::kept();
    let outcome = play(machine, seed, without, &mut trace);
    print(&format!("{}{} events, {} grants\n", trace.text(), outcome.steps, outcome.grants));
    match outcome.violation {
        None => print("no violation\n"),
        Some(violation) => {
            print(&format!("VIOLATION of {} at {} ns: {}\n", violation.invariant, violation.at, violation.text));
            return false;
        }
    }
    true
}

/// Looks for the first schedule from this one on that misses one safeguard, whichever is known.
fn take_out(machine: &dyn Machine, place: usize, from: u64) -> bool {
    let screen = Screen::new(machine);
    let removed = search(machine, place, from, &screen);
    screen.found(&report(machine, place, &removed));
    removed.is_as_it_should_be()
}

fn campaign(machine: &dyn Machine, seeds: u64) -> bool {
    let fine = Campaign { seeds }.run(machine, &Screen::new(machine)).is_as_it_should_be();
    print(&format!("{}: {}\n\n", machine.name(), if fine { "as it should be" } else { "NOT AS IT SHOULD BE" }));
    fine
}
