//! A fence in ZooKeeper: a node that is written only with a fencing token that is not lower than the highest so far.
//!
//! It guards data *in* ZooKeeper, by whatever lock it is protected, and needs none of this crate's locks. The node's data
//! begins with the token of its last write, in its text form, and a line feed. A write reads that, and sends one transaction:
//! the new data, provided that the version is still the one that was read. Whatever came between makes it fail as a whole, and
//! it looks again. A write that goes past the fence is not checked, and a node that was deleted has forgotten.
//!
//! # Which client
//! [`FencedNode`] takes a client of the crate `zookeeper-client` in the version that this crate is built with, 0.11, which is
//! re-exported as [`zookeeper_client`]. Nothing else depends on it: [`plan`] gives the same as a value, for any client, and
//! [`pack`] and [`unpack`] are the form of the node's data.

use std::fmt;

use lock_core::{FencingToken, StaleToken};
pub use zookeeper_client;
use zookeeper_client::{Client, CreateOptions, Error, MultiWriteError, MultiWriter};

/// How often a write looks again because another one came between. Each time somebody else got something done.
const ATTEMPTS: usize = 100;

/// The length of a token's text form and the line feed behind it.
const HEADER: usize = 32;

/// A node behind a fence.
///
/// ```no_run
/// # async fn example(token: lock_core::FencingToken) -> Result<(), Box<dyn std::error::Error>> {
/// use lock_zk::fence::{FenceError, FencedNode};
/// use lock_zk::fence::zookeeper_client::{Acls, Client, CreateMode};
///
/// let client = Client::connect("127.0.0.1:2181").await?;
/// let node = FencedNode::new("/report", CreateMode::Persistent.with_acls(Acls::anyone_all()));
/// match node.write(&client, token, b"all is well").await {
///     Ok(()) => {}
///     Err(FenceError::Stale(stale)) => println!("another holder has written since: {stale}"),
///     Err(other) => return Err(other.into()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct FencedNode<'a> {
    path: &'a str,
    create: CreateOptions<'a>,
}

/// What a fenced node holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fenced {
    /// The token of its last write.
    pub token: FencingToken,
    /// What was written.
    pub data: Vec<u8>,
    /// The node's version.
    pub version: i32,
}

/// The one conditional operation that a fenced write is; see [`plan`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FencedOperation {
    /// `create` the node with this data. When it exists by now: look again, and plan again.
    Create {
        /// The token and what is to be written.
        data: Vec<u8>,
    },
    /// `setData` with this version, and with no other. When the version is another by now, or the node is gone: look again,
    /// after a `sync`, and plan again.
    SetData {
        /// The token and what is to be written.
        data: Vec<u8>,
        /// The version of what `token` was compared with.
        version: i32,
    },
}

/// What is to be sent so that `data` is written with `token`, for a client of any kind: it depends on what the node at `path`
/// holds, its data and its version, `None` when there is no node.
///
/// ```
/// use lock_core::FencingToken;
/// use lock_zk::fence::{FencedOperation, pack, plan};
///
/// let (old, new) = (FencingToken { era: 0, number: 33 }, FencingToken { era: 0, number: 34 });
/// let found = pack(new, b"all is well"); // by `getData`, with version 7
/// assert!(plan("/report", Some((&found, 7)), old, b"late").is_err());
/// let operation = plan("/report", Some((&found, 7)), new, b"all is well still")?;
/// assert_eq!(operation, FencedOperation::SetData { data: pack(new, b"all is well still"), version: 7 });
/// # Ok::<(), lock_zk::fence::FenceError>(())
/// ```
///
/// # Errors
/// [`FenceError::Stale`] when the token is lower, [`FenceError::NoToken`].
pub fn plan(
    path: &str,
    found: Option<(&[u8], i32)>,
    token: FencingToken,
    data: &[u8],
) -> Result<FencedOperation, FenceError> {
    let data = pack(token, data);
    let Some((found, version)) = found else { return Ok(FencedOperation::Create { data }) };
    let (highest, _) = unpack(found).ok_or_else(|| FenceError::NoToken { path: path.to_owned() })?;
    StaleToken::check(path, token, Some(highest)).map_err(FenceError::Stale)?;
    Ok(FencedOperation::SetData { data, version })
}

/// Why a fenced write was not done, or is not known to be done.
#[derive(Debug)]
#[non_exhaustive]
pub enum FenceError {
    /// A write with a higher token came before. Nothing was written.
    Stale(StaleToken),
    /// The node holds something that was not written through a fence. Nothing was written.
    NoToken {
        /// The node.
        path: String,
    },
    /// The servers refused it, or gave no answer. Without an answer it may have been done; it may be repeated with the same
    /// token.
    Client(Error),
}

impl<'a> FencedNode<'a> {
    /// The node at `path`, whose parent exists; the first write makes it with `create`, a persistent mode and its ACL.
    #[must_use]
    pub const fn new(path: &'a str, create: CreateOptions<'a>) -> Self {
        Self { path, create }
    }

    /// What the node holds, as the server that `client` is connected to knows it; `None` when there is no node.
    ///
    /// # Errors
    /// [`FenceError::NoToken`], [`FenceError::Client`].
    ///
    /// # Cancel safety
    /// Only reads; nothing is lost when the future is dropped.
    pub async fn read(&self, client: &Client) -> Result<Option<Fenced>, FenceError> {
        let Some((data, version)) = self.found(client).await? else { return Ok(None) };
        let (token, data) = unpack(&data).ok_or_else(|| FenceError::NoToken { path: self.path.to_owned() })?;
        Ok(Some(Fenced { token, data: data.to_vec(), version }))
    }

    /// The node's data and version.
    async fn found(&self, client: &Client) -> Result<Option<(Vec<u8>, i32)>, FenceError> {
        match client.get_data(self.path).await {
            Ok((data, stat)) => Ok(Some((data, stat.version))),
            Err(Error::NoNode) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes, if `token` is not lower than the highest so far.
    ///
    /// # Errors
    /// [`FenceError::Stale`] when the token is lower, [`FenceError::NoToken`], [`FenceError::Client`].
    ///
    /// # Cancel safety
    /// When the future is dropped, the node may be written or not.
    ///
    /// # Unknown outcomes
    /// After [`FenceError::Client`] without an answer the node may be written. The same write may be repeated.
    pub async fn write(&self, client: &Client, token: FencingToken, data: &[u8]) -> Result<(), FenceError> {
        self.write_with(client, token, data, |_| Ok(())).await
    }

    /// Writes, and does what `also` adds in the same transaction: the fence guards any number of plain nodes in this way. It
    /// is asked again for each attempt.
    ///
    /// # Errors
    /// As those of [`FencedNode::write`]; [`FenceError::Client`] also with what an added operation was refused for. Then
    /// nothing was written.
    ///
    /// # Cancel safety
    /// As that of [`FencedNode::write`].
    ///
    /// # Unknown outcomes
    /// As those of [`FencedNode::write`].
    pub async fn write_with(
        &self,
        client: &Client,
        token: FencingToken,
        data: &[u8],
        mut also: impl FnMut(&mut MultiWriter<'_>) -> Result<(), Error> + Send,
    ) -> Result<(), FenceError> {
        for _ in 0..ATTEMPTS {
            let found = self.found(client).await?;
            let found = found.as_ref().map(|(found, version)| (found.as_slice(), *version));
            let operation = plan(self.path, found, token, data)?;
            let commit = {
                let mut writer = client.new_multi_writer();
                match &operation {
                    // The token that was compared is the one that is replaced, or nothing happens.
                    FencedOperation::SetData { data, version } => {
                        // Safeguard: what a fenced write replaces is what it was compared with (ZooKeeper)
                        writer.add_set_data(self.path, data, Some(*version))?;
                    }
                    FencedOperation::Create { data } => writer.add_create(self.path, data, &self.create)?,
                }
                also(&mut writer)?;
                writer.commit()
            };
            match commit.await {
                Ok(_) => return Ok(()),
                Err(MultiWriteError::OperationFailed { index: 0, source })
                    if matches!(
                        (&source, &operation),
                        (Error::BadVersion | Error::NoNode, FencedOperation::SetData { .. })
                            | (Error::NodeExists, FencedOperation::Create { .. })
                    ) =>
                {
                    // The server that was asked may be behind: let it catch up, or the next look shows the same.
                    client.sync(self.path).await?;
                }
                Err(error) => return Err(FenceError::Client(error.into())),
            }
        }
        Err(FenceError::Client(Error::BadVersion))
    }
}

/// The data of a fenced node: the token in its text form, a line feed, and what is written.
#[must_use]
pub fn pack(token: FencingToken, data: &[u8]) -> Vec<u8> {
    let mut packed = token.to_string().into_bytes();
    packed.push(b'\n');
    packed.extend_from_slice(data);
    packed
}

/// The token and what was written, of the data of a fenced node; `None` when it was not written through a fence.
#[must_use]
pub fn unpack(packed: &[u8]) -> Option<(FencingToken, &[u8])> {
    let (header, data) = packed.split_at_checked(HEADER)?;
    let token = str::from_utf8(header).ok()?.strip_suffix('\n')?.parse().ok()?;
    Some((token, data))
}

impl From<Error> for FenceError {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl fmt::Display for FenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale(stale) => stale.fmt(f),
            Self::NoToken { path } => write!(f, "the node {path} holds no fencing token"),
            Self::Client(error) => write!(f, "a fenced write to ZooKeeper failed: {error}"),
        }
    }
}

impl std::error::Error for FenceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Stale(stale) => Some(stale),
            Self::NoToken { .. } => None,
            Self::Client(error) => Some(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn whatever_a_node_holds_is_a_token_with_data_or_nothing(data in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..60)) {
            if let Some((token, rest)) = unpack(&data) {
                let again = pack(token, rest);
                proptest::prop_assert_eq!(unpack(&again), Some((token, rest)));
            }
        }
    }

    #[test]
    fn what_is_packed_is_unpacked_and_nothing_else_is() {
        let token = FencingToken { era: u32::MAX, number: u64::MAX };
        for data in [b"".as_slice(), b"\n", b"text\0"] {
            assert_eq!(unpack(&pack(token, data)), Some((token, data)));
        }
        for other in [b"".as_slice(), b"hello", &[b'0'; 40], b"0000000000-00000000000000000042 text"] {
            assert_eq!(unpack(other), None);
        }
    }
}
