//! One try to take a lock, with its undo.

use std::time::Duration;

use lock_core::{BootInstant, Request};
use tokio_util::sync::CancellationToken;

use crate::{
    Redis,
    node::{Connection, FailureKind, NodeError, ScriptCall},
    scripts::{self, Acquired, Ask, Attempt},
};

/// How a try ended.
pub(crate) enum Tried {
    /// The lock is ours; validity counts from when this attempt was first sent.
    Granted { attempt: Attempt, number: u64, sent_at: BootInstant },
    /// Somebody holds it, for this long; `None` without an expiry.
    Held(Option<Duration>),
    /// It stands in line: so it was answered to a request that was sent at `sent_at`.
    InLine { sent_at: BootInstant, ahead: u64, left: Option<Duration> },
    /// It was told to stop, and has withdrawn what it had.
    Stopped,
}

/// One attempt, ready to be sent.
struct Try<'a> {
    redis: &'a Redis,
    attempt: Attempt,
    acquire: ScriptCall,
    ttl: Duration,
    stop: &'a CancellationToken,
}

impl Redis {
    /// Tries once: one round trip and one command on the server, unless the connection breaks.
    pub(crate) async fn try_once(
        &self,
        request: &Request,
        ttl: Duration,
        stop: &CancellationToken,
    ) -> Result<Tried, NodeError> {
        let attempt = Attempt::new(self.keys(&request.name));
        let acquire = attempt.acquire(&Ask::new(ttl, self.proposals().next(), &request.payload), None);
        self.try_this(attempt, acquire, ttl, stop).await
    }

    /// Tries once by a call of its own, which answers as `acquire.lua` does.
    pub(crate) async fn try_this(
        &self,
        attempt: Attempt,
        acquire: ScriptCall,
        ttl: Duration,
        stop: &CancellationToken,
    ) -> Result<Tried, NodeError> {
        Try { redis: self, attempt, acquire, ttl, stop }.run().await
    }

    /// Has the janitor undo an attempt: first down its own connection, where the undo comes after it for certain; else on
    /// another one, with a tombstone should it come later.
    pub(crate) fn undo(&self, attempt: &Attempt, ttl: Duration, own: Option<Connection>) {
        let (node, attempt, url) = (self.node().clone(), attempt.clone(), self.url());
        // The request may still be on its way for as long as an answer may take.
        let until = ttl.saturating_add(self.node().config().response_timeout);
        let until = self.clock().now().saturating_add(until);
        let mut own = own;
        self.janitor().clean("an acquisition of unknown outcome", until, move || {
            let (node, attempt, url, own) = (node.clone(), attempt.clone(), url.clone(), own.take());
            async move {
                if let Some(own) = own
                    && own
                        .call(attempt.release(Duration::ZERO))
                        .await
                        .is_ok_and(|answer| scripts::held(&answer).is_ok())
                {
                    return Ok(());
                }
                let undone = node.call(attempt.undo(Duration::ZERO)).await.and_then(|answer| scripts::held(&answer));
                undone.map(drop).map_err(|error| error.into_error(&url))
            }
        });
    }
}

impl Try<'_> {
    async fn run(self) -> Result<Tried, NodeError> {
        let Some(connection) = self.connection().await? else { return Ok(Tried::Stopped) };
        // Before the sending, for the server counts from later on.
        let sent_at = self.redis.clock().now();
        let answer = match self.ask(&connection).await {
            Err(error) if error.kind() == FailureKind::Connection => self.ask_again(error).await,
            Err(error) => {
                if error.is_unknown() {
                    self.undo(Some(connection));
                }
                Err(error)
            }
            answer => answer,
        };
        match answer? {
            Some(Acquired::Granted(number)) => Ok(Tried::Granted { attempt: self.attempt, number, sent_at }),
            Some(Acquired::Held(left)) => Ok(Tried::Held(left)),
            Some(Acquired::InLine { ahead, left }) => Ok(Tried::InLine { sent_at, ahead, left }),
            Some(Acquired::Undone | Acquired::Permits(_)) => Ok(Tried::Held(Some(Duration::ZERO))),
            None => Ok(Tried::Stopped),
        }
    }

    /// The connection broke: sends the same attempt down the next one. If the first request was applied, it gets the
    /// same grant again, and its validity still counts from the first sending.
    async fn ask_again(&self, first: NodeError) -> Result<Option<Acquired>, NodeError> {
        let answer = match self.connection().await {
            Ok(Some(connection)) => self.ask(&connection).await,
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        let found = matches!(&answer, Ok(Some(acquired)) if acquired.left_something());
        if first.is_unknown() && !found || answer.as_ref().is_err_and(NodeError::is_unknown) {
            // Down two connections, nothing is known about the order in which they arrive: leave a tombstone.
            self.undo(None);
        }
        answer
    }

    /// A connection; `None` when it was told to stop.
    async fn connection(&self) -> Result<Option<Connection>, NodeError> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Ok(None),
            connection = self.redis.node().connection() => connection.map(Some),
        }
    }

    /// Sends the request; `None` when it was told to stop meanwhile, and has withdrawn.
    async fn ask(&self, connection: &Connection) -> Result<Option<Acquired>, NodeError> {
        let mut asking = std::pin::pin!(async {
            let answer = connection.call(self.acquire.clone()).await?;
            scripts::acquired(&answer)
        });
        tokio::select! {
            biased;
            answer = &mut asking => return answer.map(Some),
            () = self.stop.cancelled() => {}
        }
        // Down the same connection, so the acquisition is not overtaken by its undo.
        let withdrawing = async { scripts::held(&connection.call(self.attempt.release(Duration::ZERO)).await?) };
        let (answer, withdrawn) = futures::join!(asking, withdrawing);
        let is_clean = match (&answer, &withdrawn) {
            (Ok(acquired), withdrawn) if acquired.left_something() => matches!(withdrawn, Ok(true)),
            (Ok(_), _) => true,
            (Err(error), _) => !error.is_unknown(),
        };
        if !is_clean {
            self.undo(Some(connection.clone()));
        }
        Ok(None)
    }

    fn undo(&self, own: Option<Connection>) {
        self.redis.undo(&self.attempt, self.ttl, own);
    }
}
