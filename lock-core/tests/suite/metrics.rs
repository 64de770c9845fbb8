//! Every metric, on the memory backend in virtual time, and the page that lists them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::{self, Arc},
    time::Duration,
};

use lock_core::{Clock, Locks, Loss, Mutex, RenewalOutcome};
use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit, set_default_local_recorder,
    with_local_recorder,
};
use metrics_util::{
    MetricKind,
    debugging::{DebugValue, DebuggingRecorder, Snapshotter},
};

use crate::world::{LONG, TTL, World};

/// The values of all metrics since the recorder was installed, by name and labels: `name{label=value,..}`.
struct Values {
    snapshotter: Snapshotter,
    /// The sums of what was counted, and what was recorded in histograms: the recorder forgets all of it with each look.
    seen: sync::Mutex<BTreeMap<String, (f64, Vec<f64>)>>,
}

impl Values {
    fn new(recorder: &DebuggingRecorder) -> Self {
        Self { snapshotter: recorder.snapshotter(), seen: sync::Mutex::default() }
    }

    fn look(&self) -> BTreeMap<String, (f64, Vec<f64>)> {
        let mut seen = self.seen.lock().unwrap();
        for (key, _, _, value) in self.snapshotter.snapshot().into_vec() {
            let key = key.key();
            let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            let (sum, recorded) = seen.entry(format!("{}{{{}}}", key.name(), labels.join(","))).or_default();
            match value {
                DebugValue::Counter(count) => *sum += f64::from(u32::try_from(count).unwrap()),
                DebugValue::Gauge(moved) => *sum += moved.0,
                DebugValue::Histogram(values) => recorded.extend(values.into_iter().map(|value| value.0)),
            }
        }
        seen.clone()
    }

    /// The value of a counter or a gauge.
    fn of(&self, metric: &str) -> f64 {
        self.look().get(metric).map(|(sum, _)| *sum).unwrap_or_default()
    }

    /// Everything that was recorded in a histogram.
    fn all_of(&self, metric: &str) -> Vec<f64> {
        self.look().get(metric).map(|(_, recorded)| recorded.clone()).unwrap_or_default()
    }
}

fn sleep(seconds: u64) -> impl Future<Output = ()> {
    Clock::runtime().sleep(Duration::from_secs(seconds))
}

#[tokio::test(start_paused = true)]
async fn acquisitions_are_counted_by_their_outcome_and_timed_when_they_are_granted() {
    let recorder = DebuggingRecorder::new();
    let (values, _recording) = (Values::new(&recorder), set_default_local_recorder(&recorder));
    let world = World::new();
    let ended =
        |outcome| values.of(&format!("lock_acquisitions_total{{backend=memory,mode=exclusive,outcome={outcome}}}"));
    let holder = world.locks.mutex("a").lock().await.unwrap();
    assert!(world.locks.mutex("a").try_lock().await.unwrap().is_none());
    assert!(world.locks.mutex("a").timeout(Duration::from_secs(1)).lock().await.is_err());
    let lock = world.locks.mutex("a");
    let mut waiting = Box::pin(lock.lock());
    assert!(futures_util::poll!(&mut waiting).is_pending());
    assert_eq!(values.of("lock_waiting{backend=memory,mode=exclusive}"), 1.0);
    drop(waiting);
    assert_eq!(values.of("lock_waiting{backend=memory,mode=exclusive}"), 0.0);
    world.until_waiters("a", 0).await;
    let (next, ()) = tokio::join!(async { lock.lock().await.unwrap() }, async {
        sleep(5).await;
        drop(holder);
    });
    assert_eq!(["granted", "not_acquired", "cancelled"].map(ended), [2.0, 2.0, 1.0]);
    assert_eq!(values.all_of("lock_wait_seconds{backend=memory,mode=exclusive}"), [0.0, 5.0]);
    world.memory.set_connected(false);
    assert!(world.locks.mutex("b").lock().await.is_err());
    world.memory.set_connected(true);
    assert_eq!(values.of("lock_unanswered{backend=memory}"), 0.0);
    assert!(world.locks.mutex("b").ttl(Duration::from_nanos(1)).lock().await.is_err());
    drop(next);
    world.locks.close(LONG).await.unwrap();
    assert!(world.locks.mutex("a").lock().await.is_err());
    assert_eq!(["unavailable", "refused", "closed"].map(ended), [1.0, 1.0, 1.0]);
    assert_eq!(values.of("lock_waiting{backend=memory,mode=exclusive}"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn acquisitions_that_wait_for_the_service_are_shown_until_it_answers_or_they_have_gone() {
    let recorder = DebuggingRecorder::new();
    let (values, _recording) = (Values::new(&recorder), set_default_local_recorder(&recorder));
    let world = World::new();
    let unanswered = || values.look().get("lock_unanswered{backend=memory}").map(|(sum, _)| *sum);
    assert_eq!(unanswered(), Some(0.0), "it is there from the start");
    world.memory.set_connected(false);
    let acquire = |mutex: Mutex| tokio::spawn(async move { mutex.lock().await.map(drop) });
    let unlimited = acquire(world.locks.mutex("a"));
    let limited = acquire(world.locks.mutex("a").timeout(LONG));
    let abandoned = acquire(world.locks.mutex("a"));
    sleep(1).await;
    assert_eq!(unanswered(), Some(2.0), "the one with a limit is not among them");
    abandoned.abort();
    assert!(abandoned.await.unwrap_err().is_cancelled());
    assert_eq!(unanswered(), Some(1.0));
    world.memory.set_connected(true);
    unlimited.await.unwrap().unwrap();
    limited.await.unwrap().unwrap();
    assert_eq!(unanswered(), Some(0.0));
}

#[tokio::test(start_paused = true)]
async fn holds_are_counted_while_they_last_and_timed_when_they_end() {
    let recorder = DebuggingRecorder::new();
    let (values, _recording) = (Values::new(&recorder), set_default_local_recorder(&recorder));
    let world = World::new();
    let held =
        || ["exclusive", "read", "permit"].map(|mode| values.of(&format!("lock_held{{backend=memory,mode={mode}}}")));
    let writer = world.locks.rwlock("a").write().await.unwrap();
    let permit = world.locks.semaphore("a", 2).acquire().await.unwrap();
    let closed = world.locks.semaphore("a", 2).acquire().await.unwrap();
    assert_eq!(held(), [1.0, 0.0, 2.0]);
    sleep(3).await;
    let reader = writer.downgrade().await.unwrap();
    drop(permit);
    assert_eq!(held(), [0.0, 1.0, 1.0]);
    sleep(4).await;
    reader.release().await.unwrap();
    world.locks.close(LONG).await.unwrap();
    assert_eq!(held(), [0.0, 0.0, 0.0]);
    drop(closed);
    let times = |mode: &str| values.all_of(&format!("lock_hold_seconds{{backend=memory,mode={mode}}}"));
    assert_eq!((times("exclusive"), times("read"), times("permit")), (vec![3.0], vec![4.0], vec![3.0, 7.0]));
    let losses: Vec<_> = values.look().into_iter().filter(|(key, _)| key.starts_with("lock_losses_total")).collect();
    assert_eq!(losses.len(), 6, "each reason is there from the start");
    assert!(losses.iter().all(|(_, (count, _))| *count == 0.0), "nothing was lost: {losses:?}");
}

#[tokio::test(start_paused = true)]
async fn losses_are_counted_by_their_reason_once_for_each_guard() {
    let recorder = DebuggingRecorder::new();
    let (values, _recording) = (Values::new(&recorder), set_default_local_recorder(&recorder));
    let world = World::new();
    let lost = |reason| values.of(&format!("lock_losses_total{{backend=memory,reason={reason}}}"));
    let limited = world.locks.mutex("limited").max_hold(TTL / 4).lock().await.unwrap();
    limited.lost().await;
    drop(limited);
    let deleted = world.locks.mutex("deleted").lock().await.unwrap();
    let released = world.locks.mutex("released").lock().await.unwrap();
    world.delete("deleted");
    world.delete("released");
    assert!(released.release().await.is_err());
    assert_eq!(deleted.lost().await, Loss::Revoked);
    assert!(!deleted.is_valid());
    assert!(deleted.release().await.is_err());
    let cut_off = world.locks.mutex("cut off").lock().await.unwrap();
    world.memory.set_connected(false);
    assert_eq!(cut_off.lost().await, Loss::Unreachable);
    drop(cut_off);
    assert_eq!(["max_hold_exceeded", "revoked", "unreachable"].map(lost), [1.0, 2.0, 1.0]);
    assert_eq!(values.of("lock_held{backend=memory,mode=exclusive}"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn renewals_are_counted_and_what_was_left_when_they_came() {
    let recorder = DebuggingRecorder::new();
    let (values, _recording) = (Values::new(&recorder), set_default_local_recorder(&recorder));
    let world = World::new();
    let ended = |outcome| values.of(&format!("lock_renewals_total{{backend=memory,outcome={outcome}}}"));
    let guard = world.locks.mutex("a").lock().await.unwrap();
    Clock::runtime().sleep(TTL / 3 + Duration::from_millis(1)).await;
    assert_eq!(["acknowledged", "missed", "denied"].map(ended), [1.0, 0.0, 0.0]);
    // Two thirds of the ttl, less the safety margin of a hundredth and 2 ms.
    let left = values.all_of("lock_validity_left_seconds{backend=memory}");
    assert!(left.len() == 1 && (left[0] - 19.698).abs() < 0.002, "{left:?}");
    assert_eq!(values.all_of("lock_renewal_seconds{backend=memory}"), [0.0], "virtual time stands still meanwhile");
    world.memory.set_connected(false);
    Clock::runtime().sleep(TTL / 3).await;
    assert_eq!(ended("missed"), 1.0);
    world.memory.set_connected(true);
    world.delete("a");
    guard.lost().await;
    assert_eq!((ended("acknowledged"), ended("denied")), (1.0, 1.0));
}

#[tokio::test(start_paused = true)]
async fn a_maximum_time_that_ends_before_the_ttl_makes_no_renewal_a_missed_one() {
    let recorder = DebuggingRecorder::new();
    let (values, _recording) = (Values::new(&recorder), set_default_local_recorder(&recorder));
    let world = World::new();
    let guard = world.locks.mutex("a").max_hold(TTL / 2).lock().await.unwrap();
    guard.lost().await;
    assert!(values.of("lock_renewals_total{backend=memory,outcome=acknowledged}") >= 1.0);
    assert_eq!(values.of("lock_renewals_total{backend=memory,outcome=missed}"), 0.0);
}

/// What a metric is: its kind, its unit and its labels.
type Described = BTreeMap<String, (&'static str, &'static str, String)>;

/// A recorder that notes what is described, and what for.
#[derive(Debug, Clone, Default)]
struct Descriptions(Arc<sync::Mutex<Described>>);

impl Descriptions {
    fn add(&self, kind: &'static str, name: &KeyName, unit: Option<Unit>, help: &SharedString) {
        let unit = unit.expect("each metric has a unit").as_str();
        self.0.lock().unwrap().insert(name.as_str().to_owned(), (kind, unit, help.to_string()));
    }
}

impl Recorder for Descriptions {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.add("counter", &name, unit, &help);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.add("gauge", &name, unit, &help);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.add("histogram", &name, unit, &help);
    }

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// Has every metric that there is recorded in a world of its own.
async fn record_every_metric() {
    let world = World::new();
    let guard = world.locks.mutex("a").lock().await.unwrap();
    Clock::runtime().sleep(TTL).await;
    world.delete("a");
    guard.lost().await;
    drop(guard);
    let context = lock_core::Backend::context(world.memory.as_ref());
    context.count_renewal(RenewalOutcome::Missed, Duration::from_secs(1));
    context.show_quorum(|| (2, 1));
}

/// The kind and the labels of each metric that was recorded.
fn recorded(snapshotter: &Snapshotter) -> BTreeMap<String, (&'static str, BTreeSet<String>)> {
    let kind = |kind| match kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    };
    let seen = snapshotter.snapshot().into_vec().into_iter().map(|(key, ..)| {
        let labels = key.key().labels().map(|label| label.key().to_owned()).collect();
        (key.key().name().to_owned(), (kind(key.kind()), labels))
    });
    seen.collect()
}

/// The rows of the page's table of metrics, without the backticks.
fn table_of_the_page() -> Vec<[String; 5]> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/observability.md");
    let page = fs::read_to_string(page).expect("the page");
    let rows = page.lines().filter(|line| line.starts_with("| `lock_"));
    let cells =
        |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect::<Vec<_>>();
    rows.map(|row| cells(row).try_into().expect("name, type, unit, labels, meaning")).collect()
}

#[tokio::test(start_paused = true)]
async fn the_page_lists_every_metric_as_it_is_described_and_recorded() {
    let descriptions = Descriptions::default();
    with_local_recorder(&descriptions, || drop(World::new()));
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let recording = set_default_local_recorder(&recorder);
    record_every_metric().await;
    drop(recording);
    let recorded = recorded(&snapshotter);
    let described = descriptions.0.lock().unwrap().clone();
    let expected: Vec<_> = described
        .into_iter()
        .map(|(name, (kind, unit, help))| {
            let (recorded_as, labels) = recorded.get(&name).expect("each metric that is described is recorded");
            assert_eq!(*recorded_as, kind, "{name}");
            let labels: Vec<_> = labels.iter().cloned().collect();
            [name, kind.to_owned(), unit.to_owned(), labels.join(", "), help]
        })
        .collect();
    assert_eq!(recorded.len(), expected.len(), "each metric that is recorded is described");
    let mut page = table_of_the_page();
    page.sort();
    let row = |[name, kind, unit, labels, help]: &[String; 5]| {
        format!("| `{name}` | {kind} | {unit} | `{}` | {help} |", labels.replace(", ", "`, `"))
    };
    let rows: Vec<_> = expected.iter().map(row).collect();
    assert_eq!(page, expected, "the table should be:\n{}", rows.join("\n"));
}

#[tokio::test]
async fn without_a_recorder_nothing_is_amiss() {
    let world = World::new();
    let locks: &Locks = &world.locks;
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
}
