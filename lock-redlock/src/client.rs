//! A connection to a deployment, as the rooms of this crate share it.

use std::{fmt, sync::Arc};

use lock_core::{Context, Error, Renewer};
use lock_redis::{protocol::values::Values, token::Proposals};

use crate::{
    Config,
    lease::{renewal::Renewals, shared::SharedLease},
    members::identify,
    nodes::quorum::Quorum,
    waiters::Waiters,
};

/// One connection to a deployment of independent Redis servers.
pub struct Redlock {
    pub(crate) quorum: Arc<Quorum>,
    pub(crate) proposals: Proposals,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) values: Values,
    pub(crate) renewer: Arc<Renewer<SharedLease>>,
}

impl Redlock {
    /// Connects to the servers of `config`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] within the connect limit when no majority of them answers, or no majority knows its
    /// deployment any more; [`Error::Config`] when a setting is not allowed or differs from the deployment's, when the
    /// servers are no deployment yet or of different ones, or two addresses lead to one and the same server.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn connect(config: Config) -> Result<Arc<Self>, Error> {
        Self::connect_in(config, Context::current()).await
    }

    /// As [`Redlock::connect`], with the time, the tasks and the ids of `context`.
    ///
    /// # Errors
    /// As [`Redlock::connect`].
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn connect_in(config: Config, context: Context) -> Result<Arc<Self>, Error> {
        config.check()?;
        let quorum = Arc::new(Quorum::new(config, context.clone()));
        let deployment = identify::connect(&quorum).await?;
        quorum.set_deployment(Arc::new(deployment));
        let renewals = Arc::new(Renewals(Arc::clone(&quorum)));
        Ok(Arc::new(Self {
            quorum,
            proposals: Proposals::new(context.clock()),
            waiters: Waiters::new(context.unique_id(), context.clock()),
            values: Values::new(&context.unique_id()),
            renewer: Arc::new(Renewer::new(&context, renewals)),
        }))
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redlock").field("url", &self.quorum.config.url()).finish_non_exhaustive()
    }
}
