//! The SPI on one Redis server.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use lock_core::{
    Backend, BootInstant, Capabilities, Clock, Contender, Error, Feature, Janitor, Keeper, Lease, LockName, Loss, Mode,
    Request, Snapshot, Validity, Wait, validity::deadline,
};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::{
    Config, Queue,
    attempt::Tried,
    config::TTLS,
    fifo::Fifo,
    keys::Keys,
    lease::{Held, RedisLease, Watchdog, give_back},
    lines::Lines,
    node::{FailureKind, Node, NodeError},
    scripts::{self, Attempt},
    token::Proposals,
};

/// A renewal comes round this often in a ttl, so that two of them may fail.
const RENEWALS_PER_TTL: u32 = 3;

/// How many releases go into one burst when the connection is closed.
const BURST: usize = 256;

/// A connection to one Redis server.
pub struct Redis {
    config: Config,
    node: Node,
    clock: Clock,
    proposals: Proposals,
    keeper: Keeper<Held>,
    janitor: Janitor,
    lines: Lines,
    /// The other way to wait.
    fifo: Option<Fifo>,
    /// What is held, by the value of its attempt.
    held: Mutex<HashMap<String, Arc<Held>>>,
    closed: AtomicBool,
}

impl Redis {
    /// Connects to the server of `config`. Its tasks run on the present runtime.
    ///
    /// # Errors
    /// [`Error::Config`] for a setting that is not allowed; [`Error::Unavailable`] when the server did not answer within
    /// the connect limit.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn connect(config: Config) -> Result<Arc<Self>, Error> {
        config.check()?;
        let (clock, runtime) = (Clock::boot(), Handle::current());
        let node = Node::new(config.node.clone(), clock, runtime.clone());
        node.connection().await.map_err(|error| error.into_error(&config.node.url()))?;
        let fifo = (config.queue == Queue::Fifo).then(|| Fifo::new(&node, &config.prefix, &runtime));
        let redis = Self {
            fifo,
            keeper: Keeper::new(clock, &runtime, Arc::new(Watchdog { node: node.clone() })),
            janitor: Janitor::new(clock, runtime),
            config,
            node,
            clock,
            proposals: Proposals::default(),
            lines: Lines::default(),
            held: Mutex::default(),
            closed: AtomicBool::new(false),
        };
        Ok(Arc::new(redis))
    }

    pub(crate) const fn node(&self) -> &Node {
        &self.node
    }

    pub(crate) const fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) const fn proposals(&self) -> &Proposals {
        &self.proposals
    }

    pub(crate) const fn janitor(&self) -> &Janitor {
        &self.janitor
    }

    pub(crate) const fn lines(&self) -> &Lines {
        &self.lines
    }

    pub(crate) fn keys(&self, name: &LockName) -> Keys {
        Keys::new(&self.config.prefix, name)
    }

    pub(crate) fn url(&self) -> String {
        self.config.node.url()
    }

    pub(crate) fn unavailable(&self, error: NodeError) -> Error {
        if self.closed.load(Ordering::Acquire) { Error::Closed } else { error.into_error(&self.url()) }
    }

    /// Makes a lease of a grant that was asked for by a request sent at `sent_at`.
    pub(crate) fn grant(
        self: &Arc<Self>,
        request: &Request,
        attempt: Attempt,
        number: u64,
        ttl: Duration,
        sent_at: BootInstant,
    ) -> Box<dyn Lease> {
        let validity = Validity::new(self.clock, deadline(sent_at, ttl));
        Box::new(self.lease(request, attempt, number, ttl, validity))
    }

    /// Makes a lease of a grant that is valid as `validity` says.
    pub(crate) fn lease(
        self: &Arc<Self>,
        request: &Request,
        attempt: Attempt,
        number: u64,
        ttl: Duration,
        validity: Validity,
    ) -> RedisLease {
        self.proposals.seen(number);
        let held = Arc::new(Held { name: request.name.clone(), attempt, ttl, number, validity: validity.clone() });
        self.holding(|all| all.insert(held.attempt.value.clone(), Arc::clone(&held)));
        let kept = self.keeper.keep(Arc::clone(&held), validity, ttl / RENEWALS_PER_TTL);
        RedisLease { held, kept, redis: Arc::clone(self) }
    }

    pub(crate) fn forget(&self, held: &Held) {
        self.holding(|all| all.remove(&held.attempt.value));
    }

    /// Has the janitor release what could not be released, until it has ended by itself.
    pub(crate) fn leave_to_janitor(&self, held: &Held) {
        let until = self.clock.now().saturating_add(held.ttl);
        let (node, attempt, url) = (self.node.clone(), held.attempt.clone(), self.url());
        self.janitor.clean("a release without an answer", until, move || {
            let (node, attempt, url) = (node.clone(), attempt.clone(), url.clone());
            async move { give_back(&node, &attempt).await.map(drop).map_err(|error| error.into_error(&url)) }
        });
    }

    fn holding<T>(&self, work: impl FnOnce(&mut HashMap<String, Arc<Held>>) -> T) -> T {
        work(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives everything back in bursts; what got no answer is left to the janitor.
    async fn release_all(&self) {
        let all: Vec<_> = self.holding(|all| all.drain().map(|(_, held)| held).collect());
        all.iter().for_each(|held| held.validity.end(Loss::Closed));
        for burst in all.chunks(BURST) {
            let calls: Vec<_> = burst.iter().map(|held| held.attempt.release(Duration::ZERO)).collect();
            for (held, answer) in burst.iter().zip(self.node.run(&calls).await) {
                if answer.and_then(|answer| scripts::held(&answer)).is_err() {
                    self.leave_to_janitor(held);
                }
            }
        }
    }
}

#[async_trait]
impl Backend for Redis {
    fn capabilities(&self) -> Capabilities {
        let capabilities = Capabilities::new("redis").with_ttl(TTLS).with(Feature::Expiry);
        match &self.fifo {
            Some(_) => capabilities.with(Feature::Fifo).with(Feature::Queue),
            None => capabilities,
        }
    }

    async fn acquire(self: Arc<Self>, request: Request, stop: CancellationToken) -> Result<Box<dyn Lease>, Error> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        if request.mode != Mode::Exclusive {
            return Err(Error::Unsupported { feature: "a lock that is shared", backend: "redis" });
        }
        let ttl = request.ttl.unwrap_or(self.config.ttl);
        if let Some(fifo) = &self.fifo {
            return self.acquire_in_turn(fifo, &request, ttl, &stop).await;
        }
        match request.wait {
            Wait::UntilStopped => self.wait(&request, ttl, &stop).await,
            Wait::No => match self.try_once(&request, ttl, &stop).await {
                Ok(Tried::Granted { attempt, number, sent_at }) => {
                    Ok(self.grant(&request, attempt, number, ttl, sent_at))
                }
                Ok(Tried::Held(_) | Tried::InLine { .. }) => Err(Error::NotAcquired { name: request.name }),
                Ok(Tried::Stopped) => Err(Error::Cancelled),
                Err(error) => Err(self.unavailable(error)),
            },
        }
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, Error> {
        if self.fifo.is_some() {
            return self.look_at_the_line(name).await;
        }
        let call = || scripts::inspect(&self.keys(name));
        let answer = match self.node.call(call()).await {
            Err(error) if error.kind() == FailureKind::Connection => self.node.call(call()).await,
            answer => answer,
        };
        let holder = answer.and_then(|answer| scripts::holder(&answer)).map_err(|error| self.unavailable(error))?;
        let contender = holder.map(|holder| {
            let mut contender = Contender::new(String::from_utf8_lossy(&holder.value)).with_payload(holder.payload);
            (contender.token, contender.remaining) = (holder.number, holder.remaining);
            contender
        });
        Ok(Snapshot::new(contender.into_iter().collect(), Vec::new()))
    }

    async fn close(&self, limit: Duration) -> Result<(), Error> {
        self.closed.store(true, Ordering::Release);
        let until = self.clock.now().saturating_add(limit);
        let released = self.clock.timeout(limit, self.release_all()).await.is_some();
        let clean = self.janitor.drain(until.saturating_since(self.clock.now())).await;
        self.node.close();
        if released && clean {
            return Ok(());
        }
        Err(Error::no_answer(self.url(), "closed before everything was given back; the rest ends with its ttl"))
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("config", &self.config).finish_non_exhaustive()
    }
}
