//! A holder in a process of its own, to be killed.

use std::{io, path::Path, process::Stdio, time::Duration};

use lock_core::Clock;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::LabError;

/// How long the process may take until it holds the lock.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long a holder whose input has ended may take to give the lock back.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// What the process says once it holds the lock.
const HELD: &str = "held";

/// Holds a lock until standard input ends, and says so: what `lock-lab hold` does. The input is a pipe from the program that
/// started this one, so this process ends with that one, however that was.
///
/// # Errors
/// [`LabError::Lock`] when the lock is not granted.
pub async fn hold(url: &str, name: &str) -> Result<(), LabError> {
    let locks = lock::connect(url).await.map_err(LabError::lock("connecting"))?;
    let guard = locks.mutex(name).lock().await.map_err(LabError::lock("acquiring"))?;
    println!("{HELD}");
    let ended = tokio::task::spawn_blocking(|| io::copy(&mut io::stdin(), &mut io::sink())).await;
    LabError::joined(ended)?.map_err(|source| LabError::io("reading the input", source))?;
    guard.release().await.map_err(LabError::lock("releasing"))?;
    locks.close(CLOSE_LIMIT).await.map_err(LabError::lock("disconnecting"))
}

/// A process that holds a lock until it is killed.
#[derive(Debug)]
pub struct Holder {
    child: Child,
}

impl Holder {
    /// Starts `program` as `lock-lab hold URL NAME`; returns when it holds the lock.
    ///
    /// # Errors
    /// [`LabError::Holder`] when it ends instead, or does not get the lock in time.
    pub async fn start(program: &Path, url: &str, name: &str) -> Result<Self, LabError> {
        let mut child = Command::new(program)
            .args(["hold", url, name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| LabError::io(format!("starting {}", program.display()), source))?;
        let failed = |reason: &str| LabError::Holder { reason: reason.into() };
        let mut lines = BufReader::new(child.stdout.take().ok_or_else(|| failed("it has no output"))?).lines();
        match Clock::boot().timeout(START_LIMIT, lines.next_line()).await {
            Some(Ok(Some(line))) if line == HELD => Ok(Self { child }),
            Some(Ok(Some(line))) => Err(failed(&format!("it said {line:?}"))),
            Some(_) => {
                let output = child.wait_with_output().await;
                let output = output.map_err(|source| LabError::io("waiting for the holder", source))?;
                let said = String::from_utf8_lossy(&output.stderr);
                Err(failed(&format!("it ended with {}: {}", output.status, said.trim())))
            }
            None => Err(failed(&format!("it does not hold the lock after {START_LIMIT:?}"))),
        }
    }

    /// Kills the process with SIGKILL and waits for its end.
    ///
    /// # Errors
    /// [`LabError::Io`] when the process could not be killed.
    pub async fn kill(mut self) -> Result<(), LabError> {
        self.child.kill().await.map_err(|source| LabError::io("killing the holder", source))
    }
}
