//! One worker process.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use lock_core::Clock;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::{
    LabError,
    failover::{
        record::RunRecord,
        worker::{Order, Worker},
        workers::WorkerOptions,
    },
    network,
    servers::clock::WallClock,
};

/// How long a stopped process may take to stand still.
const STOP_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(1);

/// Handle to one worker process, which can be ordered about, stopped and killed.
#[derive(Debug)]
pub(super) struct WorkerProcess {
    process: usize,
    child: Child,
    orders: Option<ChildStdin>,
    complaints: PathBuf,
    /// Wall clock of the process, where it is not that of the machine.
    _clock: Option<WallClock>,
    killed: bool,
    stopped: bool,
}

impl WorkerProcess {
    /// Starts `program` as `lock-lab worker`, with `dir` as its working directory.
    pub(super) fn start(
        program: &Path,
        worker: &Worker,
        options: &WorkerOptions,
        dir: &Path,
    ) -> Result<(Self, ChildStdout), LabError> {
        let clock = (!options.clock_ahead.is_zero()).then(WallClock::new).transpose()?;
        clock.as_ref().map_or(Ok(()), |clock| clock.set_ahead(options.clock_ahead))?;
        let complaints = dir.join(format!("worker-{}", worker.process));
        let errors = File::create(&complaints).map_err(|error| LabError::io("opening a log", error))?;
        let invalid = |error: serde_json::Error| LabError::io("writing the worker's options", error.into());
        let options_json = serde_json::to_string(worker).map_err(invalid)?;
        let mut command = match &options.namespace {
            // The command enters the namespace and becomes the worker, so the process id is the worker's.
            Some(namespace) => {
                let mut command = network::enter(namespace)?;
                command.arg(program);
                command
            }
            None => Command::new(program),
        };
        let mut child = command
            .arg("worker")
            .arg(options_json)
            .envs(clock.as_ref().map(WallClock::environment).unwrap_or_default())
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .kill_on_drop(true)
            // A group of its own: Ctrl-C at a terminal is for this program, which then takes its processes down.
            .process_group(0)
            .spawn()
            .map_err(|source| LabError::io(format!("starting {}", program.display()), source))?;
        let gone = || LabError::Worker { process: worker.process, reason: "it has no pipes".into() };
        let output = child.stdout.take().ok_or_else(gone)?;
        let orders = Some(child.stdin.take().ok_or_else(gone)?);
        let process = worker.process;
        Ok((Self { process, child, orders, complaints, _clock: clock, killed: false, stopped: false }, output))
    }

    pub(super) async fn order(&mut self, order: Order) -> Result<(), LabError> {
        let Some(orders) = &mut self.orders else { return Err(self.failed("it has ended".into())) };
        match orders.write_all(format!("{order}\n").as_bytes()).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.failed(format!("it takes no orders: {error}"))),
        }
    }

    pub(super) async fn kill(&mut self) -> Result<(), LabError> {
        self.killed = true;
        self.child.kill().await.map_err(|error| LabError::io("killing a worker", error))
    }

    pub(super) async fn stop(&mut self) -> Result<(), LabError> {
        self.signal(Signal::STOP)?;
        self.stopped = true;
        let status = format!("/proc/{}/stat", self.child.id().unwrap_or_default());
        let clock = Clock::boot();
        let stands_still = async {
            // The state comes after the name in brackets, which may have any character in it.
            while !fs::read_to_string(&status)
                .is_ok_and(|text| text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')))
            {
                clock.sleep(POLL).await;
            }
        };
        let stopped = clock.timeout(STOP_LIMIT, stands_still).await;
        stopped.ok_or_else(|| self.failed(format!("it does not stop within {STOP_LIMIT:?}")))
    }

    pub(super) fn resume(&mut self) -> Result<(), LabError> {
        self.stopped = false;
        self.signal(Signal::CONT)
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    pub(super) const fn is_stopped(&self) -> bool {
        self.stopped && !self.killed
    }

    /// Whether the process has ended within `limit`.
    pub(super) async fn ended_within(&mut self, limit: Duration) -> bool {
        Clock::boot().timeout(limit, self.child.wait()).await.is_some()
    }

    /// That it was killed by this program, given that it has ended.
    pub(super) async fn check_killed(&mut self) -> Result<(), LabError> {
        if self.killed {
            return Ok(());
        }
        let status = self.child.wait().await.map_err(|error| LabError::io("waiting for a worker", error))?;
        Err(self.failed(format!("it ended with {status}")))
    }

    fn signal(&self, signal: Signal) -> Result<(), LabError> {
        // The id is its own until it has been waited for; there is none from then on.
        let pid = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let sent = pid.map_or(Ok(()), |pid| kill_process(pid, signal));
        sent.map_err(|error| LabError::io(format!("sending {signal:?} to a worker"), error.into()))
    }

    fn failed(&self, reason: String) -> LabError {
        let said = fs::read_to_string(&self.complaints).unwrap_or_default();
        let reason = if said.is_empty() { reason } else { format!("{reason}: {}", said.trim()) };
        LabError::Worker { process: self.process, reason }
    }
}

/// Reads what a process reports, to the end.
pub(super) async fn read(process: usize, output: ChildStdout, record: Arc<RunRecord>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // A process that is killed may leave half a line, which is its last one.
        let Ok(event) = serde_json::from_str(&line) else { break };
        record.event(event);
    }
    record.ended(process);
}
