//! The store that the locks protect: for each lock a register behind a fence, and one without, as control. The value of the
//! busy lock's is read, and written back with an element more: what is lost of these updates can be counted.
//!
//! It is in the process of the laboratory and is reached over a Unix socket, so that no proxy, no stopped worker and no
//! server fault is between a write and the stamp of its arrival.

use std::{
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
    events::{Attempt, Update, Values, now, text},
    record::RunRecord,
};
use crate::LabError;

/// A request of a worker to the store, with the holder's fencing token.
#[derive(Debug, Serialize, Deserialize)]
struct StoreRequest {
    #[serde(flatten)]
    whose: Attempt,
    #[serde(with = "text")]
    token: FencingToken,
    what: StoreOperation,
}

/// The operation that a [`StoreRequest`] asks for: a read, a write or an update.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoreOperation {
    /// The values. The fence sees the token: else an earlier holder could still write between this read and the write that
    /// goes by it.
    Read,
    /// A plain write.
    Write,
    /// A write of what was read, with one element more.
    Update(Values),
}

/// What the store says to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Whether the fence let it through.
    pub fenced: bool,
    /// Whether the register without a fence went back by it.
    pub went_back: bool,
    /// What the registers have now.
    pub values: Values,
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
    pub(crate) fn serve(path: PathBuf, record: Arc<RunRecord>) -> Result<Self, LabError> {
        let listener =
            UnixListener::bind(&path).map_err(|source| LabError::io("opening the socket of the store", source))?;
        let store = Arc::new(FencedStore { fence: Fence::new(), record });
        let server = tokio::spawn(async move {
            // Ends its connections when it is aborted.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(answer(stream, Arc::clone(&store)));
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

/// The store that the locks protect: the fence, and the record of the run with the registers.
#[derive(Debug)]
struct FencedStore {
    fence: Fence,
    record: Arc<RunRecord>,
}

impl FencedStore {
    /// Reads, or writes to both registers. Under the record's own lock, so that the stamps are in the order of application.
    fn carry_out(&self, StoreRequest { whose, token, what }: StoreRequest) -> Answer {
        self.record.apply(|registers| {
            // Safeguard: the store's fence sees the token with the read
            // Safeguard: the store's fenced register has a fence
            let fenced = self.fence.admit(whose.lock.name(), token, || ()).is_ok();
            let update = match what {
                StoreOperation::Update(read) => {
                    Some(registers.update(Update { at: now(), whose, token, read, fenced }))
                }
                StoreOperation::Read | StoreOperation::Write => None,
            };
            let write = match what {
                StoreOperation::Write | StoreOperation::Update(_) => Some(registers.write(whose, token, fenced)),
                StoreOperation::Read => None,
            };
            let went_back = write.as_ref().is_some_and(|write| write.went_back);
            (Answer { fenced, went_back, values: registers.values() }, write, update)
        })
    }
}

async fn answer(stream: UnixStream, store: Arc<FencedStore>) {
    let (from, mut to) = stream.into_split();
    let mut lines = BufReader::new(from).lines();
    // A worker that ends in the middle of a line has not written.
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(request) = serde_json::from_str(&line) else { return };
        let answer = store.carry_out(request);
        let Ok(line) = serde_json::to_string(&answer) else { return };
        if to.write_all(format!("{line}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

/// A worker's connection to the store that the locks protect.
#[derive(Debug)]
pub(crate) struct StoreConnection {
    stream: BufReader<UnixStream>,
}

impl StoreConnection {
    pub(crate) async fn connect(path: &Path) -> Result<Self, LabError> {
        let stream = UnixStream::connect(path).await;
        let stream = stream.map_err(|source| LabError::io("connecting to the store", source))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Reads the values, and waits for the answer.
    pub(crate) async fn read(&mut self, whose: Attempt, token: FencingToken) -> Result<Values, LabError> {
        Ok(self.ask(&StoreRequest { whose, token, what: StoreOperation::Read }).await?.values)
    }

    /// Writes, and waits for the answer.
    pub(crate) async fn write(&mut self, whose: Attempt, token: FencingToken) -> Result<Answer, LabError> {
        self.ask(&StoreRequest { whose, token, what: StoreOperation::Write }).await
    }

    /// Writes what was read with one element more, and waits for the answer.
    pub(crate) async fn update(
        &mut self,
        whose: Attempt,
        token: FencingToken,
        read: Values,
    ) -> Result<Answer, LabError> {
        self.ask(&StoreRequest { whose, token, what: StoreOperation::Update(read) }).await
    }

    async fn ask(&mut self, request: &StoreRequest) -> Result<Answer, LabError> {
        let failed = |source| LabError::io("asking the store", source);
        let line = serde_json::to_string(request).map_err(|error| failed(error.into()))?;
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
    use crate::failover::events::Lock;

    #[tokio::test]
    async fn the_fence_refuses_a_late_write_and_the_control_shows_it() {
        let dir = TempDir::new().unwrap();
        let record = Arc::new(RunRecord::default());
        let sink = Sink::serve(dir.path().join("store"), Arc::clone(&record)).unwrap();
        let (mut old, mut new) = (
            StoreConnection::connect(sink.path()).await.unwrap(),
            StoreConnection::connect(sink.path()).await.unwrap(),
        );
        let whose = |process| Attempt { lock: Lock::Kept, process, client: 0, attempt: 1 };
        let token = |number| FencingToken { era: 0, number };
        let values = Values::default();
        let good = Answer { fenced: true, went_back: false, values };
        assert_eq!(old.write(whose(0), token(1)).await.unwrap(), good);
        assert_eq!(new.write(whose(1), token(2)).await.unwrap(), good);
        assert_eq!(old.write(whose(0), token(1)).await.unwrap(), Answer { fenced: false, went_back: true, values });
        assert_eq!(new.write(whose(1), token(2)).await.unwrap(), good);
        // Each lock has registers of its own.
        let busy = Attempt { lock: Lock::Busy, ..whose(0) };
        assert_eq!(old.write(busy, token(1)).await.unwrap(), good);
        let writes = record.history().writes;
        assert_eq!(writes.iter().map(|write| write.fenced).collect::<Vec<_>>(), [true, true, false, true, true]);
        assert!(writes.is_sorted_by_key(|write| write.at));
    }

    #[tokio::test]
    async fn an_update_by_an_old_holder_is_refused_behind_the_fence_and_overwrites_another_without_it() {
        let dir = TempDir::new().unwrap();
        let record = Arc::new(RunRecord::default());
        let sink = Sink::serve(dir.path().join("store"), Arc::clone(&record)).unwrap();
        let mut store = StoreConnection::connect(sink.path()).await.unwrap();
        let whose = |process| Attempt { lock: Lock::Busy, process, client: 1, attempt: 1 };
        let token = |number| FencingToken { era: 0, number };
        let old = store.read(whose(0), token(1)).await.unwrap();
        let new = store.read(whose(1), token(2)).await.unwrap();
        assert_eq!((old, new), (Values::default(), Values::default()));
        let answer = store.update(whose(1), token(2), new).await.unwrap();
        assert_eq!(answer.values, Values { fenced: 1, unfenced: 1 });
        let answer = store.update(whose(0), token(1), old).await.unwrap();
        assert_eq!((answer.fenced, answer.values), (false, Values { fenced: 1, unfenced: 2 }));
        let updates = record.history().updates;
        assert_eq!(
            updates.iter().map(|update| (update.read, update.fenced)).collect::<Vec<_>>(),
            [(Values::default(), true), (Values::default(), false)]
        );
    }

    #[tokio::test]
    async fn who_has_read_with_its_token_is_not_overwritten_by_an_earlier_holder() {
        let dir = TempDir::new().unwrap();
        let sink = Sink::serve(dir.path().join("store"), Arc::default()).unwrap();
        let mut store = StoreConnection::connect(sink.path()).await.unwrap();
        let whose = |process| Attempt { lock: Lock::Busy, process, client: 1, attempt: 1 };
        let token = |number| FencingToken { era: 0, number };
        let old = store.read(whose(0), token(1)).await.unwrap();
        // The new holder has not written yet.
        store.read(whose(1), token(2)).await.unwrap();
        assert!(!store.update(whose(0), token(1), old).await.unwrap().fenced);
    }
}
