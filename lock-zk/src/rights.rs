//! As whom a program signs in, and what others may do with what it creates.

/// How a user signs in to ZooKeeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum SignIn {
    /// By the scheme `digest`: servers take any user with any password, and whoever has both is the same user.
    #[default]
    Digest,
    /// By SASL with DIGEST-MD5: servers know their users and refuse a wrong password.
    Sasl,
}

/// Who may do what with the nodes that a program creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Access {
    /// Whoever has signed in as the same user may do everything, and nobody else anything.
    Creator,
    /// As [`Access::Creator`], and everybody may read: `inspect` and `changes` work for all.
    CreatorAndReaders,
    /// Everybody may do everything.
    Anyone,
}
