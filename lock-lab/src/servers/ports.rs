//! Free ports.

use std::{
    collections::HashSet,
    net::{Ipv4Addr, TcpListener},
    ops::Range,
    sync::{Mutex, PoisonError},
};

/// Below the ports that the kernel gives to outgoing connections (32768 and up on Linux), so that none of those takes a
/// port between the look at it and the server's start, or while a server is down for a restart.
const PORTS: Range<u16> = 16_384..32_700;

/// Ports that this process has given out. Other processes are kept apart by chance and by the check of the answering
/// process, which makes a clash a retry.
static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);

/// A loopback port that is free and that this process has not given to anybody else.
#[must_use]
pub fn free() -> u16 {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let given = given.get_or_insert_with(HashSet::new);
    loop {
        let port = fastrand::u16(PORTS);
        if !given.contains(&port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            given.insert(port);
            return port;
        }
    }
}

/// Gives a port back.
pub(crate) fn give_back(port: u16) {
    if let Some(given) = GIVEN.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        given.remove(&port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_out_twice() {
        let ports: Vec<u16> = (0..200).map(|_| free()).collect();
        assert_eq!(ports.iter().collect::<HashSet<_>>().len(), 200);
        assert!(ports.iter().all(|port| *port < 32_768));
        ports.into_iter().for_each(give_back);
    }
}
