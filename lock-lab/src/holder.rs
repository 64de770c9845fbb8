//! A holder in a process of its own: `lock run`.

use std::{path::Path, process::Stdio, time::Duration};

use lock_core::Clock;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::LabError;

/// How long the process may take until it holds the lock.
const START_LIMIT: Duration = Duration::from_secs(30);

/// What `lock run` runs: says that it runs, and goes on until its input ends. The input is a pipe from this program, so
/// that it ends with this program and with [`Holder`], although nobody passes the kill of its parent on.
const COMMAND: [&str; 3] = ["sh", "-c", "echo held; exec cat"];

/// A process that holds a lock until it is killed.
#[derive(Debug)]
pub struct Holder {
    child: Child,
}

impl Holder {
    /// Starts `program` as `lock --url URL run NAME`; returns when it holds the lock.
    ///
    /// # Errors
    /// [`LabError::Holder`] when it ends instead, or does not get the lock in time.
    pub async fn start(program: &Path, url: &str, name: &str) -> Result<Self, LabError> {
        let mut child = Command::new(program)
            .args(["--url", url, "run", name, "--"])
            .args(COMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| LabError::io(format!("starting {}", program.display()), source))?;
        let failed = |reason: &str| LabError::Holder { reason: reason.into() };
        let mut lines = BufReader::new(child.stdout.take().ok_or_else(|| failed("it has no output"))?).lines();
        match Clock::boot().timeout(START_LIMIT, lines.next_line()).await {
            Some(Ok(Some(line))) if line == "held" => Ok(Self { child }),
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

    /// Kills it with SIGKILL and waits for its end.
    ///
    /// # Errors
    /// [`LabError::Io`] when it could not be killed.
    pub async fn kill(mut self) -> Result<(), LabError> {
        self.child.kill().await.map_err(|source| LabError::io("killing the holder", source))
    }
}
