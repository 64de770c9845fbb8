//! The state of a memory server: who holds what and who waits, as plain values. Every method is told the time.

use std::collections::{BTreeSet, HashMap, hash_map::Entry};

use tokio::sync::watch;

use super::{
    contender::{Attempt, ServerTime},
    queue::{EnterOutcome, WaitQueue},
};
use crate::{BootInstant, Contender, LockName, Mode, Snapshot};

/// How many names are brought up to the present beside the one that is asked for.
const SWEEP: usize = 2;

/// The table of all locks and semaphores of a memory server, by their names. Fencing tokens come from one counter for all
/// names, so a name that nobody uses leaves nothing.
#[derive(Debug, Default)]
pub(super) struct LockTable {
    names: HashMap<LockName, NameQueues>,
    /// When something ends by itself next, for every name that there is.
    ends: BTreeSet<(BootInstant, LockName)>,
    followers: HashMap<LockName, watch::Sender<()>>,
    last_token: u64,
}

/// The two queues of one name in the [`LockTable`]: that of its lock and that of its semaphore.
#[derive(Debug, Default)]
struct NameQueues {
    lock: WaitQueue,
    permits: WaitQueue,
    /// As in `LockTable::ends`.
    next_end: Option<BootInstant>,
}

impl LockTable {
    /// Takes the lock or a permit, or a place in its queue if the attempt waits.
    pub(super) fn enter(&mut self, now: ServerTime, name: &LockName, attempt: Attempt, wait: bool) -> EnterOutcome {
        self.at(now, name, |lines, last_token| lines.line(attempt.mode).enter(now, attempt, wait, last_token))
    }

    /// Gives up the lock or the place in its queue. Returns whether the attempt held it.
    pub(super) fn leave(&mut self, now: ServerTime, name: &LockName, id: u64) -> bool {
        self.at(now, name, |lines, _| lines.both().map(|line| line.leave(id)).contains(&true))
    }

    /// Counts the holder's lease from now. Returns whether it still held the lock.
    pub(super) fn renew(&mut self, now: ServerTime, name: &LockName, id: u64) -> bool {
        self.at(now, name, |lines, _| lines.both().map(|line| line.renew(now, id)).contains(&true))
    }

    /// The numbers of those who hold the lock or a permit, with the ends of their leases.
    pub(super) fn leases(&mut self, now: ServerTime, name: &LockName) -> Vec<(u64, BootInstant)> {
        self.at(now, name, |lines, _| lines.both().into_iter().flat_map(|line| line.leases()).collect())
    }

    /// Makes a reader of a writer. Returns whether it still held the lock.
    pub(super) fn downgrade(&mut self, now: ServerTime, name: &LockName, id: u64) -> bool {
        self.at(now, name, |lines, _| lines.lock.downgrade(id))
    }

    /// Takes the lock and the permits from whoever holds them, as an operator would.
    pub(super) fn delete(&mut self, now: ServerTime, name: &LockName) {
        self.at(now, name, |lines, _| lines.both().map(|line| line.delete(now)));
    }

    /// Takes the lock or the permit from the holder with this token. Returns that holder as it was.
    pub(super) fn revoke(&mut self, now: ServerTime, name: &LockName, token: u64) -> Option<Contender> {
        self.at(now, name, |lines, _| lines.both().into_iter().find_map(|line| line.revoke(now, token)))
    }

    /// The names that begin with `prefix` and have a holder, sorted.
    pub(super) fn held(&mut self, now: ServerTime, prefix: &str) -> Vec<LockName> {
        let mut names: Vec<_> = self.names.keys().filter(|name| name.as_str().starts_with(prefix)).cloned().collect();
        names.retain(|name| !self.snapshot(now, name).holders.is_empty());
        names.sort_unstable();
        names
    }

    /// Ends what has run out under that name, and grants what there is room for.
    pub(super) fn settle(&mut self, now: ServerTime, name: &LockName) {
        self.at(now, name, |_, _| ());
    }

    pub(super) fn snapshot(&mut self, now: ServerTime, name: &LockName) -> Snapshot {
        self.at(now, name, |lines, _| {
            let mut snapshot = Snapshot::default();
            for line in lines.both() {
                line.show(now, &mut snapshot);
            }
            snapshot
        })
    }

    /// When something ends by itself next under that name.
    pub(super) fn next_end(&self, name: &LockName) -> Option<BootInstant> {
        self.names.get(name)?.next_end
    }

    /// Announces from now on when a contender of that name comes, goes or is granted.
    pub(super) fn follow(&mut self, name: &LockName) -> watch::Receiver<()> {
        self.followers.entry(name.clone()).or_default().subscribe()
    }

    /// The end of [`LockTable::follow`].
    pub(super) fn unfollow(&mut self, name: &LockName, follower: watch::Receiver<()>) {
        drop(follower);
        if self.followers.get(name).is_some_and(watch::Sender::is_closed) {
            self.followers.remove(name);
        }
    }

    /// Whether there is nothing in it.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.ends.is_empty() && self.followers.is_empty()
    }

    /// Works on what there is under a name: the one way in. Some names whose holders died and that nobody asks for go on the
    /// way, too.
    fn at<T>(&mut self, now: ServerTime, name: &LockName, work: impl FnOnce(&mut NameQueues, &mut u64) -> T) -> T {
        for _ in 0..SWEEP {
            let ended = self.ends.first().filter(|(end, _)| *end <= now.at).map(|(_, name)| name.clone());
            let Some(ended) = ended else { break };
            self.settled_at(now, &ended, |_, _| ());
        }
        self.settled_at(now, name, work)
    }

    /// Works on what there is under a name, with the lines brought up to the present before and after. What is empty goes.
    fn settled_at<T>(
        &mut self,
        now: ServerTime,
        name: &LockName,
        work: impl FnOnce(&mut NameQueues, &mut u64) -> T,
    ) -> T {
        let mut entry = match self.names.entry(name.clone()) {
            Entry::Occupied(entry) => entry,
            Entry::Vacant(entry) => entry.insert_entry(NameQueues::default()),
        };
        let lines = entry.get_mut();
        lines.settle(now, &mut self.last_token);
        let done = work(lines, &mut self.last_token);
        lines.settle(now, &mut self.last_token);
        let next_end = lines.both().iter().filter_map(|line| line.next_end()).min();
        let known_end = std::mem::replace(&mut lines.next_end, next_end);
        if known_end != next_end {
            self.ends.extend(next_end.map(|end| (end, name.clone())));
            if let Some(end) = known_end {
                self.ends.remove(&(end, name.clone()));
            }
        }
        if lines.both().map(WaitQueue::take_changed).contains(&true)
            && let Some(followers) = self.followers.get(name)
        {
            followers.send_replace(());
        }
        if next_end.is_none() {
            // Nobody holds it and nothing is closed, so nobody waits.
            entry.remove();
        }
        done
    }
}

impl NameQueues {
    fn line(&mut self, mode: Mode) -> &mut WaitQueue {
        match mode {
            Mode::Exclusive | Mode::Read => &mut self.lock,
            Mode::Permit { .. } => &mut self.permits,
        }
    }

    fn both(&mut self) -> [&mut WaitQueue; 2] {
        [&mut self.lock, &mut self.permits]
    }

    fn settle(&mut self, now: ServerTime, last_token: &mut u64) {
        for line in self.both() {
            line.settle(now, last_token);
        }
    }
}
