//! A process of clients that take locks, and write to the store while they hold them: what `lock-lab worker` runs.
//!
//! Client 0 is the keeper: on the order to keep it takes the lock [`Lock::Kept`] and holds it until it is lost or the order
//! is withdrawn, writing on and on. All others take [`Lock::Busy`] again and again, and update a value under it: they read
//! it, and write it back with an element more. A *careful* client looks at `is_valid()` before each write. A *careless* one
//! does not, and a careless keeper goes on for a while after it was told of a loss: against such ones only a fence helps.
//!
//! One thread runs the clients and the connections, so that the order to starve stops them all; another one looks at the
//! validity of every hold, as a program's own thread would. Events go to standard output, a line each, as they happen;
//! orders come by standard input, a line each. The process ends with its input: it never outlives the laboratory.

mod client;
mod looks;
mod reports;

use std::{
    fmt,
    io::{BufRead, stdin},
    num::ParseIntError,
    path::PathBuf,
    process,
    str::FromStr,
    sync::Arc,
    thread,
    time::Duration,
};

use lock::Locks;
use lock_core::{Clock, Error, clock::wall_micros};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

pub(crate) use self::looks::block_for;
use self::{
    client::{Client, ClientContext},
    looks::ValidityProbe,
    reports::EventWriter,
};
use super::{
    events::{Attempt, Lock, What},
    sink::StoreConnection,
};
use crate::LabError;

/// What a worker process does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Worker {
    /// The lock service.
    pub url: String,
    /// Its number, from 0.
    pub process: usize,
    /// How many clients take the busy lock, beside the keeper. Each has a connection of its own.
    pub clients: usize,
    /// How many clients are careless: the keeper first.
    pub careless: usize,
    /// For how long the busy lock is held.
    pub hold: Duration,
    /// The time between two writes under one hold; as long, or as long as the hold, between the read and the write of an
    /// update.
    pub write_every: Duration,
    /// For how long one attempt waits for the busy lock.
    pub wait: Duration,
    /// The socket of the store.
    pub store: PathBuf,
    /// Whether a client that cannot connect says why and tries again, until the end. Else the process ends with the error.
    pub insists: bool,
}

/// An order to a worker process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Take the kept lock, and hold it; when it is lost, take it again.
    Keep,
    /// Let the kept lock go.
    LetGo,
    /// Rest for so long after each hold of the busy lock.
    Rest(Duration),
    /// Let the thread of the clients and connections stand still for so long.
    Starve(Duration),
    /// Let everything go, and end.
    Quit,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keep => f.write_str("keep"),
            Self::LetGo => f.write_str("let-go"),
            Self::Rest(time) => write!(f, "rest {}", time.as_millis()),
            Self::Starve(time) => write!(f, "starve {}", time.as_millis()),
            Self::Quit => f.write_str("quit"),
        }
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(' ') {
            None if text == "keep" => Ok(Self::Keep),
            None if text == "let-go" => Ok(Self::LetGo),
            None if text == "quit" => Ok(Self::Quit),
            Some((order @ ("rest" | "starve"), millis)) => {
                let time = Duration::from_millis(millis.parse().map_err(|error: ParseIntError| error.to_string())?);
                Ok(if order == "rest" { Self::Rest(time) } else { Self::Starve(time) })
            }
            _ => Err(format!("{text:?} is not keep, let-go, rest or starve MILLISECONDS, or quit")),
        }
    }
}

/// What the clients of a worker process are to do now: keep the lock, rest, or quit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ClientOrders {
    keep: bool,
    rest: Duration,
    quit: bool,
}

/// How often a client tries to connect that insists.
const INSIST_EVERY: Duration = Duration::from_millis(100);
/// How long a connection may take to close in the end.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

impl Worker {
    /// Runs until it is ordered to quit. The process ends when its standard input does.
    ///
    /// # Errors
    /// [`LabError::Lock`] when a client cannot connect; [`LabError::Io`] when the store cannot be reached.
    ///
    /// # Cancel safety
    /// None: it owns standard input and output.
    pub async fn run(&self) -> Result<(), LabError> {
        let reports = EventWriter::to_standard_output(self.process)?;
        let looks = ValidityProbe::start(Arc::clone(&reports))?;
        let mut orders = orders()?;
        let (wanted, watched) = watch::channel(ClientOrders::default());
        let shared = ClientContext { worker: Arc::new(self.clone()), reports, looks, wanted: watched };
        let running = start(&shared).await?;
        while let Some(order) = orders.recv().await {
            match order {
                Order::Keep => wanted.send_modify(|wanted| wanted.keep = true),
                Order::LetGo => wanted.send_modify(|wanted| wanted.keep = false),
                Order::Rest(time) => wanted.send_modify(|wanted| wanted.rest = time),
                // On the one thread of this runtime.
                Order::Starve(time) => block_for(time),
                Order::Quit => break,
            }
        }
        wanted.send_modify(|wanted| *wanted = ClientOrders { quit: true, ..ClientOrders::default() });
        finish(running, &shared.reports).await
    }
}

/// The tasks of a worker's clients, each of which gives back the connection that it had, if any.
type ClientTasks = JoinSet<Result<Option<Locks>, LabError>>;

/// Starts the clients: where they do not insist, only when all of them are connected.
async fn start(shared: &ClientContext) -> Result<ClientTasks, LabError> {
    let worker = &shared.worker;
    let mut clients = Vec::new();
    for number in 0..=worker.clients {
        let locks = match worker.insists {
            true => None,
            false => Some(lock::connect(&worker.url).await.map_err(LabError::lock("connecting"))?),
        };
        clients.push((number, locks, StoreConnection::connect(&worker.store).await?));
    }
    if !worker.insists {
        shared.reports.event(of_process(worker.process), What::Ready { wall_micros: wall_micros() });
    }
    let mut running = JoinSet::new();
    for (number, locks, store) in clients {
        let shared = shared.clone();
        running.spawn(async move {
            let locks = match locks {
                None => insist(&shared, number).await,
                connected => connected,
            };
            let Some(locks) = locks else { return Ok(None) };
            Client::new(number, shared, locks, store).run().await.map(Some)
        });
    }
    Ok(running)
}

/// Tries to connect until that succeeds, and says each time why it does not; `None` when the client is to quit.
async fn insist(shared: &ClientContext, client: usize) -> Option<Locks> {
    let mut wanted = shared.wanted.clone();
    let whose = Attempt { client, ..of_process(shared.worker.process) };
    loop {
        let error = tokio::select! {
            connected = lock::connect(&shared.worker.url) => match connected {
                Ok(locks) => return Some(locks),
                Err(error) => error,
            },
            _ = wanted.wait_for(|wanted| wanted.quit) => return None,
        };
        let refused = matches!(error, Error::Config { .. });
        shared.reports.event(whose, What::NotConnected { error: error.to_string(), refused });
        let quits = wanted.wait_for(|wanted| wanted.quit);
        if Clock::boot().timeout(INSIST_EVERY, quits).await.is_some() {
            return None;
        }
    }
}

/// Waits for the end of all clients, and closes their connections side by side.
async fn finish(mut running: ClientTasks, reports: &Arc<EventWriter>) -> Result<(), LabError> {
    let mut failed = Ok(());
    let mut closing = JoinSet::new();
    while let Some(done) = running.join_next().await {
        match LabError::joined(done)? {
            Ok(None) => {}
            Ok(Some(locks)) => {
                let reports = Arc::clone(reports);
                closing.spawn(async move { close(&locks, &reports).await });
            }
            Err(error) => failed = Err(error),
        }
    }
    closing.join_all().await;
    failed
}

/// What is about a process, and no attempt of it.
const fn of_process(process: usize) -> Attempt {
    Attempt { lock: Lock::Busy, process, client: 0, attempt: 0 }
}

/// Closes a connection. What it has to leave behind ends with its ttl; its servers may be gone.
async fn close(locks: &Locks, reports: &EventWriter) {
    // One that is in the middle of something may take longer than its own limit, by a little.
    let closed = Clock::boot().timeout(CLOSE_LIMIT * 2, locks.close(CLOSE_LIMIT)).await;
    let error = match closed {
        Some(Ok(())) => return,
        Some(Err(error)) => error.to_string(),
        None => format!("it takes longer than {:?}", CLOSE_LIMIT * 2),
    };
    reports.event(of_process(reports.process), What::NotClosed { error });
}

/// Reads orders on a thread of its own, which ends the process with its input.
fn orders() -> Result<mpsc::UnboundedReceiver<Order>, LabError> {
    let (orders, inbox) = mpsc::unbounded_channel();
    let read = move || {
        for line in stdin().lock().lines() {
            match line.map(|line| line.parse()) {
                Ok(Ok(order)) => drop(orders.send(order)),
                _ => break,
            }
        }
        // Whoever gave the orders has ended, however that was.
        process::exit(0);
    };
    thread::Builder::new()
        .name("orders".into())
        .spawn(read)
        .map_err(|error| LabError::io("starting a thread", error))?;
    Ok(inbox)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_comes_out_as_it_was_given() {
        let time = Duration::from_millis(1500);
        for order in [Order::Keep, Order::LetGo, Order::Rest(time), Order::Starve(time), Order::Quit] {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        assert!("starve".parse::<Order>().is_err() && "starve soon".parse::<Order>().is_err());
    }
}
