//! What is left to chance, all of it drawn from one seed.

use std::time::Duration;

use fastrand::Rng;

/// How a lock is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Lock,
    Read,
    Write,
    Permit,
}

/// When an attempt is dropped.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cancel {
    /// Right after so many polls.
    AfterPolls(usize),
    /// When there is news for it after so many polls, which it does not see any more.
    AtNews(usize),
    /// After this time, whatever it is doing.
    After(Duration),
    Never,
}

/// What is done with a grant.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ending {
    Release,
    Drop,
    /// The release itself is dropped after so many polls.
    DropRelease(usize),
}

/// One attempt.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    /// Which lock of its batch: one of the first few is wanted by many.
    pub(crate) name: usize,
    pub(crate) way: Way,
    pub(crate) waits: bool,
    pub(crate) starts: Duration,
    pub(crate) cancel: Cancel,
    pub(crate) held: Duration,
    pub(crate) ending: Ending,
    /// Over the connection that may be cut, where there is one.
    pub(crate) severable: bool,
}

/// What happens to the severable connection of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// Cut after this time; whole again when the batch is over, unless it stays cut.
    Cut(Duration),
    /// Broken after this time, and at once reachable again.
    CutOnce(Duration),
    /// Broken instead of passing on the reply that comes after so many others.
    CutAtReply(u64),
    /// Nothing passes from the first time on, for the second one.
    Hold(Duration, Duration),
    /// Nothing that the servers answer passes.
    HoldReplies(Duration, Duration),
}

/// How many locks of a batch are wanted by many.
const SHARED: usize = 2;
/// A batch begins and ends within some such times.
const BATCH: Duration = Duration::from_millis(12);

/// A time between nothing and `limit`, to the microsecond.
fn up_to(rng: &mut Rng, limit: Duration) -> Duration {
    limit.mul_f64(rng.f64())
}

/// A moment to drop an attempt at: most of them within the first round trips, some much later.
fn moment(rng: &mut Rng) -> Duration {
    let limit = match rng.u8(..10) {
        0..=4 => Duration::from_millis(1),
        5..=7 => Duration::from_millis(4),
        _ => Duration::from_millis(25),
    };
    up_to(rng, limit)
}

impl Choice {
    pub(crate) fn draw(rng: &mut Rng, index: usize, ways: &[Way]) -> Self {
        Self {
            name: if rng.u8(..3) > 0 { rng.usize(..SHARED) } else { SHARED + index },
            way: if rng.bool() { ways[0] } else { ways[rng.usize(..ways.len())] },
            waits: rng.u8(..4) > 0,
            starts: up_to(rng, BATCH),
            cancel: match rng.u8(..20) {
                0..=6 => Cancel::AfterPolls(rng.usize(1..8)),
                7..=10 => Cancel::AtNews(rng.usize(1..8)),
                11..=17 => Cancel::After(moment(rng)),
                _ => Cancel::Never,
            },
            held: up_to(rng, Duration::from_millis(3)),
            ending: match rng.u8(..4) {
                0 => Ending::Release,
                1 => Ending::Drop,
                _ => Ending::DropRelease(rng.usize(..4)),
            },
            severable: rng.u8(..5) > 0,
        }
    }
}

impl Fault {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let at = up_to(rng, BATCH * 2);
        match rng.u8(..6) {
            0 => Self::Cut(at),
            1 | 2 => Self::CutOnce(at),
            3 => Self::CutAtReply(rng.u64(..60)),
            4 => Self::Hold(at, up_to(rng, Duration::from_millis(60))),
            _ => Self::HoldReplies(at, up_to(rng, Duration::from_millis(60))),
        }
    }
}
