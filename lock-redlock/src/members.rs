//! Which servers are the members of the deployment.
//!
//! A server without data on its disk forgets its votes and its stamp when it restarts. It becomes the member that it was
//! again only when a majority of the members still has the record: by that the client knows that its own record is the
//! present one. Where a majority has lost its data, nobody can know which locks were held and who the members were, so an
//! operator has to say it again, by `init`.

pub(crate) mod identify;
pub(crate) mod init;
pub(crate) mod replace;
pub(crate) mod servers;
pub(crate) mod status;
