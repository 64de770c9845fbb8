//! The checker: compares what holders believe with each other and with what the servers keep, in every case.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{Fixture, Kept};
use crate::{Clock, FencingToken, Guard, LockName, Mode, Validity};

/// The shortest pause between two rounds over all holders.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest one for each of the holders, where these are more than a few.
const PAUSE_FOR_EACH: Duration = Duration::from_millis(5);

/// So many grants of a lock are each compared with the servers at once.
const COMPARED_AT_ONCE: usize = 200;
/// Of the grants after those, one in so many is.
const COMPARED_LATER: usize = 10;

/// Checks the promises of locks on every grant of one run of a conformance case.
///
/// * **M**: a writer is valid alone; readers are valid beside each other; of `n` permits never more than `n` are valid.
/// * **T**: a holder's validity never reaches beyond what the servers keep.
/// * **F**: a writer's token is above all earlier ones, a reader's above those of earlier writers; no two are the same.
/// * **L**: a grant that was seen lost is never seen valid again.
#[derive(Debug)]
pub(super) struct Checker {
    fixture: Arc<dyn Fixture>,
    book: Mutex<CheckedGrants>,
}

/// The grants that a [`Checker`] watches, by the lock or semaphore they are of, and the violations found so far.
#[derive(Debug, Default)]
struct CheckedGrants {
    lines: HashMap<ResourceKey, GrantHistory>,
    names: BTreeSet<LockName>,
    violations: Vec<String>,
}

/// The lock or the semaphore of a name, within which grants exclude each other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ResourceKey {
    name: LockName,
    permits: bool,
}

/// The grants of one lock or semaphore, with the fencing tokens that the next grant is checked against.
#[derive(Debug, Default)]
struct GrantHistory {
    holds: Vec<Arc<WatchedGrant>>,
    /// The highest token that was granted to a writer, and to anybody.
    newest_writer: Option<FencingToken>,
    newest: Option<FencingToken>,
    tokens: HashSet<FencingToken>,
}

/// A grant whose validity and fencing token the [`Checker`] watches.
pub(super) struct WatchedGrant {
    family: ResourceKey,
    mode: Mode,
    /// A writer that went on as a reader.
    downgraded: AtomicBool,
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

    /// Watches a new grant from now on. Returns also whether the grant is to be compared with the servers at once: of thousands
    /// not each one is.
    pub(super) fn admit(&self, guard: &Guard, mode: Mode) -> (Arc<WatchedGrant>, bool) {
        let hold = Arc::new(WatchedGrant {
            family: ResourceKey { name: guard.name().clone(), permits: matches!(mode, Mode::Permit { .. }) },
            mode,
            downgraded: AtomicBool::new(false),
            token: guard.token(),
            validity: guard.validity().clone(),
            disturbed: AtomicBool::new(false),
            seen_lost: AtomicBool::new(false),
            reported: AtomicBool::new(false),
        });
        let grants = self.book(|book| book.admit(&hold));
        (hold, grants <= COMPARED_AT_ONCE || grants.is_multiple_of(COMPARED_LATER))
    }

    /// Stops watching a grant: its holder is about to give it back.
    pub(super) fn forget(&self, hold: &Arc<WatchedGrant>) {
        self.book(|book| {
            if let Some(line) = book.lines.get_mut(&hold.family) {
                line.holds.retain(|other| !Arc::ptr_eq(other, hold));
            }
        });
    }

    /// Notes that the lock is about to be taken away from its holders by somebody else.
    pub(super) fn disturb(&self, name: &LockName) {
        self.book(|book| {
            book.holds().filter(|hold| hold.family.name == *name).for_each(|hold| hold.disturb());
        });
    }

    /// Compares all holders again and again. Where they are many, it pauses for three times as long as it has asked about them, so
    /// that the servers have time for others. How long a few take to be answered makes no pause longer.
    pub(super) async fn watch(&self) {
        let clock = Clock::runtime();
        loop {
            let began = clock.now();
            let holds: Vec<_> = self.book(|book| book.holds().cloned().collect());
            for hold in &holds {
                self.compare(hold).await;
            }
            let took = clock.now().saturating_since(began);
            let longest = PAUSE_FOR_EACH * u32::try_from(holds.len()).unwrap_or(u32::MAX);
            clock.sleep(PAUSE.max(longest.min(took * 3))).await;
        }
    }

    /// Compares one holder with the servers.
    pub(super) async fn compare(&self, hold: &WatchedGrant) {
        let Some(until) = hold.validity.valid_until() else {
            hold.seen_lost.store(true, Ordering::Release);
            return;
        };
        if hold.seen_lost.load(Ordering::Acquire) {
            self.violated(hold, format!("{hold:?} was lost and is valid again"));
        }
        let kept = self.fixture.kept(&hold.family.name, hold.token.number).await;
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

    fn violated(&self, hold: &WatchedGrant, what: String) {
        if !hold.reported.swap(true, Ordering::AcqRel) {
            self.book(|book| book.violations.push(what));
        }
    }

    fn book<T>(&self, work: impl FnOnce(&mut CheckedGrants) -> T) -> T {
        work(&mut self.book.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl CheckedGrants {
    fn holds(&self) -> impl Iterator<Item = &Arc<WatchedGrant>> {
        self.lines.values().flat_map(|line| &line.holds)
    }

    /// Returns how many grants of the lock there have been.
    fn admit(&mut self, hold: &Arc<WatchedGrant>) -> usize {
        let line = self.lines.entry(hold.family.clone()).or_default();
        self.violations.extend(line.shared_wrongly(hold));
        self.violations.extend(line.numbered_wrongly(hold));
        line.holds.push(Arc::clone(hold));
        line.tokens.len()
    }
}

impl GrantHistory {
    /// **M**: what the new one may not be valid beside.
    fn shared_wrongly(&self, hold: &WatchedGrant) -> Option<String> {
        // The new one was granted before the others are looked at, and is valid after that: those that are seen valid
        // were valid together with it at the moment of the first look. A holder that gives its lock back is forgotten
        // before its release is sent.
        let valid = self.holds.iter().filter(|other| !other.disturbed.load(Ordering::Acquire));
        let beside: Vec<_> = valid.filter(|other| other.validity.is_valid() && other.in_conflict_with(hold)).collect();
        let allowed = match hold.mode {
            Mode::Permit { of } => usize::try_from(of.get()).unwrap_or(usize::MAX) - 1,
            Mode::Exclusive | Mode::Read => 0,
        };
        let too_many = beside.len() > allowed && hold.validity.is_valid();
        too_many.then(|| format!("{hold:?} was granted while {beside:?} was valid"))
    }

    /// **F**: whether its token is not above those of earlier grants that it is in conflict with.
    fn numbered_wrongly(&mut self, hold: &WatchedGrant) -> Option<String> {
        let above = match hold.mode {
            Mode::Exclusive => self.newest,
            Mode::Read => self.newest_writer,
            Mode::Permit { .. } => None,
        };
        let new = self.tokens.insert(hold.token);
        self.newest = self.newest.max(Some(hold.token));
        if hold.mode == Mode::Exclusive {
            self.newest_writer = self.newest_writer.max(Some(hold.token));
        }
        if !new {
            return Some(format!("{hold:?} was granted with the number of another grant"));
        }
        // A grant that ended before it got here may come after its successor.
        let above = above.filter(|above| hold.token <= *above && hold.validity.is_valid())?;
        Some(format!("{hold:?} was granted after token {above}"))
    }
}

impl WatchedGrant {
    /// Notes that it is about to be taken away from its holder by somebody else.
    pub(super) fn disturb(&self) {
        self.disturbed.store(true, Ordering::Release);
    }

    /// Notes that the writer is about to go on as a reader.
    pub(super) fn admit_readers(&self) {
        self.downgraded.store(true, Ordering::Release);
    }

    /// Whether it excludes the new one, or counts against the permits that there are.
    fn in_conflict_with(&self, new: &Self) -> bool {
        match (self.mode, new.mode) {
            (Mode::Read, Mode::Read) => false,
            (Mode::Exclusive, Mode::Read) => !self.downgraded.load(Ordering::Acquire),
            _ => true,
        }
    }
}

impl fmt::Debug for WatchedGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { family, mode, token, validity, .. } = self;
        write!(f, "the {mode} grant of {:?} with token {token} ({validity:?})", family.name)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    const WRITER: Mode = Mode::Exclusive;
    const READER: Mode = Mode::Read;

    fn permit(of: u32) -> Mode {
        Mode::Permit { of: NonZeroU32::new(of).unwrap() }
    }

    fn hold(mode: Mode, number: u64) -> Arc<WatchedGrant> {
        let clock = Clock::boot();
        Arc::new(WatchedGrant {
            family: ResourceKey { name: LockName::new("a").unwrap(), permits: matches!(mode, Mode::Permit { .. }) },
            mode,
            downgraded: AtomicBool::new(false),
            token: FencingToken { era: 0, number },
            validity: Validity::new(clock, clock.now().saturating_add(Duration::from_secs(600))),
            disturbed: AtomicBool::new(false),
            seen_lost: AtomicBool::new(false),
            reported: AtomicBool::new(false),
        })
    }

    /// How many violations it makes that these were granted one after the other, with numbers that are in order.
    fn together(modes: &[Mode]) -> usize {
        let mut book = CheckedGrants::default();
        for (number, mode) in (1..).zip(modes) {
            book.admit(&hold(*mode, number));
        }
        book.violations.len()
    }

    /// The same, of grants that follow each other, with these numbers.
    fn in_turn(grants: &[(Mode, u64)]) -> usize {
        let mut book = CheckedGrants::default();
        for (mode, number) in grants {
            book.admit(&hold(*mode, *number));
            book.lines.values_mut().for_each(|line| line.holds.clear());
        }
        book.violations.len()
    }

    #[test]
    fn a_writer_may_only_be_valid_alone() {
        assert_eq!(together(&[WRITER, WRITER]), 1);
        assert_eq!(together(&[WRITER, READER]), 1);
        assert_eq!(together(&[READER, WRITER]), 1);
        assert_eq!(together(&[READER, READER, READER]), 0);
        assert_eq!(together(&[WRITER, permit(1)]), 0);
    }

    #[test]
    fn no_more_permits_may_be_valid_than_there_are() {
        assert_eq!(together(&[permit(2), permit(2)]), 0);
        assert_eq!(together(&[permit(2), permit(2), permit(2)]), 1);
        assert_eq!(together(&[permit(1), permit(1)]), 1);
    }

    #[test]
    fn a_downgraded_writer_lets_readers_in_and_no_writer() {
        for (next, wrong) in [(READER, 0), (WRITER, 1)] {
            let mut book = CheckedGrants::default();
            let writer = hold(WRITER, 1);
            book.admit(&writer);
            writer.admit_readers();
            book.admit(&hold(next, 2));
            assert_eq!(book.violations.len(), wrong, "{:?}", book.violations);
        }
    }

    #[test]
    fn what_is_lost_or_was_taken_away_excludes_nobody() {
        let mut book = CheckedGrants::default();
        let [lost, taken] = [hold(WRITER, 1), hold(READER, 2)];
        book.admit(&lost);
        lost.validity.end(crate::Loss::Revoked);
        book.admit(&taken);
        taken.disturbed.store(true, Ordering::Release);
        book.admit(&hold(WRITER, 3));
        assert!(book.violations.is_empty(), "{:?}", book.violations);
    }

    #[test]
    fn tokens_rise_between_grants_that_exclude_each_other() {
        assert_eq!(in_turn(&[(WRITER, 2), (WRITER, 1)]), 1);
        assert_eq!(in_turn(&[(WRITER, 2), (READER, 1)]), 1);
        assert_eq!(in_turn(&[(READER, 2), (WRITER, 1)]), 1);
        assert_eq!(in_turn(&[(WRITER, 1), (READER, 3), (READER, 2), (WRITER, 4)]), 0);
        assert_eq!(in_turn(&[(permit(1), 2), (permit(1), 1)]), 0);
    }

    #[test]
    fn no_number_is_given_twice() {
        assert_eq!(in_turn(&[(READER, 1), (READER, 1)]), 1);
        assert_eq!(in_turn(&[(permit(2), 1), (permit(2), 1)]), 1);
        assert_eq!(in_turn(&[(permit(2), 1), (WRITER, 1)]), 0);
    }
}
