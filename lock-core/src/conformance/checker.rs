//! The checker: compares what holders believe with each other and with what the servers keep, in every case.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{Fixture, Kept};
use crate::{Clock, FencingToken, Guard, LockName, Validity};

/// The pause between two rounds over all holders.
const PAUSE: Duration = Duration::from_millis(20);

/// Watches all holders of one run of a case.
///
/// * **M**: of two grants of one name only one is valid at a time.
/// * **T**: a holder's validity never reaches beyond what the servers keep.
/// * **F**: tokens rise from grant to grant.
/// * **L**: a grant that was seen lost is never seen valid again.
#[derive(Debug)]
pub(super) struct Checker {
    fixture: Arc<dyn Fixture>,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    holds: HashMap<LockName, Vec<Arc<Hold>>>,
    newest: HashMap<LockName, FencingToken>,
    names: BTreeSet<LockName>,
    violations: Vec<String>,
}

/// A grant that is being watched.
pub(super) struct Hold {
    name: LockName,
    token: FencingToken,
    validity: Validity,
    /// Somebody took it away behind the holder's back: until the holder learns it, it is wrong through no fault of the
    /// backend's.
    disturbed: AtomicBool,
    seen_lost: AtomicBool,
    /// Something was found wrong with it; once is enough.
    reported: AtomicBool,
}

impl Checker {
    pub(super) fn new(fixture: Arc<dyn Fixture>) -> Self {
        Self { fixture, book: Mutex::default() }
    }

    /// Notes that `name` is used, so that its residue is looked at in the end.
    pub(super) fn uses(&self, name: &LockName) {
        self.book(|book| book.names.insert(name.clone()));
    }

    /// The names that were used.
    pub(super) fn names(&self) -> BTreeSet<LockName> {
        self.book(|book| book.names.clone())
    }

    /// What was found wrong.
    pub(super) fn violations(&self) -> Vec<String> {
        self.book(|book| book.violations.clone())
    }

    /// Watches a new grant from now on.
    pub(super) fn admit(&self, guard: &Guard) -> Arc<Hold> {
        let hold = Arc::new(Hold {
            name: guard.name().clone(),
            token: guard.token(),
            validity: guard.validity().clone(),
            disturbed: AtomicBool::new(false),
            seen_lost: AtomicBool::new(false),
            reported: AtomicBool::new(false),
        });
        self.book(|book| book.admit(&hold));
        hold
    }

    /// Stops watching a grant: its holder is about to give it back.
    pub(super) fn forget(&self, hold: &Arc<Hold>) {
        self.book(|book| {
            let Some(holds) = book.holds.get_mut(&hold.name) else { return };
            holds.retain(|other| !Arc::ptr_eq(other, hold));
            if holds.is_empty() {
                book.holds.remove(&hold.name);
            }
        });
    }

    /// Notes that the lock is about to be taken away from its holders by somebody else.
    pub(super) fn disturb(&self, name: &LockName) {
        self.book(|book| {
            for hold in book.holds.get(name).into_iter().flatten() {
                hold.disturbed.store(true, Ordering::Release);
            }
        });
    }

    /// Compares all holders again and again.
    pub(super) async fn watch(&self) {
        loop {
            let holds: Vec<_> = self.book(|book| book.holds.values().flatten().cloned().collect());
            for hold in holds {
                self.compare(&hold).await;
            }
            Clock::boot().sleep(PAUSE).await;
        }
    }

    /// Compares one holder with the servers.
    pub(super) async fn compare(&self, hold: &Hold) {
        let Some(until) = hold.validity.valid_until() else {
            hold.seen_lost.store(true, Ordering::Release);
            return;
        };
        if hold.seen_lost.load(Ordering::Acquire) {
            self.violated(hold, format!("{hold:?} was lost and is valid again"));
        }
        let kept = self.fixture.kept(&hold.name, hold.token.number).await;
        let answered = hold.validity.clock().now();
        let disturbed = || hold.disturbed.load(Ordering::Acquire);
        match kept {
            Err(failure) => self.violated(hold, format!("the servers could not be asked about {hold:?}: {failure}")),
            // `until` was read before the question was sent, and the servers answered before `answered`. Whatever
            // moved the deadline to `until` had moved the servers' own end by then, so even in the worst case they
            // keep it until then.
            Ok(Kept::For(rest)) if until > answered.saturating_add(rest) && !disturbed() => {
                let over = until.saturating_since(answered.saturating_add(rest));
                self.violated(hold, format!("{hold:?} is valid {over:?} beyond the {rest:?} that the servers keep it"));
            }
            // Still valid after the servers said that it is gone: then it was gone while it was valid.
            Ok(Kept::Gone) if hold.validity.is_valid() && !disturbed() => {
                self.violated(hold, format!("{hold:?} is valid, and the servers do not have it"));
            }
            Ok(_) => {}
        }
    }

    fn violated(&self, hold: &Hold, what: String) {
        if !hold.reported.swap(true, Ordering::AcqRel) {
            self.book(|book| book.violations.push(what));
        }
    }

    fn book<T>(&self, work: impl FnOnce(&mut Book) -> T) -> T {
        work(&mut self.book.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Book {
    fn admit(&mut self, hold: &Arc<Hold>) {
        let others = self.holds.entry(hold.name.clone()).or_default();
        for other in others.iter().filter(|other| !other.disturbed.load(Ordering::Acquire)) {
            // The new one was granted before the other was looked at, and is valid after that: at the moment of the
            // look both were. A holder that gives its lock back is forgotten before its release is sent.
            if other.validity.is_valid() && hold.validity.is_valid() {
                self.violations.push(format!("{hold:?} was granted while {other:?} was valid"));
            }
        }
        others.push(Arc::clone(hold));
        // A grant that ended before it got here may come after its successor.
        let newest = self.newest.entry(hold.name.clone()).or_insert(FencingToken { era: 0, number: 0 });
        if hold.token <= *newest && hold.validity.is_valid() {
            self.violations.push(format!("{hold:?} was granted after token {newest}"));
        }
        *newest = hold.token.max(*newest);
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the grant of {:?} with token {} ({:?})", self.name, self.token, self.validity)
    }
}
