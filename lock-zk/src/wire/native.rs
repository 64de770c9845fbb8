//! Real servers, by the client library.

use std::{sync::Arc, time::Duration};

use futures::{
    FutureExt,
    future::BoxFuture,
    stream::{self, BoxStream, StreamExt},
};
use lock_core::Password;
use zookeeper_client::{Acl, Acls, CreateMode as Mode, Error, EventType, OneshotWatcher, Permission, SaslOptions};

use super::{
    Answer, Client, Connections, CreateMode, Created, Ensemble, RequestError, Security, Server, SessionState, Stat,
    Watch, WatchEvent, security::Certificates, sockets,
};
use crate::rights::{Access, SignIn};

static CREATOR_AND_READERS: [Acl; 2] =
    [Acl::new_const(Permission::ALL, "auth", ""), Acl::new_const(Permission::READ, "world", "anyone")];

/// The [`Ensemble`] of real ZooKeeper servers, reached through the client library.
#[derive(Debug)]
pub(crate) struct ZooKeeperServers {
    /// As whom to sign in.
    pub(crate) user: Option<(String, Password)>,
    pub(crate) sign_in: SignIn,
    /// Who may do what with the nodes that are created.
    pub(crate) access: Access,
    pub(crate) security: Security,
}

impl Ensemble for ZooKeeperServers {
    fn connect<'a>(&'a self, servers: &'a [Server], session_timeout: Duration) -> Answer<'a, Arc<dyn Client>> {
        Box::pin(async move {
            // One round over the servers, so that the caller's clock reading is fresh in each.
            let mut connector =
                zookeeper_client::Client::connector().with_session_timeout(session_timeout).with_fail_eagerly();
            if let Some((name, password)) = &self.user {
                let password = password.read().map_err(|error| RequestError::Refused(Arc::new(error)))?;
                connector = match self.sign_in {
                    SignIn::Digest => connector.with_auth("digest", format!("{name}:{password}").as_bytes()),
                    SignIn::Sasl => connector.with_sasl(SaslOptions::digest_md5(name.clone(), password)),
                };
            }
            let (client, certificates) = self.security.connect(connector, servers).await?;
            let servers = servers.to_vec();
            // Names are looked up once more for it, which nobody has to wait for.
            tokio::spawn(async move { sockets::set_nodelay(&sockets::addresses(&servers).await) });
            let acls = acls(self.access);
            let client: Arc<dyn Client> = Arc::new(NativeClient { client, acls, certificates });
            Ok(client)
        })
    }

    fn connections<'a>(&'a self, servers: &'a [Server]) -> BoxFuture<'a, Connections> {
        Box::pin(async move {
            let addresses = sockets::addresses(servers).await;
            let connected = sockets::set_nodelay(&addresses);
            let is_certain = connected.is_some();
            let servers = connected.unwrap_or(addresses);
            let servers = servers.into_iter().map(|server| (server.ip().to_string(), server.port())).collect();
            Connections { servers, is_certain }
        })
    }
}

/// A session of the client library `zookeeper-client`, as the backend's [`Client`].
#[derive(Debug)]
struct NativeClient {
    client: zookeeper_client::Client,
    acls: Acls<'static>,
    certificates: Certificates,
}

/// Who may do what with a node.
fn acls(access: Access) -> Acls<'static> {
    match access {
        Access::Creator => Acls::creator_all(),
        Access::CreatorAndReaders => Acls::new(&CREATOR_AND_READERS),
        Access::Anyone => Acls::anyone_all(),
    }
}

impl Client for NativeClient {
    fn session_id(&self) -> i64 {
        self.client.session_id().0
    }

    fn session_timeout(&self) -> Duration {
        self.client.session_timeout()
    }

    fn state(&self) -> SessionState {
        self.client.state().into()
    }

    fn states(&self) -> BoxStream<'static, SessionState> {
        let mut watcher = self.client.state_watcher();
        let now = watcher.state();
        let changes = stream::unfold(watcher, |mut watcher| async move {
            let state = watcher.changed().await;
            Some((state, watcher))
        });
        let certificates = self.certificates.clone();
        let states = stream::iter([now]).chain(changes).map(SessionState::from);
        states
            .inspect(move |state| {
                if *state == SessionState::Disconnected {
                    // It connects again with those that are in the files now.
                    certificates.renew();
                }
            })
            .boxed()
    }

    fn create<'a>(&'a self, path: &'a str, data: &[u8], mode: CreateMode) -> Answer<'a, Created> {
        let native = match mode {
            CreateMode::Persistent => Mode::Persistent,
            CreateMode::Container => Mode::Container,
            CreateMode::Ephemeral => Mode::Ephemeral,
            CreateMode::EphemeralSequential => Mode::EphemeralSequential,
        };
        let created = self.client.create(path, data, &native.with_acls(self.acls));
        Box::pin(async move {
            let (stat, sequence) = created.await?;
            let is_sequential = mode == CreateMode::EphemeralSequential;
            Ok(Created {
                stat: stat.into(),
                sequence: if is_sequential { sequence.to_string() } else { String::new() },
            })
        })
    }

    fn delete<'a>(&'a self, path: &'a str) -> Answer<'a, ()> {
        let deleted = self.client.delete(path, None);
        Box::pin(async move { Ok(deleted.await?) })
    }

    fn get_data<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<u8>, Stat)> {
        let read = self.client.get_data(path);
        Box::pin(async move {
            let (data, stat) = read.await?;
            Ok((data, stat.into()))
        })
    }

    fn set_data<'a>(&'a self, path: &'a str, data: &[u8]) -> Answer<'a, Stat> {
        let written = self.client.set_data(path, data, None);
        Box::pin(async move { Ok(written.await?.into()) })
    }

    fn list_children<'a>(&'a self, path: &'a str) -> Answer<'a, Vec<String>> {
        let listed = self.client.list_children(path);
        Box::pin(async move { Ok(listed.await?) })
    }

    fn sync<'a>(&'a self, path: &'a str) -> Answer<'a, ()> {
        let synced = self.client.sync(path);
        Box::pin(async move { Ok(synced.await?) })
    }

    fn watch_data<'a>(&'a self, path: &'a str) -> Answer<'a, (Stat, Watch)> {
        let watched = self.client.get_and_watch_data(path);
        Box::pin(async move {
            let (_, stat, watcher) = watched.await?;
            Ok((stat.into(), watch(watcher)))
        })
    }

    fn watch_existence<'a>(&'a self, path: &'a str) -> Answer<'a, (Option<Stat>, Watch)> {
        let watched = self.client.check_and_watch_stat(path);
        Box::pin(async move {
            let (stat, watcher) = watched.await?;
            Ok((stat.map(Stat::from), watch(watcher)))
        })
    }

    fn watch_children<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<String>, Watch)> {
        let watched = self.client.list_and_watch_children(path);
        Box::pin(async move {
            let (children, watcher) = watched.await?;
            Ok((children, watch(watcher)))
        })
    }

    fn create_and_delete<'a>(&'a self, created: &str, data: &[u8], deleted: &str) -> Answer<'a, ()> {
        let mut transaction = self.client.new_multi_writer();
        let added = transaction
            .add_create(created, data, &Mode::Ephemeral.with_acls(self.acls))
            .and_then(|()| transaction.add_delete(deleted, None));
        commit(transaction, added)
    }

    fn set_and_delete<'a>(&'a self, path: &str, data: &[u8]) -> Answer<'a, ()> {
        let mut transaction = self.client.new_multi_writer();
        let added = transaction.add_set_data(path, data, None).and_then(|()| transaction.add_delete(path, None));
        commit(transaction, added)
    }
}

fn commit<'a>(mut transaction: zookeeper_client::MultiWriter<'a>, added: Result<(), Error>) -> Answer<'a, ()> {
    if let Err(error) = added {
        return Box::pin(std::future::ready(Err(error.into())));
    }
    let committed = transaction.commit();
    Box::pin(async move { committed.await.map(drop).map_err(|error| Error::from(error).into()) })
}

fn watch(watcher: OneshotWatcher) -> Watch {
    watcher.changed().map(|event| event.event_type.into()).boxed()
}

impl From<zookeeper_client::Stat> for Stat {
    fn from(stat: zookeeper_client::Stat) -> Self {
        let zookeeper_client::Stat { czxid, version, ephemeral_owner, ctime, num_children, .. } = stat;
        Self { czxid, version, ephemeral_owner, ctime, num_children }
    }
}

impl From<zookeeper_client::SessionState> for SessionState {
    fn from(state: zookeeper_client::SessionState) -> Self {
        use zookeeper_client::SessionState as Theirs;
        match state {
            Theirs::SyncConnected => Self::Connected,
            Theirs::Disconnected | Theirs::ConnectedReadOnly => Self::Disconnected,
            Theirs::AuthFailed | Theirs::Expired | Theirs::Closed => Self::Ended,
        }
    }
}

impl From<EventType> for WatchEvent {
    fn from(event: EventType) -> Self {
        match event {
            EventType::Session => Self::SessionEnded,
            EventType::NodeCreated => Self::Created,
            EventType::NodeDeleted => Self::Deleted,
            EventType::NodeDataChanged => Self::DataChanged,
            EventType::NodeChildrenChanged => Self::ChildrenChanged,
        }
    }
}

/// Sorts an error. A lost connection shows in several forms, so only a list of definite answers is trusted.
impl From<Error> for RequestError {
    fn from(error: Error) -> Self {
        match error {
            Error::NoNode => Self::NoNode,
            Error::NodeExists => Self::NodeExists,
            Error::NoChildrenForEphemerals => Self::NoChildrenForEphemerals,
            Error::Unimplemented => Self::Unimplemented,
            Error::NoAuth
            | Error::BadVersion
            | Error::NotEmpty
            | Error::InvalidAcl
            | Error::QuotaExceeded
            | Error::MarshallingError
            | Error::BadArguments(_) => Self::Refused(Arc::new(error)),
            // Safeguard: a throttled request is one that was not done (ZooKeeper)
            Error::Throttled => Self::Throttled,
            Error::SessionExpired | Error::AuthFailed | Error::ClientClosed => Self::SessionEnded(Arc::new(error)),
            // Its own text for it is "no available hosts", of servers that are down and of ports of other services alike.
            Error::NoHosts => {
                let reason =
                    "no server answers as one of ZooKeeper does: each may be down, or its port not the one for clients";
                Self::Unknown(Arc::from(Box::<dyn std::error::Error + Send + Sync>::from(reason)))
            }
            _ => Self::Unknown(Arc::new(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Outcome, *};

    fn outcome(error: Error) -> Outcome {
        RequestError::from(error).outcome()
    }

    #[test]
    fn only_definite_answers_of_the_server_count_as_refused() {
        assert_eq!(outcome(Error::NoNode), Outcome::Refused);
        assert_eq!(outcome(Error::SessionExpired), Outcome::SessionEnded);
        // Not `Refused`: it takes no place in the leader's order, so it settles nothing.
        assert_eq!(outcome(Error::Throttled), Outcome::Throttled);
        for unknown in [Error::ConnectionLoss, Error::Timeout, Error::SessionMoved, Error::UnexpectedErrorCode(-4)] {
            assert_eq!(outcome(unknown.clone()), Outcome::Unknown, "{unknown}");
        }
    }
}
