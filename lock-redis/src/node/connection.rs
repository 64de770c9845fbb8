//! One multiplexed connection to a server.

use std::{
    collections::HashSet,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::FutureExt;
use redis::{AsyncConnectionConfig, Pipeline, RedisConnectionInfo, RedisError, Value, aio::MultiplexedConnection};
use tokio::{net::TcpStream, task::AbortHandle};

use super::{NodeError, Reach, Script, ScriptCall};

/// A connection. Clones share it; it closes when the last one is dropped.
///
/// Everything that is sent on it runs in the order of sending, so an undo that follows its acquisition down the same
/// connection is never overtaken by it.
#[derive(Clone)]
pub struct Connection {
    live: Arc<Live>,
}

struct Live {
    wire: MultiplexedConnection,
    reach: Arc<Reach>,
    /// Set when it is of no further use: closed by either side, unanswered, or refusing writes.
    broken: Arc<AtomicBool>,
    /// The scripts that were sent with their source.
    known: Mutex<HashSet<&'static str>>,
    driver: AbortHandle,
}

/// How many requests may wait for the socket to take them; further ones wait for these.
const WAITING_TO_BE_SENT: usize = 1_024;

impl Connection {
    /// Connects and signs in. To be called on the runtime of the node.
    pub(super) async fn open(reach: Arc<Reach>) -> Result<Self, NodeError> {
        let limit = reach.config.connect_timeout;
        let clock = reach.clock;
        let opened = clock.timeout(limit, Self::dial_and_greet(reach)).await;
        opened.ok_or_else(|| NodeError::connect_timed_out(limit))?.map_err(NodeError::not_connected)
    }

    async fn dial_and_greet(reach: Arc<Reach>) -> Result<Self, RedisError> {
        let (stream, user) = (dial(&reach).await?, sign_in(&reach));
        let config =
            AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(WAITING_TO_BE_SENT);
        let (mut wire, driver) = MultiplexedConnection::new_with_config(&user, stream, config).await?;
        let driver = driver.boxed();
        let broken = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&broken);
        // An end that is seen here, while nothing is under way, costs nobody an attempt.
        let driver = tokio::spawn(async move {
            driver.await;
            ended.store(true, Ordering::Release);
        });
        let live = Live { wire: wire.clone(), reach, broken, known: Mutex::default(), driver: driver.abort_handle() };
        let connection = Self { live: Arc::new(live) };
        // The kernel of a server that stands still takes connections, too: only an answer shows that it is there.
        match wire.send_packed_command(&redis::cmd("PING")).await? {
            Value::ServerError(error) => Err(error.into()),
            _ => Ok(connection),
        }
    }

    /// Runs `calls` in this order in one burst and gives each its answer. A script that the server does not have (any
    /// more) is sent again with its source, and so runs after the others.
    ///
    /// Ends within the response limit, or twice that after a `SCRIPT FLUSH`. When the future is dropped, the calls may
    /// still run.
    pub async fn run(&self, calls: &[ScriptCall]) -> Vec<Result<Value, NodeError>> {
        let commands = calls.iter().map(|call| (call, self.is_new(call.script()))).collect::<Vec<_>>();
        let mut answers = self.send(&commands).await;
        let missing: Vec<usize> = (0..answers.len()).filter(|&at| is_missing(&answers[at])).collect();
        if !missing.is_empty() {
            let commands = missing.iter().map(|&at| (&calls[at], true)).collect::<Vec<_>>();
            for (at, answer) in missing.into_iter().zip(self.send(&commands).await) {
                answers[at] = answer;
            }
        }
        answers.into_iter().map(|answer| self.judge(answer)).collect()
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
        self.live.broken.load(Ordering::Acquire)
    }

    fn is_new(&self, script: &'static Script) -> bool {
        self.live.known.lock().unwrap_or_else(PoisonError::into_inner).insert(script.hash())
    }

    async fn send(&self, commands: &[(&ScriptCall, bool)]) -> Vec<Result<Value, NodeError>> {
        let limit = self.live.reach.config.response_timeout;
        let answered = self.live.reach.clock.timeout(limit, exchange(self.live.wire.clone(), commands)).await;
        let failure = match answered {
            Some(Ok(values)) if values.len() == commands.len() => {
                return values.into_iter().map(sort_out).collect();
            }
            Some(Ok(values)) => NodeError::nonsense(&Value::Array(values)),
            Some(Err(error)) => NodeError::broken(error),
            None => NodeError::timed_out(limit),
        };
        // After a request without an answer the next answer might be taken for the wrong one, or never come.
        self.live.broken.store(true, Ordering::Release);
        vec![Err(failure); commands.len()]
    }

    fn judge(&self, answer: Result<Value, NodeError>) -> Result<Value, NodeError> {
        match &answer {
            Err(error) if error.wants_new_connection() => {
                self.live.broken.store(true, Ordering::Release);
                self.live.reach.failed();
            }
            // A server that refuses is there; whether that will do is for those to judge who asked.
            Err(error) if error.is_temporary() => self.live.reach.failed(),
            _ => self.live.reach.answered(),
        }
        answer
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("broken", &self.is_broken()).finish_non_exhaustive()
    }
}

async fn exchange(mut wire: MultiplexedConnection, commands: &[(&ScriptCall, bool)]) -> Result<Vec<Value>, RedisError> {
    if let [(call, with_source)] = commands {
        return Ok(vec![wire.send_packed_command(&call.command(*with_source)).await?]);
    }
    let mut burst = Pipeline::with_capacity(commands.len());
    for (call, with_source) in commands {
        burst.add_command(call.command(*with_source));
    }
    wire.send_packed_commands(&burst, 0, commands.len()).await
}

fn sort_out(value: Value) -> Result<Value, NodeError> {
    match value {
        Value::ServerError(error) => Err(NodeError::refused(error)),
        value => Ok(value),
    }
}

fn is_missing(answer: &Result<Value, NodeError>) -> bool {
    answer.as_ref().is_err_and(NodeError::is_missing_script)
}

/// Opens the socket, without the delay that waits for more to send: a request is a whole.
pub(super) async fn dial(reach: &Reach) -> Result<TcpStream, RedisError> {
    let stream = TcpStream::connect((reach.config.host.as_str(), reach.config.port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

pub(super) fn sign_in(reach: &Reach) -> RedisConnectionInfo {
    let mut info = RedisConnectionInfo::default().set_db(reach.config.db.into()).set_skip_set_lib_name();
    if let Some(username) = &reach.config.username {
        info = info.set_username(username);
    }
    if let Some(password) = &reach.config.password {
        info = info.set_password(password);
    }
    info
}
