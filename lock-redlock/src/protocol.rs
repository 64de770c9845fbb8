//! What the backend decides, as plain functions and values: no request is sent here, and no clock is read.

pub(crate) mod ballots;
pub(crate) mod deployment;
pub(crate) mod enrollments;
pub(crate) mod kind;
pub(crate) mod quorum_lease;
pub mod token;
pub mod votes;
