//! How to reach a server, and since when it cannot be reached.

use lock_core::{BootInstant, Clock};
use tokio::sync::watch;

use super::NodeConfig;

/// What all connections to one server share.
pub(super) struct Reach {
    pub(super) config: NodeConfig,
    pub(super) clock: Clock,
    /// Since when nothing has succeeded; `None` while it works.
    failing: watch::Sender<Option<BootInstant>>,
}

impl Reach {
    pub(super) fn new(config: NodeConfig, clock: Clock) -> Self {
        Self { config, clock, failing: watch::Sender::new(None) }
    }

    pub(super) fn failed(&self) {
        self.failing.send_if_modified(|since| {
            let first = since.is_none();
            since.get_or_insert_with(|| self.clock.now());
            first
        });
    }

    pub(super) fn answered(&self) {
        self.failing.send_if_modified(|since| since.take().is_some());
    }

    pub(super) fn failing_since(&self) -> Option<BootInstant> {
        *self.failing.borrow()
    }

    /// Resolves when nothing has succeeded for as long as the connect limit, counted from `from` at the earliest.
    pub(super) async fn out(&self, from: BootInstant) {
        let mut failing = self.failing.subscribe();
        loop {
            let since = *failing.borrow_and_update();
            let given_up = async {
                match since {
                    Some(since) => {
                        self.clock.sleep_until(since.max(from).saturating_add(self.config.connect_timeout)).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = given_up => return,
                // The sender is `self`'s own, so it is there.
                _ = failing.changed() => {}
            }
        }
    }
}
