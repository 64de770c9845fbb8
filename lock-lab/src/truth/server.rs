//! One server of Redis, asked past the proxies.

use std::time::Duration;

use lock_core::Clock;
use redis::{AsyncConnectionConfig, FromRedisValue, Pipeline, aio::MultiplexedConnection};
use tokio::sync::Mutex;

/// One Redis server, asked past the proxies over a connection that is made anew after an error.
#[derive(Debug)]
pub(super) struct RedisServer {
    pub(super) port: u16,
    /// How long it may take to answer. A frozen server never does.
    patience: Duration,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl RedisServer {
    pub(super) fn new(port: u16, patience: Duration) -> Self {
        Self { port, patience, connection: Mutex::default() }
    }

    /// Sends these commands, if the server takes connections and answers in time; else the connection is given up.
    pub(super) async fn ask<T: FromRedisValue>(&self, question: &Pipeline) -> Option<T> {
        self.ask_within(self.patience, question).await
    }

    /// The same, where the server may take so long to answer.
    pub(super) async fn ask_within<T: FromRedisValue>(&self, patience: Duration, question: &Pipeline) -> Option<T> {
        let mut kept = self.connection.lock().await;
        let exchange = async {
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => connect(self.port).await.ok()?,
            };
            let answer = question.query_async(&mut connection).await;
            // An answer that is an error says nothing against the connection.
            if answer.as_ref().err().is_none_or(|error| error.code().is_some()) {
                *kept = Some(connection);
            }
            answer.ok()
        };
        Clock::boot().answer_timeout(patience, exchange).await.flatten()
    }
}

/// Connects, for as long as the caller waits: the limits of the library pass in a standstill of this program.
async fn connect(port: u16) -> redis::RedisResult<MultiplexedConnection> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    let unlimited = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&unlimited).await
}
