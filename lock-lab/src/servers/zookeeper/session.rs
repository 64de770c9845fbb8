//! Sessions at the level of the wire: to see whether servers commit, and to close somebody else's.

use std::{io, net::Ipv4Addr, time::Duration};

use lock_core::Clock;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::LabError;

/// How often each server is asked for a session that is somebody else's.
const TAKE_OVERS: usize = 4;
/// How long a server may take for a session. One that is frozen never answers.
const LIMIT: Duration = Duration::from_secs(1);
/// Servers may grant another time-out.
const TIMEOUT_MS: i32 = 1_000;
/// The request to close the session.
const CLOSE: i32 = -11;
const PASSWORD_BYTES: usize = 16;

/// Opens a session on the server at this loopback port, and closes it. A session is opened by a transaction, so it works
/// exactly when the servers commit writes.
pub(crate) async fn open_and_close(port: u16) -> io::Result<()> {
    let exchange = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.write_all(&connecting(0, &[0; PASSWORD_BYTES])).await?;
        match session_of(&answer(&mut stream).await?)? {
            0 => Err(io::Error::other("no session")),
            _ => stream.write_all(&closing()).await,
        }
    };
    limited(exchange).await
}

/// Takes over the session with this id and closes it, by any of the servers at these ports: each gives a session to whoever has
/// its password, and computes that from the id.
///
/// # Errors
/// [`LabError::Control`] when no server does so.
pub(crate) async fn end(ports: &[u16], session: i64) -> Result<(), LabError> {
    let mut last = String::new();
    // Its own client may win the race for its connection, some time.
    for port in ports.iter().cycle().take(ports.len() * TAKE_OVERS) {
        match take_over_and_close(*port, session).await {
            Ok(()) => return Ok(()),
            Err(error) => last = error.to_string(),
        }
    }
    Err(LabError::control("ZooKeeper", "the end of a session", &last))
}

/// Takes over the session, which is known to whoever sees its nodes, and closes it: its client is told by the servers,
/// as when it expires, and not by silence. Also when the session is over already.
async fn take_over_and_close(port: u16, session: i64) -> io::Result<()> {
    let exchange = async {
        // Both at once: its own client connects again as soon as it is cut off, and takes the session back.
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.write_all(&[connecting(session, &password(session)), closing()].concat()).await?;
        if session_of(&answer(&mut stream).await?)? == session {
            // The answer to the second one says that it was committed.
            answer(&mut stream).await?;
        }
        Ok(())
    };
    limited(exchange).await
}

async fn limited(exchange: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    Clock::boot().timeout(LIMIT, exchange).await.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
}

/// A request to connect with that session, or with a new one for 0.
fn connecting(session: i64, password: &[u8]) -> Vec<u8> {
    let mut request = Vec::new();
    // Protocol version, last transaction seen, time-out, session, password, read-only.
    request.extend(0_i32.to_be_bytes());
    request.extend(0_i64.to_be_bytes());
    request.extend(TIMEOUT_MS.to_be_bytes());
    request.extend(session.to_be_bytes());
    request.extend(framed(password));
    request.push(0);
    framed(&request)
}

/// A request to close the session: its number, and what it is.
fn closing() -> Vec<u8> {
    framed(&[1_i32.to_be_bytes(), CLOSE.to_be_bytes()].concat())
}

fn framed(request: &[u8]) -> Vec<u8> {
    [&u32::try_from(request.len()).unwrap_or(u32::MAX).to_be_bytes(), request].concat()
}

/// The session in the answer to a connect, behind the protocol version and the time-out; 0 for one that is over.
fn session_of(answer: &[u8]) -> io::Result<i64> {
    let session = answer.get(8..16).and_then(|bytes| bytes.try_into().ok());
    session.map(i64::from_be_bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

async fn answer(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = usize::try_from(stream.read_i32().await?).map_err(|_| io::ErrorKind::InvalidData)?;
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

/// The password that the servers give to that session: bytes of Java's generator of random numbers, seeded with the
/// session and a constant.
fn password(session: i64) -> Vec<u8> {
    const MASK: u64 = (1 << 48) - 1;
    const FACTOR: u64 = 0x5_DEEC_E66D;
    let mut state = (session.cast_unsigned() ^ 0xB341_5C00 ^ FACTOR) & MASK;
    let mut bytes = Vec::new();
    for _ in 0..PASSWORD_BYTES / 4 {
        state = (state.wrapping_mul(FACTOR) + 0xB) & MASK;
        bytes.extend(&(state >> 16).to_le_bytes()[..4]);
    }
    bytes
}
