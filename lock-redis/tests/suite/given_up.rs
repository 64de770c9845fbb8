//! What was sent on a connection that was given up never arrives late.

use crate::common::apart;

use std::{io::ErrorKind, time::Duration};

use crate::common::{LIMIT, attempt, connect, soon};
use apart::Apart;
use lock_core::{Clock, Context, Error};
use lock_redis::{
    Config,
    node::{FailureKind, Node, NodeConfig, Script, ScriptCall},
    protocol::attempt::{Ask, Kind},
};
use redis::aio::MultiplexedConnection;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// When the kernel sends again what was lost: after the request was undone, and after its tombstone has ended.
const RETRANSMITTED: Duration = Duration::from_secs(12);

/// The keys of tombstones.
async fn tombstones(control: &mut MultiplexedConnection) -> usize {
    let keys: Vec<String> = redis::cmd("KEYS").arg("*:undone:*").query_async(control).await.unwrap();
    keys.len()
}

#[tokio::test]
async fn an_acquisition_that_was_lost_on_the_way_does_not_arrive_after_its_tombstone() {
    let (clock, ttl) = (Clock::boot(), Duration::from_secs(300));
    let server = Apart::start(RETRANSMITTED).await;
    let mut control = server.connection().await;
    let locks = connect(Config::new(server.host(), Apart::PORT).with_ttl(ttl)).await;
    let node = Node::new(NodeConfig::new(server.host(), Apart::PORT), Context::current());
    // The scripts are known, and both sides know how long a round trip takes.
    locks.mutex("warm").lock().await.unwrap().release().await.unwrap();
    node.call(ScriptCall::new(&ONE)).await.unwrap();

    server.lose(true);
    let sent_at = clock.now();
    // Its undo goes down the same connection first, and is lost as well.
    let refused = locks.mutex("a").try_lock().await;
    assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
    // As a node of a quorum is asked: the undo goes down the next connection only.
    let attempt = attempt("b", Kind::Writer, 1, ttl, Duration::ZERO);
    let ask = Ask { proposal: 0, payload: b"", waits: None };
    let unanswered = node.call(attempt.enter(&ask)).await.unwrap_err();
    assert_eq!(unanswered.kind(), FailureKind::TimedOut);
    while node.call(attempt.undo()).await.is_err() {
        if server.waiting() == 0 {
            server.lose(false);
        }
    }

    let pause = Duration::from_millis(20);
    soon(async { while tombstones(&mut control).await < 2 {} }).await;
    soon(async {
        while tombstones(&mut control).await > 0 {
            clock.sleep(pause).await;
        }
    })
    .await;
    clock.sleep_until(sent_at.saturating_add(RETRANSMITTED + Duration::from_secs(2))).await;
    let held: Vec<String> = redis::cmd("KEYS").arg("{lock:?}").query_async(&mut control).await.unwrap();
    assert!(held.is_empty(), "an acquisition has come late, and locks for nobody: {held:?}");
}

static ONE: Script = Script::new("return 1");

/// Takes a connection and answers that it is there.
async fn greeted(listener: &TcpListener) -> TcpStream {
    let (mut client, _) = listener.accept().await.unwrap();
    let mut request = vec![0; 4_096];
    let length = client.read(&mut request).await.unwrap();
    assert!(String::from_utf8_lossy(&request[..length]).contains("PING"), "{request:?}");
    client.write_all(b"+PONG\r\n-NOPERM nor may it be asked of its memory\r\n").await.unwrap();
    client
}

#[tokio::test]
async fn a_connection_that_was_given_up_is_dead_before_the_next_one_is_used() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let config = NodeConfig::new("127.0.0.1", listener.local_addr().unwrap().port());
    let node = Node::new(config, Context::current());
    let (connection, mut first) = tokio::join!(node.connection(), greeted(&listener));
    let connection = connection.unwrap();
    let unanswered = connection.call(ScriptCall::new(&ONE)).await.unwrap_err();
    assert_eq!(unanswered.kind(), FailureKind::TimedOut);
    let (next, _second) = tokio::join!(node.connection(), greeted(&listener));
    next.unwrap();
    // Somebody still has the first one.
    assert!(connection.is_broken());
    let mut rest = Vec::new();
    let end = Clock::boot().timeout(LIMIT, first.read_to_end(&mut rest)).await;
    let end = end.expect("what was sent on it may still arrive");
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
}
