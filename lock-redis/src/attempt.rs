//! One try to take a lock, with its undo.

use std::{num::NonZeroU32, time::Duration};

use lock_core::{BootInstant, Error, Request, safeguard};
use tokio_util::sync::CancellationToken;

use crate::{
    Redis,
    kind::{Holding, Kind},
    node::{Connection, FailureKind, Lane, Node, NodeError, Purpose, ScriptCall},
    scripts::{self, Acquired, Ask, Attempt, InLine, Intent},
    servers::HOPS,
};

/// What is asked for, and since when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) request: &'a Request,
    pub(crate) kind: Kind,
    pub(crate) ttl: Duration,
    /// Zero for none.
    pub(crate) delay: Duration,
    pub(crate) arrived: BootInstant,
}

/// How a try ended.
pub(crate) enum Tried {
    /// The lock is ours; validity counts from when this attempt was first sent.
    Granted(Granted),
    /// Somebody holds it, for this long; `None` without an expiry.
    Held(Option<Duration>),
    /// It stands in line: so it was answered to a request that was sent at `sent_at`.
    InLine { sent_at: BootInstant, at: InLine },
    /// Those who hold a permit named another number of permits: this one.
    Permits(u64),
    /// It was told to stop, and has withdrawn what it had.
    Stopped,
}

/// A grant, before anybody was told of it.
pub(crate) struct Granted {
    pub(crate) holding: Holding,
    pub(crate) number: u64,
    pub(crate) sent_at: BootInstant,
    /// The connection broke under way, so that it was sent twice.
    pub(crate) resent: bool,
}

/// One attempt, ready to be sent.
struct Try<'a> {
    redis: &'a Redis,
    holding: Holding,
    acquire: ScriptCall,
    stop: &'a CancellationToken,
}

impl<'a> Wanted<'a> {
    pub(crate) fn new(redis: &Redis, request: &'a Request) -> Result<Self, Error> {
        Ok(Self {
            request,
            kind: Kind::of(request.mode)?,
            ttl: request.ttl.unwrap_or(redis.ttl()),
            delay: request.delay.unwrap_or_default(),
            arrived: redis.clock().now(),
        })
    }

    /// The refusal of one who names another number of permits than those who hold one.
    pub(crate) fn disagreement(&self, there: u64) -> Error {
        let there = u32::try_from(there).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX);
        let asked = if let Kind::Permit(asked) = self.kind { asked } else { there };
        Error::permits(&self.request.name, asked, there)
    }

    /// An attempt at it, of its own.
    pub(crate) fn holding(&self, redis: &Redis) -> Holding {
        self.holding_by(redis.attempt(&self.request.name))
    }

    pub(crate) fn holding_by(&self, attempt: Attempt) -> Holding {
        Holding::new(self.kind, attempt, self.ttl, self.delay)
    }
}

impl Redis {
    /// Tries once: one round trip and one command on the server, unless the connection breaks.
    pub(crate) async fn try_once(
        &self,
        wanted: &Wanted<'_>,
        intent: Option<&Intent<'_>>,
        stop: &CancellationToken,
    ) -> Result<Tried, NodeError> {
        let holding = wanted.holding(self);
        let ask = Ask { delay: wanted.delay, ..Ask::new(wanted.ttl, self.proposals().next(), &wanted.request.payload) };
        let waited = self.clock().now().saturating_since(wanted.arrived);
        let acquire = holding.acquire(&ask, waited, intent);
        self.try_this(holding, acquire, stop).await
    }

    /// Tries once by a call of its own, which answers as `acquire.lua` does.
    pub(crate) async fn try_this(
        &self,
        holding: Holding,
        acquire: ScriptCall,
        stop: &CancellationToken,
    ) -> Result<Tried, NodeError> {
        Try { redis: self, holding, acquire, stop }.run().await
    }

    /// Leaves a tombstone, in the background, for an attempt that was given back although the first of its two requests may
    /// still be on its way: it would take the lock for nobody.
    pub(crate) fn bury(&self, holding: &Holding) {
        if holding.is_sent_again() && safeguard("bury") {
            self.undo(holding, None);
        }
    }

    /// Has the cleanup undo an attempt: first down its own connection, where the undo comes after it for certain; else on
    /// another one, with a tombstone should it come later.
    pub(crate) fn undo(&self, holding: &Holding, own: Option<Connection>) {
        let (servers, holding, url) = (self.servers().clone(), holding.clone(), self.url());
        // The request may still be on its way for as long as an answer may take.
        let until = holding.ttl.saturating_add(self.servers().config().response_timeout);
        let until = self.clock().now().saturating_add(until);
        let mut own = own;
        self.cleanup().clean("an acquisition of unknown outcome", until, move || {
            let (servers, holding, url, own) = (servers.clone(), holding.clone(), url.clone(), own.take());
            async move {
                if let Some(own) = own {
                    if own.call(holding.release()).await.is_ok_and(|answer| scripts::held(&answer).is_ok()) {
                        return Ok(());
                    }
                    // Without any answer it may still deliver the acquisition, and after the tombstone has ended.
                    if own.is_broken() {
                        own.end();
                    }
                }
                let undone = servers.call(holding.undo()).await.and_then(|answer| scripts::held(&answer));
                undone.map(drop).map_err(|error| error.into_error(&url))
            }
        });
    }
}

impl Try<'_> {
    async fn run(mut self) -> Result<Tried, NodeError> {
        let mut node = self.redis.servers().node_for(&self.holding.attempt.keys);
        let Some(mut lane) = self.lane(&node).await? else { return Ok(Tried::Stopped) };
        // Before the sending, for the server counts from later on.
        let sent_at = self.redis.clock().now();
        let mut answer = self.ask(&lane).await;
        for _ in 0..HOPS {
            // Sent away, it did not run there: so nothing is to be undone there, and it counts from the first sending.
            let Err(error) = &answer else { break };
            let Some(next) = self.redis.servers().redirected(&mut self.acquire, error, &node).await else { break };
            node = next;
            match self.lane(&node).await? {
                Some(next) => lane = next,
                None => return Ok(Tried::Stopped),
            }
            answer = self.ask(&lane).await;
        }
        let mut resent = false;
        let answer = match answer {
            Err(error) if error.kind() == FailureKind::Connection => {
                resent = true;
                drop(lane);
                self.ask_again(error, &node).await
            }
            Err(error) => {
                if error.is_unknown() {
                    self.redis.undo(&self.holding, Some(lane.connection().clone()));
                }
                Err(error)
            }
            answer => answer,
        };
        match answer? {
            Some(Acquired::Granted(number)) => {
                Ok(Tried::Granted(Granted { holding: self.holding, number, sent_at, resent }))
            }
            Some(Acquired::Held(left)) => Ok(Tried::Held(left)),
            Some(Acquired::InLine(at)) => Ok(Tried::InLine { sent_at, at }),
            Some(Acquired::Permits(of)) => Ok(Tried::Permits(of)),
            Some(Acquired::Undone) => Ok(Tried::Held(Some(Duration::ZERO))),
            None => Ok(Tried::Stopped),
        }
    }

    /// The connection broke: sends the same attempt down the next one. If the first request was applied, it gets the
    /// same grant again, and its validity still counts from the first sending.
    async fn ask_again(&self, first: NodeError, node: &Node) -> Result<Option<Acquired>, NodeError> {
        self.holding.note_sent_again();
        let answer = match self.lane(node).await {
            Ok(Some(lane)) => match self.ask(&lane).await {
                Ok(Some(Acquired::Granted(number))) => self.confirm(&lane, number).await,
                answer => answer,
            },
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        let found = matches!(&answer, Ok(Some(acquired)) if acquired.left_something());
        if first.is_unknown() && !found || answer.as_ref().is_err_and(NodeError::is_unknown) {
            // Down two connections, nothing is known about the order in which they arrive: leave a tombstone.
            self.redis.undo(&self.holding, None);
        }
        answer
    }

    /// A lane; `None` when it was told to stop.
    async fn lane(&self, node: &Node) -> Result<Option<Lane>, NodeError> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Ok(None),
            lane = node.lane(Purpose::Acquiring) => lane.map(Some),
        }
    }

    /// A grant that was found by a second request may have written nothing that replicas could have acknowledged: it is
    /// renewed, which they can.
    async fn confirm(&self, lane: &Lane, number: u64) -> Result<Option<Acquired>, NodeError> {
        if !lane.is_acknowledged() {
            return Ok(Some(Acquired::Granted(number)));
        }
        let (mut answers, acknowledged) = lane.run(&[self.holding.renew()]).await;
        let renewed = answers.pop().unwrap_or_else(|| Err(NodeError::closed()));
        match renewed.and_then(|answer| scripts::held(&answer)) {
            Ok(true) => self.unless_unacknowledged(lane, acknowledged, Acquired::Granted(number)).await,
            // It ended between the two.
            Ok(false) => Ok(Some(Acquired::Held(Some(Duration::ZERO)))),
            Err(error) => {
                self.redis.undo(&self.holding, None);
                Err(error)
            }
        }
    }

    /// Gives a grant back that too few replicas know of: one of the others may take over, and grant it again.
    async fn unless_unacknowledged(
        &self,
        lane: &Lane,
        acknowledged: Result<(), NodeError>,
        acquired: Acquired,
    ) -> Result<Option<Acquired>, NodeError> {
        match (&acquired, acknowledged) {
            (Acquired::Granted(_), Err(error)) => {
                // Safeguard: a grant that too few replicas have is given back (Redis)
                if self.withdraw(lane.connection()).await.is_err() {
                    self.redis.undo(&self.holding, Some(lane.connection().clone()));
                }
                // Whatever came of it, it is taken care of.
                Err(error.not_applied())
            }
            _ => Ok(Some(acquired)),
        }
    }

    /// Gives back what it got, down the same connection, so that the acquisition is not overtaken by its undo. Says whether
    /// there was anything.
    async fn withdraw(&self, connection: &Connection) -> Result<bool, NodeError> {
        let mut release = self.holding.release();
        release.set_asking(self.acquire.is_asking());
        scripts::held(&connection.call(release).await?)
    }

    /// Sends the request; `None` when it was told to stop meanwhile, and has withdrawn.
    async fn ask(&self, lane: &Lane) -> Result<Option<Acquired>, NodeError> {
        let mut asking = std::pin::pin!(async {
            let (mut answers, acknowledged) = lane.run(std::slice::from_ref(&self.acquire)).await;
            let answer = answers.pop().unwrap_or_else(|| Err(NodeError::closed()))?;
            Ok((scripts::acquired(&answer)?, acknowledged))
        });
        tokio::select! {
            biased;
            answer = &mut asking => {
                let (acquired, acknowledged) = answer?;
                return self.unless_unacknowledged(lane, acknowledged, acquired).await;
            }
            () = self.stop.cancelled() => {}
        }
        if lane.is_acknowledged() {
            // The connection answers nothing before its replicas have, and nobody has to wait for that.
            self.redis.undo(&self.holding, Some(lane.connection().clone()));
            return Ok(None);
        }
        // Safeguard: catalogue: an interrupted acquisition is withdrawn (Redis)
        let (answer, withdrawn) = futures::join!(asking, self.withdraw(lane.connection()));
        let is_clean = match (&answer, &withdrawn) {
            (Ok((acquired, _)), withdrawn) if acquired.left_something() => matches!(withdrawn, Ok(true)),
            (Ok(_), _) => true,
            (Err(error), _) => !NodeError::is_unknown(error),
        };
        if !is_clean {
            self.redis.undo(&self.holding, Some(lane.connection().clone()));
        }
        Ok(None)
    }
}
