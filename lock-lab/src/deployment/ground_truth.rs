//! What the servers really have of a lock, asked past the backends and past all proxies, by the formats that
//! docs/protocols.md describes.

use std::fmt::Debug;

use async_trait::async_trait;
use lock_core::{BootInstant, LockName, conformance::Kept};
use serde::{Deserialize, Serialize};

use crate::LabError;

/// Looks at servers. It can be used while a fault strikes them.
#[async_trait]
pub trait GroundTruth: Debug + Send + Sync {
    /// What the servers hold for the lock `name`: one sample for each that answered and whose word counts. Replicas, and
    /// nodes of a cluster that have not got its slot, give none. While a primary that was replaced does not know that yet,
    /// it gives one beside its successor. Cancel safe.
    async fn holders(&self, name: &LockName) -> Vec<Sample>;

    /// For how long the servers keep the grant with that number: [`Kept`] says how a grant is known.
    ///
    /// # Errors
    /// [`LabError`] when they do not answer.
    async fn kept(&self, name: &LockName, token: u64) -> Result<Kept, LabError>;

    /// What is left of these locks where nobody should hold or wait any more. What is meant to stay is not in it: the counter
    /// behind the fencing token, the note of an undone attempt, the directory of a lock. `has_died`: somebody may have died,
    /// whose notes stay for a moment longer. Cancel safe.
    async fn residue(&self, names: &[LockName], has_died: bool) -> Left;

    /// What is left of connections that were closed: sessions, registrations.
    async fn sessions_left(&self) -> Left {
        Left::default()
    }

    /// Takes `name` away from all its holders as somebody else would, by deleting what stands for them.
    ///
    /// # Errors
    /// [`LabError`] when the servers do not answer.
    async fn delete(&self, name: &LockName) -> Result<(), LabError>;

    /// Ends the session of who holds `name`, as a third party that has its password.
    ///
    /// # Errors
    /// [`LabError`] where there are no sessions, or nobody holds it.
    async fn end_session(&self, name: &LockName) -> Result<(), LabError> {
        Err(LabError::run(format!("no session holds {name}")))
    }

    /// Returns when server `number` takes a write of an own client, where the lock `name` is. Cancel safe.
    async fn serves(&self, number: usize, name: &LockName);

    /// Another server, which has no say, may have nothing of the locks in the end either.
    fn look_beside(&self, _port: u16) {}
}

/// What one server, or the service as a whole, held for a lock between two moments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Which server.
    pub server: String,
    /// Right before the question was sent.
    pub asked: BootInstant,
    /// Right after the answer came.
    pub answered: BootInstant,
    /// What it holds.
    pub held: Option<Held>,
    /// For how long it grants nothing to anybody, in nanoseconds: it is in quarantine. `None` when it is not.
    pub closed_nanos: Option<u64>,
}

/// What a server keeps of a holder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The holder's number, where the server has it.
    pub token: Option<u64>,
    /// The holder's payload, where the server has it.
    pub payload: Option<String>,
    /// For how long the server keeps it without a further renewal, in nanoseconds; `None` where it does not tell (a node of
    /// a session).
    pub remaining_nanos: Option<u64>,
}

/// What is left, and who did not say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Left {
    /// What is left, and where, in words.
    pub things: Vec<String>,
    /// Servers whose word counts and that gave no answer.
    pub silent: Vec<String>,
}

impl Left {
    /// Both together.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.things.extend(other.things);
        self.silent.extend(other.silent);
        self
    }

    /// What is left, if everybody answered.
    ///
    /// # Errors
    /// [`LabError::Run`] when somebody did not.
    pub fn complete(self) -> Result<Vec<String>, LabError> {
        match self.silent.is_empty() {
            true => Ok(self.things),
            false => Err(LabError::run(format!("no answer from {}", self.silent.join(", ")))),
        }
    }
}
