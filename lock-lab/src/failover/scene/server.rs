//! One server of Redis, asked past the proxies.

use std::time::Duration;

use lock_core::Clock;
use redis::{AsyncConnectionConfig, FromRedisValue, Pipeline, aio::MultiplexedConnection};
use tokio::sync::Mutex;

/// How long one server may take to answer. A frozen server never does.
const ANSWER_LIMIT: Duration = Duration::from_millis(200);

/// One server, and a connection that is made anew after an error.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) port: u16,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl Server {
    pub(super) fn new(port: u16) -> Self {
        Self { port, connection: Mutex::default() }
    }

    /// Sends these commands, if the server takes connections and answers in time; else the connection is given up.
    pub(super) async fn ask<T: FromRedisValue>(&self, question: &Pipeline) -> Option<T> {
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
        Clock::boot().timeout(ANSWER_LIMIT, exchange).await.flatten()
    }
}

async fn connect(port: u16) -> redis::RedisResult<MultiplexedConnection> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    let limits = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ANSWER_LIMIT))
        .set_response_timeout(Some(ANSWER_LIMIT));
    client.get_multiplexed_async_connection_with_config(&limits).await
}
