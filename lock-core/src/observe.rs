//! What a program's operators see of its locks: spans and events of `tracing`, and metrics with the feature `metrics`.
//!
//! The rest of `lock-core` calls plain functions of this module, on every backend in the same places. Without a subscriber
//! a span is not made, no clock is read for it and no event is formatted; without the feature, the metrics are empty
//! functions.

#[cfg_attr(not(feature = "metrics"), path = "observe/no_metrics.rs")]
mod metrics;

use std::{
    fmt,
    num::NonZeroU32,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

use tracing::{Span, field, field::Empty, level_filters::LevelFilter};

use crate::{BootInstant, Clock, Error, FencingToken, LockName, Loss, Mode};

/// The name of a connection's backend, under which everything on the connection is observed. Clones belong to the same
/// connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observer(Arc<OnceLock<&'static str>>);

impl Observer {
    /// Sets the name, and tells the program's recorder of the metrics.
    pub(crate) fn connected(&self, backend: &'static str) {
        // Two `Locks` of one backend say the same name.
        let _ = self.0.set(backend);
        metrics::connected(backend);
    }

    fn backend(&self) -> &'static str {
        self.0.get().copied().unwrap_or("unknown")
    }

    /// A request is about to be made, which waits for its turn or does not.
    pub(crate) fn acquisition<'a>(
        &self,
        clock: Clock,
        name: &'a LockName,
        mode: Mode,
        is_waiting: bool,
    ) -> Acquisition<'a> {
        let backend = self.backend();
        let span = tracing::info_span!(
            "lock.acquire",
            lock = %name,
            mode = label(mode),
            backend,
            permits = mode.permits().map(NonZeroU32::get),
            token = Empty,
            outcome = Empty,
            waited = Empty,
        );
        if is_waiting {
            metrics::waiting(backend, label(mode), 1.0);
        }
        let begun = is_timed(&span).then(|| clock.now());
        Acquisition { name, mode, backend, clock, begun, span, is_waiting, is_over: false }
    }

    /// An acquisition without a limit waits for the service to answer, until the returned value is dropped.
    pub(crate) fn unanswered(&self) -> Unanswered {
        let backend = self.backend();
        metrics::unanswered(backend, 1.0);
        Unanswered(backend)
    }

    /// A batch of renewals took `took`, from its sending until the answers were there or given up.
    pub(crate) fn renewed(&self, took: Duration) {
        metrics::renewal_time(self.backend(), took);
    }

    /// A renewal has ended `now`, by which the deadline went from `before` to `after`.
    pub(crate) fn renewal(&self, before: BootInstant, after: Result<BootInstant, Loss>, now: BootInstant) {
        let outcome = match after {
            Ok(after) if after > before => RenewalOutcome::Acknowledged { left: before.saturating_since(now) },
            Ok(_) | Err(Loss::Expired | Loss::Unreachable | Loss::Denied) => RenewalOutcome::Missed,
            Err(Loss::Revoked | Loss::SessionEnded) => RenewalOutcome::Denied,
            // The program ended the hold while the renewal was under way.
            Err(Loss::Closed | Loss::Released | Loss::MaxHoldExceeded) => return,
        };
        self.renewal_outcome(outcome);
    }

    pub(crate) fn renewal_outcome(&self, outcome: RenewalOutcome) {
        metrics::renewal(self.backend(), outcome);
    }

    /// How many nodes of a quorum answer, and how many are silent. Nobody counts them without the feature `metrics`.
    pub(crate) fn quorum(&self, count: impl FnOnce() -> (usize, usize)) {
        metrics::quorum(self.backend(), count);
    }
}

/// An acquisition on this backend that waits for the service to answer.
pub(crate) struct Unanswered(&'static str);

impl Drop for Unanswered {
    fn drop(&mut self) {
        metrics::unanswered(self.0, -1.0);
    }
}

/// How a renewal ended that a backend made without a [`Renewer`](crate::Renewer).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RenewalOutcome {
    /// The server acknowledged the renewal.
    Acknowledged {
        /// How much was left of the validity from before the renewal when the answer came.
        left: Duration,
    },
    /// No answer came in time.
    Missed,
    /// The server answered that the lease or the session has ended.
    Denied,
}

/// One acquisition, from the request until its caller has the guard, has an error or has gone away.
pub(crate) struct Acquisition<'a> {
    name: &'a LockName,
    mode: Mode,
    backend: &'static str,
    clock: Clock,
    /// `None` when nobody wants to know how long it takes.
    begun: Option<BootInstant>,
    span: Span,
    is_waiting: bool,
    is_over: bool,
}

impl Acquisition<'_> {
    /// The span `lock.acquire`, for the future that acquires.
    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    /// The acquisition has brought a guard with this fencing token: its hold from now on, where somebody observes holds.
    #[must_use = "a hold that is never told of its end is counted for ever"]
    pub(crate) fn granted(mut self, token: FencingToken) -> Option<Hold> {
        // A permit has none.
        let token = self.mode.permits().is_none().then_some(token);
        if let Some(token) = token {
            self.span.record("token", field::display(token));
        }
        self.over("granted");
        let is_observed = cfg!(feature = "metrics") || LevelFilter::current() != LevelFilter::OFF;
        is_observed.then(|| Hold::begin(&self, token))
    }

    /// The acquisition has failed.
    pub(crate) fn failed(mut self, error: &Error) {
        self.over(match error {
            Error::NotAcquired { .. } => "not_acquired",
            Error::Unavailable { .. } => "unavailable",
            Error::Lost { .. } => "lost",
            Error::Refused { .. }
            | Error::Unsupported { .. }
            | Error::InvalidName { .. }
            | Error::Config { .. }
            | Error::NoOwner => "refused",
            Error::Closed => "closed",
            Error::Cancelled => "cancelled",
        });
    }

    fn over(&mut self, outcome: &'static str) {
        self.is_over = true;
        let (backend, mode) = (self.backend, label(self.mode));
        if self.is_waiting {
            metrics::waiting(backend, mode, -1.0);
        }
        metrics::acquisition(backend, mode, outcome);
        let Some(begun) = self.begun else { return };
        let waited = self.clock.now().saturating_since(begun);
        let lock = self.name;
        if outcome == "granted" {
            metrics::wait(backend, mode, waited);
            tracing::debug!(parent: &self.span, %lock, mode, backend, ?waited, "granted");
        } else {
            tracing::debug!(parent: &self.span, %lock, mode, backend, outcome, ?waited, "not acquired");
        }
        self.span.record("outcome", outcome);
        self.span.record("waited", field::debug(waited));
    }
}

impl Drop for Acquisition<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.over("cancelled");
        }
    }
}

/// One hold, from the grant until its validity has ended. It lies in the cell of the validity, which ends once, whoever
/// ends it; so no task watches it. Where nobody observes, there is none.
pub(crate) struct Hold {
    name: LockName,
    token: Option<FencingToken>,
    backend: &'static str,
    mode: Mode,
    clock: Clock,
    /// Since when it is held in its present mode, in nanoseconds.
    since: AtomicU64,
    /// `DOWNGRADED` and `OVER`, each set once.
    stages: AtomicU8,
    /// The span `lock.hold`, until the hold ends. `None` when nobody records it, so that nothing is locked then.
    span: Option<Mutex<Span>>,
}

/// The writer went on as a reader.
const DOWNGRADED: u8 = 1;
/// The hold has ended.
const OVER: u8 = 2;

impl Hold {
    fn begin(acquisition: &Acquisition<'_>, token: Option<FencingToken>) -> Self {
        let Acquisition { name, mode, backend, clock, .. } = acquisition;
        let span = tracing::info_span!(
            "lock.hold",
            lock = %name,
            mode = label(*mode),
            backend,
            permits = mode.permits().map(NonZeroU32::get),
            token = token.map(field::display),
            outcome = Empty,
        );
        span.follows_from(&acquisition.span);
        metrics::held(backend, label(*mode), 1.0);
        let since = if is_timed(&span) { clock.now().as_nanos() } else { 0 };
        Self {
            name: (*name).clone(),
            token,
            backend,
            mode: *mode,
            clock: *clock,
            since: AtomicU64::new(since),
            stages: AtomicU8::new(0),
            span: (!span.is_disabled()).then(|| Mutex::new(span)),
        }
    }

    fn mode(&self) -> &'static str {
        if self.stages.load(Ordering::Acquire) & DOWNGRADED == 0 { label(self.mode) } else { label(Mode::Read) }
    }

    /// The span, for what happens within it.
    fn span(&self) -> Span {
        self.span.as_ref().map_or(Span::none(), |span| span.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Takes the span out, which then closes.
    fn take_span(&self) -> Span {
        let take = |span: &Mutex<Span>| {
            std::mem::replace(&mut *span.lock().unwrap_or_else(PoisonError::into_inner), Span::none())
        };
        self.span.as_ref().map_or(Span::none(), take)
    }

    /// The validity has ended because of `loss`. Only the first call counts.
    pub(crate) fn ended(&self, loss: Loss) {
        if self.stages.fetch_or(OVER, Ordering::AcqRel) & OVER != 0 {
            return;
        }
        self.end_mode(self.mode());
        let span = self.take_span();
        match loss {
            Loss::Released | Loss::Closed => {
                let (lock, mode, backend) = (&self.name, self.mode(), self.backend);
                tracing::debug!(parent: &span, %lock, mode, backend, "{}", reason(loss));
            }
            _ => self.lost(&span, loss),
        }
        span.record("outcome", reason(loss));
    }

    /// The release of a hold that nobody knew to be lost has found that the server did not have the lease any more.
    pub(crate) fn found_gone(&self) {
        self.lost(&Span::none(), Loss::Revoked);
    }

    fn lost(&self, span: &Span, loss: Loss) {
        metrics::loss(self.backend, reason(loss));
        let (lock, mode, backend, token) = (&self.name, self.mode(), self.backend, self.token.map(field::display));
        tracing::warn!(parent: span, %lock, mode, backend, token, reason = reason(loss), "lost: {loss}");
    }

    /// A renewal was missed; the validity has `remaining` left unless a later renewal is acknowledged.
    pub(crate) fn renewal_missed(&self, remaining: impl FnOnce() -> Duration) {
        let (lock, mode, backend, token) = (&self.name, self.mode(), self.backend, self.token.map(field::display));
        tracing::warn!(parent: &self.span(), %lock, mode, backend, token, remaining = ?remaining(), "a renewal was missed");
    }

    /// A writer goes on as a reader.
    pub(crate) fn downgraded(&self) {
        // A hold that ends in the same moment ends in one of its modes, not in both.
        if self.stages.compare_exchange(0, DOWNGRADED, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        self.end_mode(label(self.mode));
        let (lock, mode, backend) = (&self.name, self.mode(), self.backend);
        metrics::held(backend, mode, 1.0);
        tracing::debug!(parent: &self.span(), %lock, mode, backend, "downgraded");
    }

    /// Counts the time in `mode`, which ends now.
    fn end_mode(&self, mode: &'static str) {
        let backend = self.backend;
        metrics::held(backend, mode, -1.0);
        metrics::hold_time(backend, mode, || {
            let now = self.clock.now();
            now.saturating_since(BootInstant::from_nanos(self.since.swap(now.as_nanos(), Ordering::AcqRel)))
        });
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("name", &self.name).field("mode", &self.mode()).finish_non_exhaustive()
    }
}

/// Whether somebody wants to know how long something takes that `span` stands for.
fn is_timed(span: &Span) -> bool {
    cfg!(feature = "metrics") || !span.is_disabled()
}

/// A mode as the value of a label or a field: the number of permits is a field of its own.
const fn label(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Read => "read",
        Mode::Permit { .. } => "permit",
    }
}

/// The end of a hold as the value of a label or a field.
const fn reason(loss: Loss) -> &'static str {
    match loss {
        Loss::Expired => "expired",
        Loss::Unreachable => "unreachable",
        Loss::Denied => "denied",
        Loss::Revoked => "revoked",
        Loss::SessionEnded => "session_ended",
        Loss::Closed => "closed",
        Loss::Released => "released",
        Loss::MaxHoldExceeded => "max_hold_exceeded",
    }
}
