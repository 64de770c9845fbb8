//! `TCP_NODELAY` on the client's connection, which the client crate does not set: without it the second of two requests
//! that are written back to back waits for the acknowledgement of the first, a whole round trip over a network.
//!
//! The client keeps its socket to itself, so it is looked for among the process's own descriptors by the address of its
//! peer, and the option is set on a duplicate. Best effort: where the kernel or a container's profile denies it, the
//! protocol is as safe and only slower.

use std::{fs, io, net::IpAddr, sync::Once};

use rustix::{
    net::{getpeername, sockopt::set_tcp_nodelay},
    process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open},
};

/// Sets the option on every connection of this process to one of `servers`. Says once if that is not possible.
pub(crate) fn set(servers: &[(String, u16)]) {
    static SAID: Once = Once::new();
    if let Err(error) = try_set(servers) {
        SAID.call_once(|| tracing::info!(%error, "TCP_NODELAY is not set: expect one more round trip per acquisition"));
    }
}

fn try_set(servers: &[(String, u16)]) -> io::Result<()> {
    let this_process = pidfd_open(getpid(), PidfdFlags::empty())?;
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
        let Ok(peer) = std::net::SocketAddr::try_from(peer) else { continue };
        let is_ours = |(host, port): &(String, u16)| {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            // A server that is given by its name may have any address.
            *port == peer.port() && host.parse::<IpAddr>().map_or(true, |address| address == peer.ip())
        };
        if servers.iter().any(is_ours) {
            set_tcp_nodelay(&socket, true)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_option_is_set_on_a_connection_to_a_listed_server_and_on_no_other() {
        let (listed, other) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let to_listed = TcpStream::connect(listed.local_addr().unwrap()).unwrap();
        let to_other = TcpStream::connect(other.local_addr().unwrap()).unwrap();
        let done = try_set(&[("127.0.0.1".to_owned(), listed.local_addr().unwrap().port())]);
        // Where the system denies it, that is what is reported, and nothing is set.
        let denied = done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        assert!(done.is_ok() || denied, "{done:?}");
        assert_eq!(to_listed.nodelay().unwrap(), !denied);
        assert!(!to_other.nodelay().unwrap());
    }
}
