//! A proxy that reads ZooKeeper's frames on their way, and can hold back replies.

use std::sync::Arc;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Result},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinHandle,
};

/// A request of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) xid: i32,
    /// The protocol's number.
    pub(crate) operation: i32,
    /// Empty where the request begins with none.
    pub(crate) path: String,
}

/// The protocol's numbers of the operations that create a node and answer with it.
pub(crate) const CREATE: [i32; 2] = [1, 15];
/// Those that list the children of a node.
pub(crate) const LIST: [i32; 2] = [8, 12];
/// Those that begin with a path.
const WITH_PATH: [i32; 12] = [1, 2, 3, 4, 5, 8, 9, 12, 15, 19, 21, 106];

/// The longest frame that is taken: the servers' own limit is about this.
const LONGEST_FRAME: usize = 1 << 20;

/// The proxy; it ends when dropped.
#[derive(Debug)]
pub(crate) struct FrameProxy {
    pub(crate) port: u16,
    passing: Arc<Passing>,
    serving: JoinHandle<()>,
}

#[derive(Debug)]
struct Passing {
    /// What was asked, in order.
    asked: watch::Sender<Vec<Request>>,
    /// The greatest xid whose reply is let through. What the server says by itself has a negative one.
    answered: watch::Sender<i32>,
}

impl FrameProxy {
    /// Starts a proxy before the server on loopback port `target`, for one connection at a time.
    pub(crate) async fn start(target: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let passing = Arc::new(Passing { asked: watch::Sender::default(), answered: watch::Sender::new(i32::MAX) });
        let serving = tokio::spawn(serve(listener, target, Arc::clone(&passing)));
        Ok(Self { port, passing, serving })
    }

    /// From now on only replies to what was asked before this get through.
    pub(crate) fn answer_nothing_new(&self) {
        let last = self.passing.asked.borrow().iter().map(|request| request.xid).max();
        self.passing.answered.send_replace(last.unwrap_or(0));
    }

    /// All replies get through again.
    pub(crate) fn answer_all(&self) {
        self.passing.answered.send_replace(i32::MAX);
    }

    /// Resolves when what was asked so far is as wanted.
    pub(crate) async fn asked(&self, is_wanted: impl Fn(&[Request]) -> bool + Send + Sync) {
        // The sender is in `self`.
        let _ = self.passing.asked.subscribe().wait_for(|asked| is_wanted(asked)).await;
    }

    /// What was asked so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.passing.asked.borrow().clone()
    }
}

impl Drop for FrameProxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, target: u16, passing: Arc<Passing>) {
    while let Ok((client, _)) = listener.accept().await {
        let Ok(server) = TcpStream::connect(("127.0.0.1", target)).await else { continue };
        if client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).is_err() {
            continue;
        }
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let (requests, replies) = (Arc::clone(&passing), Arc::clone(&passing));
        tokio::spawn(async move { pass_requests(from_client, to_server, &requests).await });
        tokio::spawn(async move { pass_replies(from_server, to_client, &replies).await });
    }
}

async fn pass_requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, passing: &Passing) -> Result<()> {
    // The first frame of each direction opens the session.
    write_frame(&mut to, &read_frame(&mut from).await?).await?;
    loop {
        let frame = read_frame(&mut from).await?;
        passing.asked.send_modify(|asked| asked.extend(request(&frame)));
        write_frame(&mut to, &frame).await?;
    }
}

async fn pass_replies(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, passing: &Passing) -> Result<()> {
    let mut answered = passing.answered.subscribe();
    write_frame(&mut to, &read_frame(&mut from).await?).await?;
    loop {
        let frame = read_frame(&mut from).await?;
        let xid = number(&frame, 0).unwrap_or(0);
        // The sender is in `passing`.
        let _ = answered.wait_for(|last| xid <= *last).await;
        write_frame(&mut to, &frame).await?;
    }
}

async fn read_frame(from: &mut OwnedReadHalf) -> Result<Vec<u8>> {
    let length = usize::try_from(from.read_i32().await?).unwrap_or(usize::MAX);
    if length > LONGEST_FRAME {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    let mut frame = vec![0; length];
    from.read_exact(&mut frame).await?;
    Ok(frame)
}

async fn write_frame(to: &mut OwnedWriteHalf, frame: &[u8]) -> Result<()> {
    let mut bytes = u32::try_from(frame.len()).unwrap_or(0).to_be_bytes().to_vec();
    bytes.extend(frame);
    to.write_all(&bytes).await
}

fn request(frame: &[u8]) -> Option<Request> {
    let (xid, operation) = (number(frame, 0)?, number(frame, 4)?);
    let path = if WITH_PATH.contains(&operation) { text(frame, 8).unwrap_or_default() } else { String::new() };
    Some(Request { xid, operation, path })
}

fn number(frame: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(frame.get(at..at + 4)?.try_into().ok()?))
}

fn text(frame: &[u8], at: usize) -> Option<String> {
    let length = usize::try_from(number(frame, at)?).ok()?;
    String::from_utf8(frame.get(at + 4..at + 4 + length)?.to_vec()).ok()
}
