//! What a session does by itself: it follows its client's state, has its time-out verified, and beats.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::{StreamExt, stream::BoxStream};
use lock_core::{Backoff, Loss, RenewalOutcome, safeguard};

use super::{
    LinkState, Session,
    renegotiation::{self, TimeoutAfterReconnect},
};
use crate::{
    protocol::heartbeat::counted_tick,
    wire::{Connections, Outcome, RequestError, SessionState},
};

/// For how many time-outs a session that is not the only one stays open without being of use.
const IDLE_TIMEOUTS: u32 = 2;

/// What a heartbeat was, as a renewal of its session, that was answered or given up with `left` of the validity.
fn renewal_outcome(beat: &Result<(), RequestError>, left: Duration) -> RenewalOutcome {
    match beat {
        Ok(()) => RenewalOutcome::Acknowledged { left },
        Err(error) if error.outcome() == Outcome::SessionEnded => RenewalOutcome::Denied,
        Err(_) => RenewalOutcome::Missed,
    }
}

impl Session {
    /// Follows the client's state to its end.
    pub(super) async fn follow(self: Arc<Self>, mut states: BoxStream<'static, SessionState>) {
        let mut state = states.next().await;
        while let Some(now) = state {
            match now {
                // A connection that was lost and made again may show as one change.
                SessionState::Connected => self.moved_to(LinkState::Up),
                SessionState::Disconnected => {
                    self.deadlines().set_expiry_cause(Loss::Unreachable);
                    self.moved_to(LinkState::Down);
                }
                SessionState::Ended => break,
            }
            state = states.next().await;
            if state == Some(SessionState::Connected) {
                // Safeguard: a time-out that the servers changed at a reconnect ends the session (ZooKeeper)
                self.reconnected();
            }
        }
        tracing::debug!(session = self.id, "session ended");
        self.end(Loss::SessionEnded);
        self.terminated.cancel();
    }

    /// Has the time-out verified on the new connection.
    fn reconnected(self: &Arc<Self>) {
        if !safeguard("verified-timeout") {
            return;
        }
        let connection = self.deadlines().reconnected();
        let this = Arc::clone(self);
        drop(self.context.spawn(async move {
            tokio::select! {
                biased;
                _ = this.failed(Duration::MAX) => {}
                () = this.verify_timeout(connection) => {}
            }
        }));
    }

    async fn verify_timeout(&self, connection: u64) {
        let (ensemble, clock) = (self.config.ensemble(), self.clock());
        let mut backoff = Backoff::new(Duration::from_millis(10), self.timeout / 8);
        let begun = clock.now();
        while self.deadlines().is_latest(connection) {
            let limit = self.timeout / 3;
            let in_doubt = self.deadlines().is_in_doubt();
            let connections = if in_doubt {
                // All of them, and each has to answer.
                Connections { servers: self.config.servers.clone(), is_certain: true }
            } else {
                ensemble.connections(&self.config.servers).await
            };
            if !self.client().is_ok_and(|client| client.state() == SessionState::Connected) {
                // Its server is not among those that the process is connected to now.
                clock.sleep(backoff.pause()).await;
                continue;
            }
            match renegotiation::ask(ensemble.as_ref(), connections, self.timeout, limit, clock).await {
                TimeoutAfterReconnect::Same => return self.deadlines().verify(connection),
                TimeoutAfterReconnect::Changed(timeout) => {
                    tracing::warn!(session = self.id, was = ?self.timeout, now = ?timeout, "the servers changed the time-out");
                    return self.close_for(Loss::SessionEnded);
                }
                // No deadline has moved for a whole time-out, so nothing is lost that is held, and another session has no
                // past to be in doubt about: a server that does not answer may be down for days.
                TimeoutAfterReconnect::Unknown if in_doubt && clock.now().saturating_since(begun) > self.timeout => {
                    return self.close_for(Loss::SessionEnded);
                }
                TimeoutAfterReconnect::Unknown => clock.sleep(backoff.pause()).await,
            }
        }
    }

    fn moved_to(&self, link: LinkState) {
        self.link.send_modify(|current| {
            if *current != LinkState::Ended {
                *current = link;
            }
        });
    }

    /// The heartbeat: writes to the session's own node while somebody holds or waits, cheap requests otherwise, so that
    /// a fresh grant finds a record to count from. One for all locks, and never two at a time.
    pub(super) async fn beat(self: Arc<Self>) {
        let path = self.own_node();
        let idle = self.timeout / 6;
        let period = idle.min(counted_tick(self.timeout, self.config.tick_time) / 2);
        let clock = self.clock();
        let mut last = clock.now();
        let mut used = last;
        let beating = async {
            loop {
                clock.sleep(period).await;
                self.connected().await;
                let active = self.active.load(Ordering::Relaxed) > 0;
                let now = clock.now();
                if self.is_only || !self.watches.is_unused() {
                    used = now;
                } else if now.saturating_since(used) > self.timeout * IDLE_TIMEOUTS && self.watches.retire() {
                    return self.close();
                }
                if !active && now.saturating_since(last) < idle {
                    continue;
                }
                last = now;
                let deadline = self.deadlines().deadline();
                let beat = if active { self.write_beat(&path).await } else { self.touch().await };
                if active {
                    let answered = clock.now();
                    let outcome = renewal_outcome(&beat, deadline.saturating_since(answered));
                    self.context.count_renewal(outcome, answered.saturating_since(now));
                }
                if let Err(error) = beat {
                    tracing::debug!(session = self.id, %error, "heartbeat not answered");
                }
            }
        };
        tokio::select! {
            biased;
            _ = self.failed(Duration::MAX) => {}
            () = beating => {}
        }
    }
}
