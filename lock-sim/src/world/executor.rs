//! Tasks, and which of them are to be polled.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use super::{
    id::{HostId, TaskFuture, TaskId},
    shared::{take_woken, woken},
};
use crate::Chance;

/// Whether the tasks of a host are polled: it runs, is paused, or is dead.
#[derive(Debug)]
pub(super) enum HostRunState {
    Running,
    /// With those that became ready meanwhile.
    Paused(Vec<TaskId>),
    Dead,
}

/// Wakes a simulated task: puts it among the tasks to be polled, once until the next poll.
struct TaskWaker {
    id: TaskId,
    is_woken: AtomicBool,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::Relaxed) {
            woken(self.id);
        }
    }
}

/// A task of a simulated host, with its future and its waker.
struct SpawnedTask {
    host: HostId,
    future: Option<TaskFuture>,
    waker: Waker,
    flag: Arc<TaskWaker>,
}

/// All tasks of a schedule, on all hosts, and which of them are to be polled next.
#[derive(Default)]
pub(super) struct TaskTable {
    tasks: Vec<Option<SpawnedTask>>,
    generations: Vec<u32>,
    free: Vec<u32>,
    /// Those to be polled, in the order in which they became ready.
    ready: Vec<TaskId>,
    batch: Vec<TaskId>,
}

impl TaskTable {
    pub(super) fn spawn(&mut self, host: HostId, future: TaskFuture) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.tasks.push(None);
            self.generations.push(0);
            u32::try_from(self.tasks.len() - 1).unwrap_or(u32::MAX)
        });
        let id = TaskId { place, generation: self.generations[place as usize] };
        let flag = Arc::new(TaskWaker { id, is_woken: AtomicBool::new(true) });
        let waker = Waker::from(Arc::clone(&flag));
        self.tasks[place as usize] = Some(SpawnedTask { host, future: Some(future), waker, flag });
        self.ready.push(id);
    }

    /// Takes in those who were woken during the last poll. By their numbers and not in the order of waking: libraries wake
    /// many at once in an order that no seed decides.
    pub(super) fn gather(&mut self) {
        take_woken(&mut self.batch);
        self.batch.sort_unstable();
        self.ready.append(&mut self.batch);
    }

    pub(super) fn again(&mut self, tasks: &mut Vec<TaskId>) {
        self.ready.append(tasks);
    }

    /// One of those that are ready. What belongs to a host that stands still is set aside with the host; what belongs to a
    /// dead one is never polled again.
    pub(super) fn next(&mut self, chance: &mut Chance, gates: &mut [HostRunState]) -> Option<TaskId> {
        while !self.ready.is_empty() {
            let place = if self.ready.len() == 1 { 0 } else { chance.place(self.ready.len()) };
            let id = self.ready.remove(place);
            let Some(task) = self.task(id) else { continue };
            match &mut gates[task.host.place()] {
                HostRunState::Running => return Some(id),
                HostRunState::Paused(set_aside) => set_aside.push(id),
                HostRunState::Dead => {}
            }
        }
        None
    }

    /// Polls it once.
    pub(super) fn poll(&mut self, id: TaskId) {
        let Some(task) = self.task(id) else { return };
        task.flag.is_woken.store(false, Ordering::Relaxed);
        let Some(mut future) = task.future.take() else { return };
        let waker = task.waker.clone();
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        match polled {
            Poll::Pending => {
                if let Some(task) = self.task(id) {
                    task.future = Some(future);
                }
            }
            Poll::Ready(()) => {
                // Dropped first: it may wake others, and is none of these itself any more.
                drop(future);
                self.tasks[id.place as usize] = None;
                self.generations[id.place as usize] += 1;
                self.free.push(id.place);
            }
        }
    }

    /// Drops all that are left.
    pub(super) fn clear(&mut self) {
        let tasks = std::mem::take(&mut self.tasks);
        self.ready.clear();
        drop(tasks);
    }

    fn task(&mut self, id: TaskId) -> Option<&mut SpawnedTask> {
        let is_there = self.generations.get(id.place as usize) == Some(&id.generation);
        self.tasks.get_mut(id.place as usize)?.as_mut().filter(|_| is_there)
    }
}

impl std::fmt::Debug for TaskTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").field("ready", &self.ready).finish_non_exhaustive()
    }
}
