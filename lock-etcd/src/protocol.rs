//! The algorithm: what stands where, and the transactions that decide. No request is made here.
//!
//! A contender is a key under its lock's prefix and its session's lease. The one with the lowest create revision holds, as in the
//! mutex of etcd's own `concurrency` package, whose keys are of the same form.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use etcd_client::{
    Compare, CompareOp, GetOptions, KeyValue, PutOptions, ResponseHeader, SortOrder, SortTarget, Txn, TxnOp,
    TxnOpResponse, TxnResponse,
};
use lock_core::{Contender, LockName, Mode, Snapshot};

/// How many keys one transaction looks at: etcd takes 128 operations.
pub(crate) const KEYS_PER_LOOK: usize = 100;

/// The prefix of the contenders of a lock. An escaped name has no slash and no dot, so no lock's prefix begins with another's.
pub(crate) fn directory(path: &str, name: &LockName) -> String {
    format!("{path}/{}/", name.to_component())
}

/// One attempt to hold a lock on etcd: its key in the lock's directory, which is no other attempt's while a request of this one
/// may be on its way.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    directory: String,
    key: String,
    /// Stands when the attempt was undone although a request of it may be on its way, which finds that. It goes with the session.
    undone: String,
    session: i64,
    number: u64,
    /// How often it was sent that it enters.
    entered: Arc<AtomicU32>,
}

/// The state of an [`Attempt`] by the store's answer: it holds, waits, was refused, or lost its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AttemptState {
    /// It holds, by a key of this create revision, which is the fencing token.
    Holds(i64),
    /// Somebody else does, and it has no key.
    Refused,
    /// It has a place in line, by the create revision of its key.
    InLine(i64),
    /// It waits for the deletion of this key, which was there at that revision of the store.
    Behind { revision: i64, before: String, seen_at: i64 },
    /// Its key is gone: the session has ended, or somebody deleted it.
    Gone,
}

impl Attempt {
    /// The attempt with that number of a session.
    pub(crate) fn new(path: &str, name: &LockName, session: i64, number: u64) -> Self {
        let (directory, id) = (directory(path, name), format!("{session:x}-{number:x}"));
        Self {
            key: format!("{directory}{id}"),
            undone: format!("{path}/.undone/{id}"),
            directory,
            session,
            number,
            entered: Arc::default(),
        }
    }

    /// How often it was sent that it enters.
    pub(crate) fn sent(&self) -> &AtomicU32 {
        &self.entered
    }

    /// Whether a request of it to enter may be on its way still although another one was answered.
    pub(crate) fn may_enter_again(&self) -> bool {
        self.entered.load(Ordering::Relaxed) > 1
    }

    /// Its number among the attempts of its session.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// The key of the contender.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Enters the line and looks who is right before, or, for one that does not wait, enters only an empty line. May be made again
    /// when an answer was lost: it finds the key that is there.
    pub(crate) fn enter(&self, payload: &[u8], waits: bool) -> Txn {
        let is_open = match waits {
            true => Compare::create_revision(self.key.as_str(), CompareOp::Equal, 0),
            // Where there is no key, this is a comparison with zero.
            // Safeguard: one that does not wait enters an empty line only (etcd)
            false => Compare::create_revision(self.directory.as_str(), CompareOp::Equal, 0).with_prefix(),
        };
        let is_not_undone = Compare::create_revision(self.undone.as_str(), CompareOp::Equal, 0);
        let put = TxnOp::put(self.key.as_str(), payload, Some(PutOptions::new().with_lease(self.session)));
        let last_two = TxnOp::get(self.directory.as_str(), Some(newest_first().with_limit(2)));
        // Safeguard: a late request finds that its attempt was undone (etcd)
        Txn::new().when([is_open, is_not_undone]).and_then([put, last_two]).or_else([get_key(&self.key)])
    }

    /// How it stands by the answer to [`Attempt::enter`].
    pub(crate) fn entered(&self, answer: &TxnResponse, waits: bool) -> AttemptState {
        let found = looks(answer).pop().unwrap_or_default();
        match found.as_slice() {
            // Its key is the newest one.
            [own] if answer.succeeded() => AttemptState::Holds(own.create_revision()),
            [own, before] => behind(own.create_revision(), before, answer),
            // It entered before, and the answer was lost.
            [own] if waits => AttemptState::InLine(own.create_revision()),
            [own] => AttemptState::Holds(own.create_revision()),
            _ if waits => AttemptState::Gone,
            _ => AttemptState::Refused,
        }
    }

    /// Looks whether it is there, and who is right before it.
    pub(crate) fn look(&self, revision: i64) -> Txn {
        let before = newest_first().with_max_create_revision(revision - 1).with_limit(1);
        Txn::new().and_then([get_key(&self.key), TxnOp::get(self.directory.as_str(), Some(before))])
    }

    /// How it stands by the answer to [`Attempt::look`] with that revision. A key that was deleted and that a late request made
    /// again has a later one, and others may have come in between.
    pub(crate) fn looked(&self, answer: &TxnResponse, revision: i64) -> AttemptState {
        let found = looks(answer);
        // Safeguard: a waiter's key that was made again is not its place in line (etcd)
        let is_its = |own: &KeyValue| own.create_revision() == revision;

        match found.iter().map(Vec::as_slice).collect::<Vec<_>>().as_slice() {
            [[own], []] if is_its(own) => AttemptState::Holds(revision),
            [[own], [before, ..]] if is_its(own) => behind(revision, before, answer),
            // Safeguard: a waiter's own key is read again before it is granted (etcd)
            _ => AttemptState::Gone,
        }
    }

    /// Deletes its key, whether it waits or holds, and tells whether that was made at that revision. One that was sent twice may
    /// enter once more, or has done so when its key was deleted: it is kept from that, and its key is no other attempt's.
    pub(crate) fn leave(&self, revision: i64) -> Txn {
        // Safeguard: a late request to leave spares the key of a later attempt (etcd)
        let is_there = Compare::create_revision(self.key.as_str(), CompareOp::Equal, revision);
        let delete = TxnOp::delete(self.key.as_str(), None);
        match self.entered.load(Ordering::Relaxed) {
            // Safeguard: what was sent twice is kept from coming back (etcd)
            ..2 => Txn::new().when([is_there]).and_then([delete]),
            // Safeguard: what was made again by a late request is deleted, too (etcd)
            _ => Txn::new().when([is_there]).and_then([delete.clone(), self.mark()]).or_else([delete, self.mark()]),
        }
    }

    /// Deletes its key, and keeps a request of it that is late from putting it back.
    pub(crate) fn undo(&self) -> Txn {
        Txn::new().and_then([TxnOp::delete(self.key.as_str(), None), self.mark()])
    }

    fn mark(&self) -> TxnOp {
        TxnOp::put(self.undone.as_str(), "", Some(PutOptions::new().with_lease(self.session)))
    }
}

/// What the keys begin with of all contenders of all locks whose names begin with `prefix`.
pub(crate) fn names_from(path: &str, prefix: &str) -> String {
    // A name is escaped byte by byte, so its beginning is, too.
    let component = LockName::new(prefix).map(|prefix| prefix.to_component()).unwrap_or_default();
    format!("{path}/{component}")
}

/// The name that a contender's key stands under.
pub(crate) fn name_of(path: &str, key: &[u8]) -> Option<LockName> {
    let (component, _) = str::from_utf8(key).ok()?.strip_prefix(path)?.strip_prefix('/')?.split_once('/')?;
    LockName::from_component(component)
}

/// Deletes the key of one contender of `directory` if it was made at that revision.
pub(crate) fn revoke(directory: &str, id: &str, revision: i64) -> Txn {
    let key = format!("{directory}{id}");
    // Safeguard: a forced release compares the number (etcd)
    let is_it = Compare::create_revision(key.as_str(), CompareOp::Equal, revision);
    Txn::new().when([is_it]).and_then([TxnOp::delete(key, None)])
}

fn behind(revision: i64, before: &KeyValue, answer: &TxnResponse) -> AttemptState {
    let seen_at = answer.header().map_or(0, ResponseHeader::revision);
    AttemptState::Behind { revision, before: String::from_utf8_lossy(before.key()).into_owned(), seen_at }
}

/// The contenders that came last.
fn newest_first() -> GetOptions {
    GetOptions::new().with_prefix().with_keys_only().with_sort(SortTarget::Create, SortOrder::Descend)
}

/// Looks whether these keys are there, at most [`KEYS_PER_LOOK`] of them.
pub(crate) fn look_at<'a>(keys: impl Iterator<Item = &'a str>) -> Txn {
    Txn::new().and_then(keys.map(get_key).collect::<Vec<_>>())
}

/// At which revision each of them was made, in their order; `None` for those that are not there.
pub(crate) fn made_at(answer: &TxnResponse) -> Vec<Option<i64>> {
    looks(answer).iter().map(|keys| keys.first().map(KeyValue::create_revision)).collect()
}

/// How all contenders of a prefix are asked for.
pub(crate) fn in_order() -> GetOptions {
    GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend)
}

/// Who holds and who waits, by the keys of a prefix in their order.
pub(crate) fn snapshot(keys: &[KeyValue]) -> Snapshot {
    let mut contenders = keys.iter().map(|key| {
        let id = String::from_utf8_lossy(key.key()).rsplit('/').next().unwrap_or_default().to_owned();
        (Contender::new(id).with_payload(key.value()).with_mode(Mode::Exclusive), number(key))
    });
    let holder = contenders.next().map(|(holder, number)| holder.with_token(number));
    Snapshot::new(holder.into_iter().collect(), contenders.map(|(waiter, _)| waiter).collect())
}

fn get_key(key: impl AsRef<str>) -> TxnOp {
    TxnOp::get(key.as_ref(), Some(GetOptions::new().with_keys_only()))
}

/// The fencing token of who holds by that key.
fn number(key: &KeyValue) -> u64 {
    key.create_revision().unsigned_abs()
}

/// What each look of a transaction found.
fn looks(answer: &TxnResponse) -> Vec<Vec<KeyValue>> {
    let look = |response| match response {
        TxnOpResponse::Get(mut found) => Some(found.take_kvs()),
        _ => None,
    };
    answer.op_responses().into_iter().filter_map(look).collect()
}

#[cfg(test)]
mod tests;
