//! The channels of one server, all on one connection that rebuilds itself.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::AbortHandle;
use lock_core::Backoff;
use redis::RedisError;
use tokio::sync::{Notify, watch};

use super::{NodeError, connection::Connection, reach::Reach, route::Route};
use crate::wire::{Address, Messages, Said};

/// For how long, at least, a channel is kept after its last listener left: a busy lock does not subscribe over and over,
/// and those who do not listen any more are soon not counted any more.
const LINGER: Duration = Duration::from_millis(100);

/// What was heard on one channel so far.
#[derive(Debug, Clone, Copy, Default)]
struct Heard {
    /// The server has confirmed the subscription, and the connection stands.
    confirmed: bool,
    /// How often it was confirmed.
    confirmations: u64,
    /// Counts the messages, and the times when messages may have been missed.
    changes: u64,
    /// The number in the latest message; 0 when messages may have been missed after it.
    number: u64,
}

/// Listens to one channel. Clones listen for themselves.
#[derive(Debug, Clone)]
pub struct Subscription {
    heard: watch::Receiver<Heard>,
}

impl Subscription {
    /// Resolves once the server has confirmed it: from then on no message is missed without [`Subscription::changes`]
    /// moving.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn confirmed(&mut self) {
        if self.heard.wait_for(|heard| heard.confirmed).await.is_err() {
            // The node is closed: nothing will be heard any more.
            std::future::pending::<()>().await;
        }
    }

    /// Whether the server has confirmed it.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.heard.borrow().confirmed
    }

    /// How often there was a message, or messages may have been missed. To be read *before* looking at what the messages
    /// are about.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.heard.borrow().changes
    }

    /// [`Subscription::changes`], and the number that stood in the latest message; 0 if none did, or if messages may have
    /// been missed since.
    #[must_use]
    pub fn latest(&self) -> (u64, u64) {
        let heard = self.heard.borrow();
        (heard.changes, heard.number)
    }

    /// Which confirmation this is, from 1 on: another number means that messages may have been missed in between. `None`
    /// while no message would come.
    pub(crate) fn confirmation(&self) -> Option<u64> {
        let heard = self.heard.borrow();
        heard.confirmed.then_some(heard.confirmations)
    }

    /// Resolves when it is confirmed, and that is another confirmation than `known`.
    pub(crate) async fn confirmed_anew(&mut self, known: Option<u64>) {
        let is_news = |heard: &Heard| heard.confirmed && known != Some(heard.confirmations);
        if self.heard.wait_for(is_news).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Resolves when there was a change since `changes` was read.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn changed_since(&mut self, changes: u64) {
        if self.heard.wait_for(|heard| heard.changes != changes).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// All channels of one server, and the task that serves them.
pub(super) struct Channels {
    book: Arc<Book>,
    task: AbortHandle,
}

struct Book {
    pages: Mutex<Pages>,
    changed: Notify,
}

#[derive(Default)]
struct Pages {
    /// In an order of their own: so they are asked for on a new connection.
    channels: BTreeMap<String, Channel>,
    /// Channels that are yet to be subscribed on the present connection.
    wanted: Vec<String>,
}

/// Is told each message of a channel as it comes.
pub(crate) type Listener = Arc<dyn Fn(&[u8]) + Send + Sync>;

#[derive(Default)]
struct Channel {
    heard: watch::Sender<Heard>,
    listener: Option<Listener>,
    /// Nobody listened at the last look.
    idle: bool,
}

impl Channels {
    pub(super) fn new(reach: Arc<Reach>) -> Self {
        let book = Arc::new(Book { pages: Mutex::default(), changed: Notify::new() });
        let context = reach.context.clone();
        let task = context.spawn(serve(reach, Arc::clone(&book))).abort_handle();
        Self { book, task }
    }

    pub(super) fn subscribe(&self, channel: &str, listener: Option<Listener>) -> Subscription {
        let heard = self.book.open(|pages| {
            if let Some(known) = pages.channels.get_mut(channel) {
                known.idle = false;
                return known.heard.subscribe();
            }
            pages.wanted.push(channel.to_owned());
            let added = pages.channels.entry(channel.to_owned()).or_default();
            added.listener = listener;
            added.heard.subscribe()
        });
        self.book.changed.notify_one();
        Subscription { heard }
    }

    pub(super) fn listening(&self, channel: &str) -> Option<Subscription> {
        self.book.open(|pages| {
            let known = pages.channels.get_mut(channel).filter(|known| known.heard.borrow().confirmed)?;
            known.idle = false;
            Some(Subscription { heard: known.heard.subscribe() })
        })
    }

    pub(super) fn close(&self) {
        self.task.abort();
        self.book.open(|pages| pages.channels.clear());
    }
}

impl Drop for Channels {
    fn drop(&mut self) {
        self.close();
    }
}

impl Book {
    fn open<T>(&self, work: impl FnOnce(&mut Pages) -> T) -> T {
        work(&mut self.pages.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn confirm(&self, channels: &[String]) {
        self.open(|pages| {
            for channel in channels.iter().filter_map(|name| pages.channels.get(name)) {
                channel.heard.send_modify(|heard| {
                    heard.confirmed = true;
                    heard.confirmations += 1;
                });
            }
        });
    }

    fn message(&self, channel: &str, payload: &[u8]) {
        let number = std::str::from_utf8(payload).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        self.open(|pages| {
            if let Some(channel) = pages.channels.get(channel) {
                if let Some(listener) = &channel.listener {
                    listener(payload);
                }
                channel.heard.send_modify(|heard| {
                    heard.changes += 1;
                    heard.number = number;
                });
            }
        });
    }

    /// Messages may have been missed on every channel: whoever listens has to look for itself, once subscribed again.
    fn lost(&self) {
        self.open(|pages| {
            for channel in pages.channels.values() {
                channel.heard.send_modify(|heard| {
                    heard.confirmed = false;
                    heard.changes += 1;
                    heard.number = 0;
                });
            }
            pages.wanted = pages.channels.keys().cloned().collect();
        });
    }

    /// Takes out the channels to which nobody has listened for a while.
    fn sweep(&self) -> Vec<String> {
        self.open(|pages| {
            let mut left = Vec::new();
            pages.channels.retain(|name, channel| {
                let unused = channel.heard.receiver_count() == 0;
                let leave = unused && channel.idle;
                channel.idle = unused;
                if leave {
                    left.push(name.clone());
                }
                !leave
            });
            pages.wanted.retain(|name| !left.contains(name));
            left
        })
    }

    fn is_empty(&self) -> bool {
        self.open(|pages| pages.channels.is_empty())
    }
}

/// Keeps a subscription connection for as long as there are channels, and whenever there are.
async fn serve(reach: Arc<Reach>, book: Arc<Book>) {
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
    loop {
        while book.is_empty() {
            book.changed.notified().await;
        }
        match open(&reach).await {
            Ok((messages, primary)) => {
                reach.answered();
                backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
                let ended = Session { reach: &reach, book: &book, primary }.run(messages).await;
                tracing::debug!(node = %reach.config.url(), ended, "the subscription connection ended");
                // Safeguard: catalogue: who waits looks again on a new subscription connection (Redis)
                book.lost();
            }
            Err(error) => {
                tracing::debug!(node = %reach.config.url(), %error, "no subscription connection");
                reach.failed();
            }
        }
        reach.clock.sleep(backoff.pause()).await;
        let _ = book.sweep();
    }
}

/// Connects; where the node is followed, to the server to which its commands go. Says which one that is.
async fn open(reach: &Arc<Reach>) -> Result<(Messages, Option<Address>), NodeError> {
    let announced = match &reach.route {
        Route::Fixed => None,
        Route::Followed(_) => Some(primary(reach).await?),
    };
    let at = match (&reach.route, &announced) {
        (Route::Followed(guide), Some(announced)) => guide.addresses().reached(announced).clone(),
        _ => reach.fixed(),
    };
    let limit = reach.config.connect_timeout;
    let opening = async { Messages::open(reach.config.network.dial(&at).await?, &reach.user()).await };
    let opened = reach.clock.timeout(limit, opening).await.ok_or_else(|| NodeError::connect_timed_out(limit));
    let opened = opened.and_then(|opened: Result<_, RedisError>| opened.map_err(NodeError::not_connected));
    if let (Err(_), Some(announced)) = (&opened, &announced) {
        reach.lost(announced);
    }
    Ok((opened?, announced))
}

/// The primary that commands go to, or the one that is found now.
async fn primary(reach: &Arc<Reach>) -> Result<Address, NodeError> {
    if let Some(known) = reach.primary() {
        return Ok(known);
    }
    // A connection is the one thing that has verified it; this one is not needed for anything else.
    Connection::open(Arc::clone(reach)).await?;
    reach.primary().ok_or_else(NodeError::no_primary)
}

/// The life of one subscription connection.
struct Session<'a> {
    reach: &'a Reach,
    book: &'a Book,
    /// Of a node that is followed: to which server this leads.
    primary: Option<Address>,
}

impl Session<'_> {
    /// Serves until the connection is of no further use; says why.
    async fn run(self, mut messages: Messages) -> &'static str {
        let clock = self.reach.clock;
        let interval = self.reach.config.connect_timeout;
        let mut ping_at = clock.now().saturating_add(interval);
        let mut sweep_at = clock.now().saturating_add(LINGER);
        // Requests that were under way at the last ping: should nothing have come since, the server is not there.
        let mut unanswered = false;
        loop {
            let wanted = self.book.open(|pages| std::mem::take(&mut pages.wanted));
            if !wanted.is_empty() {
                messages.subscribe(wanted);
            }
            // What is seldom comes first, so that many messages do not keep it waiting.
            tokio::select! {
                biased;
                // Safeguard: messages come from where the commands go (Redis)
                () = moved(self.reach, self.primary.as_ref()) => return "the primary is another server",
                () = clock.sleep_until(ping_at), if !self.book.is_empty() => {
                    if unanswered {
                        self.reach.failed();
                        if let Some(primary) = &self.primary {
                            self.reach.lost(primary);
                        }
                        return "no answer";
                    }
                    ping_at = clock.now().saturating_add(interval);
                    // A server that stands still keeps its connections: only an answer shows that it is there.
                    messages.ping();
                    unanswered = true;
                }
                () = clock.sleep_until(sweep_at), if !self.book.is_empty() => {
                    sweep_at = clock.now().saturating_add(LINGER);
                    let left = self.book.sweep();
                    if !left.is_empty() {
                        messages.unsubscribe(&left);
                    }
                }
                () = self.book.changed.notified() => {}
                said = messages.next() => match said {
                    Ok(Said::Message { channel, payload }) => self.book.message(&channel, &payload),
                    Ok(Said::Answered(channels)) => {
                        unanswered = false;
                        self.reach.answered();
                        self.book.confirm(&channels);
                    }
                    Err(error) => {
                        tracing::debug!(node = %self.reach.config.url(), %error, "no more messages");
                        return "it was closed";
                    }
                },
            }
        }
    }
}

/// Resolves when messages come from another server, if the node is followed.
async fn moved(reach: &Reach, from: Option<&Address>) {
    match from {
        Some(from) => reach.moved_from(from).await,
        None => std::future::pending().await,
    }
}

impl fmt::Debug for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channels").field("count", &self.book.open(|pages| pages.channels.len())).finish_non_exhaustive()
    }
}
