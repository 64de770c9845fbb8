//! Spans and events, on the memory backend in virtual time.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, Once},
    time::Duration,
};

use lock_core::{Clock, Error, Loss};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
    subscriber::Interest,
};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt},
    registry::LookupSpan,
    util::SubscriberInitExt,
};

use crate::world::{LONG, TTL, World};

/// The fields of a span or an event, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl Fields {
    fn get(&self, field: &str) -> &str {
        self.0.get(field).map_or("", String::as_str)
    }

    fn names(&self) -> Vec<&'static str> {
        self.0.keys().copied().collect()
    }
}

/// A span that has closed, or an event, with the span that it happened in.
#[derive(Debug, Clone)]
struct Seen {
    what: &'static str,
    level: Level,
    target: &'static str,
    within: Option<&'static str>,
    fields: Fields,
}

/// Every span that has closed, and every event, of one thread.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<Seen>>>);

thread_local! {
    static LOG: RefCell<Option<Log>> = const { RefCell::new(None) };
}

/// A layer that gives each thread's log what happens on that thread. It is the whole program's: whether an event is wanted is
/// remembered for all threads together, and a thread without a subscriber might decide that.
#[derive(Debug)]
struct ToThreads;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for ToThreads {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>, _: Context<'_, S>) -> bool {
        LOG.with_borrow(Option::is_some)
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        context.span(id).unwrap().extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        values.record(context.span(id).unwrap().extensions_mut().get_mut::<Fields>().unwrap());
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let within = context.event_span(event).map(|span| span.name());
        let (level, target) = (*event.metadata().level(), event.metadata().target());
        Log::add(Seen { what: "event", level, target, within, fields });
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).unwrap();
        let fields = span.extensions().get::<Fields>().cloned().unwrap();
        let (level, target) = (*span.metadata().level(), span.metadata().target());
        let within = span.parent().map(|parent| parent.name());
        Log::add(Seen { what: span.name(), level, target, within, fields });
    }
}

impl Log {
    /// A log of what happens on this thread from now on.
    fn start() -> Self {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| tracing_subscriber::registry().with(ToThreads).init());
        // Another test's thread may have met an event while the layer was being installed.
        tracing::callsite::rebuild_interest_cache();
        let log = Self::default();
        LOG.set(Some(log.clone()));
        log
    }

    fn add(seen: Seen) {
        LOG.with_borrow(|log| {
            if let Some(log) = log {
                log.0.lock().unwrap().push(seen);
            }
        });
    }

    fn all(&self, what: &str) -> Vec<Seen> {
        let seen = self.0.lock().unwrap();
        seen.iter().filter(|seen| seen.what == what && seen.target.starts_with("lock")).cloned().collect()
    }

    fn the_only(&self, what: &str) -> Seen {
        let mut all = self.all(what);
        assert_eq!(all.len(), 1, "{all:#?}");
        all.remove(0)
    }

    fn warnings(&self) -> Vec<Seen> {
        self.all("event").into_iter().filter(|event| event.level <= Level::WARN).collect()
    }

    /// The messages of the events of that level.
    fn messages(&self, level: Level) -> Vec<String> {
        let of_that_level = self.all("event").into_iter().filter(|event| event.level == level);
        of_that_level.map(|event| event.fields.get("message").to_owned()).collect()
    }
}

const SAME_FIELDS: [&str; 4] = ["backend", "lock", "mode", "token"];

#[tokio::test(start_paused = true)]
async fn a_lock_has_a_span_from_the_request_to_the_grant_and_one_for_the_hold() {
    let log = Log::start();
    let world = World::new();
    let holder = world.locks.mutex("orders").lock().await.unwrap();
    let (guard, ()) =
        tokio::join!(async { world.other().mutex("orders").payload(*b"a-secret").lock().await.unwrap() }, async {
            Clock::runtime().sleep(Duration::from_secs(7)).await;
            holder.release().await.unwrap();
        });
    let token = guard.token().to_string();
    guard.release().await.unwrap();
    let (acquired, held) = (log.all("lock.acquire").pop().unwrap(), log.all("lock.hold").pop().unwrap());
    for span in [&acquired, &held] {
        assert_eq!(SAME_FIELDS.map(|field| span.fields.get(field)), ["memory", "orders", "exclusive", &token]);
        assert!(!format!("{span:?}").contains("secret"));
    }
    assert_eq!(acquired.fields.names(), ["backend", "lock", "mode", "outcome", "token", "waited"]);
    assert_eq!(["outcome", "waited"].map(|field| acquired.fields.get(field)), ["granted", "7s"]);
    assert_eq!(held.fields.names(), ["backend", "lock", "mode", "outcome", "token"]);
    assert_eq!(held.fields.get("outcome"), "released");
    assert_eq!(log.messages(Level::DEBUG), ["granted", "released", "granted", "released"]);
    let within: Vec<_> = log.all("event").into_iter().map(|event| event.within.unwrap()).collect();
    assert_eq!(within, ["lock.acquire", "lock.hold", "lock.acquire", "lock.hold"]);
    assert!(log.warnings().is_empty());
}

#[tokio::test(start_paused = true)]
async fn readers_and_permits_have_the_same_fields_and_a_permit_how_many_there_are() {
    let log = Log::start();
    let world = World::new();
    world.locks.rwlock("a").read().await.unwrap().release().await.unwrap();
    world.locks.semaphore("a", 3).acquire().await.unwrap().release().await.unwrap();
    for span in ["lock.acquire", "lock.hold"] {
        let [reader, permit] = log.all(span).try_into().unwrap();
        assert_eq!(reader.fields.get("mode"), "read");
        assert!(!reader.fields.get("token").is_empty());
        assert_eq!(["mode", "permits", "token"].map(|field| permit.fields.get(field)), ["permit", "3", ""]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_that_fails_says_how() {
    let world = World::new();
    let _holder = world.locks.mutex("a").lock().await.unwrap();
    let _permit = world.locks.semaphore("a", 2).acquire().await.unwrap();
    let log = Log::start();
    assert!(world.locks.mutex("a").try_lock().await.unwrap().is_none());
    let late = world.locks.mutex("a").timeout(Duration::from_secs(3)).lock().await;
    assert!(matches!(late, Err(Error::NotAcquired { .. })));
    assert!(world.locks.semaphore("a", 5).acquire().await.is_err());
    assert!(Clock::runtime().timeout(Duration::from_secs(2), world.locks.mutex("a").lock()).await.is_none());
    world.until_waiters("a", 0).await;
    world.memory.set_connected(false);
    assert!(world.locks.mutex("b").lock().await.is_err());
    world.locks.close(LONG).await.unwrap();
    assert!(world.locks.mutex("b").lock().await.is_err());
    let ended = |span: Seen| ["outcome", "waited"].map(|field| span.fields.get(field).to_owned());
    let ended: Vec<_> = log.all("lock.acquire").into_iter().map(ended).collect();
    let expected = [
        ["not_acquired", "0ns"],
        ["not_acquired", "3s"],
        ["refused", "0ns"],
        ["cancelled", "2s"],
        ["unavailable", "30s"],
        ["closed", "0ns"],
    ];
    assert_eq!(ended, expected.map(|ended| ended.map(str::to_owned)));
    assert_eq!(log.messages(Level::DEBUG)[..3], ["not acquired", "not acquired", "not acquired"]);
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_warned_of_once_with_its_reason() {
    let log = Log::start();
    let world = World::new();
    let guard = world.locks.mutex("a").lock().await.unwrap();
    let token = guard.token().to_string();
    world.delete("a");
    assert_eq!(guard.lost().await, Loss::Revoked);
    assert!(guard.validity().loss().is_some());
    guard.release().await.unwrap_err();
    let [warning] = log.warnings().try_into().unwrap();
    assert_eq!(warning.level, Level::WARN);
    assert_eq!(SAME_FIELDS.map(|field| warning.fields.get(field)), ["memory", "a", "exclusive", &token]);
    assert_eq!(warning.fields.get("reason"), "revoked");
    assert_eq!((warning.within, warning.target), (Some("lock.hold"), "lock_core::observe"));
    assert_eq!(log.the_only("lock.hold").fields.get("outcome"), "revoked");
}

#[tokio::test(start_paused = true)]
async fn a_loss_that_only_the_release_finds_is_warned_of_too() {
    let log = Log::start();
    let world = World::new();
    let guard = world.locks.mutex("a").lock().await.unwrap();
    world.delete("a");
    guard.release().await.unwrap_err();
    let [warning] = log.warnings().try_into().unwrap();
    assert_eq!(warning.fields.get("reason"), "revoked");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_maximum_time_is_a_loss_and_what_the_program_ends_is_none() {
    let log = Log::start();
    let world = World::new();
    drop(world.locks.mutex("dropped").lock().await.unwrap());
    let closed = world.locks.mutex("closed").lock().await.unwrap();
    let limited = world.locks.mutex("limited").max_hold(TTL / 4).lock().await.unwrap();
    limited.lost().await;
    world.until_free("limited").await;
    world.locks.close(LONG).await.unwrap();
    drop((closed, limited));
    let [warning] = log.warnings().try_into().unwrap();
    assert_eq!(["lock", "reason"].map(|field| warning.fields.get(field)), ["limited", "max_hold_exceeded"]);
    let outcomes: Vec<_> = log.all("lock.hold").iter().map(|hold| hold.fields.get("outcome").to_owned()).collect();
    assert_eq!(outcomes, ["released", "max_hold_exceeded", "closed"]);
}

#[tokio::test(start_paused = true)]
async fn the_first_missed_renewal_is_warned_of_and_again_only_after_one_that_was_acknowledged() {
    let log = Log::start();
    let world = World::new();
    let guard = world.locks.mutex("a").lock().await.unwrap();
    let sleep = |time| Clock::runtime().sleep(time);
    let missed = || log.messages(Level::WARN).iter().filter(|message| *message == "a renewal was missed").count();
    sleep(TTL / 2).await;
    assert_eq!(missed(), 0);
    for outages in 1..=2 {
        world.memory.set_connected(false);
        sleep(TTL / 2).await;
        assert!(guard.is_valid());
        assert_eq!(missed(), outages, "several renewals were missed, and one warning is enough");
        world.memory.set_connected(true);
        sleep(TTL).await;
    }
    world.memory.set_connected(false);
    assert_eq!(guard.lost().await, Loss::Unreachable);
    let [.., last] = &log.warnings()[..] else { panic!("no warning") };
    assert_eq!((missed(), last.fields.get("reason")), (3, "unreachable"));
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_goes_on_in_the_same_hold() {
    let log = Log::start();
    let world = World::new();
    let reader = world.locks.rwlock("a").write().await.unwrap().downgrade().await.unwrap();
    reader.release().await.unwrap();
    assert_eq!(log.messages(Level::DEBUG), ["granted", "downgraded", "released"]);
    assert_eq!(log.the_only("lock.hold").fields.get("outcome"), "released");
}

#[tokio::test(start_paused = true)]
async fn both_spans_belong_to_the_span_of_the_program() {
    let log = Log::start();
    let world = World::new();
    let lock = async { world.locks.mutex("a").lock().await.unwrap() };
    let guard = tracing::Instrument::instrument(lock, tracing::info_span!("request")).await;
    guard.release().await.unwrap();
    assert_eq!(log.the_only("lock.acquire").within, Some("request"));
    assert_eq!(log.the_only("lock.hold").within, Some("request"));
}
