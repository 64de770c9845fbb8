//! Every grant of a schedule, and what may not be true of them.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    num::NonZeroU32,
    rc::Rc,
    time::Duration,
};

use lock_core::{BootInstant, Error, FencingToken, Loss, Validity};

use crate::{
    Counts, Time, Trace, Violation,
    world::{HostId, true_time},
};

/// How many of those that ended last are looked at again, whether they stay lost.
const LOOKED_AT_AGAIN: usize = 8;

/// A grant, as everybody can see it who knows the true time.
#[derive(Debug, Clone)]
pub struct Grant {
    /// Who was granted it.
    pub host: HostId,
    /// Whether it is shared with others who read.
    pub reads: bool,
    /// Of how many permits it is one.
    pub permits: Option<NonZeroU32>,
    /// Its number.
    pub token: FencingToken,
    /// What its client asks the servers to keep it for, at each renewal.
    pub ttl: Duration,
    /// When its acquisition began.
    pub began: Time,
    /// When it was reported.
    pub at: Time,
    /// What its holder believes in.
    pub validity: Validity,
    /// What the servers keep of who holds it: no other grant has the same.
    pub payload: Rc<str>,
    /// Its holder is dead.
    is_over: bool,
    /// Its holder has given it back, or has heard that it is lost.
    is_given_up: bool,
    /// Why it was lost, once somebody could see that.
    lost: Option<Loss>,
    /// Up to which moment its holder may come to believe in it: the end that was set for it, or, when somebody whom it
    /// excludes was granted in between, what an answer proves to a request that was sent before.
    at_most: Option<BootInstant>,
    /// Something has happened that may end it on the servers without its holder.
    pub is_excused: bool,
    /// Until when it was found valid the last time.
    looked: Option<BootInstant>,
}

/// What is reported of a grant.
#[derive(Debug, Clone, Copy)]
pub struct New<'a> {
    /// Who was granted it.
    pub host: HostId,
    /// Whether it is shared with others who read.
    pub reads: bool,
    /// Of how many permits it is one.
    pub permits: Option<NonZeroU32>,
    /// Its number.
    pub token: FencingToken,
    /// What its client asks the servers to keep it for, at each renewal.
    pub ttl: Duration,
    /// What its holder believes in.
    pub validity: &'a Validity,
    /// When its acquisition began.
    pub began: Time,
    /// Who asked for it.
    pub payload: &'a str,
    /// For how long it may be held, however often it is renewed.
    pub max_hold: Option<Duration>,
    /// How much of it is left at the least when it is reported, unless its program stood still.
    pub least: Duration,
}

impl Grant {
    /// Whether its holder may act.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.is_over && self.validity.is_valid()
    }

    /// Up to which moment its holder believed in it when it was looked at last.
    #[must_use]
    pub const fn until(&self) -> Option<BootInstant> {
        self.looked
    }

    /// Whether this one and another cannot be held at the same time. Of permits any two can.
    const fn excludes(&self, reads: bool, permits: Option<NonZeroU32>) -> bool {
        !(self.reads && reads) && self.permits.is_none() && permits.is_none()
    }

    /// What is wrong with one that was lost.
    fn revived(&self) -> Option<String> {
        let (who, number, before, now) = (self.host.place(), self.token.number, self.lost, self.validity.loss());
        match now {
            _ if now == before => None,
            None => Some(format!("client {who} holds again by token {number}, which was lost: {before:?}")),
            Some(_) => Some(format!("client {who} lost token {number} for the reason {before:?}, and now for {now:?}")),
        }
    }

    /// What is wrong with one that goes on although another was granted what it excludes.
    fn goes_on_too_long(&self) -> Option<String> {
        let (until, at_most) = (self.looked?, self.at_most?);
        let beyond = until.saturating_since(at_most);
        let (who, number) = (self.host.place(), self.token.number);
        let text = || format!("client {who} goes on by token {number} for {beyond:?} longer than it can be its own");
        (!beyond.is_zero()).then(text)
    }
}

impl OracleState {
    /// What is wrong with a grant beside those that there are already, by the invariants that do not hold.
    fn wrong_beside(
        &self,
        host: HostId,
        reads: bool,
        permits: Option<NonZeroU32>,
        token: FencingToken,
        began: Time,
    ) -> Vec<(&'static str, String)> {
        let (who, number, mut wrong) = (host.place(), token.number, Vec::new());
        let is_excused = self.excused.is_some_and(|at| began <= at);
        let is_permit_held = |other: &&Grant| other.permits.is_some() && other.holds() && !other.is_excused;
        let beside = self.grants.iter().filter(is_permit_held).count();
        if let Some(of) = permits.filter(|of| !is_excused && beside >= of.get() as usize) {
            wrong.push(("M", format!("client {who} is granted permit {number} beside {beside} of {of}")));
        }
        for other in self.grants.iter().filter(|other| other.excludes(reads, permits)) {
            let (holder, before) = (other.host.place(), other.token.number);
            if other.holds() && !other.is_excused && !is_excused {
                let text =
                    format!("client {who} is granted token {number} while client {holder} holds by token {before}");
                wrong.push(("M", text));
            }
            // Of those that may hold together because of what went wrong, one that had begun before is promised nothing.
            if other.token >= token && !((other.is_excused || is_excused) && began < other.at) {
                wrong.push(("F", format!("client {who} is granted token {number} after {before}")));
            }
        }
        if let Some(same) = self.grants.iter().find(|other| other.token == token) {
            let first = same.host.place();
            wrong.push(("F", format!("token {number} is given to clients {first} and {who}")));
        }
        wrong
    }

    /// Somebody on `host` is granted what all these exclude that may still hold: an answer to a later request keeps none of
    /// them. By the token it is told who came later.
    fn cap(&mut self, host: HostId, reads: bool, permits: Option<NonZeroU32>, token: FencingToken) {
        if self.revives {
            return;
        }
        for place in &self.live {
            let grant = &mut self.grants[*place];
            if grant.excludes(reads, permits) && grant.host != host && grant.token < token {
                let at_most = grant.validity.clock().now().saturating_add(grant.ttl);
                grant.at_most = Some(grant.at_most.map_or(at_most, |before| before.min(at_most)));
            }
        }
    }
}

/// What the oracle has seen of a schedule: every grant, and the first violation.
#[derive(Debug, Default)]
struct OracleState {
    grants: Vec<Grant>,
    /// Those of them that may still hold.
    live: Vec<usize>,
    /// Those that ended last, in their order.
    ended: VecDeque<usize>,
    /// The servers may lose data that a majority of them had, so that whoever held before holds again.
    revives: bool,
    violation: Option<Violation>,
    counts: Counts,
    trace: Trace,
    /// On which hosts a program has not ended.
    running: BTreeSet<HostId>,
    /// When a program stood still for the last time: it is not known how long.
    stood_still: BTreeMap<HostId, Time>,
    /// When a program died.
    died: BTreeMap<HostId, Time>,
    /// When something happened for the last time that excuses what was held, or asked for, then.
    excused: Option<Time>,
    /// Everybody has given back what it had, and said so.
    is_unclean: bool,
}

/// Sees all grants. Clones see the same.
#[derive(Debug, Clone, Default)]
pub struct Oracle(Rc<RefCell<OracleState>>);

impl Oracle {
    /// One that writes to this trace, which is given back by [`Oracle::end`].
    #[must_use]
    pub fn new(trace: Trace) -> Self {
        Self(Rc::new(RefCell::new(OracleState { trace, ..OracleState::default() })))
    }

    /// Writes down what `who` did.
    pub fn note(&self, who: impl std::fmt::Display, what: std::fmt::Arguments<'_>) {
        self.0.borrow_mut().trace.note(true_time(), who, what);
    }

    /// Whether anybody reads what is written down.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.0.borrow().trace.is_kept()
    }

    /// Counts one more of the fact at that place.
    pub fn count(&self, place: usize) {
        self.0.borrow_mut().counts.add(place);
    }

    /// An invariant does not hold.
    pub fn violate(&self, invariant: &'static str, text: String) {
        let at = true_time();
        self.note("oracle", format_args!("{invariant}: {text}"));
        self.0.borrow_mut().violation.get_or_insert(Violation { invariant, text, at });
    }

    /// Whether something has been violated.
    #[must_use]
    pub fn is_violated(&self) -> bool {
        self.0.borrow().violation.is_some()
    }

    /// How many grants there were.
    #[must_use]
    pub fn grants(&self) -> u64 {
        self.0.borrow().grants.len() as u64
    }

    /// A grant is reported. Gives its number.
    pub fn granted(&self, new: New<'_>) -> usize {
        let New { host, reads, permits, token, ttl, validity, began, payload, max_hold, least } = new;
        let (at, validity) = (true_time(), validity.clone());
        self.note(
            format_args!("client {}", host.place()),
            format_args!("{} with token {}", if reads { "reads" } else { "holds" }, token.number),
        );
        if !validity.is_valid() {
            self.violate("L", format!("client {} is granted what has ended already", host.place()));
        }
        let stood_still = self.0.borrow().stood_still.get(&host).is_some_and(|at| *at >= began);
        let left = validity.remaining();
        if left < least && max_hold.is_none() && !stood_still {
            self.violate("L", format!("client {} is granted what ends in {left:?}", host.place()));
        }
        let beside = self.0.borrow().wrong_beside(host, reads, permits, token, began);
        for (invariant, text) in beside {
            self.violate(invariant, text);
        }
        let now = validity.clock().now();
        let mut book = self.0.borrow_mut();
        let is_excused = book.excused.is_some_and(|at| began <= at);
        let place = book.grants.len();
        let payload = payload.into();
        book.cap(host, reads, permits, token);
        book.grants.push(Grant {
            host,
            reads,
            permits,
            token,
            ttl,
            began,
            at,
            validity,
            payload,
            is_over: false,
            is_given_up: false,
            lost: None,
            at_most: max_hold.map(|most| now.saturating_add(most)),
            is_excused,
            looked: None,
        });
        book.live.push(place);
        place
    }

    /// It is a reader's from now on.
    pub fn became_reader(&self, grant: usize) {
        let mut book = self.0.borrow_mut();
        book.grants[grant].reads = true;
        book.grants[grant].looked = None;
    }

    /// Its holder gives it up. It may act for as long as its validity says so.
    pub fn ended(&self, grant: usize) {
        let mut book = self.0.borrow_mut();
        if !std::mem::replace(&mut book.grants[grant].is_given_up, true) {
            let who = book.grants[grant].host.place();
            let was_valid = book.grants[grant].validity.is_valid();
            let what = if was_valid { "gives back" } else { "has lost" };
            let number = book.grants[grant].token.number;
            book.trace.note(true_time(), format_args!("client {who}"), format_args!("{what} {number}"));
        }
    }

    /// Its holder was told that something did not succeed.
    pub fn failed(&self, grant: usize, what: &str, error: &Error) {
        let host = self.0.borrow().grants[grant].host.place();
        self.note(format_args!("client {host}"), format_args!("{what}: {error}"));
    }

    /// Nobody acts on a host any more.
    pub fn died(&self, host: HostId) {
        let mut book = self.0.borrow_mut();
        book.running.remove(&host);
        book.is_unclean = true;
        book.died.insert(host, true_time());
        for grant in book.grants.iter_mut().filter(|grant| grant.host == host) {
            grant.is_over = true;
        }
    }

    /// When nobody acted any more on the host at this place.
    #[must_use]
    pub fn died_at(&self, place: usize) -> Option<Time> {
        self.0.borrow().died.iter().find(|(host, _)| host.place() == place).map(|(_, at)| *at)
    }

    /// A program stands still from now on, or goes on.
    pub fn stands_still(&self, host: HostId) {
        self.0.borrow_mut().stood_still.insert(host, true_time());
    }

    /// Whether a program runs on the host at this place.
    #[must_use]
    pub fn is_running(&self, place: usize) -> bool {
        self.0.borrow().running.iter().any(|host| host.place() == place)
    }

    /// Something has happened that may end what is held now on the servers, and nobody could tell its holder.
    pub fn excuse(&self) {
        let mut book = self.0.borrow_mut();
        book.excused = Some(true_time());
        for grant in book.grants.iter_mut().filter(|grant| grant.holds()) {
            grant.is_excused = true;
        }
    }

    /// Who was granted something last.
    #[must_use]
    pub fn latest(&self) -> Option<HostId> {
        self.0.borrow().grants.last().map(|grant| grant.host)
    }

    /// The grants whose validity has moved since the last look, or all when `all` are wanted, with the moment up to which
    /// their holders believe in them now; but for those that are excused.
    #[must_use]
    pub fn moved(&self, all: bool) -> Vec<Grant> {
        let mut book = self.0.borrow_mut();
        let OracleState { grants, live, ended, .. } = &mut *book;
        let (mut moved, mut wrong) = (Vec::new(), None);
        for place in &*ended {
            wrong = wrong.or_else(|| grants[*place].revived());
        }
        live.retain(|place| {
            let grant = &mut grants[*place];
            let until = if grant.is_over { None } else { grant.validity.valid_until() };
            let has_moved = until != grant.looked;
            if until.is_some() && has_moved {
                grant.looked = until;
                wrong = wrong.take().or_else(|| grant.goes_on_too_long());
            }
            if until.is_some() && (has_moved || all) && !grant.is_excused {
                moved.push(grant.clone());
            }
            if until.is_none() && !grant.is_over {
                grant.lost = grant.validity.loss();
                ended.push_back(*place);
            }
            until.is_some()
        });
        let surplus = ended.len().saturating_sub(LOOKED_AT_AGAIN);
        ended.drain(..surplus);
        drop(book);
        if let Some(text) = wrong {
            self.violate("L", text);
        }
        moved
    }

    /// Says that whoever held before may hold again, because the servers forget what came after it.
    pub fn revives(&self) {
        self.0.borrow_mut().revives = true;
    }

    /// A program begins on a host.
    pub fn begins(&self, host: HostId) {
        self.0.borrow_mut().running.insert(host);
    }

    /// It has come to its end, with everything given back or not.
    pub fn ends(&self, host: HostId, is_clean: bool) {
        let mut book = self.0.borrow_mut();
        book.running.remove(&host);
        book.is_unclean |= !is_clean;
    }

    /// Whether a program has not ended.
    #[must_use]
    pub fn is_any_running(&self) -> bool {
        !self.0.borrow().running.is_empty()
    }

    /// On which hosts a program has not ended.
    #[must_use]
    pub fn running(&self) -> Vec<HostId> {
        self.0.borrow().running.iter().copied().collect()
    }

    /// Whether somebody has gone, or was told that something is left to its ttl.
    #[must_use]
    pub fn is_unclean(&self) -> bool {
        self.0.borrow().is_unclean
    }

    /// Whether somebody may act now on this host, and whether somebody may on another.
    #[must_use]
    pub fn who_holds(&self, host: HostId) -> (bool, bool) {
        let book = self.0.borrow();
        let holders = || book.live.iter().map(|place| &book.grants[*place]).filter(|grant| grant.holds());
        (holders().any(|grant| grant.host == host), holders().any(|grant| grant.host != host))
    }

    /// Those that may act now.
    #[must_use]
    pub fn holding(&self) -> Vec<Grant> {
        self.0.borrow().grants.iter().filter(|grant| grant.holds()).cloned().collect()
    }

    /// What came of it.
    #[must_use]
    pub fn end(&self) -> (Option<Violation>, Counts, Trace) {
        let mut book = self.0.borrow_mut();
        (book.violation.take(), book.counts, std::mem::take(&mut book.trace))
    }
}
