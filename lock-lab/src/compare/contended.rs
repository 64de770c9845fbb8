//! Many clients, one lock.

use std::time::Duration;

use super::report::{Contended, Settings};
use crate::{LabError, deployment::Running, history::Grant, latency::Recorder, load::Load};

/// Has many clients hold one lock in turn.
pub(super) async fn run(running: &Running, settings: &Settings) -> Result<Contended, LabError> {
    let load = Load {
        name: "compare/contended".into(),
        clients: settings.clients,
        holds: settings.holds,
        hold: Duration::from_secs_f64(settings.hold_ms / 1e3),
    };
    let before = running.requests().await?;
    let (history, errors) = load.run(&running.plain_url()).await?;
    let requests = super::per(before, running.requests().await?, history.grants().len());
    let moves = history.moves();
    let seconds = history.span().as_secs_f64();
    #[allow(clippy::cast_precision_loss)] // Hundreds.
    let moves_per_second = if seconds > 0.0 { moves as f64 / seconds } else { 0.0 };
    Ok(Contended {
        grants: history.grants().len(),
        moves,
        moves_per_second,
        hand_off: history.hand_offs().into_iter().collect::<Recorder>().latency(),
        utilisation: history.utilisation(),
        held: history.grants().iter().map(Grant::held).collect::<Recorder>().latency(),
        overtakes: history.overtakes_per_hand_off(),
        waits: history.grants().iter().map(Grant::waited).collect::<Recorder>().latency(),
        requests,
        errors,
        overlaps: history.overlaps(),
        tokens_rise: history.tokens_rise(),
    })
}
