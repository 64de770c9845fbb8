//! Worker processes, and what they did: started, watched, disturbed and ended.

mod holder;
mod process;

use std::{path::PathBuf, sync::Arc, time::Duration};

use lock_core::Clock;
use tempfile::TempDir;
use tokio::task::JoinSet;

pub use self::holder::Holder;
use self::{holder::holder, process::WorkerProcess};
use super::{
    check,
    events::{History, Lock, ProcessFault, What, now},
    record::RunRecord,
    sink::Sink,
    worker::{Order, Worker},
};
use crate::{LabError, servers};

/// The processes of a run, and what all of them do.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WorkersOptions {
    /// The program `lock-lab`.
    pub program: PathBuf,
    /// The processes, by what is different about each.
    pub processes: Vec<WorkerOptions>,
    /// Processes that come later, by [`Workers::admit_strangers`]: their settings disagree with those of the servers.
    pub strangers: Vec<WorkerOptions>,
    /// For how long a client holds the busy lock.
    pub hold: Duration,
    /// The time between two writes under one hold.
    pub write_every: Duration,
    /// For how long one attempt waits for the busy lock.
    pub wait: Duration,
}

/// What is different about one worker process.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// The lock service; through proxies of its own where a fault cuts off this process alone.
    pub url: String,
    /// How many clients take the busy lock, beside the keeper.
    pub clients: usize,
    /// How many clients are careless, the keeper first.
    pub careless: usize,
    /// Network namespace in which the process runs; `None` for that of this program.
    pub namespace: Option<PathBuf>,
    /// Time by which the wall clock of the process is ahead.
    pub clock_ahead: Duration,
}

impl WorkersOptions {
    /// So many processes with so many clients each (and a keeper), all of them careful.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, url: &str, processes: usize, clients: usize) -> Self {
        let worker =
            WorkerOptions { url: url.to_owned(), clients, careless: 0, namespace: None, clock_ahead: Duration::ZERO };
        Self {
            program: program.into(),
            processes: vec![worker; processes],
            strangers: Vec::new(),
            hold: Duration::from_millis(2),
            write_every: Duration::from_millis(10),
            wait: Duration::from_secs(2),
        }
    }
}

/// Running worker processes and the store that they write to. Dropped, they are killed.
#[derive(Debug)]
pub struct Workers {
    options: WorkersOptions,
    processes: Vec<WorkerProcess>,
    record: Arc<RunRecord>,
    /// Tasks that read what the processes report.
    readers: JoinSet<()>,
    sink: Sink,
    /// Working directory of all processes: by it the reaper finds a stopped process when this program is killed.
    dir: TempDir,
}

/// How long the processes may take to connect.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How often a wait looks at the history, at most.
const LOOK_EVERY: Duration = Duration::from_millis(2);

impl Workers {
    /// Starts the processes; returns when all clients are connected and take the busy lock.
    ///
    /// # Errors
    /// [`LabError::Worker`] when a process ends or does not connect in time; [`LabError::Io`].
    ///
    /// # Cancel safety
    /// When the future is dropped, the processes are killed.
    pub async fn start(options: &WorkersOptions) -> Result<Self, LabError> {
        let dir = servers::directory()?;
        let record = Arc::new(RunRecord::default());
        let sink = Sink::serve(dir.path().join("store"), Arc::clone(&record))?;
        let mut options = options.clone();
        options.program =
            std::path::absolute(&options.program).map_err(|error| LabError::io("finding the program", error))?;
        let mut workers = Self { options, processes: Vec::new(), record, readers: JoinSet::new(), sink, dir };
        for worker in workers.options.processes.clone() {
            workers.launch(&worker, false)?;
        }
        let all = workers.processes.len();
        let ready = |history: &History| {
            let ready = history.events.iter().filter(|event| matches!(event.what, What::Ready { .. })).count();
            (ready == all).then_some(())
        };
        workers.wait_for("every worker is connected", START_LIMIT, ready).await?;
        Ok(workers)
    }

    /// Starts the processes whose settings disagree with those of the servers. They get the next numbers; whether they are
    /// refused is for the checker to say.
    ///
    /// # Errors
    /// [`LabError::Io`] when one cannot be started.
    pub fn admit_strangers(&mut self) -> Result<(), LabError> {
        for worker in std::mem::take(&mut self.options.strangers) {
            self.launch(&worker, true)?;
        }
        Ok(())
    }

    fn launch(&mut self, own: &WorkerOptions, insists: bool) -> Result<(), LabError> {
        let process = self.processes.len();
        let worker = Worker {
            url: own.url.clone(),
            process,
            clients: own.clients,
            careless: own.careless,
            hold: self.options.hold,
            write_every: self.options.write_every,
            wait: self.options.wait,
            store: self.sink.path().to_owned(),
            insists,
        };
        let (started, output) = WorkerProcess::start(&self.options.program, &worker, own, self.dir.path())?;
        self.readers.spawn(process::read(process, output, Arc::clone(&self.record)));
        self.processes.push(started);
        Ok(())
    }

    /// How many processes there are, dead ones included.
    #[must_use]
    pub fn processes(&self) -> usize {
        self.processes.len()
    }

    /// The process ids of those that have not ended.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().filter_map(WorkerProcess::pid).collect()
    }

    /// What was recorded so far.
    #[must_use]
    pub fn history(&self) -> History {
        let mut history = self.record.history();
        history.sort();
        history
    }

    /// Who holds that lock, going by what was reported; `None` when nobody does, or its holder was killed.
    #[must_use]
    pub fn holder(&self, lock: Lock) -> Option<Holder> {
        holder(&self.record.state().history, lock)
    }

    /// Waits until `seen` finds what it looks for. It is called again after each news, with lists that are in the order of
    /// their arrival.
    ///
    /// # Errors
    /// [`LabError::Run`] when that does not happen within `limit`; [`LabError::Worker`] when a process ends that was not
    /// killed.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn wait_for<T>(
        &mut self,
        what: &str,
        limit: Duration,
        mut seen: impl FnMut(&History) -> Option<T>,
    ) -> Result<T, LabError> {
        let clock = Clock::boot();
        let deadline = clock.now().saturating_add(limit);
        let mut news = self.record.news();
        loop {
            news.mark_unchanged();
            if let Some(found) = seen(&self.record.state().history) {
                return Ok(found);
            }
            self.check_alive().await?;
            let left = deadline.saturating_since(clock.now());
            if left.is_zero() {
                return Err(LabError::run(format!("not seen within {limit:?}: {what}")));
            }
            // The sender lives as long as this.
            let _ = clock.timeout(left, news.changed()).await;
            clock.sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until there are so many acquisitions and releases a second.
    ///
    /// # Errors
    /// As those of [`Workers::wait_for`].
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn wait_for_traffic(&mut self, per_second: f64, limit: Duration) -> Result<(), LabError> {
        let begin = now();
        let what = format!("{per_second} operations a second");
        let busy = |history: &History| {
            let now = now();
            let long_enough = now.saturating_since(begin) >= Duration::from_secs(1);
            (long_enough && check::operations_per_second(history, now) >= per_second).then_some(())
        };
        self.wait_for(&what, limit, busy).await
    }

    /// Has the keeper of a process take the kept lock; returns when it holds it.
    ///
    /// # Errors
    /// As those of [`Workers::wait_for`].
    ///
    /// # Cancel safety
    /// The order stays given when the future is dropped.
    pub async fn keep(&mut self, process: usize, limit: Duration) -> Result<Holder, LabError> {
        self.order(process, Order::Keep).await?;
        let what = format!("process {process} holds the lock that it is to keep");
        let holds = |history: &History| holder(history, Lock::Kept).filter(|holder| holder.whose.process == process);
        self.wait_for(&what, limit, holds).await
    }

    /// Has the keeper of a process ask for the kept lock; returns when it has asked.
    ///
    /// # Errors
    /// As those of [`Workers::wait_for`].
    ///
    /// # Cancel safety
    /// The order stays given when the future is dropped.
    pub async fn want(&mut self, process: usize, limit: Duration) -> Result<(), LabError> {
        self.order(process, Order::Keep).await?;
        let what = format!("process {process} asks for the kept lock");
        let asks = |history: &History| {
            let asked = |event: &super::events::Event| {
                event.whose.lock == Lock::Kept && event.whose.process == process && event.what == What::Asked
            };
            history.events.iter().any(asked).then_some(())
        };
        self.wait_for(&what, limit, asks).await
    }

    /// Gives a process an order.
    ///
    /// # Errors
    /// [`LabError::Worker`] when it has ended.
    ///
    /// # Cancel safety
    /// An order may have been given although the future was dropped.
    pub async fn order(&mut self, process: usize, order: Order) -> Result<(), LabError> {
        self.processes[process].order(order).await
    }

    /// Kills a process with SIGKILL, and waits for its end.
    ///
    /// # Errors
    /// [`LabError::Io`].
    ///
    /// # Cancel safety
    /// The process may be dead although the future was dropped.
    pub async fn kill(&mut self, process: usize) -> Result<(), LabError> {
        self.record.fault(process, ProcessFault::Killed);
        self.processes[process].kill().await
    }

    /// Stops a process with SIGSTOP; returns when it stands still.
    ///
    /// # Errors
    /// [`LabError::Io`]; [`LabError::Worker`] when it does not stop.
    ///
    /// # Cancel safety
    /// The process may be stopped although the future was dropped.
    pub async fn stop(&mut self, process: usize) -> Result<(), LabError> {
        self.processes[process].stop().await?;
        self.record.fault(process, ProcessFault::Stopped);
        Ok(())
    }

    /// Lets a stopped process go on, with SIGCONT.
    ///
    /// # Errors
    /// [`LabError::Io`].
    pub fn resume(&mut self, process: usize) -> Result<(), LabError> {
        self.record.fault(process, ProcessFault::Continued);
        self.processes[process].resume()
    }

    /// Lets the runtime of a process stand still for `time`, while its other threads go on.
    ///
    /// # Errors
    /// As those of [`Workers::order`].
    ///
    /// # Cancel safety
    /// As that of [`Workers::order`].
    pub async fn starve(&mut self, process: usize, time: Duration) -> Result<(), LabError> {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.record.fault(process, ProcessFault::Starved { millis });
        self.order(process, Order::Starve(time)).await
    }

    /// Ends all processes: those that are stopped go on first, and those that do not end by themselves within `limit` are
    /// killed. Returns all that was recorded.
    ///
    /// # Errors
    /// [`LabError::Io`] when one could not be killed.
    ///
    /// # Cancel safety
    /// When the future is dropped, the processes are killed.
    pub async fn finish(mut self, limit: Duration) -> Result<History, LabError> {
        for process in 0..self.processes.len() {
            if self.processes[process].is_stopped() {
                self.resume(process)?;
            }
            // A process that has ended needs no order.
            let _ = self.order(process, Order::Quit).await;
        }
        let deadline = Clock::boot().now().saturating_add(limit);
        for process in 0..self.processes.len() {
            let left = deadline.saturating_since(Clock::boot().now());
            if !self.processes[process].ended_within(left).await {
                self.kill(process).await?;
            }
        }
        // All have ended, and so do their pipes.
        while self.readers.join_next().await.is_some() {}
        Ok(self.history())
    }

    /// That no process has ended by itself.
    async fn check_alive(&mut self) -> Result<(), LabError> {
        let ended = self.record.state().ended.clone();
        for process in ended {
            self.processes[process].check_killed().await?;
        }
        Ok(())
    }
}
