//! The waiters of this client, in a line for each lock and each semaphore.
//!
//! Only the first in line talks to the server: a release wakes one waiter of each client, not all of them, and waiters
//! of one client are granted in the order of their arrival.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use lock_core::{BootInstant, LockName};
use tokio::sync::{MutexGuard, Notify};

use crate::{
    kind::{Family, Kind},
    node::{Node, Subscription},
    scripts::Noted,
};

/// What a line is for.
pub(crate) type LineOf = (Family, LockName);

/// The lines of all names that have waiters.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    lines: Mutex<HashMap<LineOf, Arc<Line>>>,
    /// What others waited for when this client released it, and until when it lets them go first.
    courtesies: Mutex<HashMap<LineOf, BootInstant>>,
}

/// More courtesies than this are looked through for those that are over.
const MANY: usize = 64;

/// A line.
#[derive(Debug, Default)]
struct Line {
    /// This lock is fair: whoever has it is the first in line.
    front: tokio::sync::Mutex<Front>,
    /// Those in line who would hold the lock alone, in their order.
    writers: Mutex<VecDeque<Arc<WaitingWriter>>>,
    /// One of them has left.
    writer_left: Notify,
}

/// What the first in line knows, and leaves to the next one.
#[derive(Debug, Default)]
pub(crate) struct Front {
    /// The channel of releases, and the node that has it.
    pub(crate) listening: Option<(Node, Subscription)>,
    /// The lock is held by somebody, as far as anybody knows.
    pub(crate) held: Option<SeenHeld>,
    /// Since when every try has failed.
    pub(crate) failing_since: Option<BootInstant>,
}

/// The lock was held when the messages up to `changes` had come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeenHeld {
    /// [`Subscription::changes`] as it was before the look.
    pub(crate) changes: u64,
    /// When the holder's lease ends unless it is renewed.
    pub(crate) look_again: BootInstant,
    /// Whom it keeps out: those who ask as the one did that was refused; `None` for everybody.
    pub(crate) keeps_out: Option<Kind>,
}

/// One that would hold the lock alone, and for which readers who come later wait.
#[derive(Debug)]
pub(crate) struct WaitingWriter {
    /// What the server knows it by.
    pub(crate) id: String,
    pub(crate) arrived: BootInstant,
    /// When a request was sent, the last time, that has the server note that it waits.
    noted_at: Mutex<Option<BootInstant>>,
    /// That request was answered.
    is_confirmed: AtomicBool,
    /// It does not wait any more, and has taken its note back if it knew of one.
    has_left: AtomicBool,
}

/// A place in a line; leaving it is dropping it.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    lines: &'a Lines,
    of: LineOf,
    line: Arc<Line>,
    /// `None` for one that would not hold the lock alone.
    pub(crate) writer: Option<Arc<WaitingWriter>>,
}

impl Lines {
    /// Joins a line, at its end.
    pub(crate) fn join(&self, of: LineOf, writer: Option<WaitingWriter>) -> Place<'_> {
        let line = self.open(|lines| Arc::clone(lines.entry(of.clone()).or_default()));
        let writer = writer.map(Arc::new);
        if let Some(writer) = &writer {
            line.writers(|writers| writers.push_back(Arc::clone(writer)));
        }
        Place { lines: self, of, line, writer }
    }

    /// Whether anybody stands in that line.
    pub(crate) fn has(&self, of: &LineOf) -> bool {
        self.open(|lines| lines.contains_key(of))
    }

    /// Lets others go first there until then.
    pub(crate) fn let_others_go_first(&self, of: LineOf, now: BootInstant, until: BootInstant) {
        let mut courtesies = self.courtesies.lock().unwrap_or_else(PoisonError::into_inner);
        if courtesies.len() >= MANY {
            courtesies.retain(|_, until| now < *until);
        }
        courtesies.insert(of, until);
    }

    /// Until when others go first there; asked once.
    pub(crate) fn others_go_first(&self, of: &LineOf, now: BootInstant) -> Option<BootInstant> {
        let mut courtesies = self.courtesies.lock().unwrap_or_else(PoisonError::into_inner);
        courtesies.remove(of).filter(|until| now < *until)
    }

    fn open<T>(&self, work: impl FnOnce(&mut HashMap<LineOf, Arc<Line>>) -> T) -> T {
        work(&mut self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Line {
    fn writers<T>(&self, work: impl FnOnce(&mut VecDeque<Arc<WaitingWriter>>) -> T) -> T {
        work(&mut self.writers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl WaitingWriter {
    pub(crate) fn new(id: String, arrived: BootInstant) -> Self {
        Self {
            id,
            arrived,
            noted_at: Mutex::default(),
            is_confirmed: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
        }
    }

    /// When a request was sent, the last time, that has the server note that it waits; `None` when there is no note.
    pub(crate) fn noted_at(&self) -> Option<BootInstant> {
        *self.noted_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the newest of those requests was answered.
    pub(crate) fn confirm(&self) {
        self.is_confirmed.store(true, Ordering::Release);
    }

    /// How sure it is, for a note that is renewed after `every`, that the server has it.
    pub(crate) fn noted(&self, now: BootInstant, every: Duration) -> Noted {
        match self.noted_at() {
            None => Noted::No,
            Some(at) if self.is_confirmed.load(Ordering::Acquire) && now < at.saturating_add(every) => Noted::Surely,
            Some(_) => Noted::Perhaps,
        }
    }

    /// Sets [`WaitingWriter::noted_at`], and gives what it was.
    pub(crate) fn note(&self, at: Option<BootInstant>) -> Option<BootInstant> {
        self.is_confirmed.store(false, Ordering::Release);
        std::mem::replace(&mut *self.noted_at.lock().unwrap_or_else(PoisonError::into_inner), at)
    }

    /// Whether it waits no more. What is noted of it after that is for the one to take back that had it noted.
    pub(crate) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }
}

impl Place<'_> {
    /// Resolves when this place is the first one.
    pub(crate) async fn first(&self) -> MutexGuard<'_, Front> {
        self.line.front.lock().await
    }

    /// The writer that comes after this one in the line.
    pub(crate) fn next_writer(&self) -> Option<Arc<WaitingWriter>> {
        let own = self.writer.as_ref()?;
        self.line.writers(|writers| {
            let at = writers.iter().position(|writer| Arc::ptr_eq(writer, own))?;
            writers.get(at + 1).cloned()
        })
    }

    /// Goes out of the line of writers: nobody has it noted any more that has not done so yet.
    pub(crate) fn leave(&self) {
        let Some(own) = &self.writer else { return };
        // Before it looks for a note of its own: whoever notes it from now on sees this after its request.
        own.has_left.store(true, Ordering::Release);
        self.line.writers(|writers| writers.retain(|writer| !Arc::ptr_eq(writer, own)));
        self.line.writer_left.notify_waiters();
    }

    /// Resolves when no other writer stands before this one in the line.
    pub(crate) async fn first_writer(&self, own: &Arc<WaitingWriter>) {
        loop {
            let mut left = std::pin::pin!(self.line.writer_left.notified());
            // Before the look, so that nobody leaves unnoticed after it.
            left.as_mut().enable();
            if self.line.writers(|writers| writers.front().is_none_or(|first| Arc::ptr_eq(first, own))) {
                return;
            }
            left.await;
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.leave();
        self.lines.open(|lines| {
            // Only the map and this place have it, and joining needs the map.
            if Arc::strong_count(&self.line) == 2 {
                lines.remove(&self.of);
            }
        });
    }
}

impl Front {
    /// Until when the lock is held, as far as one of this kind knows without asking; `None` when it is time to ask.
    pub(crate) fn held_until(&self, kind: Kind, now: BootInstant) -> Option<SeenHeld> {
        let (_, subscription) = self.listening.as_ref().filter(|(_, subscription)| subscription.is_confirmed())?;
        self.held.filter(|held| {
            held.keeps_out.is_none_or(|out| out == kind)
                && subscription.changes() == held.changes
                && now < held.look_again
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock_of(name: &str) -> LineOf {
        (Family::Lock, LockName::new(name).unwrap())
    }

    fn writer(id: &str) -> Option<WaitingWriter> {
        Some(WaitingWriter::new(id.to_owned(), BootInstant::from_nanos(7)))
    }

    #[tokio::test]
    async fn a_line_is_gone_when_the_last_one_leaves_it() {
        let lines = Lines::default();
        let (first, second) = (lines.join(lock_of("a"), None), lines.join(lock_of("a"), writer("b")));
        first.first().await.failing_since = Some(BootInstant::from_nanos(7));
        drop(first);
        assert!(second.first().await.failing_since.is_some(), "what the first one knew is left to the next");
        assert!(lines.has(&lock_of("a")));
        drop(second);
        assert!(!lines.has(&lock_of("a")));
    }

    #[test]
    fn a_note_is_sure_while_it_is_fresh_and_its_request_was_answered() {
        let (writer, every) = (writer("w").unwrap(), Duration::from_secs(3));
        let at = |seconds: u64| BootInstant::from_nanos(seconds * 1_000_000_000);
        assert_eq!(writer.noted(at(5), every), Noted::No);
        writer.confirm();
        assert_eq!(writer.noted(at(5), every), Noted::No);
        writer.note(Some(at(5)));
        assert_eq!(writer.noted(at(6), every), Noted::Perhaps);
        writer.confirm();
        assert_eq!((writer.noted(at(6), every), writer.noted(at(8), every)), (Noted::Surely, Noted::Perhaps));
        writer.note(Some(at(9)));
        assert_eq!(writer.noted(at(9), every), Noted::Perhaps, "the newer request has no answer");
    }

    #[tokio::test]
    async fn a_writer_knows_who_comes_after_it_and_when_nobody_is_before_it() {
        let lines = Lines::default();
        let first = lines.join(lock_of("a"), writer("first"));
        let _reader = lines.join(lock_of("a"), None);
        let second = lines.join(lock_of("a"), writer("second"));
        assert_eq!(first.next_writer().unwrap().id, "second");
        assert!(second.next_writer().is_none());
        let own = second.writer.clone().unwrap();
        let mut turn = std::pin::pin!(second.first_writer(&own));
        assert!(futures::poll!(&mut turn).is_pending());
        drop(first);
        assert!(futures::poll!(&mut turn).is_ready());
    }
}
