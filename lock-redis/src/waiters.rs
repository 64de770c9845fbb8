//! The waiters of this client: what is known of each of them, from its heartbeats and from the messages about grants.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use lock_core::{BootInstant, Renew, RenewalHandle, Renewer, Validity, validity::Observed};
use tokio::sync::watch;

use crate::{
    client::Client,
    node::{Node, NodeError, Subscription},
    protocol::{
        answers::{InLine, Standing, beaten, handed_over},
        attempt::{Attempt, PLACES},
        claim::{HandedOver, Rhythm, Seen},
    },
    servers::{AnsweredCall, Durability},
};

/// A key with `n` ms left is gone after `n + 1`.
const GRAIN: Duration = Duration::from_millis(1);

/// Only the server ends a wait. The renewer of heartbeats wants an end; this one does not come.
const NO_END: Duration = Duration::from_secs(1 << 30);

/// An attempt that waits in a queue on the server, as its client knows it.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) attempt: Arc<Attempt>,
    /// Its heartbeats go on for as long as this is valid.
    beating: Validity,
    state: watch::Sender<WaiterState>,
}

/// What the client knows of a waiter: the newest answer about it, when its next heartbeat is due, and how its wait ended.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WaiterState {
    /// The newest request that was answered *still in line*.
    pub(crate) in_line: Option<Seen>,
    /// When the next beat is due before its time: when the lock may open by itself, for the one who is next.
    pub(crate) beat_at: Option<BootInstant>,
    pub(crate) end: Option<WaitResult>,
}

/// How the server ended a wait: with a grant, or by forgetting the waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitResult {
    /// Somebody's script handed it over.
    HandedOver(HandedOver),
    /// A beat that was sent then found that it holds, and armed the whole ttl.
    Found { number: u64, sent_at: BootInstant },
    /// The server does not know it any more.
    Gone,
}

/// All waiters of one client, whose heartbeats go out together. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Waiters {
    table: Arc<WaiterTable>,
    /// The heartbeats of all waiters, together.
    beats: Arc<Renewer<Waiter>>,
}

/// The waiters of one client, found by the values of their attempts when a message about a grant comes.
#[derive(Debug, Default)]
struct WaiterTable {
    waiters: Mutex<HashMap<String, Arc<Waiter>>>,
}

/// A waiter in the [`WaiterTable`], which messages about grants find until this value is dropped.
#[derive(Debug)]
pub(crate) struct RegisteredWaiter {
    table: Arc<WaiterTable>,
    pub(crate) waiter: Arc<Waiter>,
}

impl Waiters {
    pub(crate) fn new(client: &Arc<Client>) -> Self {
        let beats = Renewer::new(&client.context, Arc::new(HeartbeatSender { client: Arc::clone(client) }));
        Self { table: Arc::default(), beats: Arc::new(beats) }
    }

    /// Makes a waiter of this attempt, which messages find from now on.
    pub(crate) fn register(&self, client: &Client, attempt: &Arc<Attempt>) -> RegisteredWaiter {
        let beating = Validity::new(client.clock(), client.clock().now().saturating_add(NO_END));
        let waiter = Arc::new(Waiter { attempt: Arc::clone(attempt), beating, state: watch::Sender::default() });
        self.table.open(|waiters| waiters.insert(attempt.value.clone(), Arc::clone(&waiter)));
        RegisteredWaiter { table: Arc::clone(&self.table), waiter }
    }

    /// Sends heartbeats for a waiter until the handle is dropped.
    pub(crate) fn beat(&self, waiter: &Arc<Waiter>) -> RenewalHandle<Waiter> {
        let every = Rhythm::of(waiter.attempt.ttl).beat;
        self.beats.keep(Arc::clone(waiter), waiter.beating.clone(), every)
    }

    /// Listens to what this client is granted on a node.
    pub(crate) fn listen(&self, client: &Client, node: &Node) -> Subscription {
        let table = Arc::clone(&self.table);
        node.subscribe_each(&client.channel, Arc::new(move |message| table.granted(message)))
    }
}

impl Waiter {
    pub(crate) fn follow(&self) -> watch::Receiver<WaiterState> {
        self.state.subscribe()
    }

    /// Notes the answer to a request that was sent at `sent_at`.
    pub(crate) fn answered(&self, sent_at: BootInstant, standing: Standing) {
        let now = self.beating.clock().now();
        self.state.send_modify(|state| match standing {
            Standing::InLine(InLine { ahead, left, newest, stamp, more }) => {
                if state.in_line.is_none_or(|seen| seen.sent_at < sent_at) {
                    state.in_line = Some(Seen { sent_at, newest, stamp });
                }
                // Whoever is further back is woken by those before it.
                let opens = left.filter(|_| ahead == 0).map(|left| now.saturating_add(left).saturating_add(GRAIN));
                state.beat_at = if more { Some(now) } else { opens };
            }
            // Safeguard: a waiter that hears nothing looks by itself (Redis)
            Standing::Granted(number) => state.end = Some(WaitResult::Found { number, sent_at }),
            Standing::Gone => state.end = Some(WaitResult::Gone),
        });
    }

    fn handed_over(&self, grant: HandedOver) {
        self.state.send_modify(|state| {
            // What a beat found is newer, and counts from later.
            state.end.get_or_insert(WaitResult::HandedOver(grant));
        });
    }
}

impl WaiterTable {
    /// Takes a message. One about a wait that was given up is of no interest: giving it up hands the lock on.
    fn granted(&self, message: &[u8]) {
        let Some((value, grant)) = handed_over(message) else { return };
        if let Some(waiter) = self.open(|waiters| waiters.get(value).cloned()) {
            waiter.handed_over(grant);
        }
    }

    fn open<T>(&self, work: impl FnOnce(&mut HashMap<String, Arc<Waiter>>) -> T) -> T {
        work(&mut self.waiters.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for RegisteredWaiter {
    fn drop(&mut self) {
        self.table.open(|waiters| waiters.remove(&self.waiter.attempt.value));
    }
}

/// Sends the heartbeats of all waiters of one client: one script for each queue, in a burst for each server.
struct HeartbeatSender {
    client: Arc<Client>,
}

#[async_trait]
impl Renew for HeartbeatSender {
    type Lease = Waiter;

    async fn renew(&self, batch: &[Arc<Waiter>]) {
        let due = batch.iter().filter_map(|waiter| Some((waiter, waiter.beating.observe()?)));
        let mut lines: Vec<(String, Vec<(&Arc<Waiter>, Observed)>)> = Vec::new();
        for (waiter, seen) in due {
            let queue = waiter.attempt.line().queue;
            match lines.iter_mut().find(|(known, waiters)| *known == queue && waiters.len() < PLACES) {
                Some((_, waiters)) => waiters.push((waiter, seen)),
                None => lines.push((queue, vec![(waiter, seen)])),
            }
        }
        let beat = |waiters: &Vec<(&Arc<Waiter>, Observed)>| {
            let attempts = waiters.iter().map(|(waiter, _)| waiter.attempt.as_ref());
            waiters[0].0.attempt.beat(attempts)
        };
        let calls: Vec<_> = lines.iter().map(|(_, waiters)| beat(waiters)).collect();
        let answers = self.client.servers.run(&calls, Durability::PrimaryOnly).await;
        for ((_, waiters), AnsweredCall { at: sent_at, answer, .. }) in lines.into_iter().zip(answers) {
            match answer.and_then(|answer| beaten(&answer, waiters.len())) {
                Ok((standings, _)) => {
                    for ((waiter, seen), standing) in waiters.into_iter().zip(standings) {
                        waiter.answered(sent_at, standing);
                        waiter.beating.advance(seen, sent_at.saturating_add(NO_END));
                    }
                }
                Err(error) => missed(&waiters, sent_at, &error),
            }
        }
    }
}

/// A beat without an answer is repeated. One that was refused for good sends its waiters back to the start, which get the same
/// refusal and report it.
fn missed(waiters: &[(&Arc<Waiter>, Observed)], sent_at: BootInstant, error: &NodeError) {
    tracing::debug!(%error, "a beat was not acknowledged");
    if !error.is_temporary() {
        waiters.iter().for_each(|(waiter, _)| waiter.answered(sent_at, Standing::Gone));
    }
}

#[cfg(test)]
mod tests;
