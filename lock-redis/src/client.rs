//! What the parts of a connection share: the servers, the clock, what identifies its attempts, and the end.

use std::time::Duration;

use lock_core::{BootInstant, Clock, Context, Error, LockName, Validity, validity::deadline};
use tokio_util::sync::CancellationToken;

use crate::{
    Config,
    config::{Deployment, Strategy},
    node::{Node, NodeError},
    protocol::{keys::Keys, token::Proposals, values::Values},
    servers::Servers,
};

/// What all parts of one connection to Redis share: its servers, its configuration, and the ids of its attempts.
pub(crate) struct Client {
    pub(crate) config: Config,
    pub(crate) servers: Servers,
    pub(crate) context: Context,
    pub(crate) proposals: Proposals,
    pub(crate) closed: CancellationToken,
    /// The channel on which this client is told of its grants.
    pub(crate) channel: String,
    pub(crate) values: Values,
}

impl Client {
    pub(crate) fn new(config: Config, servers: Servers, context: Context) -> Self {
        let id = context.unique_id();
        Self {
            channel: format!("{}:grants:{id}", config.prefix),
            config,
            servers,
            proposals: Proposals::new(context.clock()),
            closed: CancellationToken::new(),
            values: Values::new(&id),
            context,
        }
    }

    pub(crate) const fn clock(&self) -> Clock {
        self.context.clock()
    }

    /// The keys of a name.
    ///
    /// # Errors
    /// [`Error::InvalidName`] when its key would be one that this library uses for something else.
    pub(crate) fn keys(&self, name: &LockName) -> Result<Keys, Error> {
        match self.config.strategy {
            Strategy::Queue => {
                let keys = Keys::new(&self.config.prefix, name);
                Ok(if matches!(self.config.deployment, Deployment::Cluster(_)) { keys.declared() } else { keys })
            }
            Strategy::Plain { .. } => Keys::plain(&self.config.prefix, name).ok_or_else(|| Error::InvalidName {
                name: name.to_string(),
                problem: "keys that begin with `lock-plain:` are what this library notes beside the locks of `strategy=plain`",
            }),
        }
    }

    /// The node that has these keys now.
    pub(crate) fn node_for(&self, keys: &Keys) -> Node {
        self.servers.node_of(keys.lock())
    }

    /// The validity of a grant for a whole `ttl` that was asked for at `sent_at`.
    pub(crate) fn validity(&self, sent_at: BootInstant, ttl: Duration) -> Validity {
        // Safeguard: validity counts from the sending of the request (Redis)
        Validity::new(self.clock(), deadline(sent_at, ttl))
    }

    pub(crate) fn unavailable(&self, error: NodeError) -> Error {
        if self.closed.is_cancelled() { Error::Closed } else { error.into_error(&self.config.url()) }
    }

    /// The refusal of a name that another version of this library uses.
    pub(crate) fn other_format(&self, name: &LockName) -> Error {
        let reason = format!(
            "another version of this library, or somebody else, uses keys of the name {name}, in another format"
        );
        Error::refused(self.config.url(), reason, None)
    }

    /// How long a request may take to be answered.
    pub(crate) fn response_timeout(&self) -> Duration {
        self.servers.config().response_timeout
    }
}
