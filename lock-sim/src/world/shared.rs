//! What tasks reach of the world while they are polled.
//!
//! A future may be asked to be `Send`, and a clock to be `'static`, so neither can borrow the world. One thread plays one
//! schedule at a time: what a task needs of the world is in the thread's own storage, and tasks, clocks and streams know
//! their place in it by number. Whatever needs randomness or the order of events is left as a request, which the world
//! carries out after the poll.

use std::{cell::RefCell, collections::VecDeque, task::Waker};

use super::id::{ConnectionId, HostId, ServerId, TaskFuture, TaskId};
use crate::{LocalClock, Time};

/// The clocks of a host.
#[derive(Debug, Clone, Copy)]
pub struct HostClocks {
    /// The one that never jumps: of the time since the machine was booted.
    pub boot: LocalClock,
    /// The one on the wall, in nanoseconds since 1970.
    pub wall: LocalClock,
}

/// The state of a simulated host that its tasks can read: its clocks.
pub(super) struct HostState {
    pub(super) clocks: HostClocks,
}

/// The part of the world that its tasks use while they are polled.
#[derive(Default)]
pub(super) struct SharedWorld {
    pub(super) is_live: bool,
    pub(super) now: Time,
    pub(super) hosts: Vec<HostState>,
    pub(super) sleeps: SleepTable,
    pub(super) ends: Vec<ClientEnd>,
    pub(super) requests: VecDeque<TaskRequest>,
}

/// A request of a task that the world carries out after the poll, such as a spawn, a timer or a write.
pub(super) enum TaskRequest {
    Spawn(HostId, TaskFuture),
    Call,
    Wake { at: Time, sleep: SleepKey },
    Dial { connection: ConnectionId },
    Write { connection: ConnectionId, bytes: Vec<u8> },
    End { connection: ConnectionId },
}

/// The client's end of a simulated connection: its state and the bytes that have arrived.
pub(super) struct ClientEnd {
    pub(super) host: HostId,
    pub(super) server: ServerId,
    pub(super) state: ConnectionState,
    pub(super) inbox: VecDeque<u8>,
    pub(super) waker: Option<Waker>,
}

/// The state of a simulated connection, as its client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionState {
    Opening,
    Open,
    /// Nobody listens there.
    Refused,
    /// The server has closed it: what has arrived is read first.
    Closed,
    /// Reset by the other side or given up by the kernel.
    Reset,
    /// Nothing of it answered for too long.
    TimedOut,
    /// Ended or dropped by the client itself.
    Ended,
}

impl ClientEnd {
    pub(super) const fn is_over(&self) -> bool {
        !matches!(self.state, ConnectionState::Opening | ConnectionState::Open)
    }
}

/// The sleeping tasks of a schedule, by the keys of their sleeps.
#[derive(Default)]
pub(super) struct SleepTable {
    places: Vec<SleepSlot>,
    free: Vec<u32>,
}

/// One slot of the [`SleepTable`], reused by later sleeps.
#[derive(Default)]
struct SleepSlot {
    generation: u32,
    waker: Option<Waker>,
}

/// The key of one sleep in the [`SleepTable`]: its slot, and how many sleeps had that slot before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SleepKey {
    place: u32,
    generation: u32,
}

impl SleepTable {
    pub(super) fn add(&mut self, waker: Waker) -> SleepKey {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(SleepSlot::default());
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        });
        let it = &mut self.places[place as usize];
        it.waker = Some(waker);
        SleepKey { place, generation: it.generation }
    }

    /// Replaces the waker; false when that sleep is over.
    pub(super) fn renew(&mut self, key: SleepKey, waker: &Waker) -> bool {
        match self.at(key).and_then(|place| place.waker.as_mut()) {
            Some(known) => {
                known.clone_from(waker);
                true
            }
            None => false,
        }
    }

    /// Ends the sleep, and gives whom to wake.
    pub(super) fn take(&mut self, key: SleepKey) -> Option<Waker> {
        let place = self.at(key)?;
        place.generation = place.generation.wrapping_add(1);
        let waker = place.waker.take();
        self.free.push(key.place);
        waker
    }

    fn at(&mut self, key: SleepKey) -> Option<&mut SleepSlot> {
        self.places.get_mut(key.place as usize).filter(|place| place.generation == key.generation)
    }

    fn clear(&mut self) {
        self.places.clear();
        self.free.clear();
    }
}

thread_local! {
    static SHARED: RefCell<SharedWorld> = RefCell::default();
    /// Apart from the rest: a waker may be called by whoever holds that.
    static WOKEN: RefCell<Vec<TaskId>> = const { RefCell::new(Vec::new()) };
}

/// Gives the shared part of the present schedule of this thread. `work` calls nothing that comes back here.
pub(super) fn shared<T>(work: impl FnOnce(&mut SharedWorld) -> T) -> T {
    SHARED.with_borrow_mut(work)
}

/// Lets the machine of this schedule see to what a task has left for it, in a place of their own, before anything else
/// happens.
pub fn call_machine() {
    shared(|shared| {
        if shared.is_live && !matches!(shared.requests.back(), Some(TaskRequest::Call)) {
            shared.requests.push_back(TaskRequest::Call);
        }
    });
}

pub(super) fn woken(task: TaskId) {
    WOKEN.with_borrow_mut(|woken| woken.push(task));
}

/// Takes those who were woken since, into `into`.
pub(super) fn take_woken(into: &mut Vec<TaskId>) {
    WOKEN.with_borrow_mut(|woken| into.append(woken));
}

/// Begins a schedule on this thread.
///
/// # Panics
/// While another one is played on it.
pub(super) fn begin() {
    shared(|shared| {
        assert!(!shared.is_live, "one thread plays one schedule at a time");
        shared.is_live = true;
        shared.now = 0;
    });
    // Tasks of the schedule before were woken when they were dropped.
    WOKEN.with_borrow_mut(Vec::clear);
}

/// Ends the schedule. Futures that are dropped afterwards ask for nothing any more.
pub(super) fn end() {
    let left = shared(|shared| {
        shared.is_live = false;
        shared.now = 0;
        shared.hosts.clear();
        shared.sleeps.clear();
        (std::mem::take(&mut shared.ends), std::mem::take(&mut shared.requests))
    });
    // Whatever a dropped task wakes or asks for is nobody's.
    drop(left);
}
