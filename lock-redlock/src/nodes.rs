//! The nodes of a deployment: connections, requests, and what each of them has said.

pub(crate) mod members;
pub(crate) mod quorum;
pub(crate) mod replies;
pub mod scripts;
pub(crate) mod undo_queue;
