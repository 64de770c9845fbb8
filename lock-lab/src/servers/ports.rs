//! Free ports.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, TcpListener, UdpSocket},
    ops::Range,
    sync::{Mutex, PoisonError},
};

/// Below the ports that the kernel gives to outgoing connections (32768 and up on Linux), so that none of those takes a
/// port between the look at it and the server's start, or while a server is down for a restart.
const PORTS: Range<u16> = 16_384..32_700;

/// The ports that this process has given out. Each is kept from other processes, also while its server is down, by a socket for
/// UDP with the same number, which the kernel closes with this process: the servers use TCP only.
static GIVEN: Mutex<BTreeMap<u16, UdpSocket>> = Mutex::new(BTreeMap::new());

/// A loopback port that is free and that nobody else is given, in this process or another one, before it is given back.
#[must_use]
pub fn free() -> u16 {
    loop {
        let port = fastrand::u16(PORTS);
        let Ok(claim) = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)) else { continue };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(port, claim);
            return port;
        }
    }
}

/// Gives a port back.
pub(crate) fn give_back(port: u16) {
    GIVEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&port);
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_port_is_given_out_twice() {
        let ports: Vec<u16> = (0..200).map(|_| free()).collect();
        assert_eq!(ports.iter().collect::<HashSet<_>>().len(), 200);
        assert!(ports.iter().all(|port| *port < 32_768));
        // Neither does another process that looks for one in this way get any of them, as long as they are given out.
        let claim = |port: &u16| UdpSocket::bind((Ipv4Addr::LOCALHOST, *port));
        assert!(ports.iter().all(|port| claim(port).is_err()));
        ports.iter().copied().for_each(give_back);
        assert!(ports.iter().any(|port| claim(port).is_ok()));
    }
}
