//! What the scripts answer.

use std::time::Duration;

use lock_redis::node::{NodeError, Value, text};

use crate::protocol::{
    ballots::Ballot,
    deployment::{Deployment, ServerStatus, read_members},
    token::Renumbered,
};

/// Reads the answer to a vote or a request to join.
pub(crate) fn ballot(answer: &Value) -> Result<Ballot, NodeError> {
    let nonsense = || NodeError::nonsense(answer);
    if let Value::Int(number) = answer {
        return u64::try_from(*number).map(Ballot::Granted).map_err(|_| nonsense());
    }
    let Value::Array(parts) = answer else { return Err(nonsense()) };
    let Some((kind, rest)) = parts.split_first().and_then(|(kind, rest)| Some((text(kind)?, rest))) else {
        return Err(nonsense());
    };
    match (kind, rest) {
        ("held", [Value::Int(left), Value::BulkString(holder)]) => {
            Ok(Ballot::Held { remaining: millis(*left), holder: holder.clone() })
        }
        ("read", [Value::Int(left)]) => Ok(Ballot::Read(millis(*left).unwrap_or_default())),
        ("behind", [Value::Int(left)]) => Ok(Ballot::Behind(millis(*left).unwrap_or_default())),
        ("reserved", [Value::Int(left)]) => Ok(Ballot::Reserved(millis(*left).unwrap_or_default())),
        ("quarantined", [Value::Int(left)]) => Ok(Ballot::Quarantined(millis(*left).unwrap_or_default())),
        ("undone", []) => Ok(Ballot::Undone),
        ("stranger", [stamp]) => text(stamp).map(|stamp| Ballot::Stranger(stamp.to_owned())).ok_or_else(nonsense),
        _ => Err(nonsense()),
    }
}

/// Reads the answer to [`Claim::renumber`](super::Claim::renumber).
pub(crate) fn renumbered(answer: &Value) -> Result<Renumbered, NodeError> {
    let nonsense = || NodeError::nonsense(answer);
    match answer {
        Value::Int(1) => Ok(Renumbered::Done),
        Value::Int(0) => Ok(Renumbered::Gone),
        Value::Array(parts) => match parts.as_slice() {
            [Value::Int(counter)] => u64::try_from(*counter).map(Renumbered::Passed).map_err(|_| nonsense()),
            _ => Err(nonsense()),
        },
        _ => Err(nonsense()),
    }
}

/// Reads the answer to a renewal, an undo or a downgrade: whether the attempt held the lock.
pub(crate) fn held(answer: &Value) -> Result<bool, NodeError> {
    match answer {
        Value::Int(0) => Ok(false),
        Value::Int(1..) => Ok(true),
        other => Err(NodeError::nonsense(other)),
    }
}

/// Reads the answer to [`status`](super::status).
pub(crate) fn read_status(answer: &Value) -> Result<ServerStatus, NodeError> {
    if let Value::Array(parts) = answer
        && let [run_id, stamp, Value::Int(left), known_run, record @ ..] = parts.as_slice()
        && let (Some(run_id), Some(stamp), Some(known_run)) = (text(run_id), text(stamp), text(known_run))
    {
        return Ok(ServerStatus {
            run_id: run_id.to_owned(),
            known_run: known_run.to_owned(),
            stamp: stamp.to_owned(),
            quarantine: millis(*left),
            deployment: read_deployment(record),
        });
    }
    Err(NodeError::nonsense(answer))
}

fn read_deployment(record: &[Value]) -> Option<Deployment> {
    let [id, generation, previous, members, replaced, max_ttl, quarantine] = record else { return None };
    let quarantine = match text(quarantine)? {
        "on" => true,
        "off" => false,
        _ => return None,
    };
    Some(Deployment {
        id: text(id)?.to_owned(),
        generation: parsed(generation)?,
        // A record that was written before members could be replaced has neither.
        previous: parsed(previous).unwrap_or(0),
        members: read_members(text(members)?)?,
        replaced: read_members(text(replaced)?)?,
        max_ttl: Duration::from_millis(parsed(max_ttl)?),
        quarantine,
    })
}

fn parsed(value: &Value) -> Option<u64> {
    text(value)?.parse().ok()
}

/// Reads what `PTTL` answers: negative without an expiry, or without the key.
pub(super) fn millis(left: i64) -> Option<Duration> {
    u64::try_from(left).ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests;
