//! `WAIT`: the question, and what its answer says.

use redis::{Cmd, Value};

use super::{NodeError, Replicas};

impl Replicas {
    pub(super) fn wait(self) -> Cmd {
        let mut command = redis::cmd("WAIT");
        // 0 would be no limit at all.
        command.arg(self.count).arg(self.within.as_millis().max(1));
        command
    }

    /// Reads the answer to `WAIT`.
    pub(super) fn judge(self, answer: Result<Value, NodeError>) -> Result<(), NodeError> {
        match answer? {
            Value::Int(count) if count >= i64::from(self.count) => Ok(()),
            Value::Int(count) => Err(NodeError::unacknowledged(self, count)),
            other => Err(NodeError::nonsense(&other)),
        }
    }
}
