//! Two hosts on one machine: network namespaces that are joined by a cable, between which packets can be dropped.
//!
//! Each namespace has a network stack of its own, so what is dropped between them is sent again by the kernel, as between
//! two machines: also what a program had written to a connection that it has closed since. Packets are dropped where they
//! arrive. A sender would be told of those that are dropped before they leave it, and try again sooner.
//!
//! The namespaces have no names: each lives as long as one process in it, and that one dies with this program.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use lock_core::Clock;
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    LabError,
    servers::process::{self, Process, Program},
};

/// The interface at each end.
const INTERFACE: &str = "lab";
/// How long a namespace may take to be there.
const LIMIT: Duration = Duration::from_secs(20);

/// Two namespaces and the cable between them. Dropped, all three are gone.
#[derive(Debug)]
pub(crate) struct Cable {
    clients: Host,
    servers: Host,
}

impl Cable {
    /// Where the servers are, for the clients.
    pub(crate) const SERVERS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    /// Makes the namespaces and joins them.
    ///
    /// # Errors
    /// [`LabError::Missing`] when a program is not installed; [`LabError::NotStarted`] and [`LabError::Control`] when this
    /// program may not make namespaces: it takes root.
    pub(crate) async fn lay() -> Result<Self, LabError> {
        let cable = Self { clients: Host::start().await?, servers: Host::start().await? };
        let peer = cable.clients.process.pid().to_string();
        let link = ["link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns", &peer];
        cable.servers.run("ip", &link).await?;
        for (host, address) in [(&cable.servers, Self::SERVERS), (&cable.clients, Self::CLIENTS)] {
            host.run("ip", &["address", "add", &format!("{address}/24"), "dev", INTERFACE]).await?;
            host.run("ip", &["link", "set", INTERFACE, "up"]).await?;
            host.run("nft", &["add table inet lab; add chain inet lab input { type filter hook input priority 0; }"])
                .await?;
        }
        Ok(cable)
    }

    /// The namespace of the clients.
    pub(crate) fn clients(&self) -> PathBuf {
        self.clients.namespace()
    }

    /// The namespace of the servers.
    pub(crate) fn servers(&self) -> PathBuf {
        self.servers.namespace()
    }

    /// Drops each packet in both directions, from now on.
    pub(crate) async fn drop_packets(&self) -> Result<(), LabError> {
        for host in [&self.servers, &self.clients] {
            host.run("nft", &["add", "rule", "inet", "lab", "input", "iifname", INTERFACE, "drop"]).await?;
        }
        Ok(())
    }

    /// Lets packets pass again.
    pub(crate) async fn pass_packets(&self) -> Result<(), LabError> {
        for host in [&self.servers, &self.clients] {
            host.run("nft", &["flush", "chain", "inet", "lab", "input"]).await?;
        }
        Ok(())
    }

    /// How many segments the stacks of both have sent again so far.
    pub(crate) fn retransmitted(&self) -> Result<u64, LabError> {
        Ok(self.servers.retransmitted()? + self.clients.retransmitted()?)
    }
}

/// A namespace, and the process that keeps it.
#[derive(Debug)]
struct Host {
    process: Process,
    _dir: TempDir,
}

impl Host {
    async fn start() -> Result<Self, LabError> {
        let dir = process::directory()?;
        let arguments = ["--net", "--", "sleep", "infinity"].map(str::to_owned).to_vec();
        let program = Program { name: "unshare", package: "util-linux", arguments, environment: Vec::new() };
        let mut host = Self { process: program.start(dir.path())?, _dir: dir };
        let own = fs::read_link("/proc/self/ns/net").ok();
        let clock = Clock::boot();
        let deadline = clock.now().saturating_add(LIMIT);
        let failed = |reason: String, host: &Self| LabError::NotStarted {
            server: "a network namespace".into(),
            reason: format!("{reason}; it takes root, or CAP_SYS_ADMIN and CAP_NET_ADMIN"),
            log: host.process.log(),
        };
        loop {
            if let Some(status) = host.process.ended() {
                return Err(failed(format!("unshare ended with {status}"), &host));
            }
            if fs::read_link(host.namespace()).is_ok_and(|namespace| Some(namespace) != own) {
                return Ok(host);
            }
            if clock.now() >= deadline {
                return Err(failed(format!("it is not there within {LIMIT:?}"), &host));
            }
            clock.sleep(Duration::from_millis(2)).await;
        }
    }

    fn namespace(&self) -> PathBuf {
        Path::new("/proc").join(self.process.pid().to_string()).join("ns/net")
    }

    /// Runs a program of the administrator in the namespace.
    async fn run(&self, name: &'static str, arguments: &[&str]) -> Result<(), LabError> {
        let package = if name == "nft" { "nftables" } else { "iproute2" };
        let program = process::find(name).ok_or(LabError::Missing { program: name, package })?;
        let mut command = enter(&self.namespace())?;
        command.arg(program).args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        let output = command.output().await.map_err(|error| LabError::io(format!("running {name}"), error))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let reason = format!("{} ({}): it takes root, and a kernel with veth and nftables", said.trim(), output.status);
        Err(LabError::control("a network namespace", name, &reason))
    }

    /// What the kernel counts for this namespace, under `Tcp: .. RetransSegs ..`.
    fn retransmitted(&self) -> Result<u64, LabError> {
        let path = Path::new("/proc").join(self.process.pid().to_string()).join("net/snmp");
        let text =
            fs::read_to_string(&path).map_err(|error| LabError::io(format!("reading {}", path.display()), error))?;
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
        let (names, counts) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let mut fields = names.split(' ').zip(counts.split(' '));
        let count = fields.find(|(name, _)| *name == "RetransSegs").and_then(|(_, count)| count.parse().ok());
        count.ok_or_else(|| LabError::run(format!("{} does not count retransmissions", path.display())))
    }
}

/// A command that enters that network namespace and becomes the program that is added as its next argument.
pub(crate) fn enter(namespace: &Path) -> Result<Command, LabError> {
    let nsenter = process::find("nsenter").ok_or(LabError::Missing { program: "nsenter", package: "util-linux" })?;
    let mut command = Command::new(nsenter);
    command.arg(format!("--net={}", namespace.display())).arg("--");
    Ok(command)
}
