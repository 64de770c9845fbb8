//! What the backend decides, as plain functions and values: no request is sent here, and no clock is read.

#[doc(hidden)]
pub mod ballots;
#[doc(hidden)]
pub mod deployment;
pub(crate) mod enrollments;
#[doc(hidden)]
pub mod kind;
#[doc(hidden)]
pub mod quorum_lease;
pub mod token;
pub mod votes;
