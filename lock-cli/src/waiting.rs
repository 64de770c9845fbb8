//! What is said while a lock is waited for, and when it was not acquired: who holds it, or what is wrong with the service.

use std::{pin::pin, time::Duration};

use lock::{Clock, Config, Error, Locks, Mode, Snapshot};
use lock_core::Backoff;

use crate::{
    arguments::RunArguments,
    failure::{Failure, notice},
    shown::{rounded, who},
};

/// How long something is waited for before that is said.
const AFTER: Duration = Duration::from_secs(1);
/// The longest pause between two looks, while these show nobody who holds the lock.
const PAUSE: Duration = Duration::from_secs(10);
/// How long a look may take.
const LOOK: Duration = Duration::from_secs(2);

/// The lock, or the semaphore, that the program waits for, as its messages call it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) name: &'a str,
    /// Whether it is a permit of the semaphore of that name.
    pub(crate) permit: bool,
}

/// Connects by `connecting`. When that takes its time, it is said why: what another connection fails with.
pub(crate) async fn for_service<T>(config: &Config, connecting: impl Future<Output = T>) -> T {
    let telling = async {
        let clock = Clock::boot();
        clock.sleep(AFTER).await;
        let another = Box::pin(config.clone().with_outage_timeout(Duration::ZERO).connect());
        match clock.answer_timeout(LOOK, another).await {
            None => notice(format_args!("waiting for an answer of {config}")),
            Some(Err(error)) => notice(format_args!("waiting for {config}: {}", Failure::from(error))),
            Some(Ok(locks)) => drop(locks.close(LOOK).await),
        }
    };
    beside(telling, connecting).await
}

/// Acquires by `acquiring`. When that takes its time, it is said who holds the lock, or what is wrong with the service.
pub(crate) async fn for_lock<T>(locks: &Locks, wanted: Wanted<'_>, acquiring: impl Future<Output = T>) -> T {
    beside(tell(locks, wanted), acquiring).await
}

/// Why a lock was not acquired: who holds it, or what is wrong with the service.
pub(crate) async fn not_acquired(locks: &Locks, options: &RunArguments) -> String {
    let name = &options.name;
    let limit = options.wait.filter(|_| !options.no_wait);
    let failed = match limit {
        Some(limit) => format!("lock {name:?} was not acquired within {}", rounded(limit)),
        None => format!("lock {name:?} was not acquired"),
    };
    let seen = look(locks, options.wanted()).await;
    match (seen, limit) {
        (Ok(Some(holders)), Some(_)) => format!("{failed}: it is held by {holders}"),
        (Ok(Some(holders)), None) => format!("lock {name:?} is held by {holders}"),
        (Ok(None), Some(_)) => failed,
        (Ok(None), None) => format!("lock {name:?} is held by another"),
        (Err(error), _) => format!("{failed}: {error}"),
    }
}

impl RunArguments {
    /// The lock that they ask for.
    pub(crate) fn wanted(&self) -> Wanted<'_> {
        Wanted { name: self.name.as_ref(), permit: self.permits.is_some() }
    }
}

async fn beside<T>(telling: impl Future<Output = ()>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = telling => {}
    }
    work.await
}

/// Says who holds the lock, once. Before that, once, what is wrong with the service.
async fn tell(locks: &Locks, wanted: Wanted<'_>) {
    let (clock, name) = (Clock::boot(), wanted.name);
    let mut pauses = Backoff::new(AFTER, PAUSE);
    let mut said = false;
    clock.sleep(AFTER).await;
    loop {
        match look(locks, wanted).await {
            Ok(Some(holders)) => return notice(format_args!("waiting for lock {name:?}, held by {holders}")),
            Err(error) if !said => {
                notice(format_args!("waiting for lock {name:?}: {error}"));
                said = true;
            }
            // Given back in this moment, or lost by one who was seen before.
            Ok(None) | Err(_) => {}
        }
        clock.sleep(pauses.pause()).await;
    }
}

/// Who holds it; `None` when nobody does.
async fn look(locks: &Locks, wanted: Wanted<'_>) -> Result<Option<String>, Failure> {
    let silent = || Error::no_answer("the lock service", format!("no answer within {}", rounded(LOOK)));
    let seen =
        Clock::boot().answer_timeout(LOOK, Box::pin(locks.inspect(wanted.name))).await.unwrap_or_else(|| Err(silent()));
    Ok(holders(&seen?, wanted.permit))
}

fn holders(snapshot: &Snapshot, permit: bool) -> Option<String> {
    let is_wanted = |mode: Option<Mode>| mode.is_none_or(|mode| mode.permits().is_some() == permit);
    let mut holders = snapshot.holders.iter().filter(|holder| is_wanted(holder.mode));
    let first = who(holders.next()?);
    Some(match holders.count() {
        0 => first,
        1 => format!("{first} and another"),
        others => format!("{first} and {others} others"),
    })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use lock::Contender;

    use super::*;

    #[test]
    fn the_holders_of_the_lock_and_of_the_semaphore_are_not_mixed() {
        let permit = Mode::Permit { of: NonZeroU32::new(2).unwrap() };
        let one = |id: &str, mode| Contender::new(id).with_mode(mode);
        let snapshot = Snapshot::new(
            vec![one("a", Mode::Read).with_payload("anna"), one("b", permit), one("c", Mode::Read), one("d", permit)],
            vec![one("e", Mode::Exclusive)],
        );
        assert_eq!(holders(&snapshot, false).as_deref(), Some("anna and another"));
        assert_eq!(holders(&snapshot, true).as_deref(), Some("id=b and another"));
        assert_eq!(holders(&Snapshot::default(), false), None);
        let three = Snapshot::new(["a", "b", "c"].map(Contender::new).to_vec(), Vec::new());
        assert_eq!(holders(&three, false).as_deref(), Some("id=a and 2 others"));
    }
}
