//! Proxies in front of every server, in two sets: so that one process can be cut off and the others not.

use std::{collections::BTreeMap, net::Ipv4Addr, path::PathBuf};

use crate::{LabError, failover::fault::scenario::Network, network::Cable, proxy::Proxy};

/// Who connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The process that a fault of the holder or of its connections strikes.
    Victim,
    /// All others.
    Others,
}

impl Side {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Victim, Self::Others];
}

/// A proxy to each server for each side.
#[derive(Debug)]
pub(super) struct Links {
    victim: Vec<Proxy>,
    others: Vec<Proxy>,
    /// What the victim comes by instead of its proxies, where it has a network of its own.
    cable: Option<Cable>,
    targets: Vec<u16>,
    /// Servers that have come to the place of another, by that place. Clients learn their addresses from the servers, which
    /// say one to both sides: they are reached without a proxy.
    newcomers: BTreeMap<usize, u16>,
}

impl Links {
    /// `tell`: the servers tell their clients where to go.
    pub(super) async fn start(targets: &[u16], network: Network, tell: bool) -> Result<Self, LabError> {
        let cable = match network {
            Network::Loopback => None,
            Network::Namespaces => Some(Cable::lay().await?),
        };
        let (victim, others) = (set(targets, tell).await?, set(targets, tell).await?);
        Ok(Self { victim, others, cable, targets: targets.to_vec(), newcomers: BTreeMap::new() })
    }

    /// Where else than on loopback the servers have to be reached.
    pub(super) fn address(&self) -> Option<Ipv4Addr> {
        self.cable.as_ref().map(Cable::address)
    }

    /// Another server has come to that place, at this port. The proxies go on leading to the one that it has replaced, as
    /// the addresses of a server that has gone do.
    pub(super) fn replaced(&mut self, server: usize, port: u16) -> Result<(), LabError> {
        if self.cable.is_some() {
            return Err(LabError::run(
                "a server can be replaced only where all clients come over the loopback interface",
            ));
        }
        self.newcomers.insert(server, port);
        Ok(())
    }

    pub(super) fn of(&self, side: Side) -> &[Proxy] {
        match side {
            Side::Victim => &self.victim,
            Side::Others => &self.others,
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Proxy> {
        self.victim.iter().chain(&self.others)
    }

    /// The addresses that this side connects to, of those servers.
    pub(super) fn hosts(&self, side: Side, servers: std::ops::RangeFrom<usize>) -> String {
        let hosts: Vec<String> = match &self.cable {
            // Without a proxy: it would answer for the server's kernel, and sooner.
            Some(cable) if side == Side::Victim => {
                self.targets[servers].iter().map(|port| format!("{}:{port}", cable.address())).collect()
            }
            _ => {
                let proxies = self.of(side).iter().map(Proxy::port).enumerate().skip(servers.start);
                let port = |(server, proxy)| self.newcomers.get(&server).copied().unwrap_or(proxy);
                proxies.map(port).map(|port| format!("127.0.0.1:{port}")).collect()
            }
        };
        hosts.join(",")
    }

    pub(super) fn namespace(&self, side: Side) -> Option<PathBuf> {
        self.cable.as_ref().filter(|_| side == Side::Victim).map(Cable::namespace)
    }

    pub(super) fn retransmitted(&self) -> Result<Option<u64>, LabError> {
        self.cable.as_ref().map(Cable::retransmitted).transpose()
    }

    pub(super) async fn drop_packets(&self) -> Result<(), LabError> {
        match &self.cable {
            Some(cable) => cable.drop_packets().await,
            None => Err(LabError::run("packets can be dropped between network namespaces only")),
        }
    }

    /// Everything passes again.
    pub(super) async fn heal(&self) -> Result<(), LabError> {
        self.all().for_each(Proxy::heal);
        match &self.cable {
            Some(cable) => cable.pass_packets().await,
            None => Ok(()),
        }
    }
}

/// Proxies that lead back to each other where the servers tell their clients where to go: Sentinels and the nodes of a
/// cluster do, and among themselves go by the true addresses.
async fn set(targets: &[u16], tell: bool) -> Result<Vec<Proxy>, LabError> {
    let mut proxies = Vec::new();
    for target in targets {
        proxies.push(Proxy::start(*target).await?);
    }
    let ports: Vec<(u16, u16)> = targets.iter().copied().zip(proxies.iter().map(Proxy::port)).collect();
    for proxy in proxies.iter().filter(|_| tell) {
        proxy.rename_ports(&ports);
    }
    Ok(proxies)
}
