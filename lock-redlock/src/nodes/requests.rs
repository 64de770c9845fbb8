//! Requests to all nodes at once.

use std::sync::Arc;

use lock_redis::node::{Connection, NodeError, ScriptCall, Value};

use crate::{
    nodes::{
        quorum::Quorum,
        replies::{Dispatch, NoReply, Replies, Reply},
        single_flight::FlightGuard,
    },
    protocol::enrollments::PendingEnrollment,
};

/// A function that reads a node's answer to a request.
pub(crate) type Read<T> = fn(&Value) -> Result<T, NodeError>;

/// A request to one node.
pub(crate) struct NodeRequest {
    pub(crate) call: ScriptCall,
    /// The connection to use; `None` for the present one.
    pub(crate) connection: Option<Connection>,
    pub(crate) probe: Probe,
    /// Set when the request may enroll a waiter on the node.
    pub(crate) enrollment: Option<PendingEnrollment>,
}

/// Whether a request is the one that finds out if a failing node works again.
pub(crate) enum Probe {
    /// The node works, or is needed.
    NotNeeded,
    /// This request finds out.
    Own(FlightGuard),
    /// Another request is finding out, so this one is not sent.
    Elsewhere,
}

impl From<ScriptCall> for NodeRequest {
    fn from(call: ScriptCall) -> Self {
        Self { call, connection: None, probe: Probe::NotNeeded, enrollment: None }
    }
}

/// Asks each node for which `request` returns something. Nothing is sent before the replies are polled.
pub(crate) fn ask<T: Send + 'static, R: Into<NodeRequest>>(
    quorum: &Arc<Quorum>,
    request: impl Fn(usize) -> Option<R>,
    read: Read<T>,
) -> Replies<T> {
    Replies::new(quorum, |node, dispatch| {
        let mut request: NodeRequest = request(node)?.into();
        let enrollment = request.enrollment.take();
        let quorum = Arc::clone(quorum);
        Some(async move {
            let reply = ask_one(&quorum, node, &dispatch, request).await;
            if let Some(enrollment) = enrollment {
                let was_sent = !matches!(reply, Err(NoReply::NotSent(_)));
                enrollment.settle(was_sent, reply.as_ref().is_err_and(NoReply::is_unknown));
            }
            reply.and_then(|answer| read(&answer).map_err(NoReply::Failed))
        })
    })
}

/// Asks each node its calls, if it has any, in one burst.
pub(crate) fn ask_many(
    quorum: &Arc<Quorum>,
    calls: impl Fn(usize) -> Option<Vec<ScriptCall>>,
) -> Replies<Vec<Result<Value, NodeError>>> {
    Replies::new(quorum, |node, dispatch| {
        let calls = calls(node)?;
        let quorum = Arc::clone(quorum);
        Some(async move {
            let connection = connect(&quorum, node).await?;
            let sent = dispatch.begin(node, connection, quorum.clock().now())?;
            let answers = sent.connection.run(&calls).await;
            if answers.iter().any(Result::is_ok) {
                quorum.set_late(node, false);
            }
            Ok(answers)
        })
    })
}

async fn ask_one(quorum: &Quorum, node: usize, dispatch: &Dispatch, request: NodeRequest) -> Reply<Value> {
    let _probe = match request.probe {
        Probe::Elsewhere => return Err(NoReply::NotSent("it has not answered of late".to_owned())),
        Probe::Own(flight) => Some(flight),
        Probe::NotNeeded => None,
    };
    let connection = match request.connection {
        Some(connection) => connection,
        None => connect(quorum, node).await?,
    };
    let sent = dispatch.begin(node, connection, quorum.clock().now())?;
    let answer = sent.connection.call(request.call).await;
    if answer.is_ok() {
        quorum.set_late(node, false);
    }
    answer.map_err(NoReply::Failed)
}

/// Whether a request that somebody waits for goes to `node`. A failing node is left out while the others make up a
/// majority and another request is already finding out whether it works again: then nothing has to be cleared from it.
pub(crate) fn probe(quorum: &Quorum, node: usize) -> Probe {
    if quorum.needs_the_failing() || !quorum.is_failing(node) {
        return Probe::NotNeeded;
    }
    quorum.probes[node].try_begin().map_or(Probe::Elsewhere, Probe::Own)
}

/// A connection to `node`, within its time limit. Nothing was sent when there is none.
pub(crate) async fn connect(quorum: &Quorum, node: usize) -> Result<Connection, NoReply> {
    let limit = quorum.config.node_timeout;
    match quorum.clock().answer_timeout(limit, quorum.node(node).connection()).await {
        Some(Ok(connection)) => Ok(connection),
        Some(Err(error)) => Err(NoReply::NotSent(error.to_string())),
        None => Err(NoReply::NotSent(format!("no connection within {limit:?}"))),
    }
}
