//! Clients: when they try, and what they do with what comes of it.

use std::time::Duration;

use lock_redis::token::proposal;
use lock_redlock::{
    protocol::ballots::Ballot,
    protocol::ballots::{VoteLost as Defeat, VoteState as Known, vote_lost as defeat},
    protocol::kind::LockKind as Mode,
    protocol::votes::{Verdict, Vote as Voice, Votes, majority},
};

use super::{
    node::{Call, Line, Place, Vote},
    round::{Phase, Round},
    weather::{Kind, Weather},
    world::{Alarm, Pipes, Stage, World, fact, wall},
};
use crate::{Chance, LocalClock, MS, SECOND, Time};

/// How many rounds one that waits takes before it gives up, so that a schedule comes to an end.
const ROUNDS: u32 = 12;
/// How often one that does not wait tries again when nobody has a majority, as in lock-redlock.
const TRIES: u32 = 4;
/// A waiter looks again after this at the latest, as in lock-redlock.
const LONGEST_SLEEP: Duration = Duration::from_secs(2);

pub(super) struct Client {
    /// Its boot-time clock.
    pub(super) clock: LocalClock,
    /// By how much its wall clock is wrong.
    offset: i64,
    pub(super) stopped_until: Time,
    pub(super) is_dead: bool,
    /// It looks in the end whether the lock can be had.
    pub(super) is_probe: bool,
    pub(super) requests: Pipes,
    pub(super) answers: Pipes,
    /// The generation of the members that it goes by.
    pub(super) generation: usize,
    /// The places where it knows no member: a bit for each.
    pub(super) strangers: u8,
    /// Whether it is about to look which server is which, and when it has last.
    pub(super) looks: bool,
    pub(super) looked: Time,
    /// The greatest token that it has seen.
    pub(super) seen: u64,
    /// How often it will acquire yet.
    left: u32,
    is_stopping: bool,
    reads: bool,
    waits: bool,
    /// When it began to wait, by its clock.
    came: Time,
    /// The rounds of this acquisition.
    rounds: u32,
    sleeps: bool,
    /// It was told of something since it looked last.
    has_news: bool,
    /// The round that is under way, or holds the lock.
    pub(super) round: Option<usize>,
}

impl Client {
    pub(super) fn new(number: usize, weather: &Weather, chance: &mut Chance) -> Self {
        let start = 100 * SECOND + number as u64 * SECOND;
        Self {
            clock: LocalClock::new(start, chance.signed(-weather.drift, weather.drift)),
            offset: chance.signed(-weather.offset, weather.offset) - if chance.one_in(2) { weather.slow } else { 0 },
            stopped_until: 0,
            is_dead: false,
            is_probe: false,
            requests: Pipes::default(),
            answers: Pipes::default(),
            generation: 0,
            strangers: 0,
            looks: false,
            looked: 0,
            seen: 0,
            left: match weather.kind {
                Kind::Crowd if number + 1 < weather.clients => 1_000,
                Kind::Crowd => 1,
                Kind::Resent => 1_000,
                _ => 1 + u32::try_from(chance.below(3)).unwrap_or(0),
            },
            is_stopping: false,
            reads: false,
            waits: true,
            came: 0,
            rounds: 0,
            sleeps: false,
            has_news: false,
            round: None,
        }
    }

    fn place(&self, number: usize, now: Time) -> Option<Place> {
        let waited = self.clock.at(now).saturating_sub(self.came) / MS;
        let waiter = u8::try_from(number).unwrap_or(0);
        self.waits.then_some(Place { waiter, waited })
    }
}

impl World<'_> {
    pub(super) fn rang(&mut self, client: usize, round: usize, alarm: Alarm) {
        match alarm {
            Alarm::Begin(0) => self.arrive(client),
            Alarm::Begin(rounds) => {
                if self.clients[client].sleeps && self.clients[client].rounds == rounds {
                    self.begin(client);
                }
            }
            Alarm::Limit(stage) => self.limit(round, stage),
            Alarm::Renew => self.renew(round),
            Alarm::Downgrade => self.downgrade(round),
            Alarm::Release => self.release(round),
            Alarm::Stop => self.stop(client),
        }
    }

    /// A new acquisition.
    fn arrive(&mut self, client: usize) {
        let (kind, percent, clients) = (self.weather.kind, self.weather.readers, self.weather.clients);
        let now = self.now();
        let it = &mut self.clients[client];
        if it.left == 0 || (it.is_stopping && !it.is_probe) {
            return;
        }
        it.left -= u32::from(!it.is_probe);
        it.reads = match kind {
            _ if it.is_probe => false,
            Kind::Crowd => client + 1 < clients,
            _ => self.chance.percent(percent),
        };
        // One that waits does not hear that somebody deleted what it waits for.
        let waits = if kind == Kind::Resent { 10 } else { 80 };
        it.waits = it.is_probe || kind == Kind::Crowd || self.chance.percent(waits);
        it.came = it.clock.at(now);
        it.rounds = 0;
        if it.waits {
            for server in &mut self.servers {
                server.node.listeners |= 1 << client;
            }
        }
        self.begin(client);
    }

    fn begin(&mut self, client: usize) {
        let now = self.now();
        let it = &mut self.clients[client];
        (it.sleeps, it.has_news) = (false, false);
        it.rounds += 1;
        let proposal = proposal(wall(now, it.offset), it.seen);
        let place = it.place(client, now);
        let reads = it.reads;
        let index = self.rounds.len();
        let Ok(value) = u32::try_from(index + 1) else { return };
        it.round = Some(index);
        let nodes = self.weather.nodes;
        let mut round = Round::new(client, value, reads, nodes, now);
        round.generation = self.clients[client].generation;
        round.sent = [self.local(client); 5];
        self.rounds.push(round);
        let vote = Vote { reads, value, ttl: self.weather.ttl_ms(), proposal, place };
        self.ask_all(index, Stage::Vote, |_| Some(Call::Vote(vote)));
        self.look_around(client);
        // Nobody's vote counts who is not known as a member.
        for node in 0..nodes {
            if self.is_unknown(client, node) {
                self.voted(index, node, Err(false));
            }
        }
    }

    /// Whether the server at this place is not known as a member.
    pub(super) fn is_unknown(&self, client: usize, node: usize) -> bool {
        self.clients[client].strangers & (1 << node) != 0
    }

    /// Asks each node its one call, if it has one, and waits for the answers within the limit. Returns how many were asked.
    pub(super) fn ask_all(&mut self, round: usize, stage: Stage, call: impl Fn(usize) -> Option<Call>) -> usize {
        self.ask_within(round, stage, self.weather.limit, call)
    }

    pub(super) fn ask_within(
        &mut self,
        round: usize,
        stage: Stage,
        limit: Time,
        call: impl Fn(usize) -> Option<Call>,
    ) -> usize {
        let client = self.rounds[round].client;
        // Whoever is no member is asked for nothing that counts.
        let is_asked = |node: usize| {
            node < self.weather.nodes && (matches!(stage, Stage::Undo(_)) || !self.is_unknown(client, node))
        };
        let calls: [Option<Call>; 5] = std::array::from_fn(|node| is_asked(node).then(|| call(node)).flatten());
        let asked = calls.iter().enumerate().fold(0_u8, |asked, (node, call)| asked | u8::from(call.is_some()) << node);
        if asked == 0 {
            return 0;
        }
        self.rounds[round].asked.push((stage, asked));
        for (node, call) in calls.into_iter().enumerate() {
            if let Some(call) = call {
                self.ask(round, node, stage, call);
            }
        }
        self.alarm(round, limit, Alarm::Limit(stage));
        asked.count_ones() as usize
    }

    pub(super) fn voted(&mut self, index: usize, node: usize, answer: Result<Ballot, bool>) {
        let at = self.local(self.rounds[index].client);
        let round = &mut self.rounds[index];
        round.received[node] = at;
        match round.phase {
            Phase::Voting => {
                let voice = match &answer {
                    Ok(Ballot::Granted(_)) => Voice::Granted,
                    Ok(_) => Voice::Refused,
                    Err(_) => Voice::Unknown,
                };
                round.votes.record(node, voice);
                round.ballots[node] = Some(answer);
                self.decide(index);
            }
            Phase::Settling => round.ballots[node] = Some(answer),
            Phase::Held => {
                let granted = if let Ok(Ballot::Granted(number)) = answer { Some(number) } else { None };
                let unknown = answer == Err(true);
                round.ballots[node] = Some(answer);
                match granted {
                    Some(number) => self.join_late(index, node, number),
                    None if !unknown => self.refused_late(index, node),
                    None => {}
                }
            }
            Phase::Over => {
                let may_hold = matches!(answer, Ok(Ballot::Granted(_)) | Err(true));
                let is_new = round.ballots[node].is_none();
                round.ballots[node] = Some(answer);
                if may_hold && is_new && !round.undone[node] {
                    self.undo_on(index, |other| other == node, Line::None);
                }
            }
        }
    }

    fn verdict(&self, votes: &Votes) -> Verdict {
        if !self.rules.majority && votes.count(Voice::Granted) >= majority(self.weather.nodes) - 1 {
            return Verdict::Granted;
        }
        votes.verdict()
    }

    fn decide(&mut self, round: usize) {
        match self.verdict(&self.rounds[round].votes) {
            Verdict::Undecided => {}
            Verdict::Granted => self.settle(round),
            Verdict::Impossible => self.lost(round, None),
        }
    }

    /// A round that is no grant; what it means is told by the votes, unless it was one of those that are `decided`.
    pub(super) fn lost(&mut self, index: usize, decided: Option<Defeat>) {
        let (client, nodes) = (self.rounds[index].client, self.weather.nodes);
        let round = &self.rounds[index];
        let known: [Known<'_>; 5] = std::array::from_fn(|node| round.known(node));
        let mode = if round.reads { Mode::Reader } else { Mode::Writer };
        let defeat = decided.unwrap_or_else(|| defeat(mode, &known[..nodes]));
        let it = &self.clients[client];
        let rounds = it.rounds;
        let again = it.waits && (rounds < ROUNDS || it.is_probe || self.weather.kind == Kind::Crowd);
        let again = again || (defeat == Defeat::Contested && rounds < TRIES);
        if it.is_stopping || !again {
            self.undo(index);
            return self.leave(client);
        }
        self.pass(index);
        let backoff = self.chance.below((2 * MS) << rounds.min(5));
        let pause = match defeat {
            Defeat::Behind(limit) => {
                let limit = u64::try_from(limit.min(LONGEST_SLEEP).as_nanos()).unwrap_or(0);
                limit + self.chance.below(20 * MS)
            }
            Defeat::Contested => backoff,
            Defeat::Outage | Defeat::Late => backoff + 20 * MS,
        };
        self.clients[client].sleeps = true;
        let pause = if self.clients[client].has_news { self.chance.below(2 * MS) } else { pause };
        self.alarm(index, pause, Alarm::Begin(rounds));
    }

    pub(super) fn heard_news(&mut self, client: usize) {
        let it = &mut self.clients[client];
        it.has_news = true;
        if it.sleeps {
            let (rounds, grace) = (it.rounds, self.chance.below(2 * MS));
            let at = self.now() + grace;
            self.alarm_at(client, 0, at, Alarm::Begin(rounds));
        }
    }

    /// Takes back whatever a round has or may yet get, and leaves the line.
    pub(super) fn undo(&mut self, index: usize) {
        let now = self.now();
        let round = &mut self.rounds[index];
        round.phase = Phase::Over;
        let client = round.client;
        let place = self.clients[client].place(client, now);
        let reads = round.reads;
        let line = place.map_or(Line::None, |place| Line::Leave { reads, waiter: place.waiter });
        let undoing: [_; 5] = std::array::from_fn(|node| round.known(node).undoing(place.is_some()));
        self.undo_as(index, &undoing, line);
    }

    /// Takes back what a round has, and stays in line.
    fn pass(&mut self, index: usize) {
        let now = self.now();
        let round = &mut self.rounds[index];
        round.phase = Phase::Over;
        let client = round.client;
        let reads = round.reads;
        let line = match self.clients[client].place(client, now) {
            Some(place) => Line::Stay { reads, place },
            None => Line::None,
        };
        let undoing: [_; 5] = std::array::from_fn(|node| round.known(node).undoing_to_yield());
        self.undo_as(index, &undoing, line);
    }

    /// It goes away: until it comes again.
    pub(super) fn leave(&mut self, client: usize) {
        for server in &mut self.servers {
            server.node.listeners &= !(1 << client);
        }
        let it = &mut self.clients[client];
        it.round = None;
        it.sleeps = false;
        let most = match self.weather.kind {
            Kind::Crowd => 5 * MS,
            Kind::Resent => 60 * MS,
            _ => self.weather.ttl(),
        };
        if !it.is_probe {
            let at = self.agenda.now() + self.chance.mostly_short(most);
            self.alarm_at(client, 0, at, Alarm::Begin(0));
        }
    }

    fn stop(&mut self, client: usize) {
        self.clients[client].is_stopping = true;
        let Some(index) = self.clients[client].round else { return };
        if self.weather.kind == Kind::Crowd && client + 1 == self.weather.clients && !self.clients[client].reads {
            let text = "a writer waited for more than a second while readers came and went".to_owned();
            if self.rounds[index].phase != Phase::Held {
                self.violate("P", text);
            }
        }
        match self.rounds[index].phase {
            Phase::Held => {
                let delay = self.chance.below(20 * MS);
                self.alarm(index, delay, Alarm::Release);
            }
            Phase::Voting | Phase::Settling => {
                self.undo(index);
                self.leave(client);
            }
            Phase::Over => {
                let round = &self.rounds[index];
                let (value, reads) = (round.value, round.reads);
                if let Some(place) = self.clients[client].place(client, self.now()) {
                    let line = Line::Leave { reads, waiter: place.waiter };
                    let stage = self.rounds[index].next_undo();
                    self.ask_all(index, stage, |_| Some(Call::Undo { value, tombstone: false, line }));
                }
                self.leave(client);
            }
        }
    }

    pub(super) fn count_grant(&mut self, reads: bool) {
        self.counts.add(if reads { fact::READER } else { fact::WRITER });
    }
}
