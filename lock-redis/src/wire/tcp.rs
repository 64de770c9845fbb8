//! TCP: the socket of a connection, and its end.
//!
//! A request that was written may be delivered by a retransmission for as long as the kernel keeps its socket, whether the
//! program still has it or not: a socket that is closed in the usual way goes on for minutes. An undo leaves a tombstone for
//! a few seconds only ([`TOMBSTONE`](crate::protocol::TOMBSTONE)), so a request must not be delivered after these. Hence a
//! socket that is given up forgets at once what was not acknowledged.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};

use async_trait::async_trait;
use rustix::net::{RecvFlags, connect_unspec, recv, sockopt};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};

use super::{Address, Ending, Network, Stream};

/// For how long the kernel goes on sending what the other side does not acknowledge. Then the connection is broken.
pub const UNACKNOWLEDGED: Duration = Duration::from_secs(4);

/// The network of this machine.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Tcp;

/// A connected socket, which only its one owner reads and writes.
#[derive(Debug)]
struct Socket(Arc<TcpStream>);

/// The means to end a socket that somebody else owns.
#[derive(Debug)]
struct SocketEnding(Weak<TcpStream>);

#[async_trait]
impl Network for Tcp {
    async fn dial(&self, address: &Address) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(dial(address).await?))
    }
}

/// Opens the socket, without the delay that waits for more to send: a request is a whole.
async fn dial(address: &Address) -> io::Result<Socket> {
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
    stream.set_nodelay(true)?;
    // Closed is reset, also where this program is killed: what was not delivered by then never is.
    // Safeguard: a socket that is closed is reset (Redis, Redlock)
    stream.set_zero_linger()?;
    // Where this program stands still with a socket that it would have given up, the kernel does.
    let limit = u32::try_from(UNACKNOWLEDGED.as_millis()).unwrap_or(u32::MAX);
    // Safeguard: the kernel gives up before a tombstone ends (Redis, Redlock)
    sockopt::set_tcp_user_timeout(&stream, limit).map_err(io::Error::from)?;
    Ok(Socket(Arc::new(stream)))
}

impl Stream for Socket {
    fn ending(&self) -> Arc<dyn Ending> {
        Arc::new(SocketEnding(Arc::downgrade(&self.0)))
    }
}

impl Ending for SocketEnding {
    /// Resets the connection, if it is there: when this returns, the kernel sends nothing of it any more.
    fn end(&self) {
        if let Some(stream) = self.0.upgrade() {
            // Fails where the connection has ended by itself.
            let _ = connect_unspec(&*stream);
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            let (bytes, mut read) = (buffer.initialize_unfilled(), None);
            let tried = self.0.try_io(Interest::READABLE, || {
                let length = recv(&*self.0, &mut *bytes, RecvFlags::empty())?.0;
                read = Some(length);
                // As epoll(7) has it, what did not fill the buffer was all there was: without this the socket would be asked
                // once more. It is told of what came meanwhile, since that came after it was found ready.
                if 0 < length && length < bytes.len() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            if let Some(length) = read {
                buffer.advance(length);
                return Poll::Ready(Ok(()));
            }
            if let Err(error) = tried
                && error.kind() != io::ErrorKind::WouldBlock
            {
                return Poll::Ready(Err(error));
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match self.0.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
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

#[cfg(test)]
mod tests {
    use lock_core::Clock;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;
    use crate::protocol::TOMBSTONE;

    const LIMIT: Duration = Duration::from_secs(20);

    /// A socket, and its other side.
    async fn pair() -> (Socket, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let at = Address::new("127.0.0.1", listener.local_addr().unwrap().port());
        let (socket, accepted) = tokio::join!(dial(&at), listener.accept());
        (socket.unwrap(), accepted.unwrap().0)
    }

    /// How the other side learns of the end.
    async fn end(mut other: TcpStream) -> io::Result<usize> {
        let mut byte = [0];
        let read = Clock::boot().timeout(LIMIT, other.read(&mut byte)).await;
        read.expect("the connection was not ended")
    }

    #[tokio::test]
    async fn a_socket_that_is_dropped_is_reset() {
        let (socket, other) = pair().await;
        drop(socket);
        assert_eq!(end(other).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn a_socket_that_is_ended_is_reset_although_somebody_still_has_it() {
        let (mut socket, other) = pair().await;
        socket.ending().end();
        assert_eq!(end(other).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert!(socket.write(b"x").await.is_err() && socket.read(&mut [0]).await.is_err());
    }

    #[tokio::test]
    async fn what_comes_after_a_read_that_did_not_fill_its_buffer_is_read_too() {
        let (mut socket, mut other) = pair().await;
        let mut buffer = [0; 16];
        for byte in 0..200 {
            let read = async {
                if byte % 2 == 0 {
                    // It is read when it is there already, and else waited for.
                    tokio::task::yield_now().await;
                }
                Clock::boot().timeout(LIMIT, socket.read(&mut buffer)).await.expect("it was not told of it")
            };
            let bytes = [byte];
            let (read, written) = tokio::join!(read, other.write_all(&bytes));
            written.unwrap();
            assert_eq!((read.unwrap(), buffer[0]), (1, byte));
        }
        drop(other);
        assert_eq!(socket.read(&mut buffer).await.unwrap(), 0, "the end is told, too");
    }

    #[tokio::test]
    async fn the_kernel_gives_a_request_up_before_its_tombstone_ends() {
        let (socket, _other) = pair().await;
        let limit = sockopt::tcp_user_timeout(&*socket.0).unwrap();
        assert!(limit > 0 && u128::from(limit) < TOMBSTONE.as_millis(), "{limit} ms");
    }
}
