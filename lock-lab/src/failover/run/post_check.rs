//! What is on the servers when all processes have ended.

use std::time::Duration;

use lock_core::{BootInstant, Clock};

use crate::failover::{
    check,
    events::{History, PostCheck, now},
    scene::Observer,
};

/// The time between two looks.
const EVERY: Duration = Duration::from_millis(20);
/// How much longer a server that gives no answer is asked.
const PATIENCE: Duration = Duration::from_secs(10);

/// Looks at the servers until they have nothing of the locks, or had long enough for it. The processes have ended now, and
/// the fault was over when everything was `whole`.
pub(super) async fn look(observer: &Observer, history: &History, whole: BootInstant, lingers: Duration) -> PostCheck {
    let mut after = PostCheck { whole, ended: now(), looks: Vec::new() };
    let due = check::due(history, &after, lingers);
    loop {
        let look = observer.residue().await;
        let is_late = look.asked > due && (look.silent.is_empty() || look.asked > due.saturating_add(PATIENCE));
        let is_last = look.is_nothing() || is_late;
        after.looks.push(look);
        if is_last {
            return after;
        }
        Clock::boot().sleep(EVERY).await;
    }
}
