//! The SPI: a connection, and how an acquisition goes.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use lock_core::{
    Backend, Backoff, Capabilities, Contender as Shown, Context, Error, Feature, Lease, LockName, Request, Snapshot,
    Wait,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Config,
    config::NAME,
    lease::EtcdLease,
    protocol::{self, Attempt, AttemptState},
    session::{Session, SessionSlot},
    wire::EtcdServers,
};

/// Between two tries of a waiter during an outage.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A connection to etcd.
#[derive(Debug)]
pub struct Etcd {
    config: Config,
    context: Context,
    servers: EtcdServers,
    sessions: Arc<SessionSlot>,
}

impl Etcd {
    /// Connects, and begins a session.
    ///
    /// # Errors
    /// [`Error::Config`] for a setting that is not allowed; [`Error::Unavailable`] when no server answers within the connect limit;
    /// [`Error::Refused`] when etcd does not let the user in.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    ///
    /// # Cancel safety
    /// When the future is dropped, the connection is closed; a session that had begun ends by its ttl.
    pub async fn connect(config: Config) -> Result<Arc<Self>, Error> {
        Self::connect_in(config, Context::current()).await
    }

    /// As [`Etcd::connect`], in a context of one's own. The client library does its part on the present tokio runtime and by the
    /// machine's clock all the same.
    ///
    /// # Errors
    /// Those of [`Etcd::connect`].
    pub async fn connect_in(config: Config, context: Context) -> Result<Arc<Self>, Error> {
        let config = config.checked()?;
        let clock = context.clock();
        // On the heap: the library's futures are of some 20 KiB each.
        let servers = Box::pin(EtcdServers::connect(&config, clock)).await?;
        let sessions = Arc::new(SessionSlot::new(context.clone(), servers.clone(), config.session_ttl));
        let etcd = Self { config, context, servers, sessions };
        Box::pin(etcd.sessions.present()).await?;
        Ok(Arc::new(etcd))
    }

    /// Makes a request of an attempt that waits again until it is answered, or the attempt is told to stop. What the request did,
    /// it finds when it is made again.
    async fn bridge<T, F>(&self, of: &Request, stop: &CancellationToken, request: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            match request().await {
                Err(error @ Error::Unavailable { .. }) if of.wait == Wait::UntilStopped => of.outage.failed(error),
                done => {
                    of.outage.answered();
                    return done;
                }
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return Err(Error::Cancelled),
                () = self.context.clock().sleep(pauses.pause()) => {}
            }
        }
    }

    /// Contends until the attempt holds; after the end of a session once more in the next one.
    async fn contend(&self, request: &Request, stop: &CancellationToken) -> Result<Box<dyn Lease>, Error> {
        loop {
            let session = self.bridge(request, stop, || self.sessions.present()).await?;
            let attempt = session.attempt(&self.config.path, &request.name);
            let mut contender = Contender { session, attempt, place: None };
            let held = self.stand(&mut contender, request, stop).await;
            let Contender { session, attempt, place } = contender;
            match held {
                Ok(Some(revision)) if !session.has_ended() => {
                    let validity = session.grant(&attempt, revision);
                    return Ok(Box::new(EtcdLease {
                        sessions: Arc::clone(&self.sessions),
                        session,
                        attempt,
                        revision,
                        validity,
                    }));
                }
                // Its key goes with its session, if it is not gone.
                Ok(_) if session.has_ended() => {
                    self.sessions.clean("an attempt of an earlier session", session, attempt);
                }
                // It has no key, and is never heard of again.
                Ok(_) | Err(Error::NotAcquired { .. }) => {
                    // Safeguard: a late request of an attempt that was given up makes no key (etcd)
                    if attempt.may_enter_again() {
                        self.sessions.clean("a request that may be late", session, attempt);
                    }
                    held.map(drop)?;
                }
                // No request that would have made its key was carried out, or ever will be.
                // Safeguard: an acquisition that was sent and is refused afterwards is cleaned up (etcd)
                Err(error @ Error::Refused { .. })
                    if place.is_none() && attempt.sent().load(Ordering::Relaxed) == 0 =>
                {
                    return Err(error);
                }
                Err(error) => {
                    let place = place.filter(|_| matches!(error, Error::Cancelled));
                    let has_left = match place {
                        Some(place) => self.sessions.leave("a withdrawal", &session, &attempt, place).await.is_ok(),
                        None => false,
                    };
                    if !has_left {
                        self.sessions.clean("an acquisition", session, attempt);
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Stands in line until the contender holds; gives the create revision of its key. `None` when its key is gone or its session
    /// has ended.
    async fn stand(
        &self,
        contender: &mut Contender,
        request: &Request,
        stop: &CancellationToken,
    ) -> Result<Option<i64>, Error> {
        let Contender { session, attempt, place } = contender;
        let waits = request.wait == Wait::UntilStopped;
        loop {
            let stands_at = *place;
            let ask = || async {
                match stands_at {
                    _ if session.has_ended() => Ok(None),
                    Some(revision) => self.servers.transact("a look at the line", attempt.look(revision)).await,
                    None => {
                        let enter = attempt.enter(&request.payload, waits);
                        self.servers.transact_counting("an acquisition", enter, attempt.sent()).await
                    }
                }
            };
            let Some(answer) = self.bridge(request, stop, ask).await? else { return Ok(None) };
            let state = match stands_at {
                None => attempt.entered(&answer, waits),
                Some(revision) => attempt.looked(&answer, revision),
            };
            match state {
                AttemptState::Holds(revision) => return Ok(Some(revision)),
                AttemptState::Refused => return Err(Error::NotAcquired { name: request.name.clone() }),
                AttemptState::Gone => return Ok(None),
                AttemptState::InLine(revision) => *place = Some(revision),
                AttemptState::Behind { revision, before, seen_at } => {
                    *place = Some(revision);
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => return Err(Error::Cancelled),
                        () = session.ended() => return Ok(None),
                        () = self.servers.deleted(&before, seen_at) => {}
                        // For news that got lost on the way.
                        () = self.context.clock().sleep(self.config.session_ttl) => {}
                    }
                }
            }
        }
    }
}

/// An acquisition under way on etcd: its session, its attempt, and the create revision of its key once that is known.
struct Contender {
    session: Arc<Session>,
    attempt: Attempt,
    place: Option<i64>,
}

#[async_trait]
impl Backend for Etcd {
    fn context(&self) -> &Context {
        &self.context
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(NAME)
            .with(Feature::Fifo)
            .with(Feature::Queue)
            .with(Feature::Expiry)
            .with(Feature::ClocklessToken)
            .with(Feature::Listing)
            .with(Feature::ForcedRelease)
    }

    async fn acquire(self: Arc<Self>, request: Request, stop: CancellationToken) -> Result<Box<dyn Lease>, Error> {
        self.contend(&request, &stop).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, Error> {
        let directory = protocol::directory(&self.config.path, name);
        Ok(protocol::snapshot(&self.servers.contenders(&directory).await?))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockName>, Error> {
        let path = &self.config.path;
        let keys = self.servers.keys(&protocol::names_from(path, prefix)).await?;
        let names: BTreeSet<_> = keys.iter().filter_map(|key| protocol::name_of(path, key)).collect();
        Ok(names.into_iter().filter(|name| name.as_str().starts_with(prefix)).collect())
    }

    async fn revoke(&self, name: &LockName, token: u64) -> Result<Option<Shown>, Error> {
        let directory = protocol::directory(&self.config.path, name);
        let holders = protocol::snapshot(&self.servers.contenders(&directory).await?).holders;
        let (Some(holder), Ok(revision)) =
            (holders.into_iter().find(|holder| holder.token == Some(token)), i64::try_from(token))
        else {
            return Ok(None);
        };
        let (what, sent) = ("a forced release", AtomicU32::new(0));
        let revoke = protocol::revoke(&directory, &holder.id, revision);
        let is_ended = self.servers.transact_counting(what, revoke, &sent).await?.is_some_and(|done| done.succeeded());
        if !is_ended && sent.load(Ordering::Relaxed) > 1 {
            // An earlier sending may have ended it.
            return Err(Error::no_answer(self.config.url(), format!("{what} was sent twice, and an answer was lost")));
        }
        Ok(is_ended.then_some(holder))
    }

    async fn close(&self, limit: Duration) {
        self.context.clock().timeout(limit, self.sessions.close()).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use etcd_client::{Client, GetOptions};
    use lock_core::{Locks, LocksOptions};
    use lock_lab::{
        deployment::{Deployment, Running},
        proxy::Proxy,
        wait::{LIMIT, eventually},
    };

    use tokio::task::JoinHandle;

    use super::*;

    async fn start(deployment: &str) -> Running {
        deployment.parse::<Deployment>().unwrap().start().await.unwrap()
    }

    /// Locks at these ports, with a session that lives on whatever happens, and without bridging outages.
    async fn connect(ports: &[u16], response_timeout: Duration) -> Locks {
        let mut config = Config::new(ports.iter().map(|port| ("127.0.0.1", *port)));
        (config.session_ttl, config.response_timeout) = (Duration::from_secs(3600), response_timeout);
        let options = LocksOptions::default().with_outage_timeout(Duration::ZERO);
        Locks::with_options(Box::pin(Etcd::connect(config)).await.unwrap(), options)
    }

    #[tokio::test]
    async fn a_try_that_was_sent_twice_and_is_refused_enters_no_more() {
        let running = start("etcd1").await;
        let port = running.ports()[0];
        let way = Proxy::start(port).await.unwrap();
        let (holder, locks) = (connect(&[port], LIMIT).await, connect(&[way.port()], LIMIT).await);
        let held = holder.mutex("a").lock().await.unwrap();

        let mutex = locks.mutex("a");
        let trying = lose_the_first_answer(&running, &way, async move { mutex.try_lock().await }).await;
        assert!(trying.await.unwrap().unwrap().is_none());
        let mut client = Box::pin(Client::connect([format!("127.0.0.1:{port}")], None)).await.unwrap();
        marked(&mut client).await;
        held.release().await.unwrap();
    }

    #[tokio::test]
    async fn a_waiter_that_was_sent_twice_and_whose_key_is_deleted_enters_once_more_and_only_by_a_new_request() {
        let running = start("etcd1").await;
        let port = running.ports()[0];
        let way = Proxy::start(port).await.unwrap();
        let (holder, locks) = (connect(&[port], LIMIT).await, connect(&[way.port()], LIMIT).await);
        let held = holder.mutex("a").lock().await.unwrap();
        let mut client = Box::pin(Client::connect([format!("127.0.0.1:{port}")], None)).await.unwrap();
        let [holders] = &contenders(&mut client).await[..] else { panic!("only the holder is there") };

        let (mutex, asked) = (locks.mutex("a"), running.requests().await.unwrap());
        let waiting = lose_the_first_answer(&running, &way, async move { mutex.lock().await }).await;
        // It enters, enters again and finds itself in line, and watches the holder.
        eventually("its watch", async || running.requests().await.unwrap() >= asked.map(|asked| asked + 3)).await;
        let [_, first] = &contenders(&mut client).await[..] else { panic!("the waiter is there") };
        Box::pin(client.delete(first.clone(), None)).await.unwrap();
        held.release().await.unwrap();
        let guard = waiting.await.unwrap().unwrap();
        marked(&mut client).await;
        let now = contenders(&mut client).await;
        assert!(now.len() == 1 && now[0] != *first && now[0] != *holders, "{now:?}");
        guard.release().await.unwrap();
    }

    /// Begins an acquisition whose first request arrives by that way, and whose answer does not come back.
    async fn lose_the_first_answer<F>(running: &Running, way: &Proxy, acquisition: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        way.hold_replies();
        let asked = running.requests().await.unwrap();
        let acquiring = tokio::spawn(acquisition);
        eventually("the request arrives", async || running.requests().await.unwrap() > asked).await;
        // The answer that is held goes with its connection.
        way.cut();
        way.heal();
        acquiring
    }

    /// Waits for the mark that keeps a late request from making a key.
    async fn marked(client: &mut Client) {
        eventually("the mark", async || {
            let options = GetOptions::new().with_prefix().with_count_only();
            Box::pin(client.get("/locks/.undone/", Some(options))).await.unwrap().count() == 1
        })
        .await;
    }

    /// The keys of those who stand in line for the lock `a`, in their order.
    async fn contenders(client: &mut Client) -> Vec<Vec<u8>> {
        let seen = Box::pin(client.get("/locks/a/", Some(protocol::in_order()))).await.unwrap();
        seen.kvs().iter().map(|contender| contender.key().to_vec()).collect()
    }

    #[tokio::test]
    async fn a_server_of_three_that_is_frozen_or_killed_keeps_nobody_from_locking() {
        let mut running = start("etcd3").await;
        let locks = connect(&running.ports(), Duration::from_secs(12)).await;
        let locks_and_releases = async || {
            for _ in 0..3 {
                locks.mutex("a").lock().await.unwrap().release().await.unwrap();
            }
        };
        // Each, since the one that is asked is among them.
        for server in 0..3 {
            running.stop(server).unwrap();
            locks_and_releases().await;
            running.cont(server).unwrap();
        }
        for server in 0..3 {
            running.kill(server);
            locks_and_releases().await;
            running.restart(server).await.unwrap();
        }
    }
}
