//! The store that the locks protect: for each lock a register behind a fence, and one without, as control.
//!
//! It is in the process of the laboratory and is reached over a Unix socket, so that no proxy, no stopped worker and no
//! server fault is between a write and the stamp of its arrival.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use lock_core::{Fence, FencingToken};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    task::{JoinHandle, JoinSet},
};

use super::{
    events::{Attempt, Lock, Write, now, text},
    record::Record,
};
use crate::LabError;

/// A write on its way.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    #[serde(flatten)]
    whose: Attempt,
    #[serde(with = "text")]
    token: FencingToken,
}

/// What the store says to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Whether the fenced register took it.
    pub fenced: bool,
    /// Whether the register without a fence went back by it.
    pub went_back: bool,
}

/// The store, served until this is dropped.
#[derive(Debug)]
pub struct Sink {
    path: PathBuf,
    server: JoinHandle<()>,
}

impl Sink {
    /// Serves a store that has seen nothing, at a socket that is made at `path`. Writes go into `record`.
    ///
    /// # Errors
    /// [`LabError::Io`] when the socket cannot be made.
    pub(crate) fn serve(path: PathBuf, record: Arc<Record>) -> Result<Self, LabError> {
        let listener =
            UnixListener::bind(&path).map_err(|source| LabError::io("opening the socket of the store", source))?;
        let registers = Arc::new(Registers { fence: Fence::new(), record });
        let server = tokio::spawn(async move {
            // Ends its connections when it is aborted.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(answer(stream, Arc::clone(&registers)));
            }
        });
        Ok(Self { path, server })
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.server.abort();
    }
}

#[derive(Debug)]
struct Registers {
    fence: Fence,
    record: Arc<Record>,
}

/// The highest token that each register without a fence has seen.
pub(crate) type Unfenced = BTreeMap<Lock, FencingToken>;

impl Registers {
    /// Writes to both registers. Under the record's own lock, so that the stamps are in the order of application.
    fn write(&self, Request { whose, token }: Request) -> Answer {
        self.record.write(|unfenced| {
            let fenced = self.fence.admit(whose.lock.name(), token, || ()).is_ok();
            let highest = unfenced.entry(whose.lock).or_insert(token);
            let went_back = token < *highest;
            *highest = token.max(*highest);
            Write { at: now(), whose, token, fenced, went_back }
        })
    }
}

async fn answer(stream: UnixStream, registers: Arc<Registers>) {
    let (from, mut to) = stream.into_split();
    let mut lines = BufReader::new(from).lines();
    // A worker that ends in the middle of a line has not written.
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(request) = serde_json::from_str(&line) else { return };
        let answer = registers.write(request);
        let Ok(line) = serde_json::to_string(&answer) else { return };
        if to.write_all(format!("{line}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

/// A worker's connection to the store.
#[derive(Debug)]
pub(crate) struct Store {
    stream: BufReader<UnixStream>,
}

impl Store {
    pub(crate) async fn connect(path: &Path) -> Result<Self, LabError> {
        let stream = UnixStream::connect(path).await;
        let stream = stream.map_err(|source| LabError::io("connecting to the store", source))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Writes, and waits for the answer.
    pub(crate) async fn write(&mut self, whose: Attempt, token: FencingToken) -> Result<Answer, LabError> {
        let failed = |source| LabError::io("writing to the store", source);
        let line = serde_json::to_string(&Request { whose, token }).map_err(|error| failed(error.into()))?;
        self.stream.get_mut().write_all(format!("{line}\n").as_bytes()).await.map_err(failed)?;
        let mut answer = String::new();
        self.stream.read_line(&mut answer).await.map_err(failed)?;
        serde_json::from_str(&answer).map_err(|error| failed(error.into()))
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[tokio::test]
    async fn the_fence_refuses_a_late_write_and_the_control_shows_it() {
        let dir = TempDir::new().unwrap();
        let record = Arc::new(Record::default());
        let sink = Sink::serve(dir.path().join("store"), Arc::clone(&record)).unwrap();
        let (mut old, mut new) =
            (Store::connect(sink.path()).await.unwrap(), Store::connect(sink.path()).await.unwrap());
        let whose = |process| Attempt { lock: Lock::Kept, process, client: 0, attempt: 1 };
        let token = |number| FencingToken { era: 0, number };
        let good = Answer { fenced: true, went_back: false };
        assert_eq!(old.write(whose(0), token(1)).await.unwrap(), good);
        assert_eq!(new.write(whose(1), token(2)).await.unwrap(), good);
        assert_eq!(old.write(whose(0), token(1)).await.unwrap(), Answer { fenced: false, went_back: true });
        assert_eq!(new.write(whose(1), token(2)).await.unwrap(), good);
        // Each lock has registers of its own.
        let busy = Attempt { lock: Lock::Busy, ..whose(0) };
        assert_eq!(old.write(busy, token(1)).await.unwrap(), good);
        let writes = record.history().writes;
        assert_eq!(writes.iter().map(|write| write.fenced).collect::<Vec<_>>(), [true, true, false, true, true]);
        assert!(writes.is_sorted_by_key(|write| write.at));
    }
}
