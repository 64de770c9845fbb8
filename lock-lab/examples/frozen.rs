//! Measures Redlock with frozen nodes and prints the figures: `cargo xtask frozen`.

use std::process::ExitCode;

use lock_lab::{
    LabError,
    failover::frozen::{Options, Phase, run},
};

#[tokio::main]
async fn main() -> Result<ExitCode, LabError> {
    let frozen = run(&Options::default()).await?;
    println!("one of {} nodes frozen; milliseconds: median, p99, maximum, of the first ones", frozen.nodes);
    for run in &frozen.minority {
        println!("{:?}, ttl {} ms", run.clients, run.ttl_ms);
        for (when, phase) in [("healthy", &run.healthy), ("frozen", &run.frozen)] {
            println!("  {when:8} {}", shown(phase));
        }
    }
    println!("a majority frozen");
    for run in &frozen.majority {
        println!(
            "  limit {} ms, {}: {} attempts, errors after {:.1} to {:.1} ms; granted {}, left {}",
            run.node_limit_ms,
            if run.waiting { "waiting" } else { "at once" },
            run.attempts,
            run.errors.min / 1e3,
            run.errors.max / 1e3,
            run.granted,
            run.left
        );
    }
    Ok(if frozen.is_within_bounds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn shown(phase: &Phase) -> String {
    let Phase { acquisitions: take, releases: give, slowest_first, failures, failure, .. } = phase;
    format!(
        "{:6} acquisitions {:6.2} {:6.2} {:6.2} {:6.2}; releases {:6.2} {:6.2} {:6.2}; {failures} failures {}",
        take.count,
        take.p50 / 1e3,
        take.p99 / 1e3,
        take.max / 1e3,
        slowest_first / 1e3,
        give.p50 / 1e3,
        give.p99 / 1e3,
        give.max / 1e3,
        failure.as_deref().unwrap_or_default(),
    )
}
