//! The world of a schedule: one server, its clients, and what is on its way between them.

use std::time::Duration;

use lock_core::{
    BootInstant, Clock, Validity,
    validity::{Observed, deadline},
};
use lock_redis::fifo::{Rhythm, Seen, claimed_until};

use super::{
    Rules, fact,
    server::{Call, Said, Server, Value},
};
use crate::{Agenda, Chance, Counts, LocalClock, MS, Outcome, Pipe, SECOND, Time, Trace, Violation, Wire};

/// How long a lock that was handed over is held before its first renewal, as in lock-redis.
const FIRST_RENEWAL: Time = 20 * MS;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alarm {
    Arrive,
    Beat,
    /// When the holder's lease ends.
    Look,
    Renew,
    Release,
    /// An undo is sent again.
    Undo,
}

#[derive(Debug)]
enum Event {
    Request { client: usize, call: Call, sent: BootInstant, is_answered: bool },
    Answer { client: usize, call: Call, sent: BootInstant, said: Said },
    Told { client: usize, value: Value, number: u64 },
    Alarm { client: usize, value: Value, alarm: Alarm },
    Pause,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum State {
    Idle,
    Entering,
    InLine,
    /// Too little is left of what was handed over: it is delivered once it is renewed.
    Claiming(u64),
    Holding,
    Leaving,
}

struct Client {
    clock: LocalClock,
    state: State,
    value: Value,
    seen: Option<Seen>,
    sent_first: BootInstant,
    validity: Option<(Validity, usize)>,
    observed: Option<Observed>,
    stopped_until: Time,
    is_dead: bool,
    left: u32,
    request: Pipe,
    answer: Pipe,
    told: Pipe,
    undo_until: Time,
    looks_at: Time,
    /// Its acquisition was sent once more: the first request may still come, even after a release.
    is_sent_again: bool,
}

/// A grant as everybody can see it who knows the true time.
struct Grant {
    client: usize,
    until: Time,
    is_over: bool,
    token: u64,
}

pub(super) struct World<'t> {
    agenda: Agenda<Event>,
    chance: Chance,
    trace: &'t mut Trace,
    rules: Rules,
    server: Server,
    clock: LocalClock,
    clients: Vec<Client>,
    grants: Vec<Grant>,
    violation: Option<Violation>,
    counts: Counts,
    steps: u64,
    ttl: Duration,
    wire: Wire,
    told_lost: u64,
    told_late: bool,
    end: Time,
    values: Value,
    may_crowd: bool,
    /// Since when nobody holds who is alive, while one who is alive stands in line.
    idle_since: Option<Time>,
}

impl<'t> World<'t> {
    pub(super) fn new(seed: u64, rules: Rules, trace: &'t mut Trace) -> Self {
        let mut chance = Chance::new(seed);
        let drift = chance.one_of(&[0, 1_000, 4_500]);
        let ttl = chance.one_of(&[400, 1_000, 8_000]);
        let lossy = chance.one_in(2);
        // A crowd of which most die in line, on a calm network.
        let may_crowd = chance.one_in(6);
        let most = if may_crowd { MS } else { chance.one_of(&[MS, 5 * MS, 30 * MS]) };
        let wire = Wire {
            least: MS / 10,
            most,
            late: ttl * MS / 2,
            late_per_mille: if may_crowd { 0 } else { chance.one_of(&[0, 20, 100]) },
            lost_per_mille: if lossy && !may_crowd { chance.one_of(&[10, 60]) } else { 0 },
            twice_per_mille: if chance.one_in(3) && !may_crowd { 100 } else { 0 },
        };
        let clients = if may_crowd { 8 } else { 2 + chance.place(4) };
        let client = |number: usize, chance: &mut Chance| Client {
            clock: LocalClock::new(100 * SECOND + number as u64 * SECOND, chance.signed(-drift, drift)),
            state: State::Idle,
            value: 0,
            seen: None,
            sent_first: BootInstant::from_nanos(0),
            validity: None,
            observed: None,
            stopped_until: 0,
            is_dead: false,
            left: 1 + u32::try_from(chance.below(3)).unwrap_or(0),
            request: Pipe::default(),
            answer: Pipe::default(),
            told: Pipe::default(),
            undo_until: 0,
            looks_at: 0,
            is_sent_again: false,
        };
        Self {
            clock: LocalClock::new(1_600_000_000 * SECOND, chance.signed(-drift, drift)),
            clients: (0..clients).map(|number| client(number, &mut chance)).collect(),
            told_lost: chance.one_of(&[0, 0, 100, 500]),
            told_late: chance.one_in(2) && !may_crowd,
            end: ttl * MS * chance.between(2, 5),
            chance,
            agenda: Agenda::default(),
            trace,
            rules,
            server: Server::default(),
            grants: Vec::new(),
            violation: None,
            counts: Counts::default(),
            steps: 0,
            ttl: Duration::from_millis(ttl),
            wire,
            values: 0,
            may_crowd,
            idle_since: None,
        }
    }

    pub(super) fn play(mut self) -> Outcome {
        self.note("world", |it| format!("ttl {:?}, {} clients", it.ttl, it.clients.len()));
        for client in 0..self.clients.len() {
            let at = if self.may_crowd { client as u64 * 2 * MS } else { self.chance.mostly_short(self.end / 2) };
            self.agenda.at(at, Event::Alarm { client, value: 0, alarm: Alarm::Arrive });
        }
        let pauses = if self.may_crowd { 6 } else { self.chance.below(4) };
        for _ in 0..pauses {
            let at = if self.may_crowd { self.ttl() / 20 } else { self.chance.below(self.end) };
            self.agenda.at(at, Event::Pause);
        }
        while self.violation.is_none() {
            let Some(event) = self.agenda.next_event() else { break };
            self.steps += 1;
            if self.steps > 10_000 {
                self.violate("P", "somebody waits for ever".to_owned());
            }
            self.happen(event);
        }
        // Of these, nobody knows or is there to clean up.
        let excused = self.wire.twice_per_mille > 0 || self.clients.iter().any(|it| it.is_dead || it.stopped_until > 0);
        if self.violation.is_none() && !excused && self.server.is_in_use(self.clock.at(self.now()) / MS) {
            self.violate("O", "the server still keeps something for somebody when all have given it back".to_owned());
        }
        Outcome { violation: self.violation, grants: self.grants.len() as u64, steps: self.steps, counts: self.counts }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Request { client, call, sent, is_answered } => self.serve(client, call, sent, is_answered),
            Event::Pause => self.pause(),
            Event::Answer { client, .. } | Event::Told { client, .. } | Event::Alarm { client, .. } => {
                let it = &self.clients[client];
                if it.is_dead {
                    return;
                }
                if it.stopped_until > self.now() {
                    return self.agenda.at(it.stopped_until, event);
                }
                Clock::simulate(self.local(client));
                match event {
                    Event::Answer { call, sent, said, .. } => self.answered(client, call, sent, said),
                    Event::Told { value, number, .. } => self.told(client, value, number),
                    Event::Alarm { value, alarm, .. } => self.rang(client, value, alarm),
                    _ => {}
                }
            }
        }
    }

    fn rang(&mut self, client: usize, value: Value, alarm: Alarm) {
        let it = &self.clients[client];
        if alarm != Alarm::Arrive && it.value != value {
            return;
        }
        let ttl = self.ttl_ms();
        match (alarm, it.state) {
            (Alarm::Arrive, State::Idle) if it.left > 0 && self.now() < self.end => {
                self.clients[client].left -= 1;
                self.enter(client);
            }
            (Alarm::Beat, State::Entering) if self.chance.one_in(2) => self.give_up(client),
            (Alarm::Beat, State::Entering) => {
                self.clients[client].is_sent_again = true;
                self.enter_again(client);
            }
            (Alarm::Look, State::InLine) => {
                let alive = ms(self.rhythm().alive);
                self.ask(client, Call::Beat { value, ttl, alive });
            }
            (Alarm::Beat, State::InLine) => {
                let alive = ms(self.rhythm().alive);
                self.ask(client, Call::Beat { value, ttl, alive });
                self.alarm(client, self.beat(), Alarm::Beat);
            }
            (Alarm::Beat, State::Claiming(_)) => self.give_up(client),
            (Alarm::Renew, State::Holding) => {
                let Some((validity, _)) = &it.validity else { return };
                let Some(observed) = validity.observe() else { return self.release(client) };
                self.clients[client].observed = Some(observed);
                self.ask(client, Call::Renew { value, ttl, number: None });
                self.alarm(client, self.ttl() / 3, Alarm::Renew);
            }
            (Alarm::Release, State::Holding) => self.release(client),
            (Alarm::Undo, State::Leaving) => {
                if self.now() > it.undo_until {
                    return self.idle(client);
                }
                self.ask(client, Call::Leave { value, is_undo: true });
                self.alarm(client, self.ttl() / 8, Alarm::Undo);
            }
            _ => {}
        }
    }

    /// An attempt of its own each time.
    fn enter(&mut self, client: usize) {
        self.values += 1;
        let (value, sent) = (self.values * 16 + u32::try_from(client).unwrap_or(0), self.local(client));
        let it = &mut self.clients[client];
        (it.value, it.state, it.seen, it.sent_first) = (value, State::Entering, None, sent);
        it.is_sent_again = false;
        self.enter_again(client);
    }

    /// The same attempt once more: what is found counts from the first sending.
    fn enter_again(&mut self, client: usize) {
        let (ttl, Rhythm { claim, alive, .. }) = (self.ttl_ms(), self.rhythm());
        let value = self.clients[client].value;
        self.ask(client, Call::Enter { value, ttl, claim: ms(claim), alive: ms(alive), waits: true });
        self.alarm(client, self.beat(), Alarm::Beat);
    }

    fn answered(&mut self, client: usize, call: Call, sent: BootInstant, said: Said) {
        let it = &mut self.clients[client];
        match (call, said) {
            (Call::Enter { value, .. }, said) if value == it.value && it.state == State::Entering => match said {
                Said::Granted(number) => {
                    let from = it.sent_first;
                    self.hold(client, number, from, self.ttl, fact::ENTERED);
                }
                Said::InLine { .. } => {
                    it.state = State::InLine;
                    // It counts as seen at the first sending: a later one may have been answered to.
                    self.stands(client, self.clients[client].sent_first, said);
                }
                _ => self.start_again(client),
            },
            (Call::Beat { value, .. }, said) if value == it.value && it.state == State::InLine => match said {
                Said::InLine { .. } => self.stands(client, sent, said),
                Said::Granted(number) => self.hold(client, number, sent, self.ttl, fact::FOUND),
                _ => {
                    self.counts.add(fact::PASSED_OVER);
                    self.start_again(client);
                }
            },
            (Call::Renew { value, .. }, Said::Done(done)) if value == it.value => match it.state {
                State::Claiming(number) if done => self.hold(client, number, sent, self.ttl, fact::RENEWED_FIRST),
                State::Claiming(_) => self.start_again(client),
                State::Holding => self.renewed(client, sent, done),
                _ => {}
            },
            (Call::Leave { value, is_undo }, _) if value == it.value && it.state == State::Leaving => {
                if it.is_sent_again && !is_undo && self.rules.bury {
                    self.counts.add(fact::BURIED);
                    return self.leave(client, true);
                }
                self.idle(client);
            }
            _ => {}
        }
    }

    fn stands(&mut self, client: usize, sent: BootInstant, said: Said) {
        let Said::InLine { ahead, left, newest } = said else { return };
        let it = &mut self.clients[client];
        if it.seen.is_none_or(|seen| seen.sent_at < sent) {
            it.seen = Some(Seen { sent_at: sent, newest });
        }
        let now = self.agenda.now();
        if ahead == 0 && it.looks_at <= now {
            it.looks_at = now + left * MS + MS;
            self.alarm(client, left * MS + MS, Alarm::Look);
        }
    }

    fn told(&mut self, client: usize, value: Value, number: u64) {
        let now = self.local(client);
        let it = &mut self.clients[client];
        if it.value != value || it.state != State::InLine {
            return;
        }
        let rhythm = Rhythm::of(self.ttl);
        let until = it.seen.and_then(|seen| {
            let newest = if self.rules.newer_number { seen.newest } else { 0 };
            let sent_at = if self.rules.from_heartbeat { seen.sent_at } else { now };
            claimed_until(Seen { sent_at, newest }, number, rhythm, now)
        });
        match until {
            Some(until) => {
                self.hold_until(client, number, until, fact::HANDED_OVER);
                self.alarm(client, FIRST_RENEWAL.min(nanos(rhythm.beat) / 8), Alarm::Renew);
            }
            None => {
                it.state = State::Claiming(number);
                let ttl = self.ttl_ms();
                let number = self.rules.claim_number.then_some(number);
                self.ask(client, Call::Renew { value, ttl, number });
                self.alarm(client, self.beat(), Alarm::Beat);
            }
        }
    }

    fn hold(&mut self, client: usize, number: u64, sent: BootInstant, ttl: Duration, how: usize) {
        let until = if self.rules.margin { deadline(sent, ttl) } else { sent.saturating_add(ttl) };
        // What ended before it was reported is none.
        if until <= self.local(client) {
            return self.give_up(client);
        }
        self.hold_until(client, number, until, how);
        self.alarm(client, self.ttl() / 3, Alarm::Renew);
    }

    fn hold_until(&mut self, client: usize, token: u64, until: BootInstant, how: usize) {
        self.counts.add(how);
        let true_until = self.clients[client].clock.when(until.as_nanos());
        self.note(&format!("client {client}"), |_| format!("holds with token {token} until {} ms", true_until / MS));
        if let Some(other) = self.grants.iter().find(|other| other.token >= token) {
            let other = other.token;
            return self.violate("F", format!("the token {token} comes after {other}"));
        }
        self.grants.push(Grant { client, until: true_until, is_over: false, token });
        let it = &mut self.clients[client];
        it.state = State::Holding;
        it.validity = Some((Validity::new(Clock::simulated(), until), self.grants.len() - 1));
        let now = self.now();
        if self.may_crowd
            && let Some(since) = self.idle_since.take()
            && now > since + 7 * self.beat() + 20 * MS
        {
            let idle = (now - since) / MS;
            return self.violate("P", format!("the lock was nobody's for {idle} ms while somebody stood in line"));
        }
        self.check(client);
        let hold = self.chance.mostly_short(2 * self.ttl());
        self.alarm(client, hold, Alarm::Release);
    }

    fn renewed(&mut self, client: usize, sent: BootInstant, done: bool) {
        let until = if self.rules.margin { deadline(sent, self.ttl) } else { sent.saturating_add(self.ttl) };
        let it = &self.clients[client];
        let (Some((validity, grant)), Some(observed)) = (&it.validity, it.observed) else { return };
        let grant = *grant;
        if !done {
            validity.end(lock_core::Loss::Revoked);
            self.counts.add(fact::LOST_LEASE);
            return self.release(client);
        }
        self.counts.add(fact::RENEWED);
        if validity.advance(observed, until)
            && let Some(until) = validity.valid_until()
        {
            self.grants[grant].until = it.clock.when(until.as_nanos());
            self.check(client);
        }
    }

    /// Nobody else holds (M), and the server keeps it for as long (T).
    fn check(&mut self, client: usize) {
        let now = self.now();
        let it = &self.clients[client];
        let Some((_, place)) = it.validity else { return };
        let others = self.grants.iter().enumerate().filter(|(other, _)| *other != place);
        let other = others.map(|(_, other)| other).find(|other| !other.is_over && other.until > now);
        if let Some(other) = other {
            let other = other.client;
            return self.violate("M", format!("clients {client} and {other} hold at the same time"));
        }
        let kept = self.server.keeps(it.value).map(|ends| self.clock.when((ends + 1) * MS));
        if kept.is_none_or(|kept| kept < self.grants[place].until) {
            self.violate("T", format!("client {client} takes its grant for valid for longer than the server keeps it"));
        }
    }

    fn release(&mut self, client: usize) {
        let it = &mut self.clients[client];
        if let Some((validity, grant)) = it.validity.take() {
            validity.end(lock_core::Loss::Released);
            self.grants[grant].is_over = true;
        }
        self.leave(client, false);
    }

    fn give_up(&mut self, client: usize) {
        self.leave(client, true);
    }

    fn leave(&mut self, client: usize, is_undo: bool) {
        let until = self.now() + self.ttl();
        let it = &mut self.clients[client];
        (it.state, it.undo_until) = (State::Leaving, until);
        let value = it.value;
        self.ask(client, Call::Leave { value, is_undo });
        self.alarm(client, self.ttl() / 8, Alarm::Undo);
    }

    fn start_again(&mut self, client: usize) {
        if self.now() < self.end + 20 * self.ttl() {
            return self.enter(client);
        }
        self.violate("P", "somebody stands in line for ever".to_owned());
    }

    fn idle(&mut self, client: usize) {
        self.clients[client].state = State::Idle;
        let at = self.now() + self.chance.mostly_short(self.ttl() / 2);
        self.agenda.at(at, Event::Alarm { client, value: 0, alarm: Alarm::Arrive });
    }

    fn serve(&mut self, client: usize, call: Call, sent: BootInstant, is_answered: bool) {
        let now = self.now();
        let said = self.server.take(self.clock.at(now) / 1_000, call, self.rules.checks);
        self.note("server", |_| format!("client {client}: {call:?} -> {said:?}"));
        if said == Said::Undone {
            self.counts.add(fact::UNDONE);
        }
        if self.server.overtaken {
            return self.violate("order", format!("client {client} came later and overtook one that stood in line"));
        }
        for (value, number) in std::mem::take(&mut self.server.told) {
            let waiter = usize::try_from(value % 16).unwrap_or(0);
            if self.chance.per_mille(self.told_lost) {
                self.counts.add(fact::TOLD_LOST);
                continue;
            }
            let most = if self.told_late { nanos(self.ttl) } else { self.wire.most };
            let at = self.clients[waiter].told.arrival(now, self.chance.mostly_short(most));
            self.agenda.at(at, Event::Told { client: waiter, value, number });
        }
        self.watch_idleness(now);
        if !is_answered || (now < self.end && self.chance.per_mille(self.wire.lost_per_mille)) {
            return self.counts.add(fact::LOST);
        }
        let delay = self.delay();
        let at = self.clients[client].answer.arrival(now, delay);
        self.agenda.at(at, Event::Answer { client, call, sent, said });
    }

    fn watch_idleness(&mut self, now: Time) {
        let waits = self.clients.iter().any(|it| !it.is_dead && it.state == State::InLine);
        let held = self.grants.iter().any(|grant| !grant.is_over && grant.until > now);
        match (waits, held) {
            (true, false) => {
                self.idle_since.get_or_insert(now);
            }
            _ => self.idle_since = None,
        }
    }

    fn ask(&mut self, client: usize, call: Call) {
        let (now, sent) = (self.now(), self.local(client));
        let is_calm = now >= self.end;
        let request = |is_answered| Event::Request { client, call, sent, is_answered };
        if !is_calm && self.chance.per_mille(self.wire.lost_per_mille) {
            self.counts.add(fact::LOST);
            if self.chance.one_in(2) {
                // A tombstone outlives what is on its way.
                let late = self.chance.below(self.ttl().min(4 * SECOND));
                self.agenda.after(late, request(false));
            }
            return;
        }
        let delay = self.delay();
        let at = self.clients[client].request.arrival(now, delay);
        self.agenda.at(at, request(true));
        if !is_calm && self.chance.per_mille(self.wire.twice_per_mille) {
            self.counts.add(fact::TWICE);
            let late = self.chance.mostly_short(2 * self.ttl());
            self.agenda.at(at + late, request(false));
        }
    }

    fn pause(&mut self) {
        let client = self.chance.place(self.clients.len());
        let dies = self.may_crowd || self.chance.one_in(4);
        if dies && !(self.may_crowd && self.clients[client].state == State::Holding) {
            self.counts.add(fact::DIED);
            self.clients[client].is_dead = true;
            if let Some((_, grant)) = self.clients[client].validity {
                self.grants[grant].is_over = true;
            }
            return self.note("world", |_| format!("client {client} dies"));
        }
        self.counts.add(fact::STOPPED);
        let until = self.now() + self.chance.below(2 * self.ttl());
        self.clients[client].stopped_until = until;
        self.note("world", |_| format!("client {client} stops until {} ms", until / MS));
    }

    fn delay(&mut self) -> Time {
        if self.now() >= self.end { self.chance.between(MS / 10, MS) } else { self.wire.delay(&mut self.chance) }
    }

    fn alarm(&mut self, client: usize, delay: Time, alarm: Alarm) {
        let value = self.clients[client].value;
        self.agenda.after(delay, Event::Alarm { client, value, alarm });
    }

    fn violate(&mut self, invariant: &'static str, text: String) {
        let at = self.now();
        self.violation.get_or_insert(Violation { invariant, text, at });
    }

    fn note(&mut self, who: &str, what: impl FnOnce(&Self) -> String) {
        if self.trace.is_kept() {
            let text = what(self);
            self.trace.note(self.agenda.now(), who, format_args!("{text}"));
        }
    }

    const fn now(&self) -> Time {
        self.agenda.now()
    }

    fn local(&self, client: usize) -> BootInstant {
        BootInstant::from_nanos(self.clients[client].clock.at(self.now()))
    }

    fn rhythm(&self) -> Rhythm {
        Rhythm::of(self.ttl)
    }

    fn beat(&self) -> Time {
        nanos(self.rhythm().beat)
    }

    fn ttl(&self) -> Time {
        nanos(self.ttl)
    }

    fn ttl_ms(&self) -> u64 {
        ms(self.ttl)
    }
}

fn nanos(duration: Duration) -> Time {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
