//! A server in a network namespace of its own: what is between it and this program is a wire that can lose packets, and two
//! kernels' worth of TCP.
//!
//! The namespace has no name and ends with the server, which ends with the test; so does the wire.

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::Duration,
};

use lock_core::Clock;
use redis::{AsyncConnectionConfig, Client, aio::MultiplexedConnection};
use tempfile::TempDir;

use crate::common::{LIMIT, after};

/// The hardware address of the server, and one that nobody has: what is sent there is lost.
const SERVER: &str = "02:00:00:00:00:02";
const NOBODY: &str = "02:00:00:00:00:03";

/// A Redis server on the other end of a wire.
pub(crate) struct Apart {
    server: Child,
    device: String,
    host: String,
    _dir: TempDir,
}

impl Apart {
    pub(crate) const PORT: u16 = 6379;

    /// Starts it. What it does not acknowledge is sent again after `retransmitted`, twice that, and so on.
    pub(crate) async fn start(retransmitted: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--net", "redis-server", "--port", &Self::PORT.to_string()]);
        command.args(["--bind", "0.0.0.0", "--protected-mode", "no", "--save", "", "--appendonly", "no"]);
        command.current_dir(dir.path()).stdin(Stdio::null()).stdout(Stdio::null());
        let server = command.spawn().expect("setpriv and unshare, of the package util-linux");
        // A network that is made for this, one for each process: 198.18.0.0/15 is for tests of networks (RFC 2544).
        let number = std::process::id() % (1 << 15) * 4;
        let at = |host: u32| format!("198.{}.{}.{}", 18 + (number >> 16), number >> 8 & 255, (number & 255) + host);
        let apart = Self { server, device: format!("lock{}", std::process::id()), host: at(2), _dir: dir };
        let pid = apart.server.id().to_string();
        apart.in_its_namespace().await;
        let (device, host) = (apart.device.as_str(), apart.host.as_str());
        run("ip", &["link", "add", device, "type", "veth", "peer", "name", "wire", "address", SERVER, "netns", &pid]);
        run("ip", &["address", "add", &format!("{}/30", at(1)), "dev", device]);
        run("ip", &["link", "set", device, "up"]);
        run("nsenter", &["-t", &pid, "-n", "ip", "address", "add", &format!("{host}/30"), "dev", "wire"]);
        run("nsenter", &["-t", &pid, "-n", "ip", "link", "set", "wire", "up"]);
        let retransmitted = format!("{}ms", retransmitted.as_millis());
        run("ip", &["route", "add", host, "dev", device, "rto_min", &retransmitted]);
        apart.lose(false);
        apart
    }

    /// Waits until the server has left the namespace of this program.
    async fn in_its_namespace(&self) {
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
        let deadline = after(LIMIT);
        loop {
            let its = namespace(&self.server.id().to_string());
            if its.is_some() && its != namespace("self") {
                return;
            }
            let why =
                "no network namespace could be made: this test needs the rights of root (CAP_SYS_ADMIN, CAP_NET_ADMIN)";
            assert!(Clock::boot().now() < deadline && its.is_some(), "{why}");
            Clock::boot().sleep(Duration::from_millis(2)).await;
        }
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Whether all that is sent to it is lost.
    pub(crate) fn lose(&self, all: bool) {
        let to = if all { NOBODY } else { SERVER };
        run("ip", &["neighbour", "replace", &self.host, "lladdr", to, "dev", &self.device, "nud", "permanent"]);
    }

    /// A connection for control requests.
    pub(crate) async fn connection(&self) -> MultiplexedConnection {
        let client = Client::open(format!("redis://{}:{}", self.host, Self::PORT)).unwrap();
        let deadline = after(LIMIT);
        loop {
            let limits =
                AsyncConnectionConfig::new().set_connection_timeout(Some(LIMIT)).set_response_timeout(Some(LIMIT));
            match client.get_multiplexed_async_connection_with_config(&limits).await {
                Ok(connection) => return connection,
                Err(error) => assert!(Clock::boot().now() < deadline, "the server did not start: {error}"),
            }
        }
    }

    /// How many sockets to it are open in this program and have sent something that it has not acknowledged.
    pub(crate) fn waiting(&self) -> usize {
        const ESTABLISHED: &str = "01";
        let address: std::net::Ipv4Addr = self.host.parse().unwrap();
        let remote = format!("{:08X}:{:04X}", u32::from_ne_bytes(address.octets()), Self::PORT);
        let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
        let is_waiting = |line: &str| {
            let fields: Vec<_> = line.split_whitespace().collect();
            let &[_, _, to, state, queues, ..] = fields.as_slice() else { return false };
            to == remote && state == ESTABLISHED && !queues.starts_with("00000000:")
        };
        table.lines().filter(|line| is_waiting(line)).count()
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // Both fail only where it has ended already. The wire ends with the last process of the namespace.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn run(program: &str, arguments: &[&str]) {
    let done = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let done = done.unwrap_or_else(|error| panic!("{program}, of the package iproute2 or util-linux: {error}"));
    let why = String::from_utf8_lossy(&done.stderr);
    assert!(
        done.status.success(),
        "{program} {}: {why}This test makes a network of its own, which needs the rights of root",
        arguments.join(" ")
    );
}
