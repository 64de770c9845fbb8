//! The simulated network as `lock-redis` takes it.

use std::{io, sync::Arc};

use async_trait::async_trait;
use lock_redis::wire::{Address, Ending, Network, Stream};

use crate::world::{HostId, ServerId, SimEnding, SimStream};

/// The network as one host sees it. The server at place `n` is reached at port `PORTS + n`, under any name.
#[derive(Debug, Clone, Copy)]
pub struct HostNetwork(pub HostId);

/// The port of the first server.
pub const PORTS: u16 = 7_000;
/// The name under which clients are told of servers.
const HOST: &str = "server";

/// Where this server is reached.
#[must_use]
pub fn address(server: ServerId) -> Address {
    Address::new(HOST, PORTS + u16::try_from(server.place()).unwrap_or(0))
}

/// The server with that address, written as `host:port`.
#[must_use]
pub fn server_at(address: &str) -> Option<ServerId> {
    let port: u16 = address.strip_prefix(HOST)?.strip_prefix(':')?.parse().ok()?;
    Some(ServerId::at(usize::from(port.checked_sub(PORTS)?)))
}

#[async_trait]
impl Network for HostNetwork {
    async fn dial(&self, address: &Address) -> io::Result<Box<dyn Stream>> {
        let server = ServerId::at(usize::from(address.port.saturating_sub(PORTS)));
        Ok(Box::new(SimStream::dial(self.0, server).await?))
    }
}

impl Stream for SimStream {
    fn ending(&self) -> Arc<dyn Ending> {
        Arc::new(SimStream::ending(self))
    }
}

impl Ending for SimEnding {
    fn end(&self) {
        SimEnding::end(self);
    }
}
