//! Where a proxy listens.

use std::{fs::File, io, net::Ipv4Addr, os::fd::AsFd, path::PathBuf};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::net::{TcpListener, TcpSocket};

/// An address, and the network that it is in.
#[derive(Debug)]
pub(super) struct Place {
    /// The file of a network namespace; `None` for that of this program.
    pub(super) namespace: Option<PathBuf>,
    pub(super) address: Ipv4Addr,
}

impl Place {
    /// Listens there. A socket stays in the namespace that it was made in, so the calling thread is back in its own when
    /// this returns.
    pub(super) fn listen(&self, port: u16) -> io::Result<TcpListener> {
        let Some(namespace) = &self.namespace else { return self.bind(port) };
        let (own, other) = (File::open("/proc/thread-self/ns/net")?, File::open(namespace)?);
        move_into(&other)?;
        let listener = self.bind(port);
        move_into(&own)?;
        listener
    }

    fn bind(&self, port: u16) -> io::Result<TcpListener> {
        let socket = TcpSocket::new_v4()?;
        // As every listener of the runtime: connections that are just closing are not in the way.
        socket.set_reuseaddr(true)?;
        socket.bind((self.address, port).into())?;
        socket.listen(1024)
    }
}

fn move_into(namespace: &File) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}
