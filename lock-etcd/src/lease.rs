//! The lease: what `lock-core` holds for a guard, and gives back.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use lock_core::{Error, Lease, ReleaseOutcome, Validity};

use crate::{
    protocol::Attempt,
    session::{Session, SessionSlot},
};

/// The lease of a held lock on etcd.
pub(crate) struct EtcdLease {
    pub(crate) sessions: Arc<SessionSlot>,
    pub(crate) session: Arc<Session>,
    pub(crate) attempt: Attempt,
    /// The create revision of its key, which is the fencing token.
    pub(crate) revision: i64,
    pub(crate) validity: Validity,
}

#[async_trait]
impl Lease for EtcdLease {
    fn token(&self) -> u64 {
        self.revision.unsigned_abs()
    }

    fn validity(&self) -> &Validity {
        &self.validity
    }

    async fn release(self: Box<Self>) -> Result<ReleaseOutcome, Error> {
        let Self { sessions, session, attempt, revision, .. } = *self;
        session.forget(&attempt);
        match sessions.leave("a release", &session, &attempt, revision).await {
            Ok(true) => Ok(ReleaseOutcome::Released),
            Ok(false) => Ok(ReleaseOutcome::Gone),
            Err(error) => {
                sessions.clean("a release", session, attempt);
                Err(error)
            }
        }
    }
}

impl fmt::Debug for EtcdLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdLease")
            .field("attempt", &self.attempt)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}
