//! What the backend decides, as plain functions and values: no request is sent here, and no clock is read.

pub(crate) mod heartbeat;
pub mod queue;
pub(crate) mod sole;
pub(crate) mod watch_budget;
