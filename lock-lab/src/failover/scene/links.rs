//! Proxies in front of every server, in two sets: so that one process can be cut off and the others not.

use std::{net::Ipv4Addr, path::PathBuf};

use crate::{
    LabError, deployment::Connection, failover::fault::scenario::ClientNetwork, network::VirtualCable, proxy::Proxy,
};

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

/// The proxies in front of all servers, one set for the victim's process and one for the others.
#[derive(Debug)]
pub(super) struct SideProxies {
    victim: Vec<Proxy>,
    others: Vec<Proxy>,
    /// What the victim comes by instead of its proxies, where it has a network of its own.
    cable: Option<VirtualCable>,
    targets: Vec<u16>,
}

impl SideProxies {
    pub(super) async fn start(targets: &[u16], network: ClientNetwork) -> Result<Self, LabError> {
        let cable = match network {
            ClientNetwork::Loopback => None,
            ClientNetwork::Namespaces => Some(VirtualCable::lay().await?),
        };
        let (victim, others) = (set(targets).await?, set(targets).await?);
        Ok(Self { victim, others, cable, targets: targets.to_vec() })
    }

    /// Where else than on loopback the servers have to be reached.
    pub(super) fn address(&self) -> Option<Ipv4Addr> {
        self.cable.as_ref().map(VirtualCable::address)
    }

    /// Fails where a server cannot be replaced: the new one is reached without a proxy, as clients learn its address from
    /// the servers, which say one to both sides.
    pub(super) fn replaced(&self) -> Result<(), LabError> {
        if self.cable.is_some() {
            return Err(LabError::run(
                "a server can be replaced only where all clients come over the loopback interface",
            ));
        }
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

    /// How this side comes to the servers.
    pub(super) fn way(&self, side: Side) -> Connection {
        let way = Connection::default();
        match &self.cable {
            // Without a proxy: it would answer for the server's kernel, and sooner.
            Some(cable) if side == Side::Victim => {
                let by = |way: Connection, port: &u16| way.by(*port, format!("{}:{port}", cable.address()));
                self.targets.iter().fold(way, by)
            }
            _ => way.through(self.targets.iter().copied().zip(self.of(side).iter().map(Proxy::port))),
        }
    }

    pub(super) fn namespace(&self, side: Side) -> Option<PathBuf> {
        self.cable.as_ref().filter(|_| side == Side::Victim).map(VirtualCable::namespace)
    }

    pub(super) fn retransmitted(&self) -> Result<Option<u64>, LabError> {
        self.cable.as_ref().map(VirtualCable::retransmitted).transpose()
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

/// A proxy to each of these servers.
async fn set(targets: &[u16]) -> Result<Vec<Proxy>, LabError> {
    let mut proxies = Vec::new();
    for target in targets {
        proxies.push(Proxy::start(*target).await?);
    }
    Ok(proxies)
}
