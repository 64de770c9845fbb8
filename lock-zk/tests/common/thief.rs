//! Ends somebody else's session, as the servers do when it expires: the client is told by the server, not by silence.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};

/// Ends the session that made a contender's node. Returns whether it worked; the session's own client may have won the
/// race for its connection.
pub fn end_session(port: u16, contender: &str) -> io::Result<()> {
    let session = contender.split('-').nth(1).and_then(|hex| u64::from_str_radix(hex, 16).ok());
    let session = session.ok_or_else(|| io::Error::other("no contender's name"))?.cast_signed();
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut requests = Vec::new();
    // Protocol version, last transaction seen, timeout, session, password, read-only.
    let mut connect = Vec::new();
    connect.extend(0_i32.to_be_bytes());
    connect.extend(0_i64.to_be_bytes());
    connect.extend(10_000_i32.to_be_bytes());
    connect.extend(session.to_be_bytes());
    connect.extend(16_i32.to_be_bytes());
    connect.extend(password(session));
    connect.push(0);
    push(&mut requests, &connect);
    // Request number and "close session".
    push(&mut requests, &[1_i32.to_be_bytes(), (-11_i32).to_be_bytes()].concat());
    stream.write_all(&requests)?;
    // The answer to the connect, then the one to the close.
    for _ in 0..2 {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut answer = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap_or(0)];
        stream.read_exact(&mut answer)?;
    }
    Ok(())
}

fn push(requests: &mut Vec<u8>, request: &[u8]) {
    requests.extend(u32::try_from(request.len()).unwrap_or(u32::MAX).to_be_bytes());
    requests.extend(request);
}

/// The password that the servers give to that session: bytes of their pseudo-random generator, seeded with the session
/// and a constant.
fn password(session: i64) -> Vec<u8> {
    const MASK: u64 = (1 << 48) - 1;
    const FACTOR: u64 = 0x5_DEEC_E66D;
    let mut state = (session.cast_unsigned() ^ 0xB341_5C00 ^ FACTOR) & MASK;
    let mut bytes = Vec::new();
    for _ in 0..4 {
        state = (state.wrapping_mul(FACTOR) + 0xB) & MASK;
        bytes.extend(&(state >> 16).to_le_bytes()[..4]);
    }
    bytes
}
