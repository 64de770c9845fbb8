//! The session: a lease of etcd that all keys of a connection are under, and what is held by them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::future::{join, join_all};
use lock_core::{
    BootInstant, Context, Error, LockName, Loss, Renew, RenewalHandle, Renewer, Validity, validity::deadline,
};

use crate::{
    protocol::{self, Attempt, KEYS_PER_LOOK},
    wire::EtcdServers,
};

/// How many times a session is renewed within its ttl.
const RENEWALS_PER_TTL: u32 = 3;

/// One etcd lease that a connection keeps alive, with the validities of the locks held under it.
#[derive(Debug)]
pub(crate) struct Session {
    id: i64,
    ttl: Duration,
    validity: Validity,
    numbers: Mutex<AttemptNumbers>,
    /// What is held under it, by the keys.
    grants: Mutex<BTreeMap<String, Grant>>,
}

/// A lock that is held under a session: by which attempt, the create revision of its key, and until when its holder may act.
#[derive(Debug, Clone)]
struct Grant {
    attempt: Attempt,
    revision: i64,
    validity: Validity,
}

/// The numbers of a session's attempts. One that is certainly over is given again: etcd goes through every key that a directory
/// ever had when it looks who is there, up to its next compaction, and by default it never compacts.
#[derive(Debug, Default)]
struct AttemptNumbers {
    /// The highest one that was given.
    highest: u64,
    /// Those that may be given again.
    free: Vec<u64>,
}

impl AttemptNumbers {
    fn take(&mut self) -> u64 {
        self.free.pop().unwrap_or_else(|| {
            self.highest += 1;
            self.highest
        })
    }
}

impl Session {
    /// A new attempt under it.
    pub(crate) fn attempt(&self, path: &str, name: &LockName) -> Attempt {
        Attempt::new(path, name, self.id, self.numbers().take())
    }

    fn numbers(&self) -> MutexGuard<'_, AttemptNumbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when it has ended, or nothing is known of it any more.
    pub(crate) async fn ended(&self) {
        self.validity.lost().await;
    }

    pub(crate) fn has_ended(&self) -> bool {
        !self.validity.is_valid()
    }

    /// Until when whoever holds by that key, made at that revision, may act, as long as the key is there. It is looked after from
    /// now on.
    ///
    /// The servers had the key, so they had the session; they keep that for a ttl from its last renewal.
    pub(crate) fn grant(&self, attempt: &Attempt, revision: i64) -> Validity {
        let mut grants = self.grants();
        let until = self.validity.valid_until();
        let validity = Validity::new(self.validity.clock(), until.unwrap_or_else(|| self.validity.clock().now()));
        let grant = Grant { attempt: attempt.clone(), revision, validity: validity.clone() };
        grants.insert(attempt.key().to_owned(), grant);
        validity
    }

    /// Looks after that key no more.
    pub(crate) fn forget(&self, attempt: &Attempt) {
        self.grants().remove(attempt.key());
    }

    /// Removes an attempt's key in the background, and keeps it from coming back: for as long as this session lives, or, when it
    /// has ended, until it has certainly ended on the servers, too.
    fn clean(self: Arc<Self>, context: &Context, servers: &EtcdServers, what: &'static str, attempt: Attempt) {
        let until = match self.has_ended() {
            // A renewal may be under way.
            true => context.clock().now().saturating_add(self.ttl * 2),
            false => BootInstant::from_nanos(u64::MAX),
        };
        let servers = servers.clone();
        context.cleanup().clean(what, until, move || {
            let (servers, session, undo) = (servers.clone(), Arc::clone(&self), attempt.undo());
            async move {
                match servers.transact("an undo", undo).await {
                    Err(_) if until == BootInstant::from_nanos(u64::MAX) && session.has_ended() => Ok(()),
                    done => done.map(drop),
                }
            }
        });
    }

    fn grants(&self) -> MutexGuard<'_, BTreeMap<String, Grant>> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that ends with it.
    fn validities(&self) -> Vec<Validity> {
        self.grants().values().map(|grant| grant.validity.clone()).chain([self.validity.clone()]).collect()
    }
}

/// The present [`Session`] of a connection, replaced by a new one after its end.
#[derive(Debug)]
pub(crate) struct SessionSlot {
    context: Context,
    servers: EtcdServers,
    ttl: Duration,
    renewer: Renewer<Session>,
    present: tokio::sync::Mutex<Option<RenewedSession>>,
}

/// A [`Session`] with the handle that keeps its etcd lease renewed.
#[derive(Debug)]
struct RenewedSession {
    session: Arc<Session>,
    _renewal: RenewalHandle<Session>,
}

impl SessionSlot {
    pub(crate) fn new(context: Context, servers: EtcdServers, ttl: Duration) -> Self {
        let renew = SessionRenewer { context: context.clone(), servers: servers.clone() };
        let renewer = Renewer::new(&context, Arc::new(renew));
        Self { context, servers, ttl, renewer, present: tokio::sync::Mutex::default() }
    }

    /// The present session, or a new one.
    pub(crate) async fn present(&self) -> Result<Arc<Session>, Error> {
        let mut present = self.present.lock().await;
        if let Some(kept) = present.as_ref().filter(|kept| !kept.session.has_ended()) {
            return Ok(Arc::clone(&kept.session));
        }
        let clock = self.context.clock();
        let sent_at = clock.now();
        let (id, ttl) = self.servers.begin_session(self.ttl).await?;
        // Safeguard: a guard lives no longer than its session (etcd)
        let validity = Validity::new(clock, deadline(sent_at, ttl));
        let (numbers, grants) = (Mutex::default(), Mutex::default());
        let session = Arc::new(Session { id, ttl, validity: validity.clone(), numbers, grants });
        let renewal = self.renewer.keep(Arc::clone(&session), validity, ttl / RENEWALS_PER_TTL);
        *present = Some(RenewedSession { session: Arc::clone(&session), _renewal: renewal });
        Ok(session)
    }

    /// Deletes an attempt's key, which was made at `revision`, whether it waits or holds. Whether it was there until then.
    pub(crate) async fn leave(
        &self,
        what: &str,
        session: &Session,
        attempt: &Attempt,
        revision: i64,
    ) -> Result<bool, Error> {
        let sent = AtomicU32::new(0);
        let answer = self.servers.transact_counting(what, attempt.leave(revision), &sent).await?;
        // Only a request to enter could still make the key; a late one to leave finds another revision.
        // Safeguard: an attempt's number is given again only when its request to enter was sent once (etcd)
        if attempt.sent().load(Ordering::Relaxed) == 1 {
            session.numbers().free.push(attempt.number());
        }
        // What is gone at the second try was deleted by the first one, whose answer was lost.
        // Safeguard: a release whose answer is lost is no loss (etcd)
        Ok(answer.is_some_and(|answer| answer.succeeded()) || sent.load(Ordering::Relaxed) > 1)
    }

    /// [`Session::clean`] on its servers.
    pub(crate) fn clean(&self, what: &'static str, session: Arc<Session>, attempt: Attempt) {
        session.clean(&self.context, &self.servers, what, attempt);
    }

    /// Ends the present session. All that is held under it has been given back.
    pub(crate) async fn close(&self) {
        let Some(kept) = self.present.lock().await.take() else { return };
        kept.session.validities().iter().for_each(|validity| validity.end(Loss::Closed));
        if let Err(error) = self.servers.end_session(kept.session.id).await {
            tracing::debug!(%error, "the session is left to its ttl");
        }
    }
}

/// Renews the etcd leases of sessions, and checks that the keys of their holders still exist.
struct SessionRenewer {
    context: Context,
    servers: EtcdServers,
}

#[async_trait]
impl Renew for SessionRenewer {
    type Lease = Session;

    async fn renew(&self, batch: &[Arc<Session>]) {
        for session in batch {
            self.renew_one(session).await;
        }
    }
}

impl SessionRenewer {
    async fn renew_one(&self, session: &Arc<Session>) {
        let Some(seen) = session.validity.observe() else { return };
        let held: Vec<_> = {
            let grants = session.grants();
            grants
                .iter()
                .filter_map(|(key, grant)| Some((key.clone(), grant.clone(), grant.validity.observe()?)))
                .collect()
        };
        let until = deadline(session.validity.clock().now(), session.ttl);
        let keys = held
            .chunks(KEYS_PER_LOOK)
            .map(|held| self.are_there(held.iter().map(|(key, grant, _)| (key.as_str(), grant.revision))));
        let (renewed, there) = join(self.servers.renew_session(session.id), join_all(keys)).await;
        match renewed {
            Ok(true) => {
                session.validity.advance(seen, until);
            }
            Ok(false) => return session.validities().iter().for_each(|validity| validity.end(Loss::SessionEnded)),
            Err(error) => {
                tracing::debug!(%error, "a renewal was not answered");
                return session.validities().iter().for_each(|validity| validity.set_expiry_cause(Loss::Unreachable));
            }
        }
        for ((_, Grant { attempt, validity, .. }, seen), is_there) in held.into_iter().zip(there.into_iter().flatten())
        {
            match is_there {
                Some(true) => {
                    validity.advance(seen, until);
                }
                // Safeguard: each renewal looks whether the keys of those who hold are there (etcd)
                Some(false) => {
                    validity.end(Loss::Revoked);
                    // A late request may have made it again, or may do so yet. Nobody would hold by it.
                    // Safeguard: a lost lock's key that was made again is deleted (etcd)
                    if attempt.may_enter_again() {
                        let what = "a lost lock's key";
                        Arc::clone(session).clean(&self.context, &self.servers, what, attempt);
                    }
                }
                None => validity.set_expiry_cause(Loss::Unreachable),
            }
        }
    }

    /// Whether each of these keys is there, made at that revision, where that can be told.
    async fn are_there(&self, keys: impl Iterator<Item = (&str, i64)> + Clone) -> Vec<Option<bool>> {
        let look = protocol::look_at(keys.clone().map(|(key, _)| key));
        match self.servers.transact("a look at what is held", look).await {
            // Safeguard: a holder's key that was made again is not what it holds by (etcd)
            Ok(Some(answer)) => {
                protocol::made_at(&answer).into_iter().zip(keys).map(|(at, (_, own))| Some(at == Some(own))).collect()
            }
            _ => keys.map(|_| None).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use lock_core::Clock;
    use lock_lab::{
        deployment::{Deployment, Running},
        proxy::Proxy,
        wait::{eventually, within},
    };

    use super::*;
    use crate::{Config, protocol::AttemptState};

    /// Sessions on an etcd server, to which there is a way of their own.
    struct TestSessions {
        running: Running,
        way: Proxy,
        servers: EtcdServers,
        sessions: Arc<SessionSlot>,
        session: Arc<Session>,
    }

    /// For a server that answers late on a machine that stands still.
    fn patient(port: u16) -> Config {
        let mut config = Config::new([("127.0.0.1", port)]);
        config.response_timeout = Duration::from_secs(60);
        config
    }

    impl TestSessions {
        async fn start() -> Self {
            let deployment: Deployment = "etcd1".parse().unwrap();
            let running = deployment.start().await.unwrap();
            let way = Proxy::start(running.ports()[0]).await.unwrap();
            let (config, context) = (patient(way.port()), Context::current());
            let servers = EtcdServers::connect(&config, context.clock()).await.unwrap();
            let sessions = Arc::new(SessionSlot::new(context, servers.clone(), config.session_ttl));
            let session = sessions.present().await.unwrap();
            Self { running, way, servers, sessions, session }
        }

        /// An attempt that holds, and the revision of its key.
        async fn holder(&self) -> (Attempt, i64) {
            let attempt = self.session.attempt("/locks", &LockName::new("a").unwrap());
            let enter = self.servers.transact_counting("an acquisition", attempt.enter(b"", true), attempt.sent());
            let entered = attempt.entered(&enter.await.unwrap().unwrap(), true);
            let AttemptState::Holds(revision) = entered else { panic!("{entered:?}") };
            (attempt, revision)
        }
    }

    #[tokio::test]
    async fn a_key_is_used_again_only_after_an_attempt_that_was_sent_once() {
        let test = TestSessions::start().await;
        let mut keys = Vec::new();
        for _ in 0..4 {
            let (attempt, revision) = test.holder().await;
            if keys.len() == 2 {
                attempt.sent().fetch_add(1, Ordering::Relaxed);
            }
            assert!(test.sessions.leave("a release", &test.session, &attempt, revision).await.unwrap());
            keys.push(attempt.key().to_owned());
        }
        assert_eq!((&keys[0], &keys[1]), (&keys[1], &keys[2]));
        assert_ne!(keys[2], keys[3], "the third one was sent twice");
        test.sessions.close().await;
    }

    #[tokio::test]
    async fn a_holder_whose_key_was_deleted_and_made_again_by_a_late_request_is_told() {
        let test = TestSessions::start().await;
        let (attempt, revision) = test.holder().await;
        let validity = test.session.grant(&attempt, revision);
        let deleted = test.servers.transact("a deletion", attempt.leave(revision)).await.unwrap().unwrap();
        let enter = test.servers.transact_counting("a late request", attempt.enter(b"", true), attempt.sent());
        let again = enter.await.unwrap().unwrap();
        assert!(deleted.succeeded() && again.succeeded());
        assert_eq!(within("the next renewal", validity.lost()).await, Loss::Revoked);
        // Whoever keeps the lost lock keeps nobody waiting.
        let is_deleted = async || Box::pin(test.servers.contenders("/locks/a/")).await.unwrap().is_empty();
        eventually("its deletion", is_deleted).await;
        test.sessions.close().await;
    }

    #[tokio::test]
    async fn a_release_whose_answer_is_lost_is_a_release() {
        let test = TestSessions::start().await;
        let (attempt, revision) = test.holder().await;
        let past_the_way = patient(test.running.ports()[0]);
        let direct = EtcdServers::connect(&past_the_way, Context::current().clock()).await.unwrap();
        test.way.hold_replies();
        let release = tokio::spawn({
            let (sessions, session) = (Arc::clone(&test.sessions), Arc::clone(&test.session));
            async move { sessions.leave("a release", &session, &attempt, revision).await }
        });
        let is_deleted = async { while !direct.contenders("/locks/a/").await.unwrap().is_empty() {} };
        Clock::boot().timeout(Duration::from_secs(60), is_deleted).await.expect("the request arrives");
        // The answer that was held goes with its connection.
        test.way.cut();
        test.way.heal();
        assert!(release.await.unwrap().unwrap(), "the first request had deleted the key");
        test.sessions.close().await;
    }
}
