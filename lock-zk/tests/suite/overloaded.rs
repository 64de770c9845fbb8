//! A server that answers, and does nothing of what it is asked: it throttles its clients, or knows no better.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::common::{config, within};
use lock_core::{Error, Locks};
use lock_zk::{Strategy, ZooKeeper};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

const THROTTLED: i32 = -127;
/// What a server answers to what it could not find out in time: done or not.
const TIMED_OUT: i32 = -7;

/// Counts what it is asked, but for pings.
async fn serve(mut stream: TcpStream, answer: i32, asked: Arc<AtomicU64>) -> std::io::Result<()> {
    const PING: i32 = 11;
    stream.set_nodelay(true)?;
    let connect = frame(&mut stream).await?;
    // Protocol version, the time-out that was asked for, a session, its password.
    let timeout = &connect[12..16];
    let accepted = [&[0; 4], timeout, &7_i64.to_be_bytes(), &16_i32.to_be_bytes(), &[0; 16], &[0]].concat();
    send(&mut stream, &accepted).await?;
    loop {
        let request = frame(&mut stream).await?;
        let is_ping = request[4..8] == PING.to_be_bytes();
        asked.fetch_add(u64::from(!is_ping), Ordering::Relaxed);
        let error = if is_ping { 0 } else { answer };
        send(&mut stream, &[&request[..4], &1_i64.to_be_bytes(), &error.to_be_bytes()].concat()).await?;
    }
}

async fn frame(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut frame = vec![0; usize::try_from(stream.read_i32().await?).unwrap()];
    stream.read_exact(&mut frame).await?;
    Ok(frame)
}

async fn send(stream: &mut TcpStream, frame: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(frame.len()).unwrap();
    stream.write_all(&[&length.to_be_bytes(), frame].concat()).await
}

/// How much a contender asks of a server that answers like this, within half a second.
async fn asked(answer: i32, strategy: Strategy) -> u64 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, answer, Arc::clone(&counted)));
        }
    });
    let locks = Locks::new(ZooKeeper::connect(config(port).with_strategy(strategy)).await.unwrap());
    let mutex = locks.mutex("busy").timeout(Duration::from_millis(500));
    let refused = within("the limit", mutex.lock()).await.unwrap_err();
    assert!(matches!(refused, Error::NotAcquired { .. }), "{answer} {strategy}: {refused}");
    asked.load(Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_has_too_much_to_do_is_asked_again_with_growing_pauses() {
    for strategy in [Strategy::Queue, Strategy::Herd] {
        for answer in [THROTTLED, TIMED_OUT] {
            let asked = asked(answer, strategy).await;
            assert!((2..400).contains(&asked), "{answer} {strategy}: {asked} requests");
        }
    }
}
