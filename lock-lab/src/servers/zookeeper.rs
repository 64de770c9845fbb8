//! ZooKeeper: one server, or an ensemble.

use std::{collections::BTreeMap, fmt::Write, fs, path::Path, time::Duration};

use lock_core::Clock;
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    ports,
    process::{self, Process, Program},
};
use crate::LabError;

/// How long a start may take. A second is usual for three servers; more on a machine that is busy with other tests.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long one four-letter request may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// How often a start is repeated when somebody else took a port.
const ATTEMPTS: u32 = 4;
const CLASSES: [&str; 2] = ["/usr/share/java/zookeeper.jar", "/usr/share/java/slf4j-simple.jar"];

/// ZooKeeper servers that form one service.
#[derive(Debug)]
pub struct ZooKeeper {
    servers: Vec<Server>,
}

#[derive(Debug)]
struct Server {
    id: usize,
    /// For clients, for the ensemble's own traffic, for its elections.
    ports: [u16; 3],
    dir: TempDir,
    program: Program,
    process: Option<Process>,
}

impl ZooKeeper {
    /// The servers' `tickTime`.
    pub const TICK: Duration = Duration::from_millis(100);

    /// Starts `count` servers: 1 for a standalone server, 3 or more for an ensemble.
    ///
    /// # Errors
    /// [`LabError`]; `Missing` when ZooKeeper or Java is not installed.
    pub async fn start(count: usize) -> Result<Self, LabError> {
        let mut attempts = ATTEMPTS;
        loop {
            attempts -= 1;
            match Self::try_start(count).await {
                // Somebody else may have taken a port since it was looked at.
                Err(LabError::NotStarted { .. }) if attempts > 0 => {}
                done => return done,
            }
        }
    }

    async fn try_start(count: usize) -> Result<Self, LabError> {
        let ports: Vec<[u16; 3]> = (0..count).map(|_| [ports::free(), ports::free(), ports::free()]).collect();
        let mut servers = Vec::new();
        for id in 0..count {
            servers.push(Server::prepare(id, &ports)?);
        }
        let mut ensemble = Self { servers };
        for server in &mut ensemble.servers {
            server.launch()?;
        }
        ensemble.wait_until_ready().await?;
        Ok(ensemble)
    }

    /// Their URL for `Locks::connect`.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("zk://{}", hosts.join(","))
    }

    /// The loopback ports that they serve clients on.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(|server| server.ports[0]).collect()
    }

    /// How many servers there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Whether there are none; never so after a start.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// The process of server `index`, while it runs.
    #[must_use]
    pub fn pid(&self, index: usize) -> Option<u32> {
        self.servers[index].process.as_ref().map(Process::pid)
    }

    /// Which server leads: the index of the leader, or of the standalone server; `None` while there is none.
    pub async fn leader(&self) -> Option<usize> {
        for (index, server) in self.servers.iter().enumerate() {
            if let Ok(status) = server.status().await
                && ["leader", "standalone"].contains(&mode(&status))
            {
                return Some(index);
            }
        }
        None
    }

    /// Kills server `index` with SIGKILL and waits for its end. Does nothing when it is down.
    pub fn kill(&mut self, index: usize) {
        self.servers[index].process = None;
    }

    /// Freezes server `index` with SIGSTOP: connections stay open and nothing is answered.
    ///
    /// # Errors
    /// [`LabError::Io`] when the signal could not be sent.
    pub fn stop(&self, index: usize) -> Result<(), LabError> {
        self.servers[index].signal(Signal::STOP)
    }

    /// Lets server `index` go on with SIGCONT.
    ///
    /// # Errors
    /// [`LabError::Io`] when the signal could not be sent.
    pub fn cont(&self, index: usize) -> Result<(), LabError> {
        self.servers[index].signal(Signal::CONT)
    }

    /// Kills server `index` if it runs, starts it again with its data, and waits until all servers that run serve
    /// clients.
    ///
    /// # Errors
    /// As those of [`ZooKeeper::start`].
    pub async fn restart(&mut self, index: usize) -> Result<(), LabError> {
        self.servers[index].launch()?;
        self.wait_until_ready().await
    }

    /// As [`ZooKeeper::restart`], but removes the server's data first.
    ///
    /// # Errors
    /// As those of [`ZooKeeper::start`].
    pub async fn restart_empty(&mut self, index: usize) -> Result<(), LabError> {
        self.kill(index);
        let versions = self.servers[index].dir.path().join("data").join("version-2");
        if versions.exists() {
            fs::remove_dir_all(&versions)
                .map_err(|source| LabError::io(format!("removing {}", versions.display()), source))?;
        }
        self.restart(index).await
    }

    /// The fields of `mntr` of server `index`.
    ///
    /// # Errors
    /// [`LabError::Control`] when it does not answer.
    pub async fn monitor(&self, index: usize) -> Result<BTreeMap<String, String>, LabError> {
        let server = &self.servers[index];
        let text = server.ask("mntr").await?;
        let field = |line: &str| line.split_once('\t').map(|(key, value)| (key.to_string(), value.to_string()));
        let fields: BTreeMap<_, _> = text.lines().filter_map(field).collect();
        if fields.is_empty() {
            return Err(LabError::control(server.label(), "mntr", text.trim()));
        }
        Ok(fields)
    }

    /// How many packets all servers have received from clients since their start. A four-letter request is none.
    ///
    /// # Errors
    /// [`LabError::Control`] when one does not answer.
    pub async fn packets(&self) -> Result<u64, LabError> {
        let mut sum = 0;
        for index in 0..self.servers.len() {
            let fields = self.monitor(index).await?;
            sum += fields.get("zk_packets_received").and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(sum)
    }

    /// Their version.
    ///
    /// # Errors
    /// [`LabError::Control`] when the first one does not answer.
    pub async fn version(&self) -> Result<String, LabError> {
        let version = self.monitor(0).await?.remove("zk_version").unwrap_or_default();
        Ok(version.split(['-', ',']).next().unwrap_or_default().to_string())
    }

    /// Waits until every running server serves clients, with one leader among them.
    async fn wait_until_ready(&mut self) -> Result<(), LabError> {
        let clock = Clock::boot();
        let deadline = clock.now().saturating_add(START_LIMIT);
        loop {
            let mut leaders = 0;
            let mut serving = true;
            for server in &mut self.servers {
                match server.ready().await? {
                    Some(mode) => leaders += usize::from(mode != "follower"),
                    None => serving &= server.process.is_none(),
                }
            }
            if serving && leaders == 1 {
                return Ok(());
            }
            if clock.now() >= deadline {
                let log = self.servers.iter().filter_map(|server| server.process.as_ref()).map(Process::log).collect();
                let reason = format!("not all servers serve clients within {START_LIMIT:?}");
                return Err(LabError::NotStarted { server: self.url(), reason, log });
            }
            clock.sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Server {
    /// Writes the configuration of server `id`.
    fn prepare(id: usize, ports: &[[u16; 3]]) -> Result<Self, LabError> {
        let dir = process::directory()?;
        let data = dir.path().join("data");
        let configuration = configuration(&data, id, ports);
        let written = fs::create_dir(&data)
            .and_then(|()| fs::write(data.join("myid"), (id + 1).to_string()))
            .and_then(|()| fs::write(dir.path().join("zoo.cfg"), configuration));
        written.map_err(|source| LabError::io("writing the configuration of ZooKeeper", source))?;
        let options = [
            "-Xms32m",
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            &CLASSES.join(":"),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            "zoo.cfg",
        ];
        let program =
            Program { name: "java", package: "default-jre-headless", arguments: options.map(String::from).to_vec() };
        Ok(Self { id, ports: ports[id], dir, program, process: None })
    }

    fn launch(&mut self) -> Result<(), LabError> {
        for class in CLASSES {
            if !Path::new(class).exists() {
                return Err(LabError::Missing { program: "zookeeper", package: "zookeeper" });
            }
        }
        self.process = None;
        self.process = Some(self.program.start(self.dir.path())?);
        Ok(())
    }

    /// What it is in the ensemble, once it serves clients; an error when its process has ended.
    async fn ready(&mut self) -> Result<Option<String>, LabError> {
        let label = self.label();
        let Some(process) = &mut self.process else { return Ok(None) };
        if let Some(status) = process.ended() {
            let reason = format!("it ended with {status}");
            return Err(LabError::NotStarted { server: label, reason, log: process.log() });
        }
        let Ok(status) = self.status().await else { return Ok(None) };
        let mode = mode(&status).to_string();
        if mode.is_empty() {
            return Ok(None);
        }
        // Another server may own the port; only ours has its data there.
        let Ok(configuration) = self.ask("conf").await else { return Ok(None) };
        if configuration.contains(&*self.dir.path().to_string_lossy()) {
            return Ok(Some(mode));
        }
        let reason = "another server answers on its port".into();
        Err(LabError::NotStarted { server: label, reason, log: String::new() })
    }

    async fn status(&self) -> Result<String, LabError> {
        self.ask("srvr").await
    }

    /// Sends one four-letter request.
    async fn ask(&self, request: &'static str) -> Result<String, LabError> {
        let exchange = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.ports[0])).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok::<_, std::io::Error>(answer)
        };
        match Clock::boot().timeout(ANSWER_LIMIT, exchange).await {
            Some(answer) => answer.map_err(|error| LabError::control(self.label(), request, &error)),
            None => Err(LabError::control(self.label(), request, &format!("nothing within {ANSWER_LIMIT:?}"))),
        }
    }

    fn signal(&self, signal: Signal) -> Result<(), LabError> {
        self.process.as_ref().map_or(Ok(()), |process| process.signal(signal))
    }

    fn label(&self) -> String {
        format!("ZooKeeper {} on port {}", self.id + 1, self.ports[0])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process = None;
        self.ports.into_iter().for_each(ports::give_back);
    }
}

/// Small ticks, so that expiry and elections take tenths of a second; a client may still ask for any session time-out.
fn configuration(data: &Path, id: usize, ports: &[[u16; 3]]) -> String {
    let mut text = format!(
        "tickTime={tick}\ninitLimit=100\nsyncLimit=20\ndataDir={data}\n\
         clientPort={port}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\nminSessionTimeout={min}\n\
         maxSessionTimeout=120000\nadmin.enableServer=false\n4lw.commands.whitelist=*\n",
        tick = ZooKeeper::TICK.as_millis(),
        min = (ZooKeeper::TICK * 2).as_millis(),
        data = data.display(),
        port = ports[id][0],
    );
    if ports.len() > 1 {
        for (peer, [_, quorum, election]) in ports.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "server.{}=127.0.0.1:{quorum}:{election}", peer + 1);
        }
    }
    text
}

/// The mode in an answer to `srvr`; empty while the server serves no clients.
fn mode(status: &str) -> &str {
    status.lines().find_map(|line| line.strip_prefix("Mode: ")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_a_leader_has_no_mode() {
        assert_eq!(mode("This ZooKeeper instance is not currently serving requests\n"), "");
        assert_eq!(mode("Zookeeper version: 3.8.0\nMode: follower\nNode count: 5\n"), "follower");
    }

    #[test]
    fn only_an_ensemble_names_its_servers() {
        let ports = [[1, 2, 3], [4, 5, 6], [7, 8, 9]];
        assert!(configuration(Path::new("/d"), 1, &ports).contains("clientPort=4\n"));
        assert!(configuration(Path::new("/d"), 1, &ports).contains("server.3=127.0.0.1:8:9\n"));
        assert!(!configuration(Path::new("/d"), 0, &ports[..1]).contains("server."));
    }
}
