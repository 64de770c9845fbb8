//! Which servers are the members of the deployment.

pub(crate) mod identify;
pub(crate) mod init;
pub(crate) mod replace;
