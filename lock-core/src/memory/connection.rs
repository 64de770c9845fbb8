//! The connection: the SPI, on a server that is a value.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    BACKEND, Config,
    config::TTL,
    contender::{Attempt, Grant, WaiterState},
    lease::{MemoryLease, MemoryRenewer, RenewedLease},
    link::ServerLink,
    queue::EnterOutcome,
    watch as follow,
};
use crate::{
    Backend, Capabilities, Contender, Context, Error, Feature, Lease, LockName, Renewer, Request, Snapshot, Wait,
};

/// A connection to a [`MemoryServer`](super::MemoryServer).
pub struct Memory {
    link: Arc<ServerLink>,
    renewer: Renewer<RenewedLease>,
    ttl: Duration,
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
        let link = Arc::new(ServerLink::new(server, context));
        link.check_reachable()?;
        let renewer = Renewer::new(&link.context, Arc::new(MemoryRenewer { link: Arc::clone(&link) }));
        Ok(Arc::new(Self { link, renewer, ttl }))
    }

    /// Cuts this connection off from its server, or mends it: as a broken network would, without the server's noticing.
    pub fn set_connected(&self, connected: bool) {
        self.link.set_connected(connected);
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
                out_of_reach = self.link.reaches(false) => out_of_reach?,
                () = self.link.server.clock().sleep_until(look_again) => self.link.server.table(|table, now| table.settle(now, name)),
            }
        }
    }
}

#[async_trait]
impl Backend for Memory {
    fn context(&self) -> &Context {
        &self.link.context
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
            .with(Feature::Listing)
            .with(Feature::ForcedRelease)
    }

    async fn acquire(self: Arc<Self>, request: Request, stop: CancellationToken) -> Result<Box<dyn Lease>, Error> {
        self.link.travel_unless(&stop).await?;
        self.link.check_reachable()?;
        let Request { name, mode, by_rwlock: _, ttl, wait, payload, delay, outage } = request;
        let server = &self.link.server;
        let id = server.next_id();
        let attempt = Attempt { id, mode, ttl: ttl.unwrap_or(self.ttl), delay: delay.unwrap_or_default(), payload };
        let waits = wait == Wait::UntilStopped;
        let grant = match server.table(|table, now| table.enter(now, &name, attempt.clone(), waits)) {
            EnterOutcome::Granted(grant) => grant,
            EnterOutcome::Refused => return Err(Error::NotAcquired { name }),
            EnterOutcome::Disagrees { asked, there } => return Err(Error::permits(&name, asked, there)),
            EnterOutcome::Queued(place) => {
                // Safeguard: an outage that is over does not end a wait in line (memory)
                outage.answered();
                // Boxed: who is granted at once reserves no memory for it.
                match Box::pin(self.queued(&name, place, &stop)).await {
                    Ok(grant) => grant,
                    Err(error) => {
                        // A grant that came in the same moment goes with it.
                        server.table(|table, now| table.leave(now, &name, id));
                        return Err(error);
                    }
                }
            }
        };
        Ok(Box::new(MemoryLease::new(&self.link, &self.renewer, name, &attempt, grant)))
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, Error> {
        self.link.travel().await;
        self.link.check_reachable()?;
        Ok(self.link.server.snapshot(name))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockName>, Error> {
        self.link.check_reachable()?;
        Ok(self.link.server.table(|table, now| table.held(now, prefix)))
    }

    async fn revoke(&self, name: &LockName, token: u64) -> Result<Option<Contender>, Error> {
        self.link.check_reachable()?;
        Ok(self.link.server.table(|table, now| table.revoke(now, name, token)))
    }

    fn watch(self: Arc<Self>, name: LockName) -> BoxStream<'static, Result<Snapshot, Error>> {
        follow::announced(Arc::clone(&self.link), name)
    }

    async fn close(&self, _limit: Duration) {
        self.link.closed.cancel();
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("server", &self.link.server).field("ttl", &self.ttl).finish_non_exhaustive()
    }
}
