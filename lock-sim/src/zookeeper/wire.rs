//! The simulated ensemble as the shipped backend sees it: its wire, and what goes over it into the schedule.
//!
//! What a task asks for waits in the thread's own storage until the schedule takes it, in the order of the calls.

use std::{
    cell::RefCell,
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{
    FutureExt, StreamExt,
    channel::oneshot,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use lock_zk::wire::{
    Answer as Promise, Client, Connections, CreateMode, Created, Ensemble, RequestError, Server, SessionState, Stat,
    Watch, WatchEvent,
};
use tokio::sync::watch;

use super::{
    message::{Answer, Made, Op, Refusal, Reply, SessionId, Stat as Seen},
    report::ContenderReport,
};
use crate::{Time, world::call_machine};

/// What a task asks of the simulated ensemble through the wire trait of the backend.
pub(super) enum WireCall {
    /// A session, with one of these servers.
    Open {
        host: usize,
        servers: Vec<usize>,
        timeout: Time,
        answer: oneshot::Sender<Result<OpenedSession, Refusal>>,
    },
    /// To which servers the host is connected.
    Connections {
        host: usize,
        answer: oneshot::Sender<Vec<usize>>,
    },
    Ask {
        client: usize,
        op: Op,
        waiter: AnswerWaiter,
    },
    /// Nobody waits for the event any more.
    Unwatch {
        client: usize,
        watch: u64,
    },
    /// Nobody has the client any more.
    Drop {
        client: usize,
    },
    /// What a program tells of itself.
    Report(ContenderReport),
}

/// A session that the simulated ensemble has opened for a client.
pub(super) struct OpenedSession {
    pub(super) client: usize,
    pub(super) session: SessionId,
    pub(super) timeout: Time,
    pub(super) states: watch::Receiver<SessionState>,
}

/// Where the answer to a client's request goes, if anybody waits for it.
pub(super) enum AnswerWaiter {
    Nobody,
    Plain(oneshot::Sender<Reply>),
    Watch(WatchKind, oneshot::Sender<Result<(Answer, WatchHandle), Refusal>>),
}

/// What a simulated watch is set on: an existing node, a missing node, or the children of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchKind {
    /// Of a node that was there.
    Node,
    /// Of a node that was not there.
    Missing,
    Children,
}

/// A watch that a client has set, with the future of its event.
pub(super) struct WatchHandle {
    pub(super) client: usize,
    pub(super) number: u64,
    pub(super) event: oneshot::Receiver<WatchEvent>,
}

thread_local! {
    static CALLS: RefCell<VecDeque<WireCall>> = const { RefCell::new(VecDeque::new()) };
}

/// Leaves something for the schedule.
pub(super) fn call(call: WireCall) {
    CALLS.with_borrow_mut(|calls| calls.push_back(call));
    call_machine();
}

/// The next that was left.
pub(super) fn next_call() -> Option<WireCall> {
    CALLS.with_borrow_mut(VecDeque::pop_front)
}

/// Forgets what an earlier schedule has left.
pub(super) fn clear_calls() {
    let left = CALLS.with_borrow_mut(std::mem::take);
    drop(left);
}

/// The simulated ensemble as one host sees it: the [`Ensemble`] under the shipped backend.
#[derive(Debug)]
pub(super) struct SimEnsemble {
    pub(super) host: usize,
}

/// The servers by their names.
pub(super) fn server(place: usize) -> Server {
    (format!("server-{place}"), 1)
}

impl Ensemble for SimEnsemble {
    fn connect<'a>(&'a self, servers: &'a [Server], session_timeout: Duration) -> Promise<'a, Arc<dyn Client>> {
        let known = servers.iter().filter_map(|(name, _)| name.rsplit_once('-')?.1.parse().ok()).collect();
        let timeout = u64::try_from(session_timeout.as_nanos()).unwrap_or(u64::MAX);
        let (answer, answered) = oneshot::channel();
        call(WireCall::Open { host: self.host, servers: known, timeout, answer });
        Box::pin(async move {
            let opened = received(answered).await.map_err(error)?;
            let client: Arc<dyn Client> = Arc::new(SimClient {
                client: opened.client,
                session: opened.session,
                timeout: opened.timeout,
                states: opened.states,
            });
            Ok(client)
        })
    }

    fn connections<'a>(&'a self, _: &'a [Server]) -> BoxFuture<'a, Connections> {
        let (answer, answered) = oneshot::channel();
        call(WireCall::Connections { host: self.host, answer });
        Box::pin(async move {
            let servers = received(answered).await.into_iter().map(server).collect();
            Connections { servers, is_certain: true }
        })
    }
}

/// What comes of it; nothing ever does once the schedule is over.
async fn received<T>(answer: oneshot::Receiver<T>) -> T {
    match answer.await {
        Ok(answer) => answer,
        Err(_) => std::future::pending().await,
    }
}

/// A session with the simulated ensemble: the [`Client`] under the shipped backend.
#[derive(Debug)]
struct SimClient {
    client: usize,
    session: SessionId,
    timeout: Time,
    states: watch::Receiver<SessionState>,
}

impl SimClient {
    fn ask<'a, T>(&self, op: Op, read: impl FnOnce(Answer) -> Option<T> + Send + 'a) -> Promise<'a, T>
    where
        T: Send + 'a,
    {
        let (answer, answered) = oneshot::channel();
        call(WireCall::Ask { client: self.client, op, waiter: AnswerWaiter::Plain(answer) });
        Box::pin(async move {
            let answer = received(answered).await.map_err(error)?;
            read(answer).ok_or_else(|| error(Refusal::Unknown))
        })
    }

    fn watch<'a, T>(
        &self,
        kind: WatchKind,
        op: Op,
        read: impl FnOnce(Answer) -> Option<T> + Send + 'a,
    ) -> Promise<'a, (T, Watch)>
    where
        T: Send + 'a,
    {
        let (answer, answered) = oneshot::channel();
        call(WireCall::Ask { client: self.client, op, waiter: AnswerWaiter::Watch(kind, answer) });
        Box::pin(async move {
            let (answer, set) = received(answered).await.map_err(error)?;
            let watch = SimWatch(Some(set)).boxed();
            Ok((read(answer).ok_or_else(|| error(Refusal::Unknown))?, watch))
        })
    }
}

impl Client for SimClient {
    fn session_id(&self) -> i64 {
        self.session.into()
    }

    fn session_timeout(&self) -> Duration {
        Duration::from_nanos(self.timeout)
    }

    fn state(&self) -> SessionState {
        *self.states.borrow()
    }

    fn states(&self) -> BoxStream<'static, SessionState> {
        let mut states = self.states.clone();
        let now = *states.borrow_and_update();
        let changes = stream::unfold(states, |mut states| async move {
            if states.changed().await.is_err() {
                return std::future::pending().await;
            }
            let state = *states.borrow_and_update();
            Some((state, states))
        });
        stream::iter([now]).chain(changes).boxed()
    }

    fn create<'a>(&'a self, path: &'a str, data: &[u8], mode: CreateMode) -> Promise<'a, Created> {
        let made = match mode {
            CreateMode::Persistent => Made::Persistent,
            CreateMode::Container => Made::Container,
            CreateMode::Ephemeral => Made::Ephemeral,
            CreateMode::EphemeralSequential => Made::Sequential,
        };
        let op = Op::Create { path: path.to_owned(), data: data.to_vec(), made };
        self.ask(op, move |answer| match answer {
            Answer::Created(created, seen) => {
                Some(Created { stat: stat(seen), sequence: created.strip_prefix(path)?.to_owned() })
            }
            _ => None,
        })
    }

    fn delete<'a>(&'a self, path: &'a str) -> Promise<'a, ()> {
        self.ask(Op::Delete(path.to_owned()), |_| Some(()))
    }

    fn get_data<'a>(&'a self, path: &'a str) -> Promise<'a, (Vec<u8>, Stat)> {
        self.ask(Op::Read(path.to_owned()), |answer| match answer {
            Answer::Node(data, seen) => Some((data, stat(seen))),
            _ => None,
        })
    }

    fn set_data<'a>(&'a self, path: &'a str, data: &[u8]) -> Promise<'a, Stat> {
        self.ask(Op::Write(path.to_owned(), data.to_vec()), |_| Some(Stat::default()))
    }

    fn list_children<'a>(&'a self, path: &'a str) -> Promise<'a, Vec<String>> {
        self.ask(Op::List(path.to_owned()), list)
    }

    fn sync<'a>(&'a self, _: &'a str) -> Promise<'a, ()> {
        self.ask(Op::Sync, |_| Some(()))
    }

    fn watch_data<'a>(&'a self, path: &'a str) -> Promise<'a, (Stat, Watch)> {
        self.watch(WatchKind::Node, Op::Watch(path.to_owned()), |answer| node(&answer).flatten())
    }

    fn watch_existence<'a>(&'a self, path: &'a str) -> Promise<'a, (Option<Stat>, Watch)> {
        self.watch(WatchKind::Node, Op::WatchExistence(path.to_owned()), |answer| node(&answer))
    }

    fn watch_children<'a>(&'a self, path: &'a str) -> Promise<'a, (Vec<String>, Watch)> {
        self.watch(WatchKind::Children, Op::WatchChildren(path.to_owned()), list)
    }

    fn create_and_delete<'a>(&'a self, created: &str, data: &[u8], deleted: &str) -> Promise<'a, ()> {
        let (created, deleted) = (created.to_owned(), deleted.to_owned());
        self.ask(Op::Replace { created, data: data.to_vec(), deleted }, |_| Some(()))
    }

    fn set_and_delete<'a>(&'a self, path: &str, data: &[u8]) -> Promise<'a, ()> {
        self.ask(Op::Marked(path.to_owned(), data.to_vec()), |_| Some(()))
    }
}

impl Drop for SimClient {
    fn drop(&mut self) {
        call(WireCall::Drop { client: self.client });
    }
}

fn list(answer: Answer) -> Option<Vec<String>> {
    if let Answer::List(names) = answer { Some(names) } else { None }
}

fn node(answer: &Answer) -> Option<Option<Stat>> {
    match answer {
        Answer::Node(_, seen) => Some(Some(stat(*seen))),
        Answer::Missing => Some(None),
        _ => None,
    }
}

fn stat(seen: Seen) -> Stat {
    let Seen { session, czxid, version, num_children } = seen;
    let czxid = i64::try_from(czxid).unwrap_or(i64::MAX);
    Stat { czxid, version, ephemeral_owner: session.into(), ctime: 0, num_children }
}

fn error(refusal: Refusal) -> RequestError {
    match refusal {
        Refusal::NoNode => RequestError::NoNode,
        Refusal::NodeExists => RequestError::NodeExists,
        Refusal::NoChildren => RequestError::NoChildrenForEphemerals,
        Refusal::NotEmpty => RequestError::Refused(Arc::new(RefusalError(refusal))),
        Refusal::Unknown => RequestError::Unknown(Arc::new(RefusalError(refusal))),
        Refusal::SessionEnded => RequestError::SessionEnded(Arc::new(RefusalError(refusal))),
    }
}

/// A [`Refusal`] of the simulated ensemble, as the source of an error.
#[derive(Debug)]
struct RefusalError(Refusal);

impl fmt::Display for RefusalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Refusal::Unknown => "the connection was lost",
            Refusal::SessionEnded => "the session has ended",
            Refusal::NotEmpty => "the node has children",
            Refusal::NoNode | Refusal::NodeExists | Refusal::NoChildren => "it was refused",
        })
    }
}

impl std::error::Error for RefusalError {}

/// The future of the event of a watch on the simulated ensemble.
struct SimWatch(Option<WatchHandle>);

impl Future for SimWatch {
    type Output = WatchEvent;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<WatchEvent> {
        let Some(set) = self.0.as_mut() else { return Poll::Pending };
        match set.event.poll_unpin(context) {
            Poll::Ready(Ok(event)) => {
                self.0 = None;
                Poll::Ready(event)
            }
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for SimWatch {
    fn drop(&mut self) {
        if let Some(WatchHandle { client, number, .. }) = self.0.take() {
            call(WireCall::Unwatch { client, watch: number });
        }
    }
}
