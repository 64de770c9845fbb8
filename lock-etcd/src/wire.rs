//! The way to the servers: each request with a limit, and made again while it can be, by another server where there is one.

mod security;

use std::{
    collections::BTreeSet,
    error::Error as StdError,
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use etcd_client::{
    AlarmAction, AlarmMember, AlarmType, Channel, Client, ConnectOptions, EventType, GetOptions, KeyValue,
    ResponseHeader, Txn, TxnResponse, WatchOptions,
};
use futures::{StreamExt, stream::FuturesUnordered};
use lock_core::{Backoff, Clock, Error, Password};
use tokio::sync::Mutex;
use tonic::{Code, Status, transport::Endpoint};

pub(crate) use self::security::{Distrust, Tls, address};
use self::security::{HungUp, Server};
use crate::{Config, protocol};

/// etcd hangs up on who asks more often than this whether it is there.
const SHORTEST_PING: Duration = Duration::from_secs(5);
/// How many keys one answer has: a megabyte, with the longest names.
const KEYS_PER_PAGE: i64 = 500;
/// How many servers are asked within the limit of a request that none of them answers.
const SERVERS_PER_LIMIT: u32 = 4;
/// Between two tries at one request.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// The revision of an etcd in which nothing was ever written.
const FIRST_REVISION: i64 = 1;

/// Clients of the servers of one etcd cluster, with a limit for each request. Clones share their connections.
///
/// All requests go to one of them, until that does not answer in time or cannot take a request: then the next one is asked. A client of
/// the library for all servers would choose one for each request by chance, also one that is frozen.
#[derive(Clone)]
pub(crate) struct EtcdServers {
    servers: Arc<[EtcdServer]>,
    /// Whose turn it is to be asked, counted on and on from a server by chance: programs go to different ones.
    turn: Arc<AtomicUsize>,
    tls: Option<Tls>,
    user: Option<(String, Password)>,
    clock: Clock,
    connect_limit: Duration,
    limit: Duration,
    url: String,
}

/// One server, and the client that asks it.
struct EtcdServer {
    server: Server,
    /// Made when the server is asked for the first time.
    client: Mutex<Option<Client>>,
    has_answered: AtomicBool,
    /// How often its client has signed in again. The servers give a token for the sign-in that each request carries, and that they
    /// stop to take: when it has not been used for some time, after a restart, and one with a signature (`--auth-token=jwt`) after any
    /// change of users or roles. Whoever signs in keeps the lock, so that others need not.
    sign_ins: Mutex<u64>,
}

/// What a server says of itself.
#[derive(Debug)]
pub(crate) struct ServerStatus {
    /// The id of its cluster.
    pub(crate) cluster: Option<u64>,
    pub(crate) version: String,
    pub(crate) database_bytes: i64,
    /// The number of the last change that it knows of.
    pub(crate) revision: i64,
    /// The alarms that are raised because of it.
    pub(crate) own_alarms: Vec<AlarmType>,
}

impl EtcdServers {
    pub(crate) async fn connect(config: &Config, clock: Clock) -> Result<Self, Error> {
        let server = |server: &Server| EtcdServer {
            server: server.clone(),
            client: Mutex::default(),
            has_answered: AtomicBool::new(false),
            sign_ins: Mutex::default(),
        };
        let servers: Vec<_> = config.servers.iter().map(server).collect();
        let this = Self {
            turn: Arc::new(fastrand::usize(..servers.len()).into()),
            servers: servers.into(),
            tls: config.tls.clone(),
            user: config.user.clone(),
            clock,
            connect_limit: config.connect_timeout,
            limit: config.response_timeout,
            url: config.url(),
        };
        this.sign_in_somewhere(config.connect_timeout).await?;
        Ok(this)
    }

    /// Makes the client of the first server that takes one. Without a user none is asked for that.
    async fn sign_in_somewhere(&self, limit: Duration) -> Result<(), Error> {
        let count = self.servers.len();
        let each = limit / u32::try_from(count).unwrap_or(u32::MAX);
        let (mut last, mut distrust) = (None, BTreeSet::new());
        for _ in 0..count {
            let turn = self.turn.load(Ordering::Relaxed);
            last = match self.clock.answer_timeout(each, self.client(turn)).await {
                Some(Ok(_)) => return Ok(()),
                Some(Err(ClientError::Locks(error))) => return Err(error),
                Some(Err(ClientError::Etcd(error))) if is_refusal(&error) => {
                    return Err(failure(&self.url, "connecting", error));
                }
                Some(Err(ClientError::Etcd(error))) => {
                    Some(self.explain("connecting", turn, error, &mut distrust).await?)
                }
                None => last,
            };
            self.pass_on(turn);
        }
        match last {
            Some(error) => Err(Error::unavailable(&self.url, "connecting failed", error)),
            None => Err(Error::no_answer(&self.url, format!("connecting took longer than {limit:?}"))),
        }
    }

    /// Begins a session that lives for `ttl` without a renewal. Gives its id, and the ttl that the servers chose.
    pub(crate) async fn begin_session(&self, ttl: Duration) -> Result<(i64, Duration), Error> {
        let seconds = i64::try_from(ttl.as_millis().div_ceil(1000)).unwrap_or(i64::MAX);
        let granted =
            self.request("beginning a session", |mut client| async move { client.lease_grant(seconds, None).await });
        let granted = granted.await?;
        Ok((granted.id(), Duration::from_secs(granted.ttl().unsigned_abs())))
    }

    /// Renews a session. Whether it was there.
    pub(crate) async fn renew_session(&self, id: i64) -> Result<bool, Error> {
        let renew = |mut client: Client| async move {
            match client.lease_keep_alive(id).await {
                Ok(_) => Ok(true),
                // The library says so when the servers' answer is that they do not have it.
                Err(etcd_client::Error::LeaseKeepAliveError(_)) => Ok(false),
                Err(error) => Err(error),
            }
        };
        self.request("a renewal", renew).await
    }

    /// Ends a session, and deletes all keys under it.
    pub(crate) async fn end_session(&self, id: i64) -> Result<(), Error> {
        let end = |mut client: Client| async move {
            match client.lease_revoke(id).await {
                Err(error) if !is_about_no_session(&error) => Err(error),
                _ => Ok(()),
            }
        };
        self.request("ending a session", end).await
    }

    /// Carries out a transaction. `None` when it would put a key under a session that is not there, and has done nothing.
    pub(crate) async fn transact(&self, what: &str, transaction: Txn) -> Result<Option<TxnResponse>, Error> {
        self.transact_counting(what, transaction, &AtomicU32::new(0)).await
    }

    /// The same, and adds to `sent` how often the transaction was sent: all but the last one may yet arrive. One that was refused does
    /// not count: it has done nothing, and never will.
    pub(crate) async fn transact_counting(
        &self,
        what: &str,
        transaction: Txn,
        sent: &AtomicU32,
    ) -> Result<Option<TxnResponse>, Error> {
        let transact = |mut client: Client| {
            sent.fetch_add(1, Ordering::Relaxed);
            let transaction = transaction.clone();
            async move {
                match client.txn(transaction).await {
                    Err(error) if is_about_no_session(&error) => Ok(None),
                    Err(error) if is_about_the_sign_in(&error) || is_refusal(&error) => {
                        // Safeguard: what was refused counts as not sent (etcd)
                        sent.fetch_sub(1, Ordering::Relaxed);
                        Err(error)
                    }
                    answer => answer.map(Some),
                }
            }
        };
        self.request(what, transact).await
    }

    /// What the server that is asked says of itself.
    pub(crate) async fn status(&self) -> Result<ServerStatus, Error> {
        let what = "a look at the server";
        let status = self.request(what, |mut client| async move { client.status().await }).await?;
        let raised = |mut client: Client| async move { client.alarm(AlarmAction::Get, AlarmType::None, None).await };
        let raised = self.request(what, raised).await?;
        let header = status.header();
        let member = header.map(ResponseHeader::member_id);
        let own = raised.alarms().iter().filter(|alarm| Some(alarm.member_id()) == member);
        Ok(ServerStatus {
            cluster: header.map(ResponseHeader::cluster_id),
            version: status.version().to_owned(),
            database_bytes: status.db_size(),
            revision: header.map_or(0, ResponseHeader::revision),
            own_alarms: own.map(AlarmMember::alarm).collect(),
        })
    }

    /// Whether etcd was ever compacted: then it refuses to show `key` as it was at the first revision.
    pub(crate) async fn is_compacted(&self, key: &str) -> Result<bool, Error> {
        let look = |mut client: Client| async move {
            match client.get(key, Some(GetOptions::new().with_revision(FIRST_REVISION))).await {
                Err(error) if is_about_compaction(&error) => Ok(true),
                answer => answer.map(|_| false),
            }
        };
        self.request("a look at the history", look).await
    }

    /// All contenders of a prefix, in their order.
    pub(crate) async fn contenders(&self, directory: &str) -> Result<Vec<KeyValue>, Error> {
        let look = |mut client: Client| async move { client.get(directory, Some(protocol::in_order())).await };
        Ok(self.request("a look at the lock", look).await?.take_kvs())
    }

    /// The keys that begin with `prefix`, page by page, each page as it is then.
    pub(crate) async fn keys(&self, prefix: &str) -> Result<Vec<Vec<u8>>, Error> {
        let mut end = prefix.as_bytes().to_vec();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        let (mut keys, mut next) = (Vec::new(), prefix.as_bytes().to_vec());
        loop {
            let options = GetOptions::new().with_range(end.clone()).with_keys_only().with_limit(KEYS_PER_PAGE);
            let page = |mut client: Client| {
                let (next, options) = (next.clone(), options.clone());
                async move { client.get(next, Some(options)).await }
            };
            let mut page = self.request("a list of locks", page).await?;
            keys.extend(page.take_kvs().into_iter().map(|key| key.key().to_vec()));
            match keys.last() {
                Some(last) if page.more() => next = [last.as_slice(), &[0]].concat(),
                _ => return Ok(keys),
            }
        }
    }

    /// Returns when a key was deleted after that revision, or when nobody can tell any more.
    pub(crate) async fn deleted(&self, key: &str, after: i64) {
        let options = WatchOptions::new().with_start_revision(after + 1);
        let watch = |mut client: Client| {
            let options = options.clone();
            async move { client.watch(key, Some(options)).await }
        };
        let Ok(mut events) = self.request("a watch", watch).await else {
            // What is between may carry requests and no watches: then looks take their place, and not one after the other.
            return self.clock.sleep(LONGEST_PAUSE).await;
        };
        while let Ok(Some(news)) = events.message().await {
            // What the servers have forgotten by compaction they tell by a cancellation.
            if news.canceled() || news.events().iter().any(|event| event.event_type() == EventType::Delete) {
                return;
            }
        }
    }

    /// Makes a request, again and again while the servers are out of reach and the limit has not passed. Each may have been done
    /// although its answer was lost or is late, so a request must be one that can be made twice.
    async fn request<T, F>(&self, what: &str, ask: impl Fn(Client) -> F + Send + Sync) -> Result<T, Error>
    where
        T: Send,
        F: Future<Output = Result<T, etcd_client::Error>> + Send,
    {
        let (mut last, mut distrust) = (None, BTreeSet::new());
        // One server alone has the whole limit for its answer.
        let patience = if self.servers.len() > 1 { self.limit / SERVERS_PER_LIMIT } else { self.limit * 2 };
        let tries = async {
            let (mut pauses, mut under_way) = (Backoff::new(FIRST_PAUSE, LONGEST_PAUSE), FuturesUnordered::new());
            loop {
                let turn = self.turn.load(Ordering::Relaxed);
                // On the heap: the library's futures are of some 20 KiB each.
                under_way.push(Box::pin(self.ask(turn, &ask)));
                let (turn, sign_ins, answer) = tokio::select! {
                    Some(answered) = under_way.next() => answered,
                    // The answer is still waited for.
                    // Safeguard: a server that does not answer does not keep the others from being asked (etcd)
                    () = self.clock.sleep(patience) => {
                        self.pass_on(turn);
                        continue;
                    }
                };
                let error = match answer {
                    Ok(answer) => return Ok(answer),
                    Err(ClientError::Locks(error)) => return Err(error),
                    Err(ClientError::Etcd(error)) => error,
                };
                last = Some(if is_about_the_sign_in(&error) {
                    Box::pin(self.sign_in_again(turn, sign_ins)).await?;
                    error.into()
                } else if is_transient(&error) {
                    self.pass_on(turn);
                    self.explain(what, turn, error, &mut distrust).await?
                } else {
                    return Err(failure(&self.url, what, error));
                });
                self.clock.sleep(pauses.pause()).await;
            }
        };
        let answer = self.clock.answer_timeout(self.limit, tries).await;
        let late = || format!("{what} took longer than {:?}", self.limit);
        match (answer, last) {
            (Some(done), _) => done,
            (None, Some(error)) => Err(Error::unavailable(&self.url, late(), error)),
            (None, None) => Err(Error::no_answer(&self.url, late())),
        }
    }

    /// Asks the server whose turn it was once. Says also whose, and how often its client had signed in again before.
    async fn ask<T, F>(&self, turn: usize, ask: &(impl Fn(Client) -> F + Sync)) -> (usize, u64, Result<T, ClientError>)
    where
        F: Future<Output = Result<T, etcd_client::Error>> + Send,
    {
        let sign_ins = *self.server(turn).sign_ins.lock().await;
        let answer = match self.client(turn).await {
            Ok(client) => ask(client).await.map_err(ClientError::Etcd),
            Err(error) => Err(error),
        };
        if answer.is_ok() {
            self.server(turn).has_answered.store(true, Ordering::Relaxed);
        }
        (turn, sign_ins, answer)
    }

    /// Why a server did not take a request: the error, or what is wrong with the scheme or with a certificate. `distrust` has the
    /// servers whose certificates are known to be the reason; when these are all, the request is refused. Another one, which is down
    /// now, may have a better certificate.
    async fn explain(
        &self,
        what: &str,
        turn: usize,
        error: etcd_client::Error,
        distrust: &mut BTreeSet<usize>,
    ) -> Result<Box<dyn StdError + Send + Sync>, Error> {
        if self.tls.is_none() && is_about_a_hang_up(&error) && !self.server(turn).has_answered.load(Ordering::Relaxed) {
            return Ok(HungUp(error).into());
        }
        let Some(why) = self.distrust(turn, &error).await else { return Ok(error.into()) };
        distrust.insert(turn % self.servers.len());
        // Safeguard: a certificate that one server of several shows or refuses ends no request (etcd)
        if distrust.len() < self.servers.len() {
            return Ok(why.into());
        }
        Err(Error::refused(&self.url, format!("{what} was refused"), Some(why.into())))
    }

    async fn distrust(&self, turn: usize, error: &etcd_client::Error) -> Option<Distrust> {
        let tls = self.tls.as_ref()?;
        let cause = match error {
            // What a server itself said has no source.
            etcd_client::Error::GRpcStatus(status) => status.source()?,
            etcd_client::Error::TransportError(error) => error,
            _ => return None,
        };
        match tls.distrust_in(cause) {
            Some(distrust) => Some(distrust),
            None => tls.ask(&self.server(turn).server).await,
        }
    }

    fn server(&self, turn: usize) -> &EtcdServer {
        &self.servers[turn % self.servers.len()]
    }

    /// Has the next server be asked, unless another request has done so since that turn.
    fn pass_on(&self, turn: usize) {
        // Whoever comes second finds it done.
        let _ = self.turn.compare_exchange(turn, turn.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The client of the server whose turn it was, which signs in when it is made.
    async fn client(&self, turn: usize) -> Result<Client, ClientError> {
        let server = self.server(turn);
        let mut kept = server.client.lock().await;
        if let Some(client) = &*kept {
            return Ok(client.clone());
        }
        let mut options = ConnectOptions::new().with_require_leader(true);
        if let Some((user, password)) = &self.user {
            options = options.with_user(user, password.read().map_err(ClientError::Locks)?);
        }
        let connected = Box::pin(async {
            let channel = security::channel(&server.server, self.tls.as_ref(), |channel| self.with_limits(channel))?;
            Client::from_channel(Channel::Tonic(channel), Some(options)).await
        });
        Ok(kept.insert(connected.await.map_err(ClientError::Etcd)?).clone())
    }

    fn with_limits(&self, channel: Endpoint) -> Endpoint {
        channel
            .connect_timeout(self.connect_limit)
            .http2_keep_alive_interval(SHORTEST_PING)
            .keep_alive_timeout(self.limit)
            // Pings go only while an answer or an event is awaited: of others etcd takes none.
            .keep_alive_while_idle(false)
    }

    /// Signs in, with the password as it is now, unless that was done since there were so many sign-ins.
    async fn sign_in_again(&self, turn: usize, sign_ins: u64) -> Result<(), Error> {
        let Some((user, password)) = &self.user else { return Ok(()) };
        let mut again = self.server(turn).sign_ins.lock().await;
        if *again != sign_ins {
            return Ok(());
        }
        let user = (user.clone(), password.read()?);
        let Ok(mut client) = self.client(turn).await else { return Ok(()) };
        match Box::pin(client.update_user(Some(user))).await {
            Ok(()) => *again += 1,
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(failure(&self.url, "signing in", error)),
        }
        Ok(())
    }
}

/// Why a server was not asked, or has not answered.
enum ClientError {
    /// The password could not be read.
    Locks(Error),
    Etcd(etcd_client::Error),
}

impl fmt::Debug for EtcdServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Servers").field(&self.url).finish()
    }
}

/// The error of the client library as one of locks: refused, or unavailable.
fn failure(url: &str, what: &str, error: etcd_client::Error) -> Error {
    if is_refusal(&error) {
        return Error::refused(url, format!("{what} was refused"), Some(error.into()));
    }
    Error::unavailable(url, format!("{what} failed"), error)
}

/// Whether the servers do not let the user in, or do not let the user do that: the same request fares no better later. What
/// etcd's errors say besides their codes is in its `rpctypes`, by which its own client tells them apart, too.
fn is_refusal(error: &etcd_client::Error) -> bool {
    let etcd_client::Error::GRpcStatus(status) = error else { return false };
    match status.code() {
        Code::PermissionDenied => true,
        Code::InvalidArgument => !is_about_the_sign_in(error),
        Code::FailedPrecondition => status.message().contains("authentication is not enabled"),
        _ => false,
    }
}

/// Whether the servers do not take the token of the sign-in any more: they do not know it, or users or roles were changed since.
fn is_about_the_sign_in(error: &etcd_client::Error) -> bool {
    let told = ["invalid auth token", "revision of auth store is old"];
    matches!(error, etcd_client::Error::GRpcStatus(status) if told.iter().any(|told| status.message().contains(told)))
}

/// Whether a server said that it knows of no leader.
pub(crate) fn is_about_no_leader(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status) if status.message().contains("no leader"))
}

/// Whether a server took the connection, and ended it without an answer. Where nobody takes it, it is unavailable.
fn is_about_a_hang_up(error: &etcd_client::Error) -> bool {
    let hung_up = |status: &Status| status.code() != Code::Unavailable && status.source().is_some();
    matches!(error, etcd_client::Error::GRpcStatus(status) if hung_up(status))
}

/// Whether another server, or the same one a little later, may take the request.
fn is_transient(error: &etcd_client::Error) -> bool {
    match error {
        etcd_client::Error::TransportError(_) | etcd_client::Error::IoError(_) => true,
        etcd_client::Error::GRpcStatus(status) => matches!(
            status.code(),
            Code::Unavailable
                | Code::DeadlineExceeded
                | Code::Aborted
                | Code::Cancelled
                | Code::Internal
                | Code::Unknown
        ),
        _ => false,
    }
}

/// Whether the revision that was asked for is gone.
fn is_about_compaction(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status) if status.code() == Code::OutOfRange)
}

/// Whether the servers do not have the session that was named.
fn is_about_no_session(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status) if status.code() == Code::NotFound)
}

#[cfg(test)]
mod tests {
    use lock_lab::{
        deployment::Deployment,
        proxy::{Proxy, answered_in_a_standstill},
    };

    use super::*;

    #[tokio::test]
    async fn an_answer_that_comes_in_a_standstill_is_an_answer() {
        let running = "etcd1".parse::<Deployment>().unwrap().start().await.unwrap();
        let way = Proxy::start(running.ports()[0]).await.unwrap();
        let config = Config::new([("127.0.0.1", way.port())]);
        let servers = EtcdServers::connect(&config, Clock::runtime()).await.unwrap();
        let looking = async move { servers.contenders("/locks/a/").await };
        assert!(answered_in_a_standstill(&[way], config.response_timeout, looking).await.unwrap().is_empty());
    }

    #[test]
    fn what_may_go_by_itself_is_no_refusal() {
        let refused = |status| is_refusal(&etcd_client::Error::GRpcStatus(status));
        assert!(refused(Status::permission_denied("etcdserver: permission denied")));
        assert!(refused(Status::invalid_argument("etcdserver: authentication failed, invalid user ID or password")));
        assert!(refused(Status::failed_precondition("etcdserver: authentication is not enabled")));
        assert!(!refused(Status::invalid_argument("etcdserver: revision of auth store is old")));
        assert!(!refused(Status::failed_precondition("etcdserver: not leader")));
        assert!(!refused(Status::unauthenticated("etcdserver: invalid auth token")));
        assert!(!refused(Status::unavailable("etcdserver: no leader")));
    }
}
