//! The quorum token under everything that may happen to its messages, in memory: resent and late requests, lost answers,
//! holdings that end at any moment, nodes that fail, nodes that lose their counters. The arithmetic is the crate's own.

use std::collections::HashMap;

use fastrand::Rng;
use lock_redlock::{
    quorum::{Verdict, Vote, Votes, majority},
    token::{Answer, Settlement, settle},
};

/// The safeguards, each of which can be taken away.
#[derive(Clone, Copy)]
struct Rules {
    /// Without an exact majority, the token is written back before the grant is reported.
    write_back: bool,
    /// A write-back asks for the number of the holding beside its value.
    compare_number: bool,
    /// A grant takes a majority.
    majority: bool,
}

const ALL: Rules = Rules { write_back: true, compare_number: true, majority: true };

#[derive(Default, Clone)]
struct Node {
    counter: Option<u64>,
    /// Whose it is, and the number of the holding.
    holding: Option<(usize, u64)>,
}

#[derive(Clone, Copy)]
enum Ask {
    Acquire { proposal: u64 },
    WriteBack { number: u64, token: u64 },
}

#[derive(Clone, Copy)]
struct Message {
    attempt: usize,
    node: usize,
    ask: Ask,
}

/// An acquisition on its way.
struct Attempt {
    began: usize,
    votes: Votes,
    answers: Vec<Answer>,
    settlement: Option<Settlement>,
    confirmations: Votes,
    over: bool,
}

struct Grant {
    began: usize,
    complete: usize,
    token: u64,
}

struct World {
    rules: Rules,
    /// Counters can be lost: then only the clock makes tokens rise, and it has to be right.
    losing: bool,
    nodes: Vec<Node>,
    attempts: Vec<Attempt>,
    messages: Vec<Message>,
    grants: Vec<Grant>,
    step: usize,
}

impl World {
    fn new(rules: Rules, nodes: usize, losing: bool) -> Self {
        Self {
            rules,
            losing,
            nodes: vec![Node::default(); nodes],
            attempts: Vec::new(),
            messages: Vec::new(),
            grants: Vec::new(),
            step: 0,
        }
    }

    fn run(mut self, rng: &mut Rng) -> Vec<Grant> {
        for step in 1..200 {
            self.step = step;
            match rng.u8(..20) {
                0..2 if self.attempts.len() < 5 => self.begin(rng),
                2..15 => self.deliver(rng),
                15..18 => self.end_a_holding(rng),
                18 => self.give_up(rng),
                _ if self.losing => self.lose_a_counter(rng),
                _ => {}
            }
        }
        self.grants
    }

    fn begin(&mut self, rng: &mut Rng) {
        // Clocks are of no use where counters are kept; where they are lost, all show the same time.
        let proposal = if self.losing { self.time() } else { rng.u64(0..3) };
        let attempt = self.attempts.len();
        let nodes = self.nodes.len();
        self.attempts.push(Attempt {
            began: self.step,
            votes: Votes::new(nodes),
            answers: Vec::new(),
            settlement: None,
            confirmations: Votes::new(nodes),
            over: false,
        });
        let ask = Ask::Acquire { proposal };
        self.messages.extend((0..nodes).map(|node| Message { attempt, node, ask }));
    }

    fn time(&self) -> u64 {
        self.step as u64 * 10
    }

    /// One message reaches its node. It may be sent once more, and its answer may get lost.
    fn deliver(&mut self, rng: &mut Rng) {
        if self.messages.is_empty() {
            return;
        }
        let index = rng.usize(..self.messages.len());
        let message = if rng.u8(..4) == 0 { self.messages[index] } else { self.messages.swap_remove(index) };
        let answer = match message.ask {
            Ask::Acquire { proposal } => self.node_acquires(message, proposal).map(|number| (Vote::Granted, number)),
            Ask::WriteBack { number, token } => {
                self.node_writes_back(message, number, token).then_some((Vote::Granted, token))
            }
        };
        if rng.u8(..8) > 0 {
            self.answered(message, answer);
        }
    }

    fn node_acquires(&mut self, message: Message, proposal: u64) -> Option<u64> {
        let floor = if self.losing { self.time() } else { 0 };
        let node = &mut self.nodes[message.node];
        if let Some((holder, number)) = node.holding {
            return (holder == message.attempt).then_some(number);
        }
        let number = node.counter.map_or(proposal.max(floor), |counter| proposal.max(counter + 1));
        node.counter = Some(number);
        node.holding = Some((message.attempt, number));
        Some(number)
    }

    fn node_writes_back(&mut self, message: Message, number: u64, token: u64) -> bool {
        let compare = self.rules.compare_number;
        let node = &mut self.nodes[message.node];
        let same = node.holding.is_some_and(|(holder, held)| holder == message.attempt && (held == number || !compare));
        if same {
            node.counter = node.counter.max(Some(token));
        }
        same
    }

    fn answered(&mut self, message: Message, answer: Option<(Vote, u64)>) {
        let attempt = &mut self.attempts[message.attempt];
        if attempt.over {
            return;
        }
        let vote = answer.map_or(Vote::Refused, |(vote, _)| vote);
        match message.ask {
            Ask::Acquire { .. } if attempt.settlement.is_none() => {
                let news = attempt.votes.as_slice()[message.node] == Vote::Pending;
                attempt.votes.record(message.node, vote);
                if let (true, Some((_, number))) = (news, answer) {
                    attempt.answers.push(Answer { node: message.node, number });
                }
                self.count(message.attempt);
            }
            Ask::WriteBack { .. } => {
                attempt.confirmations.record(message.node, vote);
                self.confirm(message.attempt);
            }
            Ask::Acquire { .. } => {}
        }
    }

    fn count(&mut self, index: usize) {
        let needed = if self.rules.majority { majority(self.nodes.len()) } else { 1 };
        let attempt = &mut self.attempts[index];
        if attempt.votes.count(Vote::Granted) < needed {
            attempt.over = attempt.votes.verdict() == Verdict::Impossible && self.rules.majority;
            return;
        }
        let mut settlement = settle(&attempt.answers, self.nodes.len()).unwrap();
        if !self.rules.write_back || !self.rules.majority {
            settlement.behind.clear();
        }
        for node in &settlement.exact {
            attempt.confirmations.record(*node, Vote::Granted);
        }
        let behind = settlement.behind.clone();
        let token = settlement.token;
        attempt.settlement = Some(settlement);
        if behind.is_empty() {
            self.grant(index);
            return;
        }
        self.messages.extend(behind.into_iter().map(|answer| Message {
            attempt: index,
            node: answer.node,
            ask: Ask::WriteBack { number: answer.number, token },
        }));
    }

    fn confirm(&mut self, index: usize) {
        match self.attempts[index].confirmations.verdict() {
            Verdict::Granted => self.grant(index),
            Verdict::Impossible => self.attempts[index].over = true,
            Verdict::Undecided => {}
        }
    }

    fn grant(&mut self, index: usize) {
        let attempt = &mut self.attempts[index];
        attempt.over = true;
        let token = attempt.settlement.as_ref().unwrap().token;
        self.grants.push(Grant { began: attempt.began, complete: self.step, token });
    }

    /// By its ttl, by an undo, by somebody's hand: any moment will do.
    fn end_a_holding(&mut self, rng: &mut Rng) {
        let node = rng.usize(..self.nodes.len());
        self.nodes[node].holding = None;
    }

    fn give_up(&mut self, rng: &mut Rng) {
        if !self.attempts.is_empty() {
            let attempt = rng.usize(..self.attempts.len());
            self.attempts[attempt].over = true;
        }
    }

    fn lose_a_counter(&mut self, rng: &mut Rng) {
        let node = rng.usize(..self.nodes.len());
        self.nodes[node] = Node::default();
    }
}

/// What two grants may not do: share a token, or rise the wrong way.
fn is_violated(grants: &[Grant]) -> bool {
    let pairs = grants.iter().enumerate().flat_map(|(i, a)| grants[i + 1..].iter().map(move |b| (a, b)));
    pairs.into_iter().any(|(a, b)| {
        a.token == b.token || (a.complete < b.began && a.token > b.token) || (b.complete < a.began && b.token > a.token)
    })
}

#[derive(Debug, Default)]
struct Outcome {
    violations: usize,
    /// How many schedules had how many grants.
    grants: HashMap<usize, usize>,
}

fn explore(rules: Rules, schedules: u64, losing: bool) -> Outcome {
    let mut outcome = Outcome::default();
    for seed in 0..schedules {
        let mut rng = Rng::with_seed(seed);
        let nodes = if rng.bool() { 3 } else { 5 };
        let grants = World::new(rules, nodes, losing).run(&mut rng);
        *outcome.grants.entry(grants.len()).or_default() += 1;
        outcome.violations += usize::from(is_violated(&grants));
    }
    outcome
}

const SCHEDULES: u64 = 60_000;

#[test]
fn two_grants_have_different_tokens_and_the_earlier_has_the_smaller() {
    let outcome = explore(ALL, SCHEDULES, false);
    assert_eq!(outcome.violations, 0, "{outcome:?}");
    // A model in which little is granted would prove little.
    let several: usize = outcome.grants.iter().filter(|(grants, _)| **grants > 1).map(|(_, schedules)| schedules).sum();
    assert!(several > 10_000, "{outcome:?}");
}

#[test]
fn tokens_rise_also_when_counters_are_lost_and_the_clocks_are_right() {
    let outcome = explore(ALL, SCHEDULES, true);
    assert_eq!(outcome.violations, 0, "{outcome:?}");
}

#[test]
fn without_the_write_back_tokens_do_not_rise() {
    let outcome = explore(Rules { write_back: false, ..ALL }, SCHEDULES, false);
    assert!(outcome.violations > 0, "the model cannot tell: {outcome:?}");
}

#[test]
fn a_write_back_that_compares_only_the_value_is_not_enough_when_requests_are_resent() {
    let outcome = explore(Rules { compare_number: false, ..ALL }, SCHEDULES, false);
    assert!(outcome.violations > 0, "the model cannot tell: {outcome:?}");
}

#[test]
fn without_a_majority_tokens_do_not_rise() {
    let outcome = explore(Rules { majority: false, ..ALL }, SCHEDULES, false);
    assert!(outcome.violations > 0, "the model cannot tell: {outcome:?}");
}
