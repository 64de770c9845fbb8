//! A grant, as its guard has it.

mod downgrade;
pub(crate) mod renewal;
pub(crate) mod shared;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use lock_core::{Error, Lease, ReleaseOutcome, RenewalHandle, Renewer, Validity};

use self::{downgrade::downgrade, shared::SharedLease};

/// A renewal comes round this often in a ttl, so that two of them may fail.
const RENEWALS_PER_TTL: u32 = 3;

/// A lease that is kept renewed until it is released or dropped.
pub(crate) struct RedlockLease {
    shared: Arc<SharedLease>,
    renewal: RenewalHandle<SharedLease>,
    renewer: Arc<Renewer<SharedLease>>,
}

impl RedlockLease {
    /// Keeps the lease renewed from now on.
    pub(crate) fn new(shared: Arc<SharedLease>, renewer: Arc<Renewer<SharedLease>>) -> Self {
        let every = shared.ttl() / RENEWALS_PER_TTL;
        let renewal = renewer.keep(Arc::clone(&shared), shared.validity.clone(), every);
        Self { shared, renewal, renewer }
    }
}

#[async_trait]
impl Lease for RedlockLease {
    fn token(&self) -> u64 {
        self.shared.token
    }

    fn validity(&self) -> &Validity {
        &self.shared.validity
    }

    async fn release(self: Box<Self>) -> Result<ReleaseOutcome, Error> {
        let Self { shared, renewal, .. } = *self;
        drop(renewal);
        shared.release().await
    }

    async fn downgrade(self: Box<Self>) -> Result<Box<dyn Lease>, Error> {
        let Self { shared, renewal, renewer } = *self;
        drop(renewal);
        Ok(Box::new(Self::new(downgrade(&shared).await?, renewer)))
    }
}

impl fmt::Debug for RedlockLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedlockLease").field(&self.shared).finish()
    }
}
