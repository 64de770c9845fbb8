//! The places of this client in the lines: what is known of each, from its beats and from the messages about grants.

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
    servers::{Sent, Weight},
};

/// A key with `n` ms left is gone after `n + 1`.
const GRAIN: Duration = Duration::from_millis(1);

/// Only the server ends a place. The renewer of beats wants an end; this one does not come.
const NO_END: Duration = Duration::from_secs(1 << 30);

/// One that waits, as its client knows it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) attempt: Arc<Attempt>,
    /// Its beats go on for as long as this is valid.
    beating: Validity,
    news: watch::Sender<News>,
}

/// How it stands.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct News {
    /// The newest request that was answered *still in line*.
    pub(crate) in_line: Option<Seen>,
    /// When the next beat is due before its time: when the lock may open by itself, for the one who is next.
    pub(crate) beat_at: Option<BootInstant>,
    pub(crate) end: Option<End>,
}

/// What comes after standing in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Somebody's script handed it over.
    HandedOver(HandedOver),
    /// A beat that was sent then found that it holds, and armed the whole ttl.
    Found { number: u64, sent_at: BootInstant },
    /// The server does not know it any more.
    Gone,
}

/// All places of this client. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    board: Arc<Board>,
    /// The beats of all places, together.
    beats: Arc<Renewer<Place>>,
}

/// The places by the values of their attempts.
#[derive(Debug, Default)]
struct Board {
    places: Mutex<HashMap<String, Arc<Place>>>,
}

/// A place that messages find, for as long as this is kept.
#[derive(Debug)]
pub(crate) struct Registered {
    board: Arc<Board>,
    pub(crate) place: Arc<Place>,
}

impl Places {
    pub(crate) fn new(client: &Arc<Client>) -> Self {
        let beats = Renewer::new(&client.context, Arc::new(Beats { client: Arc::clone(client) }));
        Self { board: Arc::default(), beats: Arc::new(beats) }
    }

    /// Has messages find a place for this attempt from now on.
    pub(crate) fn register(&self, client: &Client, attempt: &Arc<Attempt>) -> Registered {
        let beating = Validity::new(client.clock(), client.clock().now().saturating_add(NO_END));
        let place = Arc::new(Place { attempt: Arc::clone(attempt), beating, news: watch::Sender::default() });
        self.board.open(|places| places.insert(attempt.value.clone(), Arc::clone(&place)));
        Registered { board: Arc::clone(&self.board), place }
    }

    /// Sends beats for a place until the handle is dropped.
    pub(crate) fn beat(&self, place: &Arc<Place>) -> RenewalHandle<Place> {
        let every = Rhythm::of(place.attempt.ttl).beat;
        self.beats.keep(Arc::clone(place), place.beating.clone(), every)
    }

    /// Listens to what this client is granted on a node.
    pub(crate) fn listen(&self, client: &Client, node: &Node) -> Subscription {
        let board = Arc::clone(&self.board);
        node.subscribe_each(&client.channel, Arc::new(move |message| board.granted(message)))
    }
}

impl Place {
    pub(crate) fn follow(&self) -> watch::Receiver<News> {
        self.news.subscribe()
    }

    /// Notes the answer to a request that was sent at `sent_at`.
    pub(crate) fn answered(&self, sent_at: BootInstant, standing: Standing) {
        let now = self.beating.clock().now();
        self.news.send_modify(|news| match standing {
            Standing::InLine(InLine { ahead, left, newest, stamp, more }) => {
                if news.in_line.is_none_or(|seen| seen.sent_at < sent_at) {
                    news.in_line = Some(Seen { sent_at, newest, stamp });
                }
                // Whoever is further back is woken by those before it.
                let opens = left.filter(|_| ahead == 0).map(|left| now.saturating_add(left).saturating_add(GRAIN));
                news.beat_at = if more { Some(now) } else { opens };
            }
            // Safeguard: a waiter that hears nothing looks by itself (Redis)
            Standing::Granted(number) => news.end = Some(End::Found { number, sent_at }),
            Standing::Gone => news.end = Some(End::Gone),
        });
    }

    fn handed_over(&self, grant: HandedOver) {
        self.news.send_modify(|news| {
            // What a beat found is newer, and counts from later.
            news.end.get_or_insert(End::HandedOver(grant));
        });
    }
}

impl Board {
    /// Takes a message. One about a place that was given up is of no interest: giving it up hands the lock on.
    fn granted(&self, message: &[u8]) {
        let Some((value, grant)) = handed_over(message) else { return };
        if let Some(place) = self.open(|places| places.get(value).cloned()) {
            place.handed_over(grant);
        }
    }

    fn open<T>(&self, work: impl FnOnce(&mut HashMap<String, Arc<Place>>) -> T) -> T {
        work(&mut self.places.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.board.open(|places| places.remove(&self.place.attempt.value));
    }
}

/// Sends the beats of all places of one client: one script for those in one line, in a burst for each server.
struct Beats {
    client: Arc<Client>,
}

#[async_trait]
impl Renew for Beats {
    type Lease = Place;

    async fn renew(&self, batch: &[Arc<Place>]) {
        let due = batch.iter().filter_map(|place| Some((place, place.beating.observe()?)));
        let mut lines: Vec<(String, Vec<(&Arc<Place>, Observed)>)> = Vec::new();
        for (place, seen) in due {
            let queue = place.attempt.line().queue;
            match lines.iter_mut().find(|(known, places)| *known == queue && places.len() < PLACES) {
                Some((_, places)) => places.push((place, seen)),
                None => lines.push((queue, vec![(place, seen)])),
            }
        }
        let beat = |places: &Vec<(&Arc<Place>, Observed)>| {
            let attempts = places.iter().map(|(place, _)| place.attempt.as_ref());
            places[0].0.attempt.beat(attempts)
        };
        let calls: Vec<_> = lines.iter().map(|(_, places)| beat(places)).collect();
        let answers = self.client.servers.run(&calls, Weight::Light).await;
        for ((_, places), Sent { at: sent_at, answer, .. }) in lines.into_iter().zip(answers) {
            match answer.and_then(|answer| beaten(&answer, places.len())) {
                Ok((standings, _)) => {
                    for ((place, seen), standing) in places.into_iter().zip(standings) {
                        place.answered(sent_at, standing);
                        place.beating.advance(seen, sent_at.saturating_add(NO_END));
                    }
                }
                Err(error) => missed(&places, sent_at, &error),
            }
        }
    }
}

/// A beat without an answer is repeated. One that was refused for good sends its waiters back to the start, which get the same
/// refusal and report it.
fn missed(places: &[(&Arc<Place>, Observed)], sent_at: BootInstant, error: &NodeError) {
    tracing::debug!(%error, "a beat was not acknowledged");
    if !error.is_temporary() {
        places.iter().for_each(|(place, _)| place.answered(sent_at, Standing::Gone));
    }
}

#[cfg(test)]
mod tests;
