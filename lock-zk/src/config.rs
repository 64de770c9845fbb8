//! What a connection needs to know.

use std::{fmt, sync::Arc, time::Duration};

use lock_core::{Error, Password, Setting, SettingDoc, Settings};

use crate::{
    node_path::is_path,
    protocol::queue::Layout,
    rights::{Access, SignIn},
    wire::{self, Ensemble, Security, Server, ZooKeeperServers},
};

/// What the backend is called, as in its URL.
pub(crate) const NAME: &str = "zk";

/// The scheme with TLS.
const WITH_TLS: &str = "zks";

/// The node above all others.
const TOP: &str = "/";

/// The port of a server for which none is given.
const PORT: u16 = 2181;

/// The same with TLS, as ZooKeeper's own documentation has it.
const SECURE_PORT: u16 = 2281;

const SESSION_TIMEOUT: Setting<Duration> = Setting::duration(
    "session_timeout",
    Duration::from_secs(10),
    Duration::from_millis(100),
    Duration::from_secs(3600),
    "After how long without news the servers end the session, and all its locks with it.",
);

const TICK_TIME: Setting<Duration> = Setting::duration(
    "tick_time",
    Duration::from_secs(2),
    Duration::from_millis(10),
    Duration::from_secs(600),
    "The `tickTime` of the servers, or more; at most a third of `session_timeout`.",
);

const CONNECT_TIMEOUT: Setting<Duration> = Setting::duration(
    "connect_timeout",
    Duration::from_secs(5),
    Duration::from_millis(10),
    Duration::from_secs(600),
    "How long one attempt to connect may take.",
);

const RESPONSE_TIMEOUT: Setting<Duration> = Setting::duration(
    "response_timeout",
    Duration::from_secs(5),
    Duration::from_millis(10),
    Duration::from_secs(60),
    "How long a release may wait for its answer, and a try or a look for a lost connection to come back.",
);

const STRATEGY: Setting<Strategy> = Setting::choice(
    "strategy",
    &[("queue", Strategy::Queue), ("herd", Strategy::Herd)],
    "How waiters wait: with `queue` in a fair queue, with `herd` all for one node, which is for comparison only.",
);

const LAYOUT: Setting<Layout> = Setting::choice(
    "layout",
    &[("native", Layout::Native), ("curator", Layout::Curator), ("kazoo", Layout::Kazoo)],
    "Whose nodes the locks have: with `curator` or `kazoo` programs with that library share them. A lock's name is then its path      below the URL's, which is `/` where it is not set; there are no semaphores.",
);

const SIGN_IN: Setting<SignIn> = Setting::choice(
    "sign_in",
    &[("digest", SignIn::Digest), ("sasl", SignIn::Sasl)],
    "How a user signs in: with `digest` servers take any password and nodes are theirs who have the same one; with `sasl` (DIGEST-MD5) \
     servers know their users.",
);

/// Decided by whether there is a user, where it is not set.
const ACL: Setting<Access> = Setting::choice(
    "acl",
    &[
        ("creator_all", Access::Creator),
        ("creator_all_anyone_read", Access::CreatorAndReaders),
        ("anyone_all", Access::Anyone),
    ],
    "Who may do what with the nodes that this program creates: `creator_all` with a user, where it is not set, else `anyone_all`. \
     All programs of one user are one creator; programs of several users share no locks with `creator_all`.",
)
.without_default();

/// The settings of a URL of `scheme`.
pub(crate) fn settings(scheme: &str) -> Vec<SettingDoc> {
    let mut all = vec![SESSION_TIMEOUT.doc(), TICK_TIME.doc(), CONNECT_TIMEOUT.doc(), RESPONSE_TIMEOUT.doc()];
    all.extend([STRATEGY.doc(), LAYOUT.doc(), SIGN_IN.doc(), ACL.doc(), Password::FILE.doc()]);
    all.extend(Security::settings(scheme == WITH_TLS));
    all
}

/// How contenders of one name take turns. All who use a name have to use the same strategy: whoever comes with the other
/// one gets an [`Error::Config`] while the name is in use, and for as long as the servers keep its empty directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Strategy {
    /// A fair queue: each contender waits for the one before it.
    #[default]
    Queue,
    /// One node that all try to create: unfair, and everybody wakes at each release. For comparison with the queue. Only the
    /// exclusive lock.
    Herd,
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queue => "queue",
            Self::Herd => "herd",
        })
    }
}

/// Settings of a [`ZooKeeper`](crate::ZooKeeper) connection.
///
/// ```
/// # use std::time::Duration;
/// let config = lock_zk::Config::new([("zk1", 2181), ("zk2", 2181), ("zk3", 2181)])
///     .with_root("/app")
///     .with_session_timeout(Duration::from_secs(20));
/// assert_eq!(config.url(), "zk://zk1:2181,zk2:2181,zk3:2181/app");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Host and port of each server of the ensemble.
    pub servers: Vec<Server>,
    /// The node under which all locks are; made when it is missing.
    pub root: String,
    /// How long the servers keep the session without hearing of it. The servers may shorten it, to three times
    /// [`Config::tick_time`] at the least; where they answer with less, or with more than was asked for, nothing is granted.
    pub session_timeout: Duration,
    /// The servers' `tickTime`, or anything longer. A value below theirs overstates validity, and is noticed only where the
    /// servers lengthen [`Config::session_timeout`] to two of their ticks.
    pub tick_time: Duration,
    /// How long one attempt to connect may take.
    pub connect_timeout: Duration,
    /// How long a release waits for its answer before it goes on in the background and is reported as unavailable, and for how
    /// long whatever does not wait for a lock bridges a lost connection. Who waits for a lock has
    /// [`LocksOptions::with_outage_timeout`](lock_core::LocksOptions::with_outage_timeout).
    pub response_timeout: Duration,
    /// How contenders of one name take turns.
    pub strategy: Strategy,
    /// Whose nodes the locks have. With a layout that is not native, a lock's name is its path below [`Config::root`].
    pub layout: Layout,
    /// As whom to sign in; nobody signs in without one.
    pub user: Option<(String, Password)>,
    /// How the user signs in.
    pub sign_in: SignIn,
    /// Who may do what with the nodes that are created; `None` for [`Access::Creator`] with a user, else [`Access::Anyone`].
    pub acl: Option<Access>,
    security: Security,
    ensemble: SimulatedEnsemble,
}

/// The simulated ensemble that a connection uses instead of real servers, if there is one.
#[derive(Debug, Clone, Default)]
struct SimulatedEnsemble(Option<Arc<dyn Ensemble>>);

impl PartialEq for SimulatedEnsemble {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(this), Some(other)) => Arc::ptr_eq(this, other),
            (this, other) => this.is_none() && other.is_none(),
        }
    }
}

impl Eq for SimulatedEnsemble {}

impl Config {
    /// The default of [`Config::root`].
    pub const ROOT: &'static str = "/locks";

    /// Those servers, with the defaults for everything else: root `/locks`, a session of 10 s, a tick of 2 s, and 5 s to
    /// connect.
    pub fn new<H: Into<String>>(servers: impl IntoIterator<Item = (H, u16)>) -> Self {
        Self {
            servers: servers.into_iter().map(|(host, port)| (host.into(), port)).collect(),
            root: Self::ROOT.to_owned(),
            session_timeout: SESSION_TIMEOUT.default_value(),
            tick_time: TICK_TIME.default_value(),
            connect_timeout: CONNECT_TIMEOUT.default_value(),
            response_timeout: RESPONSE_TIMEOUT.default_value(),
            strategy: Strategy::Queue,
            layout: Layout::Native,
            user: None,
            sign_in: SignIn::Digest,
            acl: None,
            security: Security::default(),
            ensemble: SimulatedEnsemble::default(),
        }
    }

    /// Sets the node under which all locks are.
    #[must_use]
    pub fn with_root(mut self, root: impl Into<String>) -> Self {
        self.root = root.into();
        self
    }

    /// Sets how long the servers keep the session without hearing of it.
    #[must_use]
    pub const fn with_session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// Sets the servers' `tickTime`.
    #[must_use]
    pub const fn with_tick_time(mut self, tick: Duration) -> Self {
        self.tick_time = tick;
        self
    }

    /// Sets how long one attempt to connect may take.
    #[must_use]
    pub const fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets [`Config::response_timeout`].
    #[must_use]
    pub const fn with_response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Sets how contenders of one name take turns.
    #[must_use]
    pub const fn with_strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Sets whose nodes the locks have. The root stays: see [`Config::with_root`], which may be `/` where the layout is not native.
    #[must_use]
    pub const fn with_layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// Sets how the user signs in.
    #[must_use]
    pub const fn with_sign_in(mut self, how: SignIn) -> Self {
        self.sign_in = how;
        self
    }

    /// Sets as whom to sign in.
    #[must_use]
    pub fn with_user(mut self, name: impl Into<String>, password: impl Into<Password>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// Sets who may do what with the nodes that are created.
    #[must_use]
    pub const fn with_acl(mut self, acl: Access) -> Self {
        self.acl = Some(acl);
        self
    }

    /// Lets `ensemble` stand in for the servers, as a simulator does.
    #[must_use]
    pub fn with_ensemble(mut self, ensemble: Arc<dyn Ensemble>) -> Self {
        self.ensemble = SimulatedEnsemble(Some(ensemble));
        self
    }

    /// What sessions are opened with.
    pub(crate) fn ensemble(&self) -> Arc<dyn Ensemble> {
        self.ensemble.0.clone().unwrap_or_else(|| {
            let (user, security) = (self.user.clone(), self.security.clone());
            Arc::new(ZooKeeperServers { user, sign_in: self.sign_in, access: self.access(), security })
        })
    }

    /// How connections are secured.
    pub(crate) const fn security(&self) -> &Security {
        &self.security
    }

    /// Who may do what with the nodes that are created.
    fn access(&self) -> Access {
        // Safeguard: what a user creates is its own (ZooKeeper)
        self.acl.unwrap_or(if self.user.is_some() { Access::Creator } else { Access::Anyone })
    }

    /// Reads the settings of a URL such as `zk://10.0.0.1,10.0.0.2/app?session_timeout=10s`.
    ///
    /// # Errors
    /// [`Error::Config`] for an unknown key or a value that is not allowed.
    pub fn from_settings(mut settings: Settings) -> Result<Self, Error> {
        let with_tls = match settings.scheme.as_str() {
            NAME => false,
            WITH_TLS => true,
            other => return Err(Error::config("scheme", other, "zk, or zks with TLS")),
        };
        let default_port = if with_tls { SECURE_PORT } else { PORT };
        let servers = settings.hosts.iter().map(|(host, port)| (host.clone(), port.unwrap_or(default_port)));
        let mut config = Self::new(servers);
        config.security = Security::take(&mut settings, with_tls)?;
        config.user = match settings.take_credentials()? {
            (Some(user), Some(password)) => Some((user, password)),
            (None, None) => None,
            (user, _) => {
                return Err(Error::config("user", user.unwrap_or_default(), "a user with a password, or neither"));
            }
        };
        config.sign_in = SIGN_IN.read(&mut settings)?;
        config.acl = ACL.read_if_set(&mut settings)?;
        config.layout = LAYOUT.read(&mut settings)?;
        match settings.path.as_str() {
            // The paths of other clients are whole: nothing is put before them that was not asked for.
            "" | "/" if config.layout.is_foreign() => TOP.clone_into(&mut config.root),
            "" | "/" => {}
            path => path.clone_into(&mut config.root),
        }
        config.session_timeout = SESSION_TIMEOUT.read(&mut settings)?;
        config.tick_time = TICK_TIME.read(&mut settings)?;
        config.connect_timeout = CONNECT_TIMEOUT.read(&mut settings)?;
        config.response_timeout = RESPONSE_TIMEOUT.read(&mut settings)?;
        config.strategy = STRATEGY.read(&mut settings)?;
        settings.finish()?;
        config.checked()
    }

    /// The settings in the form of their URL.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.security.is_encrypted() { WITH_TLS } else { NAME };
        format!("{scheme}://{}{}", self.connect_string(), self.root)
    }

    /// The path of what is called `name` below the root.
    pub(crate) fn below_root(&self, name: &str) -> String {
        format!("{}/{name}", self.root.trim_end_matches('/'))
    }

    /// The servers, as the client takes them.
    pub(crate) fn connect_string(&self) -> String {
        wire::connect_string(&self.servers)
    }

    /// These settings, if they can work; the one place that checks them.
    pub(crate) fn checked(self) -> Result<Self, Error> {
        if self.servers.is_empty() || self.servers.iter().any(|(host, port)| host.is_empty() || *port == 0) {
            return Err(Error::config("hosts", self.connect_string(), "at least one host, each with a port above 0"));
        }
        if !(self.layout.is_foreign() && self.root == TOP) {
            check_root(&self.root)?;
        }
        if self.layout.is_foreign() && self.strategy == Strategy::Herd {
            return Err(Error::config("strategy", "herd", format!("queue, with layout={}", self.layout.name())));
        }
        self.security.check_hosts(&self.servers)?;
        if self.user.is_none() && matches!(self.acl, Some(Access::Creator | Access::CreatorAndReaders)) {
            return Err(Error::config("acl", "creator_all", "anyone_all, where nobody signs in: a creator is a user"));
        }
        if self.user.as_ref().is_some_and(|(name, _)| name.is_empty() || name.contains(':')) {
            return Err(Error::config(
                "user",
                self.user.as_ref().map_or("", |(name, _)| name),
                "a name without a colon",
            ));
        }
        SESSION_TIMEOUT.check(self.session_timeout)?;
        TICK_TIME.check(self.tick_time)?;
        CONNECT_TIMEOUT.check(self.connect_timeout)?;
        RESPONSE_TIMEOUT.check(self.response_timeout)?;
        // Validity counts from a request that is more than a tick older than the write that proves it, and the next such
        // write comes half a tick later: of a session that is only two ticks long nothing would be left.
        if self.tick_time * 3 > self.session_timeout {
            let value = format!("{:?}", self.tick_time);
            let allowed = format!("at most a third of session_timeout, which is {:?}", self.session_timeout);
            return Err(Error::config("tick_time", value, allowed));
        }
        Ok(self)
    }
}

impl Config {
    /// Whether validity can be told in a session with that time-out, which the servers made of the one that was asked for.
    pub(crate) fn fits(&self, negotiated: Duration) -> bool {
        // Safeguard: a time-out of less than three ticks is refused (ZooKeeper)
        // Safeguard: a time-out that was lengthened shows a longer tick and is refused (ZooKeeper)
        (self.tick_time * 3..=self.session_timeout).contains(&negotiated)
    }

    /// The error that says that it cannot, with both numbers.
    pub(crate) fn unfit(&self, negotiated: Duration) -> Error {
        let (asked, tick) = (self.session_timeout, self.tick_time);
        let allowed = if negotiated > asked {
            // Servers lengthen a time-out only to their least one, which is two of their ticks unless it was set.
            format!(
                "at least {negotiated:?}, to which the servers lengthened it; their tickTime is longer than \
                 tick_time = {tick:?} unless they set minSessionTimeout"
            )
        } else {
            format!(
                "what the servers grant, if it is at least three times tick_time = {tick:?}; they shortened it to \
                 {negotiated:?}, their maxSessionTimeout (20 of their ticks unless it was set)"
            )
        };
        Error::config("session_timeout", format!("{asked:?}"), allowed)
    }
}

fn check_root(root: &str) -> Result<(), Error> {
    let allowed = "an absolute path outside of /zookeeper, without empty parts, dots alone or control characters";
    if let Some(without) = root.strip_suffix('/').filter(|without| check_root(without).is_ok()) {
        return Err(Error::config("path", root, format!("{without}, without the slash at its end")));
    }
    if root.strip_prefix('/').is_some_and(is_path) { Ok(()) } else { Err(Error::config("path", root, allowed)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(path: &str, values: &[(&str, &str)]) -> Settings {
        let mut settings = Settings::new("zk");
        settings.hosts = vec![("h1".to_owned(), None), ("::1".to_owned(), Some(2182))];
        settings.path = path.to_owned();
        settings.values = values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        settings
    }

    #[test]
    fn what_is_not_set_has_its_default() {
        let config = Config::from_settings(settings("", &[])).unwrap();
        assert_eq!(config.connect_string(), "h1:2181,[::1]:2182");
        assert_eq!(config.root, "/locks");
        assert_eq!(config.session_timeout, Duration::from_secs(10));
    }

    #[test]
    fn what_is_set_is_taken() {
        let values = [
            ("session_timeout", "4s"),
            ("tick_time", "100ms"),
            ("connect_timeout", "1s"),
            ("response_timeout", "3s"),
            ("strategy", "herd"),
        ];
        let config = Config::from_settings(settings("/app/locks", &values)).unwrap();
        let expected = Config::new([("h1", 2181), ("::1", 2182)])
            .with_root("/app/locks")
            .with_session_timeout(Duration::from_secs(4))
            .with_tick_time(Duration::from_millis(100))
            .with_connect_timeout(Duration::from_secs(1))
            .with_response_timeout(Duration::from_secs(3))
            .with_strategy(Strategy::Herd);
        assert_eq!(config, expected);
    }

    #[test]
    fn with_the_layout_of_another_library_names_are_whole_paths_unless_the_url_has_one() {
        let config = |path, values: &[_]| Config::from_settings(settings(path, values));
        for path in ["", "/"] {
            let curators = config(path, &[("layout", "curator")]).unwrap();
            assert_eq!((curators.root.as_str(), curators.below_root("a/b")), ("/", "/a/b".to_owned()));
            assert_eq!(config(path, &[("layout", "native")]).unwrap().root, "/locks");
        }
        let kazoos = config("/app", &[("layout", "kazoo")]).unwrap();
        assert_eq!((kazoos.layout, kazoos.below_root("a")), (Layout::Kazoo, "/app/a".to_owned()));
        let error = config("", &[("layout", "zookeeper")]).unwrap_err().to_string();
        assert!(error.contains("layout") && error.contains("curator"), "{error}");
        let error = config("", &[("layout", "kazoo"), ("strategy", "herd")]).unwrap_err().to_string();
        assert!(error.contains("strategy") && error.contains("kazoo"), "{error}");
        assert!(Config::new([("h", 1)]).with_root("/").checked().is_err());
    }

    #[test]
    fn what_cannot_work_is_refused_by_key_and_value() {
        let refusal = |path, values: &[_]| match Config::from_settings(settings(path, values)) {
            Err(Error::Config { key, .. }) => key,
            other => panic!("{path} {values:?}: {other:?}"),
        };
        for path in ["/a//b", "/a/", "/zookeeper/x", "/a/../b", "/a\u{1}"] {
            assert_eq!(refusal(path, &[]), "path");
        }
        assert_eq!(refusal("", &[("session_timeout", "3s")]), "tick_time");
        assert_eq!(refusal("", &[("session_timeout", "1ms")]), "session_timeout");
        assert_eq!(refusal("", &[("ttl", "3s")]), "ttl");
        assert_eq!(refusal("", &[("strategy", "flock")]), "strategy");
    }

    #[test]
    fn a_negotiated_time_out_is_at_least_three_ticks_and_at_most_what_was_asked_for() {
        let config = Config::new([("h", 1)]);
        let [asked, tick] = [config.session_timeout, config.tick_time];
        for fits in [asked, asked - Duration::from_millis(1), tick * 3] {
            assert!(config.fits(fits), "{fits:?}");
        }
        for (negotiated, shown) in
            [(Duration::from_secs(2), "2s"), (Duration::from_millis(5999), "5.999s"), (asked * 2, "20s")]
        {
            assert!(!config.fits(negotiated), "{negotiated:?}");
            let refused = config.unfit(negotiated).to_string();
            assert!(
                refused.contains("session_timeout") && refused.contains("10s") && refused.contains(shown),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_user_stands_with_a_password_and_what_it_creates_is_its_own_unless_told_otherwise() {
        let mut given = settings("", &[]);
        given.password = Some("secret".to_owned());
        let error = Config::from_settings(given.clone()).unwrap_err().to_string();
        assert!(error.contains("user") && !error.contains("secret"), "{error}");
        given.username = Some("anna".to_owned());
        let config = Config::from_settings(given.clone()).unwrap();
        assert_eq!((config.access(), config.user.as_ref().unwrap().0.as_str()), (Access::Creator, "anna"));
        assert!(!format!("{config:?}").contains("secret") && !config.url().contains("anna"));
        given.values.insert("acl".to_owned(), "anyone_all".to_owned());
        assert_eq!(Config::from_settings(given.clone()).unwrap().access(), Access::Anyone);
        given.username = Some("an:na".to_owned());
        assert!(Config::from_settings(given).unwrap_err().to_string().contains("an:na"));
        assert_eq!(Config::from_settings(settings("", &[])).unwrap().access(), Access::Anyone);
        let error = Config::from_settings(settings("", &[("acl", "creator_all")])).unwrap_err().to_string();
        assert!(error.contains("acl") && error.contains("anyone_all"), "{error}");
    }
}
