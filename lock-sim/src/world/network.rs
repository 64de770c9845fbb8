//! The network between hosts and servers: connections that carry bytes in order, as TCP does.
//!
//! What is written is cut into *chunks*, one for each write. A chunk takes some time; it may be lost, and is then sent
//! again by the kernel of whoever wrote it, later; while the way is blocked it waits in that kernel. A connection that its
//! client has ended is reset: what waits in the kernel is never sent, what is on its way arrives. Nothing arrives twice,
//! and nothing out of order: only a program that asks again on another connection can do that.

use std::{
    collections::VecDeque,
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    id::{ConnectionId, HostId, ServerId},
    shared::{ClientEnd, ConnectionState, TaskRequest, shared},
};
use crate::{Chance, MS, Time};

/// How long chunks take, and what a kernel does for them.
#[derive(Debug, Clone, Copy)]
pub struct Wires {
    /// The shortest delay.
    pub least: Time,
    /// The longest delay of most chunks.
    pub most: Time,
    /// The longest delay of those that are late.
    pub late: Time,
    /// How many of a thousand are late.
    pub late_per_mille: u64,
    /// Of a thousand late requests, for how many the client hears that the connection is over while the request is on its way.
    pub broken_per_mille: u64,
    /// How many of a thousand are lost at first, and sent again by the kernel.
    pub lost_per_mille: u64,
    /// The longest time after which a kernel sends a lost chunk again.
    pub resent_within: Time,
    /// For how long the kernel of a client goes on without an acknowledgement; `None` for as long as it takes.
    pub unacknowledged: Option<Time>,
    /// Whether a connection that is ended is reset at once. Otherwise the kernel goes on sending what it has.
    pub ends_at_once: bool,
}

impl Default for Wires {
    /// A network on which nothing goes wrong.
    fn default() -> Self {
        Self {
            least: MS / 10,
            most: MS,
            late: MS,
            late_per_mille: 0,
            broken_per_mille: 0,
            lost_per_mille: 0,
            resent_within: 400 * MS,
            unacknowledged: Some(4_000 * MS),
            ends_at_once: true,
        }
    }
}

impl Wires {
    pub(super) fn delay(&self, chance: &mut Chance) -> Time {
        let most = if chance.per_mille(self.late_per_mille) { self.late } else { self.most };
        chance.between(self.least, most)
    }
}

/// One of the two ways between a host and a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the host to the server.
    Up,
    /// From the server to the host.
    Down,
}

/// One direction of a simulated connection: the bytes that one side has sent and the other has not received.
#[derive(Debug, Default)]
pub(super) struct ByteStream {
    /// When the last of them arrives at the earliest.
    pub(super) last: Time,
    pub(super) chunks: VecDeque<Chunk>,
    /// Since when the first of them waits for its way to be open.
    pub(super) stalled: Option<Time>,
    /// How many were sent so far.
    pub(super) sent: u32,
}

/// The bytes of one write on a simulated connection, on their way to the other side.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) bytes: Vec<u8>,
    pub(super) number: u32,
    pub(super) sent_at: Time,
    /// It was lost, and the kernel has it until it arrives.
    pub(super) is_resent: bool,
}

/// A simulated TCP connection as the network has it: both directions, and what the kernels at its ends know.
#[derive(Debug)]
pub(super) struct NetworkConnection {
    pub(super) host: HostId,
    pub(super) server: ServerId,
    pub(super) up: ByteStream,
    pub(super) down: ByteStream,
    /// Whether the server has it, as far as the server knows.
    pub(super) is_served: bool,
    /// The client's kernel sends nothing of it any more.
    pub(super) is_ended: bool,
    /// Since when the client's kernel has had no acknowledgement of what it has sent.
    pub(super) unacknowledged: Option<Time>,
    pub(super) is_watched: bool,
}

impl NetworkConnection {
    pub(super) fn new(host: HostId, server: ServerId) -> Self {
        Self {
            host,
            server,
            up: ByteStream::default(),
            down: ByteStream::default(),
            is_served: false,
            is_ended: false,
            unacknowledged: None,
            is_watched: false,
        }
    }

    pub(super) const fn pipe(&mut self, way: Way) -> &mut ByteStream {
        match way {
            Way::Up => &mut self.up,
            Way::Down => &mut self.down,
        }
    }
}

/// A request that is to be held up on its way until somebody lets it go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Detention {
    pub(super) host: HostId,
    pub(super) server: ServerId,
    /// Which request it is.
    pub(super) is_meant: fn(&[u8]) -> bool,
    /// Whether its client hears that the connection is over.
    pub(super) breaks: bool,
    /// The connection on which the request is held up.
    pub(super) caught: Option<ConnectionId>,
}

/// For how long a request is held up at most.
pub(super) const DETAINED: Time = 8_000 * MS;

/// A connection as its client has it. Dropping it ends it.
#[derive(Debug)]
pub struct SimStream(ConnectionId);

/// The means to end a connection that somebody else reads and writes.
#[derive(Debug, Clone, Copy)]
pub struct SimEnding(ConnectionId);

impl SimStream {
    /// Opens a connection from `host` to `server`. Waits for ever where nothing answers.
    ///
    /// # Errors
    /// When nobody listens there.
    ///
    /// # Cancel safety
    /// A connection that is given up half-way is reset.
    pub async fn dial(host: HostId, server: ServerId) -> io::Result<Self> {
        let connection = shared(|shared| {
            let connection = ConnectionId(u32::try_from(shared.ends.len()).unwrap_or(u32::MAX));
            let (state, inbox) = (ConnectionState::Opening, VecDeque::new());
            shared.ends.push(ClientEnd { host, server, state, inbox, waker: None });
            shared.requests.push_back(TaskRequest::Dial { connection });
            connection
        });
        let stream = Self(connection);
        ConnectFuture(connection).await?;
        Ok(stream)
    }

    /// The means to end it.
    #[must_use]
    pub const fn ending(&self) -> SimEnding {
        SimEnding(self.0)
    }
}

impl SimEnding {
    /// Resets the connection: when this returns, the kernel sends nothing of it any more.
    pub fn end(&self) {
        let waker = shared(|shared| {
            let end = shared.ends.get_mut(self.0.place())?;
            if end.is_over() && end.state != ConnectionState::Closed {
                return None;
            }
            end.state = ConnectionState::Ended;
            end.inbox.clear();
            let waker = end.waker.take();
            shared.requests.push_back(TaskRequest::End { connection: self.0 });
            waker
        });
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The future of a connect, which resolves when the simulated connection is open or refused.
struct ConnectFuture(ConnectionId);

impl Future for ConnectFuture {
    type Output = io::Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_end(self.0, |end| match end.state {
            ConnectionState::Opening => {
                end.waker = Some(context.waker().clone());
                Poll::Pending
            }
            ConnectionState::Open | ConnectionState::Closed => Poll::Ready(Ok(())),
            state => Poll::Ready(Err(failure(state))),
        })
    }
}

fn failure(state: ConnectionState) -> io::Error {
    match state {
        ConnectionState::Refused => io::ErrorKind::ConnectionRefused,
        ConnectionState::TimedOut => io::ErrorKind::TimedOut,
        ConnectionState::Ended => io::ErrorKind::NotConnected,
        _ => io::ErrorKind::ConnectionReset,
    }
    .into()
}

fn with_end<T>(
    connection: ConnectionId,
    work: impl FnOnce(&mut ClientEnd) -> Poll<io::Result<T>>,
) -> Poll<io::Result<T>> {
    shared(|shared| match shared.ends.get_mut(connection.place()) {
        Some(end) => work(end),
        // The schedule is over.
        None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
    })
}

impl AsyncRead for SimStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        with_end(self.0, |end| {
            if !end.inbox.is_empty() && !matches!(end.state, ConnectionState::Reset | ConnectionState::TimedOut) {
                let (first, _) = end.inbox.as_slices();
                let length = first.len().min(buffer.remaining());
                buffer.put_slice(&first[..length]);
                end.inbox.drain(..length);
                return Poll::Ready(Ok(()));
            }
            match end.state {
                ConnectionState::Closed => Poll::Ready(Ok(())),
                ConnectionState::Opening | ConnectionState::Open => {
                    end.waker = Some(context.waker().clone());
                    Poll::Pending
                }
                state => Poll::Ready(Err(failure(state))),
            }
        })
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        shared(|shared| {
            let Some(end) = shared.ends.get(self.0.place()) else {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            };
            if end.is_over() {
                return Poll::Ready(Err(failure(end.state)));
            }
            shared.requests.push_back(TaskRequest::Write { connection: self.0, bytes: bytes.to_vec() });
            Poll::Ready(Ok(bytes.len()))
        })
    }

    /// What is written is the kernel's at once.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Nobody is told of an end before it: closing resets.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.ending().end();
    }
}
