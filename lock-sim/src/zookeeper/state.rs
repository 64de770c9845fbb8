//! The state of one schedule: its hosts, clients, servers and contenders, on which the other modules work.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt,
    rc::Rc,
};

use futures::channel::oneshot;
use lock_core::Validity;
use lock_zk::{
    Config,
    wire::{SessionState, WatchEvent},
};
use tokio::sync::watch;

use super::{
    message::{EnsembleEvent, Op, Refusal, Reply, SessionId},
    profile::{EnsembleSettings, FaultProfile},
    program::NAME,
    report::{RequestMode, ScheduleStage},
    tree::{NodeTree, TreeChange},
    wire::{AnswerWaiter, OpenedSession, WatchKind},
};
use crate::{
    Counts, LocalClock, Pipe, Time, Trace, Violation,
    world::{HostId, World},
};

/// One schedule of the simulated ensemble: its servers, hosts and clients, and the checker of invariants.
pub(super) struct Schedule<'a> {
    pub(super) world: World<EnsembleEvent>,
    pub(super) trace: &'a mut Trace,
    pub(super) counts: Counts,
    pub(super) grants: u64,
    pub(super) settings: EnsembleSettings,
    pub(super) faults: FaultProfile,
    pub(super) servers: Vec<ServerState>,
    pub(super) leader: Option<Leader>,
    pub(super) epoch: u32,
    pub(super) log: Vec<Rc<LogEntry>>,
    pub(super) committed: usize,
    pub(super) zxid: u64,
    /// The time-outs that sessions were opened with, by their numbers from 1 on.
    pub(super) timeouts: Vec<Time>,
    pub(super) links: u32,
    pub(super) hosts: Vec<HostState>,
    pub(super) clients: Vec<ClientSession>,
    pub(super) conns: u32,
    /// How many requests have arrived at the servers, pings apart.
    pub(super) requests: u64,
    pub(super) contending: Vec<ContenderState>,
    pub(super) invariants: InvariantChecker,
    pub(super) is_herd: bool,
    pub(super) stage: watch::Sender<ScheduleStage>,
    pub(super) deadline: Time,
    /// How many changes there were at the last look, and for how many looks that has stayed so.
    pub(super) quiet: (u64, u32),
}

/// A simulated machine on which programs run: its clock, and the faults that it suffers now.
#[derive(Debug)]
pub(super) struct HostState {
    pub(super) id: HostId,
    /// Of the time since it was booted.
    pub(super) clock: LocalClock,
    /// It does nothing until then, and goes on with what it knew.
    pub(super) paused_until: Time,
    /// When it last went on.
    pub(super) resumed: Time,
    /// The servers do not hear it.
    pub(super) mute: bool,
    /// It does not hear the servers.
    pub(super) deaf: bool,
    /// What is lost is sent again then; otherwise the connection is broken.
    pub(super) sends_again_at: Option<Time>,
    /// What the latest news were; `None` when it was an answer that came last.
    pub(super) heard: Option<WatchEvent>,
    pub(super) is_dead: bool,
}

/// A simulated session of the client library: its connection, its outstanding requests and its watches.
pub(super) struct ClientSession {
    pub(super) host: usize,
    /// Of the servers it knows.
    pub(super) servers: Vec<usize>,
    pub(super) link: ClientLink,
    pub(super) attempt: u32,
    /// When it asked for the connection, when it last heard from a server, and when it last sent anything, by its clock.
    pub(super) asked: Time,
    pub(super) received: Time,
    pub(super) sent: Time,
    pub(super) up: Pipe,
    pub(super) up_broken: bool,
    pub(super) session: SessionId,
    pub(super) timeout: Time,
    pub(super) opening: Option<PendingOpen>,
    /// The newest transaction that it knows of.
    pub(super) seen: u64,
    /// The newest transaction that its server had applied when it said the last thing.
    pub(super) told: u64,
    pub(super) numbers: u32,
    pub(super) outstanding: VecDeque<OutstandingRequest>,
    /// What waits for a connection.
    pub(super) backlog: VecDeque<(OutstandingRequest, Op)>,
    pub(super) watches: Vec<ClientWatch>,
    pub(super) watch_numbers: u64,
    pub(super) states: watch::Sender<SessionState>,
    /// Its user has dropped it.
    pub(super) is_dropped: bool,
    pub(super) is_over: bool,
}

/// The state of a simulated client's connection to a server: down, connecting or up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientLink {
    Down,
    Connecting { conn: u32, server: usize },
    Up { conn: u32, server: usize },
}

/// A session that a simulated client is opening: the servers left to try, and who waits for it.
pub(super) struct PendingOpen {
    /// The servers that were not tried yet.
    pub(super) left: Vec<usize>,
    pub(super) answer: oneshot::Sender<Result<OpenedSession, Refusal>>,
}

/// A request that a simulated client has sent, or will send, and that is not answered yet.
pub(super) struct OutstandingRequest {
    pub(super) number: u32,
    /// When, in true time: for the facts.
    pub(super) at: Time,
    pub(super) is_ping: bool,
    /// The prefix of a contender's node that is being created.
    pub(super) creates: Option<String>,
    /// The path that is watched.
    pub(super) watched: Option<String>,
    pub(super) is_close: bool,
    pub(super) waiter: AnswerWaiter,
}

/// A watch that a simulated client has set and that has not fired yet.
pub(super) struct ClientWatch {
    pub(super) number: u64,
    pub(super) path: String,
    pub(super) kind: WatchKind,
    pub(super) event: oneshot::Sender<WatchEvent>,
}

/// The role of a simulated server: leading, following, looking for a leader, or down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerRole {
    /// Of that epoch, which may be over without its knowing.
    Leading(u32),
    Following,
    /// Without a leader: it serves nobody.
    Looking,
    Down,
}

/// One simulated server of the ensemble: its role, its tree, and its connections.
#[derive(Debug)]
pub(super) struct ServerState {
    pub(super) role: ServerRole,
    /// It does nothing until then.
    pub(super) paused_until: Time,
    /// It hears nothing until then: who wakes from a pause may judge before it listens.
    pub(super) deaf_until: Time,
    /// The other servers do not hear it.
    pub(super) mute: bool,
    /// It does not hear the other servers.
    pub(super) deaf: bool,
    pub(super) link: LeaderLink,
    /// When its leader was last heard; for a leader, when it last had a follower.
    pub(super) heard: Time,
    pub(super) tree: NodeTree,
    /// How much of the log is in that.
    pub(super) applied: usize,
    pub(super) zxid: u64,
    pub(super) conns: Vec<ServerConnection>,
    /// Which sessions were active since the leader was last told, and their time-outs here.
    pub(super) active: Vec<(SessionId, Time)>,
    pub(super) clock: LocalClock,
    /// The longest time-out that it grants.
    pub(super) longest: Time,
}

/// A follower's connection to its leader in the simulated ensemble.
#[derive(Debug, Default)]
pub(super) struct LeaderLink {
    pub(super) number: u32,
    /// Of the leader at the other end.
    pub(super) epoch: u32,
    pub(super) up: Pipe,
    pub(super) down: Pipe,
    /// How far the follower is with its work.
    pub(super) work: Pipe,
    /// Something was lost on it: nothing comes after that.
    pub(super) up_broken: bool,
    pub(super) down_broken: bool,
    /// When the leader last had an answer to a ping.
    pub(super) answered: Time,
}

/// A client's connection, as its simulated server has it.
#[derive(Debug)]
pub(super) struct ServerConnection {
    pub(super) id: u32,
    pub(super) client: usize,
    pub(super) session: SessionId,
    pub(super) timeout: Time,
    pub(super) open: bool,
    pub(super) broken: bool,
    pub(super) down: Pipe,
    pub(super) pending: VecDeque<PendingRequest>,
    /// The nodes that are watched, or waited for.
    pub(super) nodes: Vec<String>,
    /// The nodes whose children are watched.
    pub(super) children: Vec<String>,
}

/// A client's request that its simulated server has not answered yet.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) number: u32,
    pub(super) op: Op,
    pub(super) reply: Option<Reply>,
    /// A sync is answered when that much of the log is applied.
    pub(super) upto: Option<usize>,
}

impl ServerState {
    pub(super) fn new(tree: NodeTree, clock: LocalClock, longest: Time) -> Self {
        Self {
            role: ServerRole::Looking,
            paused_until: 0,
            deaf_until: 0,
            mute: false,
            deaf: false,
            link: LeaderLink::default(),
            heard: 0,
            tree,
            applied: 0,
            zxid: 0,
            conns: Vec::new(),
            active: Vec::new(),
            clock,
            longest,
        }
    }

    pub(super) fn is_active(&mut self, session: SessionId, timeout: Time) {
        if !self.active.iter().any(|(id, _)| *id == session) {
            self.active.push((session, timeout));
        }
    }
}

/// A transaction in the log of the simulated ensemble.
#[derive(Debug)]
pub(super) struct LogEntry {
    pub(super) zxid: u64,
    pub(super) changes: Vec<TreeChange>,
    pub(super) origin: Option<RequestOrigin>,
    pub(super) reply: Reply,
    /// The session that it opens.
    pub(super) opens: SessionId,
    /// Somebody who is no contender asked for it.
    pub(super) foreign: bool,
}

/// The server, the connection and the session that a request came from, to which its answer goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestOrigin {
    pub(super) server: usize,
    pub(super) conn: u32,
    pub(super) number: u32,
    /// Who asks; 0 for who has no session yet.
    pub(super) session: SessionId,
}

/// The state of the simulated leader: its proposed tree, and the sessions that it expires.
#[derive(Debug)]
pub(super) struct Leader {
    pub(super) server: usize,
    /// What was proposed, committed or not.
    pub(super) tree: NodeTree,
    pub(super) sessions: Vec<LeaderSession>,
    pub(super) commits: Pipe,
}

/// A session as the simulated leader tracks it, with the time at which it expires.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeaderSession {
    pub(super) id: SessionId,
    /// By the leader's clock.
    pub(super) expires: Time,
    pub(super) owner: Option<usize>,
    pub(super) closing: bool,
}

impl LogEntry {
    /// Whether it creates a node of that prefix.
    pub(super) fn creates(&self, prefix: &str) -> bool {
        self.changes.iter().any(|change| matches!(change, TreeChange::Create { path, .. } if path.starts_with(prefix)))
    }
}

/// What the checker of invariants knows of one contender, as the contender's program reports it.
#[derive(Debug)]
pub(super) struct ContenderState {
    pub(super) host: usize,
    pub(super) attempt: u32,
    pub(super) kind: RequestMode,
    pub(super) phase: ContenderPhase,
    /// Of the present grant.
    pub(super) grant: Option<CheckedGrant>,
    /// When it asked.
    pub(super) since: Time,
    pub(super) is_closed: bool,
    pub(super) is_dead: bool,
}

/// Whether a contender is idle, waits or holds, as the checker of invariants knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContenderPhase {
    Idle,
    Waits,
    Holds,
}

/// The present grant of a contender, with what the checker of invariants compares it with.
#[derive(Debug, Clone)]
pub(super) struct CheckedGrant {
    pub(super) validity: Validity,
    pub(super) session: SessionId,
    /// The newest transaction that the client's server had applied when it said what led to the grant.
    pub(super) evidence: u64,
}

/// A node that a contender has created on the simulated ensemble.
#[derive(Debug)]
pub(super) struct CreatedNode {
    pub(super) slot: usize,
    pub(super) attempt: u32,
    pub(super) path: Rc<str>,
    pub(super) czxid: u64,
    pub(super) session: SessionId,
}

/// Checks after each committed transaction and each report that the promises of the lock hold.
#[derive(Debug, Default)]
pub(super) struct InvariantChecker {
    /// The sessions that are open, as committed.
    pub(super) alive: BTreeSet<SessionId>,
    /// When each session was ended.
    pub(super) closed: Vec<(SessionId, Time)>,
    /// Nodes that somebody else deleted, with the transaction.
    pub(super) removed: Vec<(Rc<str>, u64)>,
    /// The one node that all want: the requests to delete it, by session and number, and the newest transaction that their
    /// clients knew of then.
    pub(super) deletes: Vec<(SessionId, u32, u64)>,
    /// All contenders' nodes that there ever were.
    pub(super) made: Vec<CreatedNode>,
    /// The highest token of a writer, and of anybody after the lock.
    pub(super) writers: u64,
    pub(super) all: u64,
    /// How many transactions have changed anything about the lock.
    pub(super) changes: u64,
    pub(super) violation: Option<Violation>,
}

impl ContenderState {
    pub(super) const fn new(host: usize) -> Self {
        Self {
            host,
            attempt: 0,
            kind: RequestMode::Writer,
            phase: ContenderPhase::Idle,
            grant: None,
            since: 0,
            is_closed: false,
            is_dead: false,
        }
    }
}

/// The node that all contenders stand in, or want.
pub(super) fn lock_path() -> String {
    format!("{}/{NAME}", Config::ROOT)
}

impl Schedule<'_> {
    pub(super) const fn now(&self) -> Time {
        self.world.now()
    }

    pub(super) fn note(&mut self, who: impl fmt::Display, what: fmt::Arguments<'_>) {
        self.trace.note(self.world.now(), who, what);
    }

    pub(super) fn stage(&self) -> ScheduleStage {
        *self.stage.borrow()
    }

    pub(super) fn is_calm(&self) -> bool {
        self.stage() != ScheduleStage::Active
    }

    /// The time on the clock of a host.
    pub(super) fn local(&self, host: usize) -> Time {
        self.hosts[host].clock.at(self.now())
    }

    pub(super) fn violate(&mut self, invariant: &'static str, text: String) {
        let at = self.now();
        self.trace.note(at, "VIOLATION", format_args!("{invariant}: {text}"));
        self.invariants.violation.get_or_insert(Violation { invariant, text, at });
    }
}
