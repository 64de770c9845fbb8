//! What must hold, checked from outside: by what the ensemble has committed, by true time, and by none of the rules that
//! the backend goes by.

use std::{collections::BTreeSet, rc::Rc};

use lock_core::{BootInstant, Error, FencingToken, Loss, Validity};
use lock_zk::{protocol::queue::NUMBERS_END, wire::WatchEvent};

use super::{
    fact::FactKind,
    message::SessionId,
    report::{AttemptEnd, RequestMode},
    state::{CheckedGrant, ContenderPhase, CreatedNode, InvariantChecker, LogEntry, Schedule, lock_path},
    tree::{TreeChange, TreeNode, split},
};
use crate::Time;

impl InvariantChecker {
    /// A client asks that a node be deleted.
    pub(super) fn asks_to_delete(&mut self, session: SessionId, number: u32, path: &str, told: u64) {
        if path == lock_path() {
            self.deletes.push((session, number, told));
        }
    }

    /// Somebody deletes the node that took the place of its own, because somebody else had deleted the own one when it asked
    /// for that: it could not know. That is the limit of the strategy in which all want one node.
    fn is_misled(&self, entry: &LogEntry, path: &Rc<str>) -> bool {
        let Some(origin) = entry.origin else { return false };
        let of_another = self.made.iter().rev().find(|made| made.path == *path);
        let is_it =
            |(session, number, _): &&(SessionId, u32, u64)| (*session, *number) == (origin.session, origin.number);
        let Some((.., told)) = self.deletes.iter().find(is_it) else { return false };
        // It may be of the same session: another contender's of the same program.
        path.as_ref() == lock_path()
            && of_another.is_some_and(|made| made.czxid > *told)
            && self.removed.iter().any(|(other, zxid)| other == path && zxid > told)
    }
}

/// Whose a node is, as its data say: contender and attempt.
fn owner(node: &TreeNode) -> Option<(usize, u32)> {
    let data = std::str::from_utf8(&node.data).ok()?;
    let payload = data.rsplit('\n').next()?;
    let (slot, attempt) = payload.split_once('.')?;
    Some((slot.parse().ok()?, attempt.parse().ok()?))
}

impl Schedule<'_> {
    /// A transaction is committed.
    pub(super) fn note_commit(&mut self, entry: &LogEntry) {
        if entry.opens != 0 {
            self.invariants.alive.insert(entry.opens);
        }
        let lock = lock_path();
        let is_lock = |path: &Rc<str>| path.starts_with(lock.as_str());
        for change in &entry.changes {
            let (is_change, path) = match change {
                TreeChange::Create { path, data, owner, .. } => {
                    let node = Rc::clone(data);
                    self.note_created(entry.zxid, path, &node, *owner);
                    (is_lock(path), Some(path))
                }
                TreeChange::Write { path, .. } | TreeChange::Delete { path } => (is_lock(path), Some(path)),
                TreeChange::Close(_) => (true, None),
            };
            if is_change {
                self.invariants.changes += 1;
                let (at, zxid) = (self.now(), entry.zxid);
                let by = entry.origin.map_or(0, |origin| origin.conn);
                let whose = if entry.foreign { " (somebody else)" } else { "" };
                self.trace.note(
                    at,
                    "ensemble",
                    format_args!("{zxid:x}: {}, by connection {by}{whose}", DisplayedChange(change)),
                );
            }
            if let (TreeChange::Delete { .. }, Some(path)) = (change, path)
                && (entry.foreign || self.invariants.is_misled(entry, path))
            {
                self.invariants.removed.push((Rc::clone(path), entry.zxid));
            }
        }
        match entry.changes.as_slice() {
            [TreeChange::Close(session)] => {
                let session = *session;
                self.invariants.alive.remove(&session);
                let now = self.now();
                self.invariants.closed.push((session, now));
                if entry.origin.is_some() {
                    self.counts.add(FactKind::SessionClosed as usize);
                }
                for slot in 0..self.contending.len() {
                    if self.contending[slot].grant.as_ref().is_some_and(|grant| grant.session == session) {
                        self.check_deadline(slot);
                    }
                }
            }
            [TreeChange::Create { .. }, TreeChange::Delete { .. }] => self.counts.add(FactKind::Downgraded as usize),
            [TreeChange::Write { path, .. }] if !entry.foreign && is_lock(path) => {
                self.counts.add(FactKind::PermitTold as usize);
            }
            _ => {}
        }
    }

    fn note_created(&mut self, zxid: u64, path: &Rc<str>, data: &[u8], session: SessionId) {
        let payload = std::str::from_utf8(data).unwrap_or_default().rsplit('\n').next().unwrap_or_default();
        let Some((slot, attempt)) = payload.split_once('.') else { return };
        let (Ok(slot), Ok(attempt)) = (slot.parse(), attempt.parse()) else { return };
        self.invariants.made.push(CreatedNode { slot, attempt, path: Rc::clone(path), czxid: zxid, session });
    }

    /// T: nobody believes in its grant for longer than the servers keep its session.
    fn check_deadline(&mut self, slot: usize) {
        let Some(grant) = &self.contending[slot].grant else { return };
        let Some(until) = grant.validity.valid_until() else { return };
        let session = grant.session;
        let Some((_, closed)) = self.invariants.closed.iter().find(|(id, _)| *id == session).copied() else { return };
        let until = self.true_time(slot, until);
        if until > closed && !self.contending[slot].is_dead {
            let beyond = until - closed;
            self.violate(
                "T",
                format!("contender {slot} counts on session {session} until {beyond} ns after the leader has ended it"),
            );
        }
    }

    fn true_time(&self, slot: usize, at: BootInstant) -> Time {
        self.hosts[self.contending[slot].host].clock.when(at.as_nanos())
    }

    /// Something was said to a client: deadlines may have moved.
    pub(super) fn check_deadlines_of(&mut self, client: usize) {
        let session = self.clients[client].session;
        if self.invariants.alive.contains(&session) {
            return;
        }
        // What it does with what it was told.
        self.world.settle();
        for slot in 0..self.contending.len() {
            if self.contending[slot].grant.as_ref().is_some_and(|grant| grant.session == session) {
                self.check_deadline(slot);
            }
        }
    }

    pub(super) fn asks(&mut self, slot: usize, attempt: u32, kind: RequestMode) {
        let since = self.now();
        let this = &mut self.contending[slot];
        (this.attempt, this.kind, this.phase, this.since) = (attempt, kind, ContenderPhase::Waits, since);
        self.say_of(slot, format_args!("asks for it: {kind:?}"));
    }

    fn say_of(&mut self, slot: usize, what: std::fmt::Arguments<'_>) {
        let host = self.contending[slot].host;
        self.note(format_args!("contender {host}.{slot}"), what);
    }

    pub(super) fn contenders_die(&mut self, host: usize) {
        for contending in self.contending.iter_mut().filter(|contending| contending.host == host) {
            (contending.is_dead, contending.phase, contending.grant) = (true, ContenderPhase::Idle, None);
        }
    }

    pub(super) fn ends(&mut self, slot: usize, why: &AttemptEnd) {
        self.say_of(slot, format_args!("ends: {why:?}"));
        let held = self.contending[slot].grant.is_some();
        match why {
            AttemptEnd::GaveUp => self.counts.add(FactKind::GaveUp as usize),
            AttemptEnd::Lost(Loss::Revoked) => self.counts.add(FactKind::Revoked as usize),
            AttemptEnd::Lost(Loss::Expired | Loss::Unreachable) => self.counts.add(FactKind::Lapsed as usize),
            AttemptEnd::Failed(Error::Config { .. }) => self.counts.add(FactKind::Disagreed as usize),
            AttemptEnd::Failed(Error::Lost { loss: Loss::Expired, .. }) if !held => self.was_granted_too_late(slot),
            _ => {}
        }
        let this = &mut self.contending[slot];
        (this.phase, this.grant) = (ContenderPhase::Idle, None);
    }

    /// O: when all is quiet a connection is closed in order, with nothing that is left to the end of its session.
    pub(super) fn closed(&mut self, slot: usize, failure: Option<String>) {
        self.contending[slot].is_closed = true;
        if let Some(failure) = failure {
            self.violate("O", format!("the connection of contender {slot} is not closed in order: {failure}"));
        }
    }

    /// L: a grant is worth something when it begins, unless its program stood still.
    fn was_granted_too_late(&mut self, slot: usize) {
        let host = &self.hosts[self.contending[slot].host];
        if self.now() - host.resumed > self.settings.timeout {
            self.violate("L", format!("contender {slot} was granted what had ended already"));
        }
    }

    /// Somebody has deleted the holder's node after what it was granted by, so that nobody could have told it.
    fn is_robbed(&self, slot: usize) -> bool {
        let this = &self.contending[slot];
        let Some(grant) = &this.grant else { return false };
        let is_its = |path: &Rc<str>| {
            self.invariants
                .made
                .iter()
                .any(|made| made.slot == slot && made.attempt == this.attempt && made.path == *path)
        };
        self.invariants.removed.iter().any(|(path, zxid)| *zxid > grant.evidence && is_its(path))
    }

    /// Whether a holder may act now, as it believes.
    fn is_valid(&self, slot: usize) -> bool {
        let this = &self.contending[slot];
        this.phase == ContenderPhase::Holds
            && !this.is_dead
            && this.grant.as_ref().is_some_and(|grant| grant.validity.is_valid())
    }

    /// M and F, at a grant.
    pub(super) fn granted(&mut self, slot: usize, token: Option<FencingToken>, validity: Validity) {
        self.grants += 1;
        let (host, attempt, kind) =
            (self.contending[slot].host, self.contending[slot].attempt, self.contending[slot].kind);
        let number = token.map(|token| token.number);
        self.say_of(slot, format_args!("HOLDS {kind:?}, token {number:?}"));
        let is_its = |made: &&CreatedNode| {
            made.slot == slot && made.attempt == attempt && number.is_none_or(|number| number == made.czxid)
        };
        // A permit does not say by which node it is granted. Of an earlier session there may be one that was made later: its
        // create waited in the client when the session was given up.
        let made = self.invariants.made.iter().filter(is_its).map(|made| made.session).max();
        let Some(session) = made else {
            return self.violate("L", format!("contender {slot} is granted it by a node that was never there"));
        };
        let told = self.clients.iter().filter(|client| client.host == host && client.session == session);
        let told = told.map(|client| client.told).max().unwrap_or(0);
        // Where all want one node, whoever has created it does not look again.
        let evidence = number.filter(|_| self.is_herd).unwrap_or(told);
        let has_waited = self.now() - self.contending[slot].since > self.settings.tick / 4;
        if has_waited {
            self.counts.add(FactKind::Waited as usize);
        }
        match self.hosts[host].heard {
            Some(WatchEvent::DataChanged) => self.counts.add(FactKind::HandedOn as usize),
            None if has_waited => self.counts.add(FactKind::GrantedByLook as usize),
            _ => {}
        }
        let this = &mut self.contending[slot];
        this.grant = Some(CheckedGrant { validity, session, evidence });
        this.phase = ContenderPhase::Holds;
        self.check_deadline(slot);
        if self.contending[slot].grant.as_ref().is_some_and(|grant| grant.validity.loss() == Some(Loss::Expired)) {
            return self.was_granted_too_late(slot);
        }
        if !self.is_valid(slot) || self.is_robbed(slot) {
            return;
        }
        let others: Vec<usize> = (0..self.contending.len())
            .filter(|other| *other != slot && self.is_valid(*other) && !self.is_robbed(*other))
            .collect();
        self.check_exclusion(slot, kind, &others);
        if let Some(number) = number {
            self.check_token(slot, kind, number);
        }
    }

    fn check_exclusion(&mut self, slot: usize, kind: RequestMode, others: &[usize]) {
        let kind_of = |other: &usize| self.contending[*other].kind;
        if let RequestMode::Permit(of) = kind {
            let permits = others.iter().filter_map(|other| match kind_of(other) {
                RequestMode::Permit(of) => Some(of.get()),
                _ => None,
            });
            let (holders, least) = permits.fold((1, of.get()), |(holders, least), of| (holders + 1, least.min(of)));
            if holders > least {
                self.violate("M", format!("contender {slot} is the {holders}th holder of {least} permits"));
            }
            return;
        }
        let in_the_way = others.iter().find(|other| match kind_of(other) {
            RequestMode::Writer => true,
            RequestMode::Reader => kind == RequestMode::Writer,
            RequestMode::Permit(_) => false,
        });
        if let Some(other) = in_the_way.copied() {
            let theirs = self.contending[other].kind;
            self.violate("M", format!("contender {slot} holds ({kind:?}) while {other} may act ({theirs:?})"));
        }
    }

    fn check_token(&mut self, slot: usize, kind: RequestMode, token: u64) {
        let highest = if kind == RequestMode::Writer { self.invariants.all } else { self.invariants.writers };
        if token <= highest {
            self.violate("F", format!("contender {slot} has token {token} after {highest}"));
        }
        self.invariants.all = self.invariants.all.max(token);
        if kind == RequestMode::Writer {
            self.invariants.writers = self.invariants.writers.max(token);
        }
    }

    /// The contenders' nodes as the leader has applied them, with their paths.
    fn nodes(&self) -> Option<Vec<(&Rc<str>, &TreeNode)>> {
        let leader = self.leader.as_ref()?;
        let lock = lock_path();
        let nodes = &self.servers[leader.server].tree.nodes;
        Some(nodes.iter().filter(|(path, node)| node.owner != 0 && path.starts_with(lock.as_str())).collect())
    }

    /// Why all is not quiet, or not as it should be when it is: the invariant, and what is wrong.
    pub(super) fn unrest(&self) -> Option<(&'static str, String)> {
        let Some(nodes) = self.nodes() else { return Some(("P", "there is no leader".to_owned())) };
        let mut owners = BTreeSet::new();
        for (path, node) in &nodes {
            let used = owner(node).is_some_and(|(slot, attempt)| {
                let this = &self.contending[slot];
                let is_held = this.grant.as_ref().is_none_or(|grant| grant.validity.is_valid());
                this.attempt == attempt && this.phase != ContenderPhase::Idle && is_held
            });
            if !used {
                return Some(("O", format!("the node {path} is left behind by {:?}", owner(node))));
            }
            if !owners.insert(owner(node)) {
                return Some(("O", format!("the node {path} is the second one of {:?}", owner(node))));
            }
        }
        (0..self.contending.len()).find_map(|slot| self.is_uneasy(slot, &nodes))
    }

    fn is_uneasy(&self, slot: usize, nodes: &[(&Rc<str>, &TreeNode)]) -> Option<(&'static str, String)> {
        let this = &self.contending[slot];
        let own = nodes.iter().find(|(_, node)| owner(node) == Some((slot, this.attempt)));
        match (this.phase, own) {
            (ContenderPhase::Idle, _) => None,
            (ContenderPhase::Holds, Some(_)) => None,
            (ContenderPhase::Holds, None) => {
                let is_valid = self.is_valid(slot);
                is_valid.then(|| ("L", format!("contender {slot} holds by a node that is gone")))
            }
            (ContenderPhase::Waits, Some((path, own))) => {
                let could = self.could_hold(this.kind, path, own, nodes);
                could.then(|| ("P", format!("contender {slot} sleeps although it could hold")))
            }
            // It waits for the one node that all of them want.
            (ContenderPhase::Waits, None) if nodes.iter().any(|(path, _)| path.as_ref() == lock_path()) => None,
            // It waits for the others to leave, so that the directory counts anew.
            (ContenderPhase::Waits, None) if !nodes.is_empty() && self.is_out_of_numbers() => None,
            (ContenderPhase::Waits, None) => Some(("P", format!("contender {slot} comes to no end"))),
        }
    }

    /// Whether the directory has given away all numbers that a contender may hold by.
    fn is_out_of_numbers(&self) -> bool {
        let tree = self.leader.as_ref().map(|leader| &self.servers[leader.server].tree);
        let directory = tree.and_then(|tree| tree.nodes.get(lock_path().as_str()));
        directory.is_some_and(|directory| !(0..NUMBERS_END).contains(&directory.counter))
    }

    fn could_hold(&self, kind: RequestMode, path: &str, own: &TreeNode, nodes: &[(&Rc<str>, &TreeNode)]) -> bool {
        let letter = |path: &str| split(path).1.split('-').nth(2).unwrap_or_default().to_owned();
        let own_letter = letter(path);
        let mut ahead = nodes.iter().filter(|(_, node)| node.arrival < own.arrival).map(|(path, _)| letter(path));
        match kind {
            RequestMode::Writer => !ahead.any(|letter| !letter.starts_with('p')),
            RequestMode::Reader => !ahead.any(|letter| letter == "x"),
            RequestMode::Permit(of) => {
                let permits: Vec<String> = ahead.filter(|letter| letter.starts_with('p')).collect();
                permits.len() < of.get() as usize && permits.iter().all(|letter| *letter == own_letter)
            }
        }
    }

    /// Whether somebody waits.
    pub(super) fn somebody_waits(&self) -> bool {
        self.contending.iter().any(|contending| contending.phase == ContenderPhase::Waits)
    }

    /// Whether a contender of that host waits.
    pub(super) fn has_waiting(&self, host: usize) -> bool {
        self.contending.iter().any(|contending| contending.host == host && contending.phase == ContenderPhase::Waits)
    }

    pub(super) fn host_of(&self, slot: usize) -> usize {
        self.contending[slot].host
    }

    /// Whether no contender is there any more.
    pub(super) fn nobody_is_there(&self) -> bool {
        self.contending.iter().all(|contending| contending.phase == ContenderPhase::Idle)
    }

    /// Whether all connections and all sessions have ended.
    pub(super) fn all_is_closed(&self) -> bool {
        self.contending.iter().all(|contending| contending.is_closed || contending.is_dead)
            && self.invariants.alive.is_empty()
    }
}

/// Displays a [`TreeChange`] of the tree in a trace.
struct DisplayedChange<'a>(&'a TreeChange);

impl std::fmt::Display for DisplayedChange<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            TreeChange::Create { path, owner, .. } => write!(f, "creates {path} of session {owner}"),
            TreeChange::Write { path, .. } => write!(f, "writes {path}"),
            TreeChange::Delete { path } => write!(f, "deletes {path}"),
            TreeChange::Close(session) => write!(f, "ends session {session}"),
        }
    }
}
