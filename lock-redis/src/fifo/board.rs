//! The places of this client: what is known of each, from its heartbeats and from the messages about grants.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use lock_core::{BootInstant, Clock, Renew, Validity};
use tokio::sync::watch;

use super::scripts::{self, Standing};
use crate::{
    kind::Holding,
    node::NodeError,
    scripts::InLine,
    servers::{Sent, Servers, Weight},
};

/// A key with `n` ms left is gone after `n + 1`.
const GRAIN: Duration = Duration::from_millis(1);

/// Only the server ends a place. The renewer of heartbeats wants an end; this one does not come.
const NO_END: Duration = Duration::from_secs(1 << 30);

/// One that waits, as its client knows it.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) holding: Holding,
    /// Its heartbeats go on for as long as this is valid.
    pub(super) beating: Validity,
    news: watch::Sender<News>,
}

/// How it stands.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct News {
    /// The newest request that was answered *still in line*.
    pub(super) in_line: Option<Seen>,
    /// When the holder's lease ends unless it is renewed, for the one who is next.
    pub(super) look_again: Option<BootInstant>,
    pub(super) end: Option<End>,
}

/// That it stood in line: when the request was sent that was answered so, and the newest number that was given out when
/// the server worked on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// When the request was sent.
    pub(super) sent_at: BootInstant,
    /// The newest number that was given out.
    pub(super) newest: u64,
}

/// What comes after standing in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// A release or another's script handed the lock over, with this number.
    HandedOver(u64),
    /// A heartbeat that was sent then found that it holds the lock, and armed the whole ttl.
    Found { number: u64, sent_at: BootInstant },
    /// The server does not know it any more.
    Gone,
}

impl Place {
    pub(super) fn new(clock: Clock, holding: Holding) -> Self {
        let beating = Validity::new(clock, clock.now().saturating_add(NO_END));
        Self { holding, beating, news: watch::Sender::default() }
    }

    pub(super) fn follow(&self) -> watch::Receiver<News> {
        self.news.subscribe()
    }

    /// Notes the answer to a request that was sent at `sent_at`.
    pub(super) fn answered(&self, sent_at: BootInstant, standing: Standing) {
        let now = self.beating.clock().now();
        self.news.send_modify(|news| match standing {
            Standing::InLine(InLine { ahead, left, newest }) => {
                if news.in_line.is_none_or(|seen| seen.sent_at < sent_at) {
                    news.in_line = Some(Seen { sent_at, newest });
                }
                // Whoever is further back is woken by those before it.
                let left = left.filter(|_| ahead == 0);
                news.look_again = left.map(|left| now.saturating_add(left).saturating_add(GRAIN));
            }
            Standing::Granted(number) => news.end = Some(End::Found { number, sent_at }),
            Standing::Gone => news.end = Some(End::Gone),
        });
    }

    fn handed_over(&self, number: u64) {
        self.news.send_modify(|news| {
            // What a heartbeat found is newer, and counts from later.
            news.end.get_or_insert(End::HandedOver(number));
        });
    }
}

/// All places of this client, by the values of their attempts.
#[derive(Debug, Default)]
pub(super) struct Board {
    places: Mutex<HashMap<String, Arc<Place>>>,
}

impl Board {
    pub(super) fn add(self: &Arc<Self>, place: Place) -> OnBoard {
        let place = Arc::new(place);
        self.open(|places| places.insert(place.holding.attempt.value.clone(), Arc::clone(&place)));
        OnBoard { board: Arc::clone(self), place }
    }

    /// Takes a message: whose place, and the number of its grant. One about a place that was given up is of no interest:
    /// giving it up hands the lock on.
    pub(super) fn granted(&self, message: &[u8]) {
        let parsed = std::str::from_utf8(message).ok().and_then(|text| {
            let (value, number) = text.split_once(' ')?;
            Some((value, number.parse().ok()?))
        });
        let Some((value, number)) = parsed else { return };
        if let Some(place) = self.open(|places| places.get(value).cloned()) {
            place.handed_over(number);
        }
    }

    fn open<T>(&self, work: impl FnOnce(&mut HashMap<String, Arc<Place>>) -> T) -> T {
        work(&mut self.places.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A place that messages find, for as long as this is kept.
#[derive(Debug)]
pub(super) struct OnBoard {
    board: Arc<Board>,
    pub(super) place: Arc<Place>,
}

impl Drop for OnBoard {
    fn drop(&mut self) {
        self.board.open(|places| places.remove(&self.place.holding.attempt.value));
    }
}

/// Sends the heartbeats of all places of one client, in bursts.
pub(super) struct Beats {
    pub(super) servers: Servers,
}

#[async_trait]
impl Renew for Beats {
    type Lease = Place;

    async fn renew(&self, batch: &[Arc<Place>]) {
        let due: Vec<_> = batch.iter().filter_map(|place| Some((place, place.beating.observe()?))).collect();
        let beat = |Holding { attempt, ttl, delay, .. }: &Holding| scripts::beat(attempt, *ttl, *delay);
        let calls: Vec<_> = due.iter().map(|(place, _)| beat(&place.holding)).collect();
        let answers = self.servers.run(&calls, Weight::Light).await;
        for ((place, seen), Sent { at: sent_at, answer, .. }) in due.into_iter().zip(answers) {
            match answer.and_then(|answer| scripts::standing(&answer)) {
                Ok(standing) => {
                    place.answered(sent_at, standing);
                    place.beating.advance(seen, sent_at.saturating_add(NO_END));
                }
                Err(error) => missed(place, sent_at, &error),
            }
        }
    }
}

/// A heartbeat without an answer is repeated. One that was refused for good sends its waiter back to the start, which
/// gets the same refusal and reports it.
fn missed(place: &Place, sent_at: BootInstant, error: &NodeError) {
    tracing::debug!(%error, "a heartbeat was not acknowledged");
    if !error.is_temporary() {
        place.answered(sent_at, Standing::Gone);
    }
}

#[cfg(test)]
mod tests {
    use lock_core::LockName;
    use proptest::prelude::*;

    use super::*;
    use crate::{keys::Keys, kind::Kind, scripts::Attempt};

    fn board() -> (Arc<Board>, OnBoard) {
        let board = Arc::new(Board::default());
        let keys = Keys::new("lock", &LockName::new("a").unwrap());
        let attempt = Attempt::known(keys, "v".to_owned());
        let (ttl, delay) = (Duration::from_secs(1), Duration::ZERO);
        let place = Place::new(Clock::boot(), Holding::new(Kind::Alone, attempt, ttl, delay));
        let on_board = board.add(place);
        (board, on_board)
    }

    fn news(on_board: &OnBoard) -> News {
        *on_board.place.follow().borrow()
    }

    #[test]
    fn a_message_finds_its_place_and_no_other() {
        let (board, on_board) = board();
        for message in ["", "v", "v x", "w 7", "v -1"] {
            board.granted(message.as_bytes());
            assert_eq!(news(&on_board).end, None, "{message:?}");
        }
        board.granted(b"v 7");
        assert_eq!(news(&on_board).end, Some(End::HandedOver(7)));
        drop(on_board);
        assert!(board.open(|places| places.is_empty()));
    }

    proptest! {
        #[test]
        fn whatever_is_published_is_a_grant_of_this_place_or_nothing(
            message in prop_oneof![proptest::collection::vec(any::<u8>(), 0..30), "v? ?[0-9+-]{0,22}".prop_map(String::into_bytes)],
        ) {
            let (board, on_board) = board();
            board.granted(&message);
            let number = message.strip_prefix(b"v ").and_then(|digits| std::str::from_utf8(digits).ok());
            let said = number.and_then(|digits| digits.parse().ok()).map(End::HandedOver);
            prop_assert_eq!(news(&on_board).end, said);
        }
    }

    fn in_line(newest: u64) -> Standing {
        Standing::InLine(InLine { ahead: 0, left: None, newest })
    }

    #[test]
    fn a_late_answer_of_an_earlier_heartbeat_takes_no_grant_back() {
        let (board, on_board) = board();
        let at = BootInstant::from_nanos;
        on_board.place.answered(at(5), in_line(1));
        board.granted(b"v 7");
        on_board.place.answered(at(9), in_line(3));
        on_board.place.answered(at(8), in_line(2));
        let News { in_line, end, .. } = news(&on_board);
        assert_eq!((in_line, end), (Some(Seen { sent_at: at(9), newest: 3 }), Some(End::HandedOver(7))));
    }

    #[test]
    fn what_a_heartbeat_says_of_the_end_is_newer_than_a_message() {
        let (board, on_board) = board();
        board.granted(b"v 7");
        on_board.place.answered(BootInstant::from_nanos(5), Standing::Gone);
        board.granted(b"v 7");
        assert_eq!(news(&on_board).end, Some(End::Gone));
    }
}
