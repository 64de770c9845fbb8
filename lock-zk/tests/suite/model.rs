//! The waiting rules on random schedules, without a server: contenders that come, look, wait, hold, give up, die and are
//! removed by others, each seeing the servers with a delay of its own. Nobody is granted wrongly, whoever may hold is
//! woken, and a departure wakes nobody whom it does not concern.
//!
//! The model does what `src/attempt/queue.rs` does with the answers of the servers, by the same pure functions.

use std::{collections::BTreeMap, num::NonZeroU32};

use lock_zk::protocol::queue::{
    ContenderKind, NameForm, QueuePosition, downgraded, is_followed, is_news, marks, position, prefix,
};
use proptest::prelude::*;

/// What the servers committed, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Created(String),
    Written(String),
    /// With the mark of an exclusive holder, or without.
    Deleted {
        name: String,
        marked: bool,
    },
    /// A writer became a reader.
    Replaced {
        writer: String,
        reader: String,
    },
}

/// The directory as one server has it.
#[derive(Debug, Clone, Default)]
struct View {
    children: Vec<String>,
    /// How often each was written to.
    versions: BTreeMap<String, i32>,
}

impl View {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Created(name) => self.children.push(name.clone()),
            Change::Written(name) => *self.versions.entry(name.clone()).or_default() += 1,
            Change::Deleted { name, .. } => self.children.retain(|child| child != name),
            Change::Replaced { writer, reader } => {
                self.children.retain(|child| child != writer);
                self.children.push(reader.clone());
            }
        }
    }

    fn has(&self, name: &str) -> bool {
        self.children.iter().any(|child| child == name)
    }

    fn version(&self, name: &str) -> i32 {
        self.versions.get(name).copied().unwrap_or_default()
    }
}

/// What a contender waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// About to look at the servers.
    Looking,
    /// Has looked, and is about to watch that node.
    AboutToWatch(String),
    /// With a watch on that node. The own node is watched as well.
    Watching(String),
    /// With a watch on the directory.
    FirstBlocked,
    Holding,
    Gone,
}

#[derive(Debug, Clone)]
struct Contender {
    name: String,
    kind: ContenderKind,
    state: State,
    /// The servers as it sees them: never older than its own last write.
    view: View,
    /// How many changes are in that.
    seen: usize,
    /// Which write to which node it has heard of.
    heard: (String, i32),
    /// To write the own data anew is under way.
    telling: bool,
}

#[derive(Debug, Default)]
struct Model {
    log: Vec<Change>,
    now: View,
    contenders: Vec<Contender>,
    wakes: Vec<Wake>,
}

/// Somebody was woken.
#[derive(Debug)]
struct Wake {
    who: String,
    change: usize,
}

impl Model {
    fn commit(&mut self, change: Change) {
        self.now.apply(&change);
        self.log.push(change);
    }

    fn arrive(&mut self, kind: ContenderKind) {
        let number = self.contenders.len();
        let name = format!("{}{number:010}", prefix(NameForm::Native, &format!("c{number}"), 1, kind));
        self.commit(Change::Created(name.clone()));
        let (view, seen, heard) = (self.now.clone(), self.log.len(), (String::new(), 0));
        self.contenders.push(Contender { name, kind, state: State::Looking, view, seen, heard, telling: false });
    }

    /// A contender lists the directory as its server has it, and does what its position says.
    fn look(&mut self, who: usize) {
        let contender = &mut self.contenders[who];
        let list = &contender.view.children;
        contender.state = match position(list, &contender.name) {
            QueuePosition::Holds => {
                let followed = is_followed(list, &contender.name);
                contender.telling |= followed && matches!(contender.kind, ContenderKind::Permit { .. });
                State::Holding
            }
            QueuePosition::Behind(ahead) => State::AboutToWatch(ahead.to_owned()),
            // The list and the watch are one request.
            QueuePosition::FirstBlocked => State::FirstBlocked,
            QueuePosition::Disagrees { .. } => return self.remove(who, false),
            QueuePosition::OtherKind => unreachable!("a native line"),
            QueuePosition::Gone => State::Gone,
        };
    }

    /// A contender that has looked sets its watch, at a later moment than that of its list.
    fn watch(&mut self, who: usize) {
        let contender = &mut self.contenders[who];
        let State::AboutToWatch(ahead) = contender.state.clone() else { return };
        let heard = (ahead.clone(), contender.view.version(&ahead));
        contender.state = if !contender.view.has(&ahead) || is_news(&heard, &contender.heard) {
            State::Looking
        } else {
            State::Watching(ahead)
        };
        contender.heard = heard;
    }

    /// The node of a contender goes.
    fn remove(&mut self, who: usize, marked: bool) {
        let name = self.contenders[who].name.clone();
        if self.now.has(&name) {
            self.commit(Change::Deleted { name, marked });
        }
        self.contenders[who].state = State::Gone;
    }

    /// The server of a contender applies one more change and fires its watches.
    fn apply(&mut self, who: usize) {
        let contender = &mut self.contenders[who];
        let Some(change) = self.log.get(contender.seen) else { return };
        let at = contender.seen;
        contender.seen += 1;
        contender.view.apply(change);
        if matches!(change, Change::Deleted { name, .. } if *name == contender.name) {
            contender.state = State::Gone;
            return;
        }
        let next =
            match (&contender.state, change) {
                (State::Watching(ahead), Change::Deleted { name, marked }) if name == ahead => {
                    if *marked && marks(ahead) { State::Holding } else { State::Looking }
                }
                (State::Watching(ahead), Change::Replaced { writer: name, .. } | Change::Written(name))
                    if name == ahead =>
                {
                    State::Looking
                }
                (State::FirstBlocked, Change::Created(_) | Change::Deleted { .. } | Change::Replaced { .. }) => {
                    State::Looking
                }
                _ => return,
            };
        self.wakes.push(Wake { who: contender.name.clone(), change: at });
        contender.state = next;
    }

    /// Those who believe that they hold, and whose nodes are there.
    fn holders(&self) -> Vec<&Contender> {
        let holds = |contender: &&Contender| contender.state == State::Holding && self.now.has(&contender.name);
        self.contenders.iter().filter(holds).collect()
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let holders = self.holders();
        let of_lock: Vec<_> =
            holders.iter().filter(|holder| !matches!(holder.kind, ContenderKind::Permit { .. })).collect();
        let permits = holders.len() - of_lock.len();
        for holder in &holders {
            match holder.kind {
                ContenderKind::Exclusive => prop_assert_eq!(of_lock.len(), 1, "{:?}", self),
                ContenderKind::Read { .. } => {}
                ContenderKind::Permit { of } => prop_assert!(permits <= of.get() as usize, "{permits} {:?}", self),
            }
        }
        Ok(())
    }

    /// Lets everything settle but for who holds or has no reason to move, then looks who sleeps although it could hold.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..10_000 {
            let mut moved = false;
            for who in 0..self.contenders.len() {
                if self.contenders[who].state == State::Gone {
                    continue;
                }
                if self.contenders[who].telling {
                    self.tell(who);
                    moved = true;
                }
                if matches!(self.contenders[who].state, State::Looking | State::AboutToWatch(_)) {
                    self.proceed(who);
                    moved = true;
                } else if self.contenders[who].seen < self.log.len() {
                    self.apply(who);
                    moved = true;
                }
                self.check()?;
            }
            if !moved {
                return self.nobody_sleeps_who_could_hold();
            }
        }
        Err(TestCaseError::fail("it does not settle"))
    }

    /// What a contender that does not wait does next.
    fn proceed(&mut self, who: usize) {
        match self.contenders[who].state {
            State::Looking => self.look(who),
            State::AboutToWatch(_) => self.watch(who),
            _ => {}
        }
    }

    fn tell(&mut self, who: usize) {
        let name = self.contenders[who].name.clone();
        self.contenders[who].telling = false;
        if self.now.has(&name) {
            self.commit(Change::Written(name));
        }
    }

    fn nobody_sleeps_who_could_hold(&self) -> Result<(), TestCaseError> {
        let mut nearest_permit = None;
        for contender in self.contenders.iter().filter(|contender| self.now.has(&contender.name)) {
            let stands = position(&self.now.children, &contender.name);
            let right = match &contender.state {
                State::Holding => stands == QueuePosition::Holds,
                State::FirstBlocked => stands == QueuePosition::FirstBlocked,
                // Behind one that is held up by another's number of permits, the next in line waits for its turn.
                State::Watching(ahead) => match stands {
                    QueuePosition::Behind(nearest) => ahead == nearest,
                    QueuePosition::FirstBlocked => {
                        self.now.has(ahead) && position(&self.now.children, ahead) == QueuePosition::FirstBlocked
                    }
                    // The oldest agreed with it and has gone since: the next in line is refused at its turn.
                    QueuePosition::Disagrees { .. } => Some(ahead) == nearest_permit,
                    _ => false,
                },
                State::Looking | State::AboutToWatch(_) | State::Gone => false,
            };
            prop_assert!(right, "{contender:?} stands {stands:?} in {:?}\n{:?}", self.now, self.log);
            if matches!(contender.kind, ContenderKind::Permit { .. }) {
                nearest_permit = Some(&contender.name);
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Arrive(ContenderKind),
    /// One contender does what it is about to do: look, or learn of a change.
    Move(usize),
    /// One contender's server learns of a change.
    Apply(usize),
    /// A holder releases, a waiter gives up.
    Leave(usize),
    /// A session ends, or somebody deletes a node.
    Die(usize),
    /// Somebody else writes to a node of the semaphore.
    Scribble(usize),
    /// A writer goes on as a reader.
    Downgrade(usize),
    Tell(usize),
}

fn kind() -> impl Strategy<Value = ContenderKind> {
    prop_oneof![
        2 => Just(ContenderKind::Exclusive),
        4 => Just(ContenderKind::Read { was: None }),
        6 => Just(permits(2)),
        1 => Just(permits(3)),
    ]
}

fn permits(of: u32) -> ContenderKind {
    ContenderKind::Permit { of: NonZeroU32::new(of).unwrap() }
}

/// One semaphore that is much in use, and now and then somebody who is wrong about it.
fn permit() -> impl Strategy<Value = ContenderKind> {
    prop_oneof![6 => Just(permits(3)), 1 => Just(permits(5))]
}

fn step(kind: impl Strategy<Value = ContenderKind> + 'static) -> impl Strategy<Value = Step> {
    let any = 0..64_usize;
    prop_oneof![
        4 => kind.prop_map(Step::Arrive),
        8 => any.clone().prop_map(Step::Move),
        8 => any.clone().prop_map(Step::Apply),
        3 => any.clone().prop_map(Step::Leave),
        1 => any.clone().prop_map(Step::Die),
        1 => any.clone().prop_map(Step::Scribble),
        2 => any.clone().prop_map(Step::Downgrade),
        2 => any.prop_map(Step::Tell),
    ]
}

fn run(model: &mut Model, step: Step) {
    let pick = |at: usize| at % model.contenders.len().max(1);
    match step {
        Step::Arrive(kind) => return model.arrive(kind),
        _ if model.contenders.is_empty() => return,
        _ => {}
    }
    match step {
        Step::Arrive(_) => {}
        Step::Move(at) => model.proceed(pick(at)),
        Step::Apply(at) => {
            let who = pick(at);
            if model.contenders[who].state != State::Gone {
                model.apply(who);
            }
        }
        Step::Leave(at) => {
            let who = pick(at);
            let contender = &model.contenders[who];
            let marked = contender.state == State::Holding && contender.kind == ContenderKind::Exclusive;
            model.remove(who, marked);
        }
        Step::Die(at) => model.remove(pick(at), false),
        Step::Scribble(at) => {
            let contender = &model.contenders[pick(at)];
            if matches!(contender.kind, ContenderKind::Permit { .. }) && model.now.has(&contender.name) {
                model.commit(Change::Written(contender.name.clone()));
            }
        }
        Step::Downgrade(at) => {
            let who = pick(at);
            let contender = model.contenders[who].clone();
            if contender.state == State::Holding
                && model.now.has(&contender.name)
                && let Some(reader) = downgraded(&contender.name, 7)
            {
                model.commit(Change::Replaced { writer: contender.name, reader: reader.clone() });
                let (view, seen) = (model.now.clone(), model.log.len());
                let contender = &mut model.contenders[who];
                (contender.name, contender.kind) = (reader, ContenderKind::Read { was: Some(7) });
                (contender.view, contender.seen) = (view, seen);
            }
        }
        Step::Tell(at) => {
            let who = pick(at);
            if model.contenders[who].telling {
                model.tell(who);
            }
        }
    }
}

/// Plays the steps and checks after each, and in the end that nobody sleeps who could hold.
fn play(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut model = Model::default();
    for step in steps {
        run(&mut model, step);
        model.check()?;
    }
    model.settle()
}

/// Contenders that arrive one after the other, each looking at once.
fn arrived(kinds: &[ContenderKind]) -> Vec<Step> {
    kinds.iter().enumerate().flat_map(|(at, kind)| [Step::Arrive(*kind), Step::Move(at), Step::Move(at)]).collect()
}

#[test]
fn news_of_a_permit_between_the_look_and_the_watch_of_the_one_behind_is_not_missed() {
    // Two hold, the third is the gate, and the fourth has looked but does not watch yet.
    let mut steps = arrived(&[permits(2), permits(2), permits(2)]);
    steps.extend([Step::Arrive(permits(2)), Step::Move(3), Step::Leave(0)]);
    // The gate learns of the fourth and of the departure, gets the permit and tells.
    steps.extend([Step::Apply(2), Step::Apply(2), Step::Move(2), Step::Apply(2), Step::Apply(2), Step::Move(2)]);
    steps.push(Step::Tell(2));
    // Only now the fourth's server hears of all that.
    steps.extend([Step::Apply(3), Step::Apply(3), Step::Apply(3), Step::Move(3)]);
    play(steps).unwrap();
}

#[test]
fn one_in_between_that_is_wrong_about_the_number_is_waited_out() {
    let mut steps = arrived(&[permits(3)]);
    // It does not look before the oldest, which it disagrees with, is gone.
    steps.push(Step::Arrive(permits(5)));
    steps.extend([Step::Arrive(permits(3)), Step::Move(2), Step::Leave(0)]);
    steps.extend([Step::Apply(1), Step::Apply(1), Step::Move(1)]);
    for at in 3..6 {
        steps.extend([Step::Arrive(permits(5)), Step::Move(at)]);
    }
    play(steps).unwrap();
}

#[test]
fn one_in_line_behind_others_that_is_wrong_about_the_number_is_refused_at_its_turn() {
    let mut model = Model::default();
    let mut steps = arrived(&[permits(3)]);
    // It does not look yet, and is the oldest when the holder goes. The two behind it go by its number, and are refused.
    steps.push(Step::Arrive(permits(5)));
    for at in 2..9 {
        steps.extend([Step::Arrive(permits(3)), Step::Move(at), Step::Move(at)]);
    }
    steps.extend([Step::Leave(0), Step::Arrive(permits(5)), Step::Move(9), Step::Move(9)]);
    steps.into_iter().for_each(|step| run(&mut model, step));
    model.settle().unwrap();
    let last = model.contenders[9].clone();
    assert!(matches!(last.state, State::Watching(_)), "{last:?}");
    assert!(matches!(position(&model.now.children, &last.name), QueuePosition::Disagrees { .. }), "{model:?}");
    for holder in 4..6 {
        run(&mut model, Step::Leave(holder));
        model.settle().unwrap();
    }
    assert_eq!([8, 9].map(|who| &model.contenders[who].state), [&State::Holding, &State::Gone]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn nobody_holds_wrongly_and_nobody_sleeps_who_could_hold(steps in proptest::collection::vec(step(kind()), 1..80)) {
        play(steps)?;
    }

    #[test]
    fn no_permit_is_free_while_somebody_sleeps_and_none_is_held_too_many(
        steps in proptest::collection::vec(step(permit()), 1..80),
    ) {
        play(steps)?;
    }

    #[test]
    fn a_departure_wakes_those_who_may_hold_and_at_most_one_other(
        kinds in proptest::collection::vec(kind(), 1..20),
        leavers in proptest::collection::vec((0..64_usize, any::<bool>()), 1..20),
    ) {
        let mut model = Model::default();
        for kind in kinds {
            model.arrive(kind);
            model.settle()?;
        }
        for (at, gives_up) in leavers {
            // A holder in an undisturbed line: those in between that give up concern whoever stands behind them.
            let holding: Vec<_> = (0..model.contenders.len())
                .filter(|who| model.contenders[*who].state == State::Holding)
                .collect();
            let waiting: Vec<_> = (0..model.contenders.len())
                .filter(|who| matches!(model.contenders[*who].state, State::Watching(_) | State::FirstBlocked))
                .collect();
            let from = if gives_up && !waiting.is_empty() { &waiting } else { &holding };
            let Some(who) = from.get(at % from.len().max(1)).copied() else { break };
            let before: BTreeMap<_, _> =
                model.contenders.iter().map(|contender| (contender.name.clone(), contender.state.clone())).collect();
            let stood = model.now.children.clone();
            model.wakes.clear();
            run(&mut model, Step::Leave(who));
            let gone = model.contenders[who].name.clone();
            let departure = model.log.len() - 1;
            model.settle()?;
            // Those that the departure itself woke, not what followed from it.
            let woken: Vec<_> = model.wakes.iter().filter(|wake| wake.change == departure).map(|wake| &wake.who).collect();
            for who in &woken {
                let concerned = match &before[*who] {
                    State::Watching(ahead) => *ahead == gone,
                    State::FirstBlocked => true,
                    _ => false,
                };
                prop_assert!(concerned, "{who} was woken by the going of {gone} from {stood:?}");
            }
            if matches!(before[&gone], State::Holding) {
                let in_vain = woken.iter().filter(|who| !matches!(position(&model.now.children, who), QueuePosition::Holds)).count();
                prop_assert!(in_vain <= 2, "{in_vain} were woken for nothing by the going of {gone} from {stood:?}");
            }
        }
    }
}
