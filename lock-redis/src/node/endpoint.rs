//! The server that a node connects to: how to reach it, since when that fails, and which server it is now.

use std::{convert::Infallible, io};

use lock_core::{BootInstant, Clock, Context, Error, Outage, TimeLimits};
use redis::RedisConnectionInfo;
use tokio::sync::watch;

use super::{NodeConfig, route::Route};
use crate::wire::Address;

/// The server that a [`Node`](super::Node) connects to: how to reach it, since when that fails, and which of several servers
/// is the primary. All connections of the node share it.
pub(super) struct Endpoint {
    pub(super) config: NodeConfig,
    pub(super) clock: Clock,
    /// The limits of all requests to it.
    pub(super) limits: TimeLimits,
    pub(super) context: Context,
    pub(super) route: Route,
    /// Since when nothing has succeeded; `None` while it works.
    failing: watch::Sender<Option<BootInstant>>,
    /// Of a node that is followed: the server that was found to be the primary, as it announces itself; `None` when that
    /// is to be found out anew. A connection to any other server is of no further use.
    primary: watch::Sender<Option<Address>>,
}

impl Endpoint {
    pub(super) fn new(config: NodeConfig, context: Context, route: Route) -> Self {
        Self {
            config,
            clock: context.clock(),
            limits: TimeLimits::new(&context),
            context,
            route,
            failing: watch::Sender::new(None),
            primary: watch::Sender::new(None),
        }
    }

    /// The server of the configuration.
    pub(super) fn fixed(&self) -> Address {
        Address::new(&self.config.host, self.config.port)
    }

    pub(super) fn user(&self) -> io::Result<RedisConnectionInfo> {
        self.config.user()
    }

    pub(super) fn failed(&self) {
        self.failing.send_if_modified(|since| {
            let first = since.is_none();
            since.get_or_insert_with(|| self.clock.now());
            first
        });
    }

    pub(super) fn answered(&self) {
        self.failing.send_if_modified(|since| since.take().is_some());
    }

    pub(super) fn failing_since(&self) -> Option<BootInstant> {
        *self.failing.borrow()
    }

    /// Resolves when nothing has succeeded for as long as connecting may take.
    pub(super) async fn out(&self) {
        let mut failing = self.failing.subscribe();
        loop {
            let is_failing = failing.borrow_and_update().is_some();
            // The sender is `self`'s own, so it is there.
            if !is_failing {
                let _ = failing.changed().await;
            } else if self.clock.timeout(self.config.connect_timeout, failing.changed()).await.is_none() {
                return;
            }
        }
    }

    /// Reports to `outage` when nothing succeeds, and when something does again.
    pub(super) async fn report(&self, outage: &Outage) -> Infallible {
        let mut failing = self.failing.subscribe();
        let mut was_failing = false;
        loop {
            let is_failing = failing.borrow_and_update().is_some();
            if is_failing {
                outage.failed(Error::no_answer(self.config.url(), "nothing succeeds on it"));
            } else if was_failing {
                outage.answered();
            }
            was_failing = is_failing;
            // The sender is `self`'s own, so it is there.
            let _ = failing.changed().await;
        }
    }

    /// The primary, as far as it is known.
    pub(super) fn primary(&self) -> Option<Address> {
        self.primary.borrow().clone()
    }

    /// Whether a connection to this server is one to the primary, as far as that is known. `None` is one that is not
    /// followed.
    pub(super) fn leads_to(&self, address: Option<&Address>) -> bool {
        address.is_none() || *self.primary.borrow() == address.cloned()
    }

    /// Notes that this server has said itself that it is the primary.
    pub(super) fn found(&self, address: &Address) {
        self.primary.send_if_modified(|primary| {
            let is_news = primary.as_ref() != Some(address);
            *primary = Some(address.clone());
            is_news
        });
    }

    /// Notes that this server failed, or said that it is the primary no more.
    pub(super) fn lost(&self, address: &Address) {
        self.primary.send_if_modified(|primary| primary.take_if(|primary| primary == address).is_some());
    }

    /// Notes what somebody says of which server the primary is: whether that is so is found out by looking.
    pub(super) fn heard(&self, address: &Address) {
        self.primary.send_if_modified(|primary| primary.take_if(|primary| primary != address).is_some());
    }

    /// Resolves when this server is not known to be the primary (any more).
    pub(super) async fn moved_from(&self, address: &Address) {
        let mut primary = self.primary.subscribe();
        // The sender is `self`'s own, so it is there.
        let _ = primary.wait_for(|primary| primary.as_ref() != Some(address)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_heard_of_the_primary_only_makes_one_look_again() {
        let endpoint = Endpoint::new(NodeConfig::new("h", 1), Context::current(), Route::Fixed);
        let [old, new] = [1, 2].map(|port| Address::new("h", port));
        endpoint.heard(&new);
        assert_eq!(endpoint.primary(), None, "nobody has verified it");
        endpoint.found(&old);
        endpoint.heard(&old);
        endpoint.lost(&new);
        assert!(endpoint.leads_to(Some(&old)) && !endpoint.leads_to(Some(&new)) && endpoint.leads_to(None));
        endpoint.heard(&new);
        assert_eq!(endpoint.primary(), None);
        endpoint.found(&new);
        endpoint.lost(&new);
        assert!(!endpoint.leads_to(Some(&new)));
    }
}
