//! One request of HTTP, as servers of this machine understand it.

use std::io;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The body of what a server on this loopback port answers. It is asked in the oldest form of HTTP, in which an answer is one
/// piece that ends with the connection; whether that was a success is for the caller to see.
///
/// # Errors
/// Those of the connection, and an answer that is not HTTP.
pub(crate) async fn get(port: u16, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (_, body) = answer.split_once("\r\n\r\n").ok_or_else(|| io::Error::other(answer.clone()))?;
    Ok(body.to_owned())
}
