//! The wire: how bytes come to a server and back.
//!
//! Everything above it, the client crate included, is the same wherever the bytes go. So a simulated network takes the place
//! of TCP by the one trait [`Network`].

mod address;
mod messages;
mod tcp;

use std::{fmt, io, sync::Arc};

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

pub(crate) use self::messages::{SubscriptionConnection, SubscriptionEvent};
pub use self::{
    address::Address,
    tcp::{Tcp, UNACKNOWLEDGED},
};

/// Opens connections.
#[async_trait]
pub trait Network: fmt::Debug + Send + Sync {
    /// Connects to the server at `address`. Has no limit of its own.
    ///
    /// # Errors
    /// When nobody listens there, or the address is none.
    async fn dial(&self, address: &Address) -> io::Result<Box<dyn Stream>>;
}

/// A connection. When it is dropped, nothing is sent of it any more that was not acknowledged: an undo that is sent down
/// another connection afterwards is not overtaken by its acquisition for longer than a packet is on its way.
pub trait Stream: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin + 'static {
    /// The means to end it, for somebody else than its owner.
    fn ending(&self) -> Arc<dyn Ending>;
}

/// The means to end a connection that somebody else owns.
pub trait Ending: fmt::Debug + Send + Sync {
    /// Resets the connection, if it is there: when this returns, nothing is sent of it any more.
    fn end(&self);
}
