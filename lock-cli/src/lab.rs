//! `lock demo`, `lock compare`, `lock failover`: the laboratory's own programs.

use std::env;

use lock::Config;
use lock_lab::{
    LabError, compare, demo,
    failover::{self, worker::Worker},
    readwrite,
};

use crate::{
    arguments::{Compare, Demo, Failover, LabWorker, ReadWrite},
    failure::{Failure, SIGNALLED, SYSTEM, UNAVAILABLE, USAGE},
    signals::Signals,
};

/// Runs the demonstration, on one backend or on the servers of every backend.
pub(crate) async fn demo(config: Option<Config>, options: &Demo) -> Result<u8, Failure> {
    let mut demonstration = demo::Options::default();
    demonstration.nodes = options.nodes.into();
    demonstration.hold = options.hold;
    demonstration.url = config.map(|config| config.to_url());
    demo::run(&demonstration).await?;
    Ok(0)
}

/// Runs the comparison and writes its report.
pub(crate) async fn compare(options: &Compare) -> Result<u8, Failure> {
    let mut comparison = compare::Options::new(&options.out, env::current_exe()?);
    comparison.scale = options.scale;
    if !options.on.is_empty() {
        comparison.topologies.clone_from(&options.on);
    }
    compare::run(&comparison).await?;
    Ok(0)
}

/// Runs readers and writers on every backend, and checks what was granted.
pub(crate) async fn read_write(options: &ReadWrite) -> Result<u8, Failure> {
    let mut load = readwrite::Options::default();
    load.readers = options.readers.into();
    load.writers = options.writers.into();
    (load.time, load.hold) = (options.time, options.hold);
    if !options.on.is_empty() {
        load.topologies.clone_from(&options.on);
    }
    readwrite::run(&load).await?;
    Ok(0)
}

/// Is a worker process of the laboratory.
pub(crate) async fn worker(url: Option<&str>, options: &LabWorker) -> Result<u8, Failure> {
    let url = url.ok_or_else(|| Failure::new(USAGE, "a worker needs --url"))?;
    let worker = Worker {
        url: url.into(),
        process: options.process,
        clients: options.clients,
        careless: options.careless,
        hold: options.hold,
        write_every: options.write_every,
        wait: options.wait,
        store: options.store.clone(),
        insists: options.insists,
    };
    worker.run().await?;
    Ok(0)
}

/// Runs the matrix of faults and writes its report, also when it is interrupted.
pub(crate) async fn failover(options: &Failover) -> Result<u8, Failure> {
    let mut matrix = failover::Options::new(&options.out, env::current_exe()?);
    matrix.wanted.backends.clone_from(&options.backend);
    matrix.wanted.faults.clone_from(&options.fault);
    (matrix.wanted.all, matrix.wanted.full) = (options.all, options.full);
    let mut signals = Signals::listen()?;
    let mut interrupted = None;
    let report = failover::run(&matrix, async { interrupted = Some(signals.next_ending().await) }).await?;
    match interrupted {
        Some(signal) => Ok(SIGNALLED.saturating_add(u8::try_from(signal as i32).unwrap_or_default())),
        None if report.is_good() => Ok(0),
        None => Err(Failure::new(UNAVAILABLE, report.sum())),
    }
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        match error {
            LabError::Lock { action, source } => {
                let failure = Self::from(source);
                Self::new(failure.status, format!("{action}: {failure}"))
            }
            LabError::Refused { reason } => Self::new(USAGE, reason),
            error @ LabError::Io { .. } => Self::new(SYSTEM, error.to_string()),
            other => Self::new(UNAVAILABLE, other.to_string()),
        }
    }
}
