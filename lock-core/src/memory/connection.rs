//! The connection: the SPI, on a server that is a value.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    BACKEND, Config, MemoryServer,
    config::TTL,
    contender::{Attempt, Grant, WaiterState},
    lease::{MemoryLease, MemoryRenewer, RenewedLease},
    queue::EnterOutcome,
    watch as follow,
};
use crate::{Backend, Capabilities, Clock, Context, Error, Feature, Lease, LockName, Renewer, Request, Snapshot, Wait};

/// A connection to a [`MemoryServer`].
pub struct Memory {
    pub(super) server: MemoryServer,
    pub(super) renewer: Renewer<RenewedLease>,
    /// Cancelled by `close`.
    pub(super) closed: CancellationToken,
    ttl: Duration,
    /// Whether this connection is whole; see [`Memory::set_connected`].
    connected: watch::Sender<bool>,
    context: Context,
}

impl Memory {
    /// Connects.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the server is stopped, [`Error::Config`] for a ttl that is not allowed.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn connect(config: Config) -> Result<Arc<Self>, Error> {
        Self::connect_in(config, Context::current())
    }

    /// As [`Memory::connect`], in a context of one's own but for its clock, which is the server's.
    ///
    /// # Errors
    /// Those of [`Memory::connect`].
    pub fn connect_in(config: Config, context: Context) -> Result<Arc<Self>, Error> {
        let Config { server, ttl } = config;
        TTL.check(ttl)?;
        let context = context.with_clock(server.clock());
        let memory = Arc::new_cyclic(|memory| Self {
            server,
            renewer: Renewer::new(&context, Arc::new(MemoryRenewer { memory: Weak::clone(memory) })),
            closed: CancellationToken::new(),
            ttl,
            connected: watch::Sender::new(true),
            context,
        });
        memory.check_reachable()?;
        Ok(memory)
    }

    /// Cuts this connection off from its server, or mends it: as a broken network would, without the server's noticing.
    pub fn set_connected(&self, connected: bool) {
        self.connected.send_replace(connected);
    }

    pub(super) fn clock(&self) -> Clock {
        self.server.clock()
    }

    pub(super) fn leave(&self, held: &RenewedLease) -> bool {
        self.server.table(|table, now| table.leave(now, &held.name, held.id))
    }

    pub(super) fn check_reachable(&self) -> Result<(), Error> {
        if *self.connected.borrow() && *self.server.up().borrow() {
            return Ok(());
        }
        Err(Error::no_answer(BACKEND, "the server is stopped or this connection was cut off"))
    }

    /// Waits until the server is in reach, or out of it.
    pub(super) async fn reaches(&self, reaches: bool) -> Result<(), Error> {
        let (mut connected, mut up) = (self.connected.subscribe(), self.server.up().subscribe());
        loop {
            let reachable = self.check_reachable();
            if reachable.is_ok() == reaches {
                return reachable;
            }
            tokio::select! {
                biased;
                _ = connected.changed() => {}
                _ = up.changed() => {}
            }
        }
    }

    /// Waits for a grant.
    async fn queued(
        &self,
        name: &LockName,
        mut place: watch::Receiver<WaiterState>,
        stop: &CancellationToken,
    ) -> Result<Grant, Error> {
        loop {
            let look_again = match *place.borrow_and_update() {
                WaiterState::Granted(grant) => return Ok(grant),
                WaiterState::InLine { look_again } => look_again,
            };
            tokio::select! {
                biased;
                told = place.changed() => {
                    told.map_err(|_| Error::no_answer(BACKEND, "the place in the queue was lost"))?;
                }
                () = stop.cancelled() => return Err(Error::Cancelled),
                out_of_reach = self.reaches(false) => out_of_reach?,
                () = self.clock().sleep_until(look_again) => self.server.table(|table, now| table.settle(now, name)),
            }
        }
    }
}

#[async_trait]
impl Backend for Memory {
    fn context(&self) -> &Context {
        &self.context
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(BACKEND)
            .with_ttl(TTL.range())
            .with(Feature::Fifo)
            .with(Feature::Queue)
            .with(Feature::Expiry)
            .with(Feature::ReadWrite)
            .with(Feature::Downgrade)
            .with(Feature::Semaphore)
            .with(Feature::LockDelay)
            .with(Feature::ClocklessToken)
    }

    async fn acquire(self: Arc<Self>, request: Request, stop: CancellationToken) -> Result<Box<dyn Lease>, Error> {
        self.check_reachable()?;
        let Request { name, mode, ttl, wait, payload, delay } = request;
        let id = self.server.next_id();
        let attempt = Attempt { id, mode, ttl: ttl.unwrap_or(self.ttl), delay: delay.unwrap_or_default(), payload };
        let waits = wait == Wait::UntilStopped;
        let grant = match self.server.table(|table, now| table.enter(now, &name, attempt.clone(), waits)) {
            EnterOutcome::Granted(grant) => grant,
            EnterOutcome::Refused => return Err(Error::NotAcquired { name }),
            EnterOutcome::Disagrees { asked, there } => return Err(Error::permits(&name, asked, there)),
            EnterOutcome::Queued(place) => match self.queued(&name, place, &stop).await {
                Ok(grant) => grant,
                Err(error) => {
                    // A grant that came in the same moment goes with it.
                    self.server.table(|table, now| table.leave(now, &name, id));
                    return Err(error);
                }
            },
        };
        Ok(Box::new(MemoryLease::new(self, name, &attempt, grant)))
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, Error> {
        self.check_reachable()?;
        Ok(self.server.snapshot(name))
    }

    fn watch(self: Arc<Self>, name: LockName) -> BoxStream<'static, Result<Snapshot, Error>> {
        follow::announced(self, name)
    }

    async fn close(&self, _limit: Duration) {
        self.closed.cancel();
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("server", &self.server).field("ttl", &self.ttl).finish_non_exhaustive()
    }
}
