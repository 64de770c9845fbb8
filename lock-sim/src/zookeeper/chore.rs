//! The cleanup: removes what a contender has left, and repeats it until it is done or its session has ended.

use lock_zk::protocol::queue::made_by;

use super::{
    client::Waiter,
    contender::What,
    guard::Guard,
    message::{Answer, Event, Op, Refusal, Reply},
    world::World,
};
use crate::MS;

/// What is to be done.
#[derive(Debug, Clone)]
pub(super) enum Task {
    Delete {
        name: String,
        marked: bool,
    },
    /// Deletes whatever was made under that unique id.
    Find {
        unique: String,
    },
    /// Waits for the answer of a create whose contender has given up.
    Await {
        unique: String,
    },
    /// Tells whoever watches a holder of a permit.
    Announce(String),
}

#[derive(Debug)]
pub(super) struct Chore {
    number: u32,
    task: Task,
    synced: bool,
}

impl World<'_> {
    pub(super) fn chore(&mut self, client: usize, task: Task) -> u32 {
        self.chores += 1;
        let number = self.chores;
        self.clients[client].chores.push(Chore { number, task, synced: false });
        self.do_chore(client, number);
        number
    }

    pub(super) fn do_chore(&mut self, client: usize, number: u32) {
        let Some(chore) = self.clients[client].chores.iter_mut().find(|chore| chore.number == number) else { return };
        chore.synced = false;
        let ask = |what| Waiter::Chore { chore: number, what };
        match chore.task.clone() {
            Task::Delete { name, marked: false } => self.ask(client, Op::Delete(name), ask(What::Release)),
            Task::Delete { name, marked: true } => self.ask(client, Op::Marked(name), ask(What::Release)),
            Task::Announce(name) => self.ask(client, Op::Write(name), ask(What::Release)),
            Task::Find { .. } => {
                let barrier = self.barrier();
                self.ask(client, barrier, ask(What::Sync));
                self.ask(client, Op::List, ask(What::Search));
            }
            Task::Await { .. } => {}
        }
    }

    fn done(&mut self, client: usize, number: u32) {
        self.clients[client].chores.retain(|chore| chore.number != number);
    }

    fn once_more(&mut self, client: usize, chore: u32) {
        let pause = 2 * MS + self.chance.below(30 * MS);
        self.agenda.after(pause, Event::Chore { client, chore });
    }

    pub(super) fn chore_hears(&mut self, client: usize, number: u32, what: What, reply: Reply) {
        let session = self.clients[client].session_id();
        let (by_id, repeated) = (self.has(Guard::UniqueId), self.has(Guard::RepeatedRemoval));
        let Some(chore) = self.clients[client].chores.iter_mut().find(|chore| chore.number == number) else { return };
        let task = chore.task.clone();
        match (what, task, reply) {
            (What::Sync, _, reply) => chore.synced = reply.is_ok(),
            (What::Create, _, Ok(Answer::Node { name, .. })) => {
                chore.task = Task::Delete { name, marked: false };
                self.do_chore(client, number);
            }
            (What::Create, Task::Await { unique }, Err(Refusal::Unknown)) if by_id => {
                chore.task = Task::Find { unique };
                self.do_chore(client, number);
            }
            (What::Create, _, Err(_)) => self.done(client, number),
            (What::Search, Task::Find { unique }, Ok(Answer::List(children))) if chore.synced => {
                let found: Vec<String> =
                    made_by(&children, &unique, session.into()).into_iter().map(str::to_owned).collect();
                self.done(client, number);
                for name in found {
                    self.chore(client, Task::Delete { name, marked: false });
                }
            }
            (What::Search, _, Err(Refusal::NoNode)) if chore.synced => self.done(client, number),
            (What::Search, _, _) => self.once_more(client, number),
            (_, _, Err(Refusal::Unknown)) if repeated => self.once_more(client, number),
            _ => self.done(client, number),
        }
    }
}
