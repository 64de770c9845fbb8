//! The nodes of a deployment: connections, requests, and what this client knows of each node.

pub(crate) mod quorum;
pub(crate) mod replies;
pub(crate) mod requests;
pub(crate) mod roster;
pub(crate) mod scripts;
mod single_flight;
pub(crate) mod subscriptions;
pub(crate) mod undo_queue;
