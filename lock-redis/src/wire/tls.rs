//! TLS over another network.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use async_trait::async_trait;
use lock_tls::TlsStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Address, Ending, Network, Stream};

/// A [`Network`] that encrypts each connection of another one by TLS, and verifies each server.
#[derive(Debug)]
pub(crate) struct Tls {
    /// Where the bytes go.
    pub(crate) below: Arc<dyn Network>,
    pub(crate) tls: lock_tls::Tls,
}

/// An encrypted connection, with the means to end the connection that it runs over.
#[derive(Debug)]
struct Encrypted {
    stream: TlsStream<Box<dyn Stream>>,
    ending: Arc<dyn Ending>,
}

#[async_trait]
impl Network for Tls {
    async fn dial(&self, address: &Address) -> io::Result<Box<dyn Stream>> {
        let stream = self.below.dial(address).await?;
        let ending = stream.ending();
        Ok(Box::new(Encrypted { stream: self.tls.secure(&address.host, stream).await?, ending }))
    }

    async fn refusal(&self, address: &Address) -> Option<io::Error> {
        self.tls.refusal(&address.host, self.below.dial(address).await.ok()?).await
    }

    fn is_encrypted(&self) -> bool {
        true
    }
}

impl Stream for Encrypted {
    fn ending(&self) -> Arc<dyn Ending> {
        Arc::clone(&self.ending)
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
