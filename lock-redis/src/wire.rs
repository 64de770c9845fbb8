//! The wire: how bytes come to a server and back.
//!
//! Everything above it, the client crate included, is the same wherever the bytes go. So a simulated network takes the place
//! of TCP by the one trait [`Network`].

mod address;
mod messages;
mod tcp;
#[cfg(feature = "_tls")]
mod tls;

use std::{fmt, io, sync::Arc};

use async_trait::async_trait;
use lock_core::{Error, SettingDoc, Settings};
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

    /// Why the server at `address` hangs up on whom it does not know, if that can be found out by asking once more.
    async fn refusal(&self, _address: &Address) -> Option<io::Error> {
        None
    }

    /// Whether nobody else can read what is sent (TLS).
    fn is_encrypted(&self) -> bool {
        false
    }
}

/// The network of this machine, encrypted where `with_tls` says so, as `settings` have it.
///
/// # Errors
/// [`Error::Config`] that names the setting, its value, and what is allowed.
#[cfg(feature = "_tls")]
pub fn network(settings: &mut Settings, with_tls: bool) -> Result<Arc<dyn Network>, Error> {
    if with_tls {
        return Ok(Arc::new(tls::Tls { below: Arc::new(Tcp), tls: lock_tls::Tls::take(settings)? }));
    }
    // Safeguard: nobody takes a connection in clear text for an encrypted one (Redis, Redlock)
    lock_tls::Tls::refuse(settings)?;
    Ok(Arc::new(Tcp))
}

/// The network of this machine; this build has no TLS.
///
/// # Errors
/// [`Error::Config`] where `with_tls` asks for it.
#[cfg(not(feature = "_tls"))]
pub fn network(settings: &mut Settings, with_tls: bool) -> Result<Arc<dyn Network>, Error> {
    if with_tls {
        let allowed = "a scheme without TLS; this build lacks the cargo feature tls-aws-lc-rs or tls-ring";
        return Err(Error::config("scheme", &settings.scheme, allowed));
    }
    Ok(Arc::new(Tcp))
}

/// What the documentation says of the settings that [`network`] takes.
#[must_use]
pub fn network_settings(with_tls: bool) -> Vec<SettingDoc> {
    #[cfg(feature = "_tls")]
    if with_tls {
        return lock_tls::Tls::settings();
    }
    let _ = with_tls;
    Vec::new()
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
