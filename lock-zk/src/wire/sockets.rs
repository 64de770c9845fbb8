//! The process's own connections to the servers. The client keeps its socket to itself, so it is looked for among the
//! process's descriptors by the address of its peer, which is one of the servers': for `TCP_NODELAY`, which the client
//! does not set (without it the second of two requests that are written back to back waits for the acknowledgement of the
//! first, a whole round trip over a network), and to know which server a session may be connected to.
//!
//! Best effort: where the kernel or a container's profile denies it, the protocol is as safe and only slower.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    os::fd::OwnedFd,
    sync::Once,
};

use rustix::{
    net::{getpeername, sockopt::set_tcp_nodelay},
    process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open},
};

/// The addresses of `servers`; those that cannot be found out are left out. Names are asked for on another thread.
pub(crate) async fn addresses(servers: &[(String, u16)]) -> Vec<SocketAddr> {
    let (mut found, mut names) = (Vec::new(), Vec::new());
    for (host, port) in servers {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        match host.parse::<IpAddr>() {
            Ok(address) => found.push(SocketAddr::new(address, *port)),
            Err(_) => names.push((host.to_owned(), *port)),
        }
    }
    if !names.is_empty() {
        let ask =
            move || names.into_iter().filter_map(|name| name.to_socket_addrs().ok()).flatten().collect::<Vec<_>>();
        found.extend(tokio::task::spawn_blocking(ask).await.unwrap_or_default());
    }
    found
}

/// Sets `TCP_NODELAY` on every connection of this process to one of `servers`, and returns which of them there is a
/// connection to. `None`, and one message for the process, where the system does not let it look.
pub(crate) fn set_nodelay(servers: &[SocketAddr]) -> Option<Vec<SocketAddr>> {
    static SAID: Once = Once::new();
    let set = || -> io::Result<Vec<SocketAddr>> {
        let mut connected = Vec::new();
        for (socket, server) in connections(servers)? {
            set_tcp_nodelay(&socket, true)?;
            connected.push(server);
        }
        connected.sort_unstable();
        connected.dedup();
        Ok(connected)
    };
    match set() {
        Ok(connected) => Some(connected),
        Err(error) => {
            SAID.call_once(|| {
                tracing::info!(%error, "TCP_NODELAY is not set: expect one more round trip per acquisition");
            });
            None
        }
    }
}

/// A duplicate of each socket of this process that is connected to one of `servers`: to that very address, since another
/// program of the same host may listen on the same port of another one.
fn connections(servers: &[SocketAddr]) -> io::Result<Vec<(OwnedFd, SocketAddr)>> {
    let this_process = pidfd_open(getpid(), PidfdFlags::empty())?;
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let is_socket = fs::read_link(entry.path()).is_ok_and(|target| target.to_string_lossy().starts_with("socket:"));
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if !is_socket {
            continue;
        }
        let socket = match pidfd_getfd(&this_process, number, PidfdGetfdFlags::empty()) {
            Ok(socket) => socket,
            Err(rustix::io::Errno::BADF) => continue, // Closed meanwhile.
            Err(denied) => return Err(denied.into()),
        };
        let Ok(Some(peer)) = getpeername(&socket) else { continue };
        let Ok(peer) = SocketAddr::try_from(peer) else { continue };
        let plain = |address: &SocketAddr| (address.ip().to_canonical(), address.port());
        // Safeguard: an option is set on sockets to the servers' own addresses only (ZooKeeper)
        if let Some(server) = servers.iter().find(|server| plain(server) == plain(&peer)) {
            found.push((socket, *server));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn the_option_is_set_on_a_connection_to_a_listed_server_and_on_no_other() {
        let listed = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listed.local_addr().unwrap().port();
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let same_port = TcpListener::bind(("127.0.0.2", port)).unwrap();
        let to_listed = TcpStream::connect(listed.local_addr().unwrap()).unwrap();
        let to_other = TcpStream::connect(other.local_addr().unwrap()).unwrap();
        let to_same_port = TcpStream::connect(same_port.local_addr().unwrap()).unwrap();
        // By its name, too, which says no more than its addresses.
        let servers = addresses(&[("localhost".to_owned(), port)]).await;
        let connected = set_nodelay(&servers);
        // Where the system denies it nothing is set, and nothing is known.
        assert_eq!(to_listed.nodelay().unwrap(), connected.is_some());
        assert!(connected.is_none_or(|connected| connected == [listed.local_addr().unwrap()]));
        assert!(!to_other.nodelay().unwrap());
        assert!(!to_same_port.nodelay().unwrap());
    }
}
