//! A secured connection.

use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::TlsFailure;

/// A secured connection over `S`. What is written is on its way once it is flushed.
pub struct TlsStream<S> {
    inner: tokio_rustls::client::TlsStream<S>,
    /// Whether this program has shown a certificate.
    shows: bool,
}

impl<S> TlsStream<S> {
    pub(crate) const fn new(inner: tokio_rustls::client::TlsStream<S>, shows: bool) -> Self {
        Self { inner, shows }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // With TLS 1.3 a server refuses a client's certificate after the handshake.
        let shows = self.shows;
        Pin::new(&mut self.inner).poll_read(context, buffer).map_err(|error| TlsFailure::explain(error, shows))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

impl<S> fmt::Debug for TlsStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream").finish_non_exhaustive()
    }
}
