//! One ZooKeeper server.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::Write as _,
    path::Path,
    time::Duration,
};

use lock_core::Clock;
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{ZooKeeper, ZooKeeperOptions};
use crate::{
    LabError,
    servers::{
        Certificates, ServerCertificate, ports,
        process::{self, Process, Program},
    },
};

/// How long one four-letter request may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// What the Java machine must find; the first one names the rest.
const CLASSES: [&str; 2] = ["/usr/share/java/zookeeper.jar", "/usr/share/java/slf4j-simple.jar"];

/// What it must find besides to serve by TLS.
const TLS_CLASSES: [&str; 6] = [
    "/usr/share/java/netty-buffer.jar",
    "/usr/share/java/netty-codec.jar",
    "/usr/share/java/netty-common.jar",
    "/usr/share/java/netty-handler.jar",
    "/usr/share/java/netty-resolver.jar",
    "/usr/share/java/netty-transport.jar",
];

/// One server of a ZooKeeper ensemble, and what it takes to start it again.
#[derive(Debug)]
pub(super) struct ZooKeeperServer {
    id: usize,
    /// For clients, for the ensemble's own traffic, for its elections.
    pub(super) ports: [u16; 3],
    /// For clients that come by TLS.
    pub(super) tls_port: Option<u16>,
    pub(super) dir: TempDir,
    program: Program,
    pub(super) process: Option<Process>,
}

impl ZooKeeperServer {
    /// Writes the configuration of server `id`.
    pub(super) fn prepare(id: usize, ports: &[[u16; 3]], told: ZooKeeperOptions) -> Result<Self, LabError> {
        let dir = process::data_directory()?;
        let data = dir.path().join("data");
        let mut configuration = configuration(&data, id, ports);
        let tls_port = told.tls.map(|_| ports::free());
        if let Some((certificate, port)) = told.tls.zip(tls_port) {
            configuration += &tls_configuration(certificate, port)?;
        }
        let mut logins = Vec::new();
        if let Some((name, password)) = told.user {
            configuration += "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n";
            let login = "org.apache.zookeeper.server.auth.DigestLoginModule";
            let text = format!("Server {{\n  {login} required user_{name}=\"{password}\";\n}};\n");
            fs::write(dir.path().join("jaas.conf"), text)
                .map_err(|source| LabError::io("writing the users", source))?;
            logins.push("-Djava.security.auth.login.config=jaas.conf".to_owned());
        }
        let written = fs::create_dir(&data)
            .and_then(|()| fs::write(data.join("myid"), (id + 1).to_string()))
            .and_then(|()| fs::write(dir.path().join("zoo.cfg"), configuration));
        written.map_err(|source| LabError::io("writing the configuration of ZooKeeper", source))?;
        let mut classes = CLASSES.to_vec();
        classes.extend(told.tls.iter().flat_map(|_| TLS_CLASSES));
        let options = [
            "-Xms32m",
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            &classes.join(":"),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            "zoo.cfg",
        ];
        let sync = (!process::waits_for_disks()).then(|| "-Dzookeeper.forceSync=no".to_owned());
        let program = Program {
            name: "java",
            package: "default-jre-headless",
            arguments: logins.into_iter().chain(sync).chain(options.map(String::from)).collect(),
            environment: Vec::new(),
        };
        Ok(Self { id, ports: ports[id], tls_port, dir, program, process: None })
    }

    /// Adds a line to the configuration: of several lines for one key the last one counts.
    pub(super) fn configure(&self, key: &str, value: &str) -> Result<(), LabError> {
        let written = File::options()
            .append(true)
            .open(self.dir.path().join("zoo.cfg"))
            .and_then(|mut file| writeln!(file, "{key}={value}"));
        written.map_err(|source| LabError::io("writing the configuration of ZooKeeper", source))
    }

    pub(super) fn launch(&mut self) -> Result<(), LabError> {
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
    pub(super) async fn ready(&mut self) -> Result<Option<String>, LabError> {
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
        // It opens that one later.
        if let Some(port) = self.tls_port
            && TcpStream::connect(("127.0.0.1", port)).await.is_err()
        {
            return Ok(None);
        }
        // Another server may own the port; only ours has its data there. One that has just lost its leader does not say.
        let Ok(configuration) = self.ask("conf").await else { return Ok(None) };
        if configuration.contains(&*self.dir.path().to_string_lossy()) {
            return Ok(Some(mode));
        }
        if !configuration.contains("dataDir=") {
            return Ok(None);
        }
        let reason = "another server answers on its port".into();
        Err(LabError::NotStarted { server: label, reason, log: String::new() })
    }

    pub(super) async fn status(&self) -> Result<String, LabError> {
        self.ask("srvr").await
    }

    /// Sends one four-letter request.
    pub(super) async fn ask(&self, request: &'static str) -> Result<String, LabError> {
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

    pub(super) fn signal(&self, signal: Signal) -> Result<(), LabError> {
        self.process.as_ref().map_or(Ok(()), |process| process.signal(signal))
    }

    pub(super) fn label(&self) -> String {
        format!("ZooKeeper {} on port {}", self.id + 1, self.ports[0])
    }
}

impl Drop for ZooKeeperServer {
    fn drop(&mut self) {
        self.process = None;
        self.ports.into_iter().chain(self.tls_port).for_each(ports::give_back);
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

/// Further lines for a server that serves clients by TLS at `port`, too, if they have a certificate.
fn tls_configuration(certificate: ServerCertificate, port: u16) -> Result<String, LabError> {
    let certificates = Certificates::shared()?;
    Ok(format!(
        "secureClientPort={port}\nsecureClientPortAddress=127.0.0.1\nssl.clientAuth=need\n\
         serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
         ssl.keyStore.location={}\nssl.trustStore.location={}\n",
        certificates.server_in_one(certificate).display(),
        certificates.ca_file().display()
    ))
}

/// The mode in an answer to `srvr`; empty while the server serves no clients.
pub(super) fn mode(status: &str) -> &str {
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
