//! What lies between a connection and its server.

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{BACKEND, MemoryServer};
use crate::{Context, Error};

/// The connection of one client of the memory backend to its server, which can be cut.
pub(super) struct ServerLink {
    pub(super) server: MemoryServer,
    pub(super) context: Context,
    /// Cancelled when the connection is closed.
    pub(super) closed: CancellationToken,
    /// Whether it is whole.
    connected: watch::Sender<bool>,
}

impl ServerLink {
    pub(super) fn new(server: MemoryServer, context: Context) -> Self {
        Self { server, context, closed: CancellationToken::new(), connected: watch::Sender::new(true) }
    }

    pub(super) fn set_connected(&self, connected: bool) {
        self.connected.send_replace(connected);
    }

    pub(super) fn check_reachable(&self) -> Result<(), Error> {
        if *self.connected.borrow() && *self.server.up().borrow() {
            return Ok(());
        }
        Err(Error::no_answer(BACKEND, "the server is stopped or this connection was cut off"))
    }

    /// Waits as long as a request takes to the server. Without a delay there is no wait.
    pub(super) async fn travel(&self) {
        let delay = self.server.delay();
        if !delay.is_zero() {
            // Boxed: a request that arrives at once reserves no memory for it.
            Box::pin(self.server.clock().sleep(delay)).await;
        }
    }

    /// As [`ServerLink::travel`], until `stop` is cancelled.
    pub(super) async fn travel_unless(&self, stop: &CancellationToken) -> Result<(), Error> {
        let delay = self.server.delay();
        if delay.is_zero() {
            return Ok(());
        }
        let travel = self.server.clock().sleep(delay);
        Box::pin(stop.run_until_cancelled(travel)).await.ok_or(Error::Cancelled)
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
}
