//! Redis servers that know nothing of each other.

use lock_core::{Error, Settings};
use lock_redlock::{Config, InitOptions};

use super::{Certificates, ClientCertificate, Redis, RedisOptions, redis::ANSWER_LIMIT, until::RetryLimit};
use crate::LabError;

/// What a node keeps of the process that the deployment knows.
pub(crate) const RUN: &str = "redlock:run";
/// What lives on a node for as long as it gives no vote.
pub(crate) const QUARANTINE: &str = "redlock:quarantine";
/// What stands for every process of a node that never forgets.
pub(crate) const ANY: &str = "any";

/// Several Redis servers that know nothing of each other: the nodes of Redlock.
#[derive(Debug)]
pub struct RedisNodes {
    nodes: Vec<Redis>,
    /// How each was started.
    options: RedisOptions,
    /// The settings of their deployment.
    settings: Vec<(String, String)>,
}

impl RedisNodes {
    /// Starts `count` servers without persistence and marks them as the members of one deployment: they vote at once.
    ///
    /// # Errors
    /// As those of [`Redis::start`]; [`LabError::Lock`] when the count is no deployment (odd, at least 3).
    pub async fn start(count: usize) -> Result<Self, LabError> {
        Self::start_with(count, RedisOptions::default()).await
    }

    /// As [`RedisNodes::start`], each with these options.
    ///
    /// # Errors
    /// As those of [`RedisNodes::start`].
    pub async fn start_with(count: usize, options: RedisOptions) -> Result<Self, LabError> {
        Self::start_as(count, options, &[]).await
    }

    /// As [`RedisNodes::start_with`], of a deployment with these settings, such as `max_ttl`.
    ///
    /// # Errors
    /// As those of [`RedisNodes::start`].
    pub async fn start_as(count: usize, options: RedisOptions, settings: &[(&str, &str)]) -> Result<Self, LabError> {
        let mut nodes = Self::start_without_mark(count, options).await?;
        nodes.settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        nodes.mark(InitOptions::default().with_no_holders()).await?;
        Ok(nodes)
    }

    /// Makes members again of those that have lost their data, as an operator does where a majority has.
    ///
    /// # Errors
    /// [`LabError::Lock`] when one does not answer.
    pub async fn mark_again(&self) -> Result<(), LabError> {
        self.mark(InitOptions::default()).await
    }

    async fn mark(&self, options: InitOptions) -> Result<(), LabError> {
        let mut config = self.own_config().map_err(LabError::lock("marking the nodes"))?;
        // The nodes are there; they may stand still with the whole machine.
        (config.connect_timeout, config.node_timeout) = (ANSWER_LIMIT, ANSWER_LIMIT);
        lock_redlock::init(&config, options).await.map_err(LabError::lock("marking the nodes"))?;
        Ok(())
    }

    /// Starts a new, empty server and has it made a member in the place of node `index`, as an operator does. It has that
    /// number from then on; the one that it replaces is given back as it is, dead or alive.
    ///
    /// # Errors
    /// As those of [`Redis::start`]; [`LabError::Lock`] when the deployment does not take it.
    pub async fn replace(&mut self, index: usize) -> Result<Redis, LabError> {
        let new = Redis::start_as_told(self.options).await?;
        let config = self.own_config().map_err(LabError::lock("replacing a node"))?;
        let [old_port, new_port] = [self.nodes[index].client_port(), new.client_port()];
        let replaced = lock_redlock::replace(&config, ("127.0.0.1", old_port), ("127.0.0.1", new_port)).await;
        replaced.map_err(LabError::lock("replacing a node"))?;
        Ok(std::mem::replace(&mut self.nodes[index], new))
    }

    /// What an operator connects with.
    fn own_config(&self) -> Result<Config, Error> {
        let settings: Vec<_> = self.settings.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        self.config(&settings)
    }

    /// What a client connects with, with these settings.
    ///
    /// # Errors
    /// [`Error::Config`] when one is not allowed.
    pub fn config(&self, settings: &[(&str, &str)]) -> Result<Config, Error> {
        let mut all = Settings::new(if self.options.tls.is_some() { "redlocks" } else { "redlock" });
        if self.options.tls.is_some() {
            let certificates =
                Certificates::shared().map_err(|error| Error::config("tls", error.to_string(), "files"))?;
            let (certificate, key) = certificates.client(ClientCertificate::Good).unwrap_or_default();
            let files = [("ca_file", certificates.ca_file()), ("cert_file", certificate), ("key_file", key)];
            all.values.extend(files.map(|(setting, path)| (setting.to_owned(), path.display().to_string())));
        }
        all.hosts = self.client_ports().into_iter().map(|port| ("127.0.0.1".into(), Some(port))).collect();
        all.values.extend(settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        Config::from_settings(all)
    }

    /// Starts `count` servers without persistence that nobody has marked: no deployment, or one that has lost everything.
    ///
    /// # Errors
    /// As those of [`Redis::start`].
    pub async fn start_unmarked(count: usize) -> Result<Self, LabError> {
        Self::start_without_mark(count, RedisOptions::default()).await
    }

    async fn start_without_mark(count: usize, options: RedisOptions) -> Result<Self, LabError> {
        let mut nodes = Vec::new();
        for _ in 0..count {
            nodes.push(Redis::start_as_told(options).await?);
        }
        Ok(Self { nodes, options, settings: Vec::new() })
    }

    /// Their URL for `Locks::connect`.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redlock://{}", hosts.join(","))
    }

    /// The loopback ports that they listen on.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.nodes.iter().map(Redis::port).collect()
    }

    /// The loopback ports that clients come to.
    #[must_use]
    pub fn client_ports(&self) -> Vec<u16> {
        self.nodes.iter().map(Redis::client_port).collect()
    }

    /// The nodes, to be killed, stopped or asked one by one.
    #[must_use]
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The nodes, to be restarted one by one.
    #[must_use]
    pub fn nodes_mut(&mut self) -> &mut [Redis] {
        &mut self.nodes
    }

    /// Waits until node `index`, which was restarted without its data or has become a member, votes: the deployment knows it,
    /// and its quarantine is over.
    ///
    /// # Errors
    /// [`LabError::NotStarted`] when that does not happen; [`LabError::Control`] when it does not answer.
    pub async fn wait_until_it_votes(&self, index: usize) -> Result<(), LabError> {
        let node = &self.nodes[index];
        let patience = RetryLimit::with("a node that votes");
        loop {
            let run_id = node.info("server").await?.remove("run_id");
            let (member, left): (Option<String>, i64) =
                (node.ask("GET", &[RUN]).await?, node.ask("PTTL", &[QUARANTINE]).await?);
            let run_id = if member.as_deref() == Some(ANY) { member.clone() } else { run_id };
            // Safeguard: the next node is restarted when the one before votes again (fault)
            if member.is_some() && member == run_id && left < 0 {
                return Ok(());
            }
            patience.again(format!("{}: known as {member:?}, {left} ms of quarantine left", node.label())).await?;
        }
    }

    /// The sum of [`Redis::commands`].
    ///
    /// # Errors
    /// [`LabError::Control`] when one does not answer.
    pub async fn commands(&self) -> Result<u64, LabError> {
        Redis::commands_of(&self.nodes).await
    }
}
