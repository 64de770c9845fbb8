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
        let mut kept = self.connection.lock().await;
        let exchange = async {
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => connect(self.port, self.patience).await.ok()?,
            };
            let answer = question.query_async(&mut connection).await;
            // An answer that is an error says nothing against the connection.
            if answer.as_ref().err().is_none_or(|error| error.code().is_some()) {
                *kept = Some(connection);
            }
            answer.ok()
        };
        Clock::boot().timeout(self.patience, exchange).await.flatten()
    }
}

async fn connect(port: u16, patience: Duration) -> redis::RedisResult<MultiplexedConnection> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    let limits =
        AsyncConnectionConfig::new().set_connection_timeout(Some(patience)).set_response_timeout(Some(patience));
    client.get_multiplexed_async_connection_with_config(&limits).await
}
