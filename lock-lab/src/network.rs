//! Two hosts on one machine: a network namespace for clients and that of this program for the servers, which a cable joins and
//! between which packets can be dropped.
//!
//! Each namespace has a network stack of its own, so what is dropped between them is sent again by the kernel, as between two
//! machines: also what a program had written to a connection that it has closed since. Packets are dropped where they
//! arrive: they are sent to a link address that nobody has. A sender would be told of those that are dropped before they
//! leave it, and try again sooner.
//!
//! The namespace has no name: it lives as long as one process in it, which dies with this program. With the namespace go its
//! end of the cable, the other end, its address and its routes.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use lock_core::Clock;
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    LabError,
    servers::process::{self, Process, Program},
};

/// The interface at the clients' end.
const CLIENTS_END: &str = "lab";
/// A link address that nobody has.
const NOBODY: &str = "02:00:00:00:00:01";
/// How long a namespace, or the cable, may take to be there.
const LIMIT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(2);

/// A network namespace for clients, and the pair of virtual interfaces that joins it with the namespace of this program.
/// Dropped, both are gone.
#[derive(Debug)]
pub(crate) struct VirtualCable {
    process: Process,
    _dir: TempDir,
    /// The interface at the servers' end.
    servers_end: String,
    /// The addresses of both ends.
    servers: Ipv4Addr,
    clients: Ipv4Addr,
    drops: AtomicBool,
}

/// The end of a [`VirtualCable`] at which a command runs: the servers' or the clients'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CableEnd {
    Servers,
    Clients,
}

impl VirtualCable {
    /// Makes the namespace and joins it with that of this program; returns when the cable carries packets.
    ///
    /// # Errors
    /// [`LabError::Missing`] when a program is not installed; [`LabError::NotStarted`] and [`LabError::Control`] when this
    /// program may not make namespaces: it takes root.
    pub(crate) async fn lay() -> Result<Self, LabError> {
        let (process, dir) = namespace().await?;
        let pid = process.pid();
        // Four addresses for each cable, of those that are meant for measurements between networks (RFC 2544).
        let net = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + (pid % (1 << 15)) * 4;
        let cable = Self {
            process,
            _dir: dir,
            servers_end: format!("lab{pid}"),
            servers: Ipv4Addr::from(net + 1),
            clients: Ipv4Addr::from(net + 2),
            drops: AtomicBool::new(false),
        };
        let (name, peer) = (cable.servers_end.as_str(), pid.to_string());
        cable
            .ip(CableEnd::Servers, &["link", "add", name, "type", "veth", "peer", "name", CLIENTS_END, "netns", &peer])
            .await?;
        for (end, address) in [(CableEnd::Servers, cable.servers), (CableEnd::Clients, cable.clients)] {
            let interface = cable.interface(end);
            cable.ip(end, &["address", "add", &format!("{address}/30"), "dev", interface]).await?;
            cable.ip(end, &["link", "set", interface, "up"]).await?;
        }
        let clock = Clock::boot();
        let deadline = clock.now().saturating_add(LIMIT);
        for end in [CableEnd::Servers, CableEnd::Clients] {
            // What is sent before is lost, and sent again after a second only.
            while !cable.ip(end, &["-oneline", "link", "show", cable.interface(end)]).await?.contains("state UP") {
                if clock.now() >= deadline {
                    return Err(failed("ip", &format!("the interface is not up within {LIMIT:?}")));
                }
                clock.sleep(PAUSE).await;
            }
        }
        Ok(cable)
    }

    /// Where the clients reach the servers.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.servers
    }

    /// The namespace of the clients.
    pub(crate) fn namespace(&self) -> PathBuf {
        Path::new("/proc").join(self.process.pid().to_string()).join("ns/net")
    }

    /// Drops each packet in both directions, from now on.
    pub(crate) async fn drop_packets(&self) -> Result<(), LabError> {
        self.drops.store(true, Ordering::Release);
        for (end, other) in [(CableEnd::Clients, self.servers), (CableEnd::Servers, self.clients)] {
            let (other, interface) = (other.to_string(), self.interface(end));
            let nobody = ["neighbour", "replace", &other, "lladdr", NOBODY, "dev", interface, "nud", "permanent"];
            // Safeguard: packets are dropped between the namespaces (fault)
            self.ip(end, &nobody).await?;
        }
        Ok(())
    }

    /// Lets packets pass again.
    pub(crate) async fn pass_packets(&self) -> Result<(), LabError> {
        if !self.drops.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        for (end, other) in [(CableEnd::Clients, self.servers), (CableEnd::Servers, self.clients)] {
            self.ip(end, &["neighbour", "del", &other.to_string(), "dev", self.interface(end)]).await?;
        }
        Ok(())
    }

    /// How many segments the clients' kernel has sent again so far: what it counts under `Tcp: .. RetransSegs ..`.
    pub(crate) fn retransmitted(&self) -> Result<u64, LabError> {
        let path = Path::new("/proc").join(self.process.pid().to_string()).join("net/snmp");
        let text =
            fs::read_to_string(&path).map_err(|error| LabError::io(format!("reading {}", path.display()), error))?;
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
        let (names, counts) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let mut fields = names.split(' ').zip(counts.split(' '));
        let count = fields.find(|(name, _)| *name == "RetransSegs").and_then(|(_, count)| count.parse().ok());
        count.ok_or_else(|| LabError::run(format!("{} does not count retransmissions", path.display())))
    }

    fn interface(&self, end: CableEnd) -> &str {
        match end {
            CableEnd::Servers => &self.servers_end,
            CableEnd::Clients => CLIENTS_END,
        }
    }

    /// Runs `ip` at one end; what it says.
    async fn ip(&self, end: CableEnd, arguments: &[&str]) -> Result<String, LabError> {
        let program = process::find("ip").ok_or(LabError::Missing { program: "ip", package: "iproute2" })?;
        let mut command = match end {
            CableEnd::Servers => Command::new(program),
            CableEnd::Clients => {
                let mut command = enter(&self.namespace())?;
                command.arg(program);
                command
            }
        };
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        let output = command.output().await.map_err(|error| LabError::io("running ip", error))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(failed("ip", &format!("{} ({})", said.trim(), output.status)))
    }
}

fn failed(what: &'static str, reason: &str) -> LabError {
    LabError::control("a network namespace", what, &format!("{reason}; it takes root, and a kernel with veth"))
}

/// A namespace, as the process that keeps it, and the directory of that one.
async fn namespace() -> Result<(Process, TempDir), LabError> {
    let dir = process::directory()?;
    let arguments = ["--net", "--", "sleep", "infinity"].map(str::to_owned).to_vec();
    let program = Program { name: "unshare", package: "util-linux", arguments, environment: Vec::new() };
    let mut process = program.start(dir.path())?;
    let of = |process: &str| fs::read_link(Path::new("/proc").join(process).join("ns/net")).ok();
    let (own, pid) = (of("self"), process.pid().to_string());
    let clock = Clock::boot();
    let deadline = clock.now().saturating_add(LIMIT);
    let not_started = |reason: String, process: &Process| LabError::NotStarted {
        server: "a network namespace".into(),
        reason: format!("{reason}; it takes root"),
        log: process.log(),
    };
    while of(&pid).is_none() || of(&pid) == own {
        if let Some(status) = process.ended() {
            return Err(not_started(format!("unshare ended with {status}"), &process));
        }
        if clock.now() >= deadline {
            return Err(not_started(format!("it is not there within {LIMIT:?}"), &process));
        }
        clock.sleep(PAUSE).await;
    }
    Ok((process, dir))
}

/// A command that enters that network namespace and becomes the program that is added as its next argument.
pub(crate) fn enter(namespace: &Path) -> Result<Command, LabError> {
    let nsenter = process::find("nsenter").ok_or(LabError::Missing { program: "nsenter", package: "util-linux" })?;
    let mut command = Command::new(nsenter);
    command.arg(format!("--net={}", namespace.display())).arg("--");
    Ok(command)
}
