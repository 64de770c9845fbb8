//! Formats that several deployments share, read from the servers and not by the backends' own code.

mod keys;
mod redis;
mod server;

pub(crate) use self::{keys::PREFIX, redis::RedisTruth};
