//! A proxy that reads ZooKeeper's frames on their way, and delays them.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lock_core::{BootInstant, Clock};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Result},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
    task::JoinHandle,
};

/// What passed: a request when it came from the client, a reply when it was given to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Passed {
    /// `operation` is the protocol's number; `path` is empty where the request begins with none.
    Request {
        xid: i32,
        operation: i32,
        path: String,
    },
    Reply {
        xid: i32,
    },
}

/// The protocol's numbers of the operations that create a node and answer with it.
pub(crate) const CREATE: [i32; 2] = [1, 15];
/// Those that list the children of a node.
pub(crate) const LIST: [i32; 2] = [8, 12];
/// Those that begin with a path.
const WITH_PATH: [i32; 12] = [1, 2, 3, 4, 5, 8, 9, 12, 15, 19, 21, 106];

/// The longest frame that is taken: the servers' own limit is about this.
const LONGEST_FRAME: usize = 1 << 20;

/// Everything that passed, in the order in which the client can have known of it.
type Record = Arc<Mutex<Vec<Passed>>>;

/// The proxy; it ends when dropped.
#[derive(Debug)]
pub(crate) struct FrameProxy {
    pub(crate) port: u16,
    record: Record,
    serving: JoinHandle<()>,
}

impl FrameProxy {
    /// Starts a proxy before the server on loopback port `target` that delays each direction by `delay`.
    pub(crate) async fn start(target: u16, delay: Duration) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let record = Record::default();
        let serving = tokio::spawn(serve(listener, target, delay, Arc::clone(&record)));
        Ok(Self { port, record, serving })
    }

    /// What passed since the last call.
    pub(crate) fn take(&self) -> Vec<Passed> {
        std::mem::take(&mut *self.record.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for FrameProxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, target: u16, delay: Duration, record: Record) {
    while let Ok((client, _)) = listener.accept().await {
        let Ok(server) = TcpStream::connect(("127.0.0.1", target)).await else { continue };
        if client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).is_err() {
            continue;
        }
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        pump(from_client, to_server, delay, Arc::clone(&record), Direction::Requests);
        pump(from_server, to_client, delay, Arc::clone(&record), Direction::Replies);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Replies,
}

/// Forwards each frame `delay` after it came: frames are delayed side by side, not one after the other.
fn pump(from: OwnedReadHalf, to: OwnedWriteHalf, delay: Duration, record: Record, direction: Direction) {
    let (delayed, due) = mpsc::unbounded_channel();
    let note = record.clone();
    tokio::spawn(async move {
        let _ = read_frames(from, delay, &note, direction, &delayed).await;
    });
    tokio::spawn(async move {
        let _ = write_frames(to, due, &record, direction).await;
    });
}

type Delayed = (BootInstant, Vec<u8>, bool);

async fn read_frames(
    mut from: OwnedReadHalf,
    delay: Duration,
    record: &Mutex<Vec<Passed>>,
    direction: Direction,
    delayed: &mpsc::UnboundedSender<Delayed>,
) -> Result<()> {
    let mut first = true;
    loop {
        let length = usize::try_from(from.read_i32().await?).unwrap_or(usize::MAX);
        if length > LONGEST_FRAME {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        let mut frame = vec![0; length];
        from.read_exact(&mut frame).await?;
        if direction == Direction::Requests && !first {
            record.lock().unwrap_or_else(PoisonError::into_inner).extend(request(&frame));
        }
        if delayed.send((Clock::boot().now().saturating_add(delay), frame, first)).is_err() {
            return Ok(());
        }
        // The first frame of each direction opens the session and is no request.
        first = false;
    }
}

async fn write_frames(
    mut to: OwnedWriteHalf,
    mut due: mpsc::UnboundedReceiver<Delayed>,
    record: &Mutex<Vec<Passed>>,
    direction: Direction,
) -> Result<()> {
    while let Some((at, frame, first)) = due.recv().await {
        Clock::boot().sleep_until(at).await;
        if direction == Direction::Replies && !first {
            let reply = number(&frame, 0).map(|xid| Passed::Reply { xid });
            record.lock().unwrap_or_else(PoisonError::into_inner).extend(reply);
        }
        let mut bytes = u32::try_from(frame.len()).unwrap_or(0).to_be_bytes().to_vec();
        bytes.extend(frame);
        to.write_all(&bytes).await?;
    }
    Ok(())
}

fn request(frame: &[u8]) -> Option<Passed> {
    let (xid, operation) = (number(frame, 0)?, number(frame, 4)?);
    let path = if WITH_PATH.contains(&operation) { text(frame, 8).unwrap_or_default() } else { String::new() };
    Some(Passed::Request { xid, operation, path })
}

fn number(frame: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(frame.get(at..at + 4)?.try_into().ok()?))
}

fn text(frame: &[u8], at: usize) -> Option<String> {
    let length = usize::try_from(number(frame, at)?).ok()?;
    String::from_utf8(frame.get(at + 4..at + 4 + length)?.to_vec()).ok()
}
