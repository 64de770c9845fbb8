//! What is known of a deployment before it runs.

use std::{future::Future, pin::Pin, time::Duration};

use super::servers::Servers;
use crate::{LabError, servers::ServerCertificate};

/// The future that starts the servers of a deployment.
pub(crate) type StartFuture = Pin<Box<dyn Future<Output = Result<Box<dyn Servers>, LabError>> + Send>>;

/// What a dead holder's successor has to wait for beyond the lease, at most.
pub(crate) const SUCCESSION_SLACK: Duration = Duration::from_millis(250);

/// A backend on one arrangement of servers: what it is called, who decides there, and where it is tried out.
///
/// What is promised under a fault follows from who decides, and from what the servers keep: `failover::fault` has it.
#[derive(Debug)]
pub struct Description {
    /// Its short name on the command line.
    pub key: &'static str,
    /// Its name in reports.
    pub title: &'static str,
    /// The scheme of its URLs.
    pub scheme: &'static str,
    /// What its URLs say besides where the servers are, as `strategy=herd`.
    pub settings: &'static str,
    /// What they say where a waiter is to hear of a release by its news or not at all, and where no other server takes the
    /// place of one that is silent.
    pub in_trials: &'static str,
    /// The setting of the limit for one request, where it has one of its own.
    pub answer_limit: Option<&'static str>,
    /// For how long it keeps a lock of a dead client; `None` where it notices at once.
    pub lease: Option<Lease>,
    /// How many servers keep locks, replicas included.
    pub servers: usize,
    /// Who decides who holds.
    pub decides: Decides,
    /// Whether a server has each write on its disk before it answers.
    pub is_durable: bool,
    /// Whether a server that was restarted gives no vote for as long as a lease may live.
    pub has_quarantine: bool,
    /// Why leases may end early when a leader goes on that was stopped, and another one was elected meanwhile; `None` where they
    /// do not.
    pub stopped_leader: Option<&'static str>,
    /// Which cases of the conformance suite are tried out on it.
    pub trials: Trials,
    /// Whether they come to it in clear text although the backend has TLS, by which they come to other servers of its kind.
    pub is_in_clear: bool,
    /// The cases among them in which it is not tried, since it promises less by design.
    pub except: &'static [&'static str],
    /// Whether it is measured beside the others.
    pub is_compared: bool,
    /// What strikes its servers in that measurement; `None` where there is no server.
    pub strike: Option<&'static str>,
    /// Whether it is in the failover matrix.
    pub is_struck: bool,
    /// The faults by which the quick matrix strikes it.
    pub quick: &'static [&'static str],
    /// Its column in the table of capabilities, where it has one of its own.
    pub column: Option<&'static str>,
    /// Starts its servers.
    pub(crate) start: fn(StartOptions) -> StartFuture,
}

/// How a lock of a dead client ends.
#[derive(Debug, Clone, Copy)]
pub struct Lease {
    /// The setting of its length.
    pub setting: &'static str,
    /// How long after the end of a lease a server may take to notice.
    pub notice: Duration,
    /// Whether a lock may be handed over to somebody who is dead, too, who keeps others out for a third of a lease more.
    pub has_claims: bool,
}

impl Lease {
    /// A time to live, which the server ends to the millisecond.
    pub const TTL: Self = Self { setting: "ttl", notice: Duration::ZERO, has_claims: false };
}

/// Which cases of the conformance suite are tried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trials {
    /// Every one.
    All,
    /// Every one but the long ones, which are tried where the same backend has fewer servers.
    AllButLong,
    /// Those about the way of requests and news: another deployment has the same backend, on servers that do the same.
    OfTheWay,
    /// These, and the long ones for the other deployment.
    OfTheWayAndLong,
    /// None: its servers are those of another deployment.
    None,
}

/// Who decides who holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decides {
    /// This program itself.
    Program,
    /// The kernel of this machine.
    Kernel,
    /// One server.
    One,
    /// A primary, whose replicas hear of it afterwards; one of them takes the place of a failed one.
    Primary {
        /// Whether it grants only what a replica has.
        waits_for_replicas: bool,
        /// Whether a change of the primary in order waits until the next one has everything.
        hands_over: bool,
    },
    /// A log to which a majority agrees under a leader. Sessions end by the leader's monotonic clock, and a token is the
    /// number of a transaction.
    Ensemble(usize),
    /// A majority of servers that know nothing of each other, with a record of who are members.
    Quorum(usize),
}

impl Description {
    /// A row to build others on.
    pub(crate) const fn new(key: &'static str, title: &'static str, start: fn(StartOptions) -> StartFuture) -> Self {
        Self {
            key,
            title,
            scheme: "",
            settings: "",
            in_trials: "",
            answer_limit: None,
            lease: Some(Lease::TTL),
            servers: 1,
            decides: Decides::One,
            is_durable: false,
            has_quarantine: false,
            stopped_leader: None,
            trials: Trials::None,
            is_in_clear: false,
            except: &[],
            is_compared: false,
            strike: None,
            is_struck: false,
            quick: &[],
            column: None,
            start,
        }
    }

    /// Whether a log decides, with sessions.
    #[must_use]
    pub const fn is_ensemble(&self) -> bool {
        matches!(self.decides, Decides::Ensemble(_))
    }

    /// Whether a majority of independent servers decides.
    #[must_use]
    pub const fn is_quorum(&self) -> bool {
        matches!(self.decides, Decides::Quorum(_))
    }

    /// Whether it replicates to others, one of which takes the place of a failed primary.
    #[must_use]
    pub const fn replicates(&self) -> bool {
        matches!(self.decides, Decides::Primary { .. })
    }

    /// Of how many servers each one counts, where a majority decides or one server is alone; 1 where a primary does.
    #[must_use]
    pub const fn voters(&self) -> usize {
        match self.decides {
            Decides::Ensemble(voters) | Decides::Quorum(voters) => voters,
            Decides::Program | Decides::Kernel | Decides::One | Decides::Primary { .. } => 1,
        }
    }

    /// By when the next holder has the lock at the latest after a holder with this lease was killed, as the backend
    /// promises it.
    #[must_use]
    pub fn succession(&self, lease: Duration) -> Duration {
        self.outlives(lease) + SUCCESSION_SLACK
    }

    /// How long what a dead client has left stays on the servers, at most.
    #[must_use]
    pub fn lingers(&self, lease: Duration) -> Duration {
        let has_claims = self.lease.is_some_and(|kind| kind.has_claims);
        self.outlives(lease) + if has_claims { lease / 3 } else { Duration::ZERO }
    }

    /// How long a lock of a dead client stays.
    fn outlives(&self, lease: Duration) -> Duration {
        self.lease.map_or(Duration::ZERO, |kind| lease + kind.notice)
    }
}

/// How servers are started.
#[derive(Debug, Clone, Copy)]
pub struct StartOptions {
    /// Whether their wall clocks can be moved.
    pub own_clocks: bool,
    /// The longest lease that clients may ask for, where the deployment has a record of that.
    pub longest_lease: Option<Duration>,
    /// What servers show to clients, who come by TLS then and with a certificate, where the backend has TLS.
    pub tls: Option<ServerCertificate>,
    /// Whether clients are users with the least rights that are enough, as docs/rights.md gives them.
    pub users: bool,
    /// How long one server may take to answer whoever looks at it directly.
    pub patience: Duration,
    /// Whether servers take each other for dead only after ten seconds of silence: where nothing is to fail over, on a machine that
    /// may stand still.
    pub bears_silence: bool,
}

impl Default for StartOptions {
    fn default() -> Self {
        Self {
            own_clocks: false,
            longest_lease: None,
            tls: None,
            users: false,
            patience: Duration::from_secs(30),
            bears_silence: false,
        }
    }
}
