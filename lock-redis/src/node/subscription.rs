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

use super::{NodeError, connection::Connection, endpoint::Endpoint, route::Route};
use crate::wire::{Address, SubscriptionConnection, SubscriptionEvent};

/// For how long, at least, a channel is kept after its last listener left: a busy lock does not subscribe over and over,
/// and those who do not listen any more are soon not counted any more.
const LINGER: Duration = Duration::from_millis(100);

/// The state of the subscription to one channel, and how many messages have come.
#[derive(Debug, Clone, Copy, Default)]
struct ChannelState {
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
    heard: watch::Receiver<ChannelState>,
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
        let is_news = |heard: &ChannelState| heard.confirmed && known != Some(heard.confirmations);
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

/// The subscriptions to all channels of one server, and the task that serves them on one connection.
pub(super) struct Subscriptions {
    state: Arc<SubscriptionsState>,
    task: AbortHandle,
}

/// The state that a [`Subscriptions`] and its task share.
struct SubscriptionsState {
    table: Mutex<ChannelTable>,
    changed: Notify,
}

/// The channels that somebody listens to, by name, and those that are still to be subscribed.
#[derive(Default)]
struct ChannelTable {
    /// In an order of their own: so they are asked for on a new connection.
    channels: BTreeMap<String, ChannelEntry>,
    /// Channels that are yet to be subscribed on the present connection.
    wanted: Vec<String>,
}

/// A callback that gets each message of a channel, in the order of the messages.
pub(crate) type MessageHandler = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// One channel in a [`ChannelTable`]: its listeners, and its message handler, if it has one.
#[derive(Default)]
struct ChannelEntry {
    heard: watch::Sender<ChannelState>,
    listener: Option<MessageHandler>,
    /// Nobody listened at the last look.
    idle: bool,
}

impl Subscriptions {
    pub(super) fn new(endpoint: Arc<Endpoint>) -> Self {
        let state = Arc::new(SubscriptionsState { table: Mutex::default(), changed: Notify::new() });
        let context = endpoint.context.clone();
        let task = context.spawn(serve(endpoint, Arc::clone(&state))).abort_handle();
        Self { state, task }
    }

    pub(super) fn subscribe(&self, channel: &str, listener: Option<MessageHandler>) -> Subscription {
        let heard = self.state.open(|table| {
            if let Some(known) = table.channels.get_mut(channel) {
                known.idle = false;
                return known.heard.subscribe();
            }
            table.wanted.push(channel.to_owned());
            let added = table.channels.entry(channel.to_owned()).or_default();
            added.listener = listener;
            added.heard.subscribe()
        });
        self.state.changed.notify_one();
        Subscription { heard }
    }

    pub(super) fn listening(&self, channel: &str) -> Option<Subscription> {
        self.state.open(|table| {
            let known = table.channels.get_mut(channel).filter(|known| known.heard.borrow().confirmed)?;
            known.idle = false;
            Some(Subscription { heard: known.heard.subscribe() })
        })
    }

    pub(super) fn close(&self) {
        self.task.abort();
        self.state.open(|table| table.channels.clear());
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        self.close();
    }
}

impl SubscriptionsState {
    fn open<T>(&self, work: impl FnOnce(&mut ChannelTable) -> T) -> T {
        work(&mut self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn confirm(&self, channels: &[String]) {
        self.open(|table| {
            for channel in channels.iter().filter_map(|name| table.channels.get(name)) {
                channel.heard.send_modify(|heard| {
                    heard.confirmed = true;
                    heard.confirmations += 1;
                });
            }
        });
    }

    fn message(&self, channel: &str, payload: &[u8]) {
        let number = std::str::from_utf8(payload).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        self.open(|table| {
            if let Some(channel) = table.channels.get(channel) {
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
        self.open(|table| {
            for channel in table.channels.values() {
                channel.heard.send_modify(|heard| {
                    heard.confirmed = false;
                    heard.changes += 1;
                    heard.number = 0;
                });
            }
            table.wanted = table.channels.keys().cloned().collect();
        });
    }

    /// Takes out the channels to which nobody has listened for a while.
    fn sweep(&self) -> Vec<String> {
        self.open(|table| {
            let mut left = Vec::new();
            table.channels.retain(|name, channel| {
                let unused = channel.heard.receiver_count() == 0;
                let leave = unused && channel.idle;
                channel.idle = unused;
                if leave {
                    left.push(name.clone());
                }
                !leave
            });
            table.wanted.retain(|name| !left.contains(name));
            left
        })
    }

    fn is_empty(&self) -> bool {
        self.open(|table| table.channels.is_empty())
    }
}

/// Keeps a subscription connection for as long as there are channels, and whenever there are.
async fn serve(endpoint: Arc<Endpoint>, state: Arc<SubscriptionsState>) {
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
    loop {
        while state.is_empty() {
            state.changed.notified().await;
        }
        match open(&endpoint).await {
            Ok((messages, primary)) => {
                endpoint.answered();
                backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
                let ended = SubscriptionSession { endpoint: &endpoint, state: &state, primary }.run(messages).await;
                tracing::debug!(node = %endpoint.config.url(), ended, "the subscription connection ended");
                // Safeguard: catalogue: who waits looks again on a new subscription connection (Redis)
                state.lost();
            }
            Err(error) => {
                tracing::debug!(node = %endpoint.config.url(), %error, "no subscription connection");
                endpoint.failed();
            }
        }
        endpoint.clock.sleep(backoff.pause()).await;
        let _ = state.sweep();
    }
}

/// Connects; where the node is followed, to the server to which its commands go. Says which one that is.
async fn open(endpoint: &Arc<Endpoint>) -> Result<(SubscriptionConnection, Option<Address>), NodeError> {
    let announced = match &endpoint.route {
        Route::Fixed => None,
        Route::Followed(_) => Some(primary(endpoint).await?),
    };
    let at = match (&endpoint.route, &announced) {
        (Route::Followed(guide), Some(announced)) => guide.addresses().reached(announced).clone(),
        _ => endpoint.fixed(),
    };
    let limit = endpoint.config.connect_timeout;
    let opening =
        async { SubscriptionConnection::open(endpoint.config.network.dial(&at).await?, &endpoint.user()?).await };
    let late = || NodeError::connect_timed_out(limit, &*endpoint.config.network);
    let opened = endpoint.clock.answer_timeout(limit, opening).await.ok_or_else(late);
    let opened = opened.and_then(|opened: Result<_, RedisError>| opened.map_err(NodeError::not_connected));
    if let (Err(_), Some(announced)) = (&opened, &announced) {
        endpoint.lost(announced);
    }
    Ok((opened?, announced))
}

/// The primary that commands go to, or the one that is found now.
async fn primary(endpoint: &Arc<Endpoint>) -> Result<Address, NodeError> {
    if let Some(known) = endpoint.primary() {
        return Ok(known);
    }
    // A connection is the one thing that has verified it; this one is not needed for anything else.
    Connection::open(Arc::clone(endpoint)).await?;
    endpoint.primary().ok_or_else(NodeError::no_primary)
}

/// Serves the subscriptions on one connection, from its beginning to its end.
struct SubscriptionSession<'a> {
    endpoint: &'a Endpoint,
    state: &'a SubscriptionsState,
    /// Of a node that is followed: to which server this leads.
    primary: Option<Address>,
}

impl SubscriptionSession<'_> {
    /// Serves until the connection is of no further use; says why.
    async fn run(self, mut messages: SubscriptionConnection) -> &'static str {
        let clock = self.endpoint.clock;
        let interval = self.endpoint.config.connect_timeout;
        let mut ping_at = clock.now().saturating_add(interval);
        let mut sweep_at = clock.now().saturating_add(LINGER);
        // Requests that were under way at the last ping: should nothing have come since, the server is not there.
        let mut unanswered = false;
        // One timer, which many messages leave as it is: it finds out when it fires what is due.
        let mut due = std::pin::pin!(clock.sleep_until(ping_at.min(sweep_at)));
        loop {
            let wanted = self.state.open(|table| std::mem::take(&mut table.wanted));
            if !wanted.is_empty() {
                messages.subscribe(wanted);
            }
            // What is seldom comes first, so that many messages do not keep it waiting.
            tokio::select! {
                biased;
                // Safeguard: messages come from where the commands go (Redis)
                () = moved(self.endpoint, self.primary.as_ref()) => return "the primary is another server",
                () = &mut due, if !self.state.is_empty() => {
                    let now = clock.now();
                    if now >= ping_at {
                        if unanswered {
                            self.endpoint.failed();
                            if let Some(primary) = &self.primary {
                                self.endpoint.lost(primary);
                            }
                            return "no answer";
                        }
                        ping_at = now.saturating_add(interval);
                        // A server that stands still keeps its connections: only an answer shows that it is there.
                        messages.ping();
                        unanswered = true;
                    }
                    if now >= sweep_at {
                        sweep_at = now.saturating_add(LINGER);
                        let left = self.state.sweep();
                        if !left.is_empty() {
                            messages.unsubscribe(&left);
                        }
                    }
                    due.set(clock.sleep_until(ping_at.min(sweep_at)));
                }
                () = self.state.changed.notified() => {}
                said = messages.next() => {
                    match said {
                        Ok(SubscriptionEvent::Message { channel, payload }) => self.state.message(&channel, &payload),
                        Ok(SubscriptionEvent::Answered(channels)) => self.state.confirm(&channels),
                        Err(error) => {
                            tracing::debug!(node = %self.endpoint.config.url(), %error, "no more messages");
                            return "it was closed";
                        }
                    }
                    // Whatever it says, it is there, and need not be asked.
                    unanswered = false;
                    self.endpoint.answered();
                    ping_at = clock.now().saturating_add(interval);
                }
            }
        }
    }
}

/// Resolves when messages come from another server, if the node is followed.
async fn moved(endpoint: &Endpoint, from: Option<&Address>) {
    match from {
        Some(from) => endpoint.moved_from(from).await,
        None => std::future::pending().await,
    }
}

impl fmt::Debug for Subscriptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriptions")
            .field("count", &self.state.open(|table| table.channels.len()))
            .finish_non_exhaustive()
    }
}
