//! Proxies in front of every server, in two sets: so that one process can be cut off and the others not.

use crate::{LabError, proxy::Proxy};

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
}

impl Links {
    pub(super) async fn start(targets: &[u16]) -> Result<Self, LabError> {
        Ok(Self { victim: set(targets).await?, others: set(targets).await? })
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
        let hosts: Vec<String> =
            self.of(side)[servers].iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect();
        hosts.join(",")
    }
}

/// Proxies that lead back to each other: Sentinels and the nodes of a cluster tell their clients where to go, and the
/// servers among themselves go by the true addresses.
async fn set(targets: &[u16]) -> Result<Vec<Proxy>, LabError> {
    let mut proxies = Vec::new();
    for target in targets {
        proxies.push(Proxy::start(*target).await?);
    }
    let ports: Vec<(u16, u16)> = targets.iter().copied().zip(proxies.iter().map(Proxy::port)).collect();
    for proxy in &proxies {
        proxy.rename_ports(&ports);
    }
    Ok(proxies)
}
