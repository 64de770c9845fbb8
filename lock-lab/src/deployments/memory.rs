//! The memory backend: no server at all, one process.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{LockName, Locks, conformance::Kept};

use crate::{
    LabError,
    deployment::{Connection, Decides, Description, GroundTruth, Left, Sample, Servers},
};

inventory::submit! {
    Description {
        scheme: "memory",
        servers: 0,
        decides: Decides::Program,
        is_compared: true,
        column: Some("memory"),
        ..Description::new("memory", "memory", |_| Box::pin(async { Ok(Box::new(MemoryDeployment::new().await?) as Box<dyn Servers>) }))
    }
}

/// A memory server in this process, by its name, as the [`Servers`] of a deployment.
#[derive(Debug, Clone)]
struct MemoryDeployment {
    name: String,
    /// Looks on.
    locks: Locks,
}

impl MemoryDeployment {
    async fn new() -> Result<Self, LabError> {
        let name = format!("lab-{:016x}", fastrand::u64(..));
        let locks = lock::connect(&format!("memory://{name}")).await.map_err(LabError::lock("connecting"))?;
        Ok(Self { name, locks })
    }
}

#[async_trait]
impl Servers for MemoryDeployment {
    fn authority(&self, _way: &Connection) -> String {
        self.name.clone()
    }

    fn ground_truth(&self) -> Arc<dyn GroundTruth> {
        Arc::new(self.clone())
    }
}

#[async_trait]
impl GroundTruth for MemoryDeployment {
    async fn holders(&self, _name: &LockName) -> Vec<Sample> {
        Vec::new()
    }

    async fn kept(&self, name: &LockName, token: u64) -> Result<Kept, LabError> {
        let seen = self.locks.inspect(name.as_str()).await.map_err(LabError::lock("looking"))?;
        let is_held = seen.holders.iter().any(|holder| holder.token == Some(token));
        Ok(if is_held { Kept::Held } else { Kept::Gone })
    }

    async fn residue(&self, names: &[LockName], _has_died: bool) -> Left {
        let mut left = Left::default();
        for name in names {
            match self.locks.inspect(name.as_str()).await {
                Ok(seen) if seen.holders.is_empty() && seen.queue.is_empty() => {}
                Ok(seen) => left.things.push(format!("{name}: {seen:?}")),
                Err(error) => left.silent.push(error.to_string()),
            }
        }
        left
    }

    async fn delete(&self, name: &LockName) -> Result<(), LabError> {
        Err(LabError::run(format!("nobody else can delete {name} in the memory of this program")))
    }

    async fn serves(&self, _number: usize, _name: &LockName) {}
}
