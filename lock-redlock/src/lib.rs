//! The Redlock backend: a majority of independent Redis nodes, with a fencing token.

pub mod quorum;
pub mod token;
