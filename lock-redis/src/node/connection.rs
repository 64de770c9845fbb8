//! One multiplexed connection to a server.

use std::{
    collections::HashSet,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::AbortHandle;
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisError, Value, aio::MultiplexedConnection};

use super::{
    Endpoint, Eviction, FailureKind, NodeError, Replicas, Script, ScriptCall,
    route::{PrimaryDiscovery, Route, accepted},
};
use crate::wire::{Address, Ending};

/// A connection. Clones share it; it closes when the last one is dropped.
///
/// Everything that is sent on it runs in the order of sending, so an undo that follows its acquisition down the same
/// connection is never overtaken by it.
#[derive(Clone)]
pub struct Connection {
    state: Arc<ConnectionState>,
}

/// The state that the clones of a [`Connection`] share; the socket is closed when it is dropped.
struct ConnectionState {
    wire: MultiplexedConnection,
    endpoint: Arc<Endpoint>,
    /// Of a node that is followed: what the server announces itself as.
    announced: Option<Address>,
    /// Set when it is of no further use: closed by either side, unanswered, or refusing writes.
    broken: Arc<AtomicBool>,
    /// The scripts that were sent with their source.
    known: Mutex<HashSet<&'static str>>,
    driver: AbortHandle,
    socket: Arc<dyn Ending>,
}

/// How many requests may wait for the socket to take them; further ones wait for these.
const WAITING_TO_BE_SENT: usize = 1_024;

/// The first command on a new connection, whose answer shows that the server is there, and whether it is the primary.
#[derive(Debug, Clone, Copy)]
enum Greeting {
    /// The kernel of a server that stands still takes connections, too: only an answer shows that it is there.
    Ping,
    /// Whoever named the server may be wrong, or late: only the server itself knows whether it is a primary. It says so
    /// when it is greeted, which every user may do.
    Hello,
    /// Servers before Redis 6 only say it when they are asked.
    Role,
}

impl Greeting {
    fn command(self) -> Cmd {
        redis::cmd(match self {
            Self::Ping => "PING",
            Self::Hello => "HELLO",
            Self::Role => "ROLE",
        })
    }
}

impl Connection {
    /// Connects and signs in. To be called on the runtime of the node.
    pub(super) async fn open(endpoint: Arc<Endpoint>) -> Result<Self, NodeError> {
        let limit = endpoint.config.connect_timeout;
        let clock = endpoint.clock;
        let opening = async {
            match &endpoint.route {
                Route::Fixed => Self::greet(Arc::clone(&endpoint), &endpoint.fixed(), None).await,
                Route::Followed(guide) => Self::find(&endpoint, guide.as_ref()).await,
            }
        };
        let late = || Err(NodeError::connect_timed_out(limit, &*endpoint.config.network));
        clock.answer_timeout(limit, opening).await.unwrap_or_else(late)
    }

    /// Connects to a server that is named as the primary and says so itself.
    async fn find(endpoint: &Arc<Endpoint>, guide: &dyn PrimaryDiscovery) -> Result<Self, NodeError> {
        let mut candidates = guide.candidates().fuse();
        let mut asked = FuturesUnordered::new();
        let mut tried = HashSet::new();
        let (mut nobody, mut refused) = (None, None);
        loop {
            tokio::select! {
                biased;
                Some(answer) = asked.next() => match answer {
                    Ok(connection) => return Ok(connection),
                    Err(error) => refused = Some(error),
                },
                Some(named) = candidates.next(), if asked.is_empty() || !guide.is_in_order() => match named {
                    Ok(address) => {
                        if tried.insert(address.clone()) {
                            let (endpoint, at) = (Arc::clone(endpoint), guide.addresses().reached(&address).clone());
                            asked.push(async move { Self::greet(endpoint, &at, Some(address)).await });
                        }
                    }
                    // One that waiting may help is the better one to report.
                    Err(error) if nobody.is_none() || error.is_temporary() => nobody = Some(error),
                    Err(_) => {}
                },
                else => break,
            }
        }
        Err(refused.or(nobody).unwrap_or_else(NodeError::no_primary))
    }

    /// Connects to the server at `at`. One that was named as the primary under the name `announced` is asked whether it is.
    async fn greet(endpoint: Arc<Endpoint>, at: &Address, announced: Option<Address>) -> Result<Self, NodeError> {
        let network = Arc::clone(&endpoint.config.network);
        match Self::greet_once(endpoint, at, announced).await {
            Err(error) if error.kind() == FailureKind::Connection => {
                Err(network.refusal(at).await.map_or(error, |refusal| NodeError::not_connected(refusal.into())))
            }
            greeted => greeted,
        }
    }

    async fn greet_once(endpoint: Arc<Endpoint>, at: &Address, announced: Option<Address>) -> Result<Self, NodeError> {
        let connection =
            Self::dial(Arc::clone(&endpoint), at, announced.clone()).await.map_err(NodeError::not_connected)?;
        let Some(announced) = announced else {
            connection.say(Greeting::Ping, at).await?;
            return Ok(connection);
        };
        // Safeguard: a primary says what it is without further rights (Redis)
        let is_primary = match connection.say(Greeting::Hello, at).await {
            Ok(answer) => is_greeted_by_primary(&answer),
            Err(error) if error.kind() == FailureKind::Unexpected => None,
            Err(error) => return Err(error),
        };
        let is_primary = match is_primary {
            Some(known) => known,
            None => is_primary_role(&connection.say(Greeting::Role, at).await?),
        };
        // Safeguard: whoever is named as the primary says so itself (Redis)
        if !is_primary {
            return Err(NodeError::not_primary(&announced));
        }
        endpoint.found(&announced);
        Ok(connection)
    }

    /// Says that it is there, and asks in the same round trip whether locks are safe with the server's memory.
    async fn say(&self, greeting: Greeting, at: &Address) -> Result<Value, NodeError> {
        let mut burst = Pipeline::with_capacity(2);
        burst.add_command(greeting.command()).add_command(Eviction::question());
        let answers =
            self.state.wire.clone().send_packed_commands(&burst, 0, 2).await.map_err(NodeError::not_connected)?;
        let [answer, memory] = <[Value; 2]>::try_from(answers)
            .map_err(|answers| NodeError::nonsense(&Value::Array(answers)).not_applied())?;
        // Where this may not be asked, it is not known, and nobody is refused.
        if let Value::BulkString(info) = memory
            && let Some(eviction) = Eviction::of(&String::from_utf8_lossy(&info))
        {
            return Err(NodeError::evicting(at, eviction));
        }
        accepted(answer).map_err(NodeError::not_connected)
    }

    async fn dial(endpoint: Arc<Endpoint>, at: &Address, announced: Option<Address>) -> Result<Self, RedisError> {
        let stream = endpoint.config.network.dial(at).await?;
        let socket = stream.ending();
        let config =
            AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(WAITING_TO_BE_SENT);
        let (wire, driver) = MultiplexedConnection::new_with_config(&endpoint.user()?, stream, config).await?;
        let driver = driver.boxed();
        let broken = Arc::new(AtomicBool::new(false));
        let (ended, follows) = (Arc::clone(&broken), announced.clone().map(|address| (Arc::clone(&endpoint), address)));
        // An end that is seen here, while nothing is under way, costs nobody an attempt.
        let running = endpoint.context.spawn(async move {
            driver.await;
            ended.store(true, Ordering::Release);
            if let Some((endpoint, address)) = follows {
                endpoint.lost(&address);
            }
        });
        let driver = running.abort_handle();
        let state = ConnectionState { wire, endpoint, announced, broken, known: Mutex::default(), driver, socket };
        Ok(Self { state: Arc::new(state) })
    }

    /// Runs `calls` in this order in one burst and gives each its answer. A script that the server does not have (any
    /// more) is sent again with its source, and so runs after the others.
    ///
    /// Ends within the response limit, or twice that after a `SCRIPT FLUSH`; a limit that passes while the program stands still
    /// starts again, once. When the future is dropped, the calls may still run.
    pub async fn run(&self, calls: &[ScriptCall]) -> Vec<Result<Value, NodeError>> {
        self.run_acknowledged(calls, None).await.0
    }

    /// Runs `calls` as [`Connection::run`] does, and says whether enough replicas have acknowledged what they wrote. Without
    /// `replicas` none need to.
    pub(super) async fn run_acknowledged(
        &self,
        calls: &[ScriptCall],
        replicas: Option<Replicas>,
    ) -> (Vec<Result<Value, NodeError>>, Result<(), NodeError>) {
        let commands = calls.iter().map(|call| (call, self.is_new(call.script()))).collect::<Vec<_>>();
        let (mut answers, mut acknowledged) = self.send(&commands, replicas).await;
        let missing: Vec<usize> = (0..answers.len()).filter(|&at| is_missing(&answers[at])).collect();
        if !missing.is_empty() {
            let commands = missing.iter().map(|&at| (&calls[at], true)).collect::<Vec<_>>();
            // What replicas acknowledge the second time, on the same connection, includes what was written the first time.
            let (again, later) = self.send(&commands, replicas).await;
            for (at, answer) in missing.into_iter().zip(again) {
                answers[at] = answer;
            }
            acknowledged = later;
        }
        answers.iter().for_each(|answer| self.note(answer));
        (answers, replicas.map_or(Ok(()), |replicas| replicas.judge(acknowledged)))
    }

    /// Runs one call; see [`Connection::run`].
    ///
    /// # Errors
    /// [`NodeError`]
    pub async fn call(&self, call: ScriptCall) -> Result<Value, NodeError> {
        let answer = self.run(&[call]).await.pop();
        answer.unwrap_or_else(|| Err(NodeError::nonsense(&Value::Nil)))
    }

    /// Whether it is of no further use.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.state.broken.load(Ordering::Acquire) || !self.state.endpoint.leads_to(self.state.announced.as_ref())
    }

    /// Gives it up: the server is not there, or is the wrong one.
    fn give_up(&self) {
        self.state.broken.store(true, Ordering::Release);
        if let Some(announced) = &self.state.announced {
            self.state.endpoint.lost(announced);
        }
    }

    /// Ends it for all who have it: when this returns, nothing that was sent on it and has not arrived ever will. What is
    /// under way on it remains without an answer.
    pub(crate) fn end(&self) {
        self.give_up();
        self.state.socket.end();
        self.state.driver.abort();
    }

    fn is_new(&self, script: &'static Script) -> bool {
        self.state.known.lock().unwrap_or_else(PoisonError::into_inner).insert(script.hash())
    }

    /// Sends a burst, with `WAIT` behind it if replicas have to acknowledge it. Gives the answer to that apart.
    async fn send(
        &self,
        commands: &[(&ScriptCall, bool)],
        replicas: Option<Replicas>,
    ) -> (Vec<Result<Value, NodeError>>, Result<Value, NodeError>) {
        let limit =
            self.state.endpoint.config.response_timeout + replicas.map_or(Duration::ZERO, |replicas| replicas.within);
        let (burst, mut wire) = (Burst::of(commands, replicas), self.state.wire.clone());
        let exchanging = async {
            match burst {
                Burst::One(command) => wire.send_packed_command(&command).await.map(|answer| vec![answer]),
                Burst::Many { commands, answers_of } => {
                    let mut answers = wire.send_packed_commands(&commands, 0, commands.len()).await?;
                    let mut places = 0..;
                    answers.retain(|_| places.next().is_some_and(|place| answers_of.contains(&place)));
                    Ok(answers)
                }
            }
        };
        let time_limit = self.state.endpoint.limits.start(limit);
        let answered = tokio::select! {
            biased;
            answered = exchanging => Some(answered),
            () = time_limit.passed() => None,
        };
        let failure = match answered {
            Some(Ok(values)) if values.len() == commands.len() + usize::from(replicas.is_some()) => {
                let sorted_out = values.into_iter().map(|value| match value {
                    Value::ServerError(error) => Err(NodeError::refused(error)),
                    value => Ok(value),
                });
                let mut answers: Vec<_> = sorted_out.collect();
                let acknowledged = if replicas.is_some() { answers.pop() } else { None };
                return (answers, acknowledged.unwrap_or(Ok(Value::Nil)));
            }
            Some(Ok(values)) => {
                self.end();
                NodeError::nonsense(&Value::Array(values))
            }
            Some(Err(error)) => {
                // Broken on this side, too: the same request may be sent again on another connection.
                self.end();
                NodeError::broken(error)
            }
            None => NodeError::timed_out(limit),
        };
        // After a request without an answer the next answer might be taken for the wrong one, or never come. However much
        // is sent after it, only what was received says that a server is there. Those who have requests under way on it may
        // still be answered: it is ended when it has a successor.
        self.give_up();
        (vec![Err(failure.clone()); commands.len()], Err(failure))
    }

    /// Notes what an answer says about the server and about this connection.
    fn note(&self, answer: &Result<Value, NodeError>) {
        match answer {
            Err(error) if error.wants_new_connection() => {
                self.give_up();
                self.state.endpoint.failed();
            }
            // A server that refuses is there; whether that will do is for those to judge who asked.
            Err(error) if error.is_temporary() => self.state.endpoint.failed(),
            _ => self.state.endpoint.answered(),
        }
    }
}

impl Drop for ConnectionState {
    fn drop(&mut self) {
        self.socket.end();
        self.driver.abort();
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("broken", &self.is_broken()).finish_non_exhaustive()
    }
}

/// Commands that go to the server together, as the client library takes them: a single command, or a pipeline.
enum Burst {
    /// A single command, which the client library sends without the bookkeeping of a pipeline.
    One(Cmd),
    /// A pipeline.
    Many {
        commands: Pipeline,
        /// Which commands have answers for the callers: all but `PING` and `ASKING`.
        answers_of: Vec<usize>,
    },
}

impl Burst {
    /// The commands of `calls`, each with whether its script goes along as source. `WAIT` comes last, where replicas have to
    /// acknowledge what the scripts wrote.
    fn of(calls: &[(&ScriptCall, bool)], replicas: Option<Replicas>) -> Self {
        if let [(call, with_source)] = calls
            && !call.is_asking()
            && !call.publishes_first()
            && replicas.is_none()
        {
            return Self::One(call.command(*with_source));
        }
        let mut commands = Pipeline::with_capacity(calls.len());
        let mut answers_of = Vec::with_capacity(calls.len());
        for (call, with_source) in calls {
            if call.publishes_first() {
                commands.add_command(redis::cmd("PING"));
            }
            if call.is_asking() {
                // It holds for the next command only.
                commands.add_command(redis::cmd("ASKING"));
            }
            answers_of.push(commands.len());
            commands.add_command(call.command(*with_source));
        }
        if let Some(replicas) = replicas {
            // Behind the scripts, down their own connection: what was written on any other says nothing about them.
            answers_of.push(commands.len());
            commands.add_command(replicas.wait());
        }
        Self::Many { commands, answers_of }
    }
}

fn is_missing(answer: &Result<Value, NodeError>) -> bool {
    answer.as_ref().is_err_and(NodeError::is_missing_script)
}

/// Whether a server says in its greeting that it is a primary; `None` when it does not say.
fn is_greeted_by_primary(hello: &Value) -> Option<bool> {
    let Value::Array(parts) = hello else { return None };
    let mut pairs = parts.chunks_exact(2);
    let role = pairs.find(|pair| matches!(&pair[0], Value::BulkString(key) if key == b"role"))?;
    Some(matches!(&role[1], Value::BulkString(role) if role == b"master"))
}

/// Whether a server says of itself that it is a primary.
fn is_primary_role(role: &Value) -> bool {
    let Value::Array(parts) = role else { return false };
    matches!(parts.first(), Some(Value::BulkString(role)) if role == b"master")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the commands, and which of them have answers for the callers.
    fn commands_of(calls: &[(&ScriptCall, bool)]) -> (Vec<String>, Vec<usize>) {
        let name = |command: &Cmd| match command.args_iter().next() {
            Some(redis::Arg::Simple(name)) => String::from_utf8_lossy(name).into_owned(),
            _ => String::new(),
        };
        match Burst::of(calls, None) {
            Burst::One(command) => (vec![name(&command)], vec![0]),
            Burst::Many { commands, answers_of } => (commands.cmd_iter().map(name).collect(), answers_of),
        }
    }

    #[test]
    fn what_publishes_first_has_a_ping_in_front_whose_answer_is_nobodys() {
        static SCRIPT: Script = Script::new("return 1");
        let call = ScriptCall::new(&SCRIPT);
        assert_eq!(commands_of(&[(&call, false)]), (vec!["EVALSHA".to_owned()], vec![0]));
        let mut contended = call.clone().publishing_first(true);
        let both = ["PING", "EVALSHA"].map(str::to_owned).to_vec();
        assert_eq!(commands_of(&[(&contended, false)]), (both, vec![1]));
        contended.set_asking(true);
        let all = ["EVALSHA", "PING", "ASKING", "EVAL"].map(str::to_owned).to_vec();
        assert_eq!(commands_of(&[(&call, false), (&contended, true)]), (all, vec![0, 3]));
    }

    #[test]
    fn a_greeting_says_whether_it_is_a_primarys() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let hello = |role: &str| {
            let head = ["server", "redis", "mode", "role", "role", role, "modules"].map(bulk);
            Value::Array(head.into_iter().chain([Value::Array(Vec::new())]).collect())
        };
        assert_eq!(is_greeted_by_primary(&hello("master")), Some(true));
        assert_eq!(is_greeted_by_primary(&hello("replica")), Some(false));
        for other in [Value::Nil, Value::Array(vec![bulk("role")]), Value::Array(vec![bulk("server"), bulk("role")])] {
            assert_eq!(is_greeted_by_primary(&other), None, "{other:?}");
        }
    }
}
