//! The proxy of the laboratory, between a client and an echo.

use std::time::Duration;

use lock_core::Clock;
use lock_lab::proxy::Proxy;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

/// Generous: it only ends a test that has failed.
const LIMIT: Duration = Duration::from_secs(30);

/// An echo of five-byte messages that also reports what arrived. Its port is the kernel's choice: nobody reuses it.
async fn echo() -> (u16, mpsc::UnboundedReceiver<[u8; 5]>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (arrived, arrivals) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let arrived = arrived.clone();
            tokio::spawn(async move {
                let mut message = [0; 5];
                while stream.read_exact(&mut message).await.is_ok() {
                    let _ = arrived.send(message);
                    if stream.write_all(&message).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (port, arrivals)
}

async fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap()
}

async fn answer(stream: &mut TcpStream) -> std::io::Result<[u8; 5]> {
    let mut message = [0; 5];
    let read = Clock::boot().timeout(LIMIT, stream.read_exact(&mut message)).await.expect("an answer or an end");
    read.map(|_| message)
}

async fn is_silent(stream: &mut TcpStream) -> bool {
    Clock::boot().timeout(Duration::from_millis(60), stream.read_u8()).await.is_none()
}

#[tokio::test]
async fn an_open_proxy_forwards_and_counts_both_ways() {
    let (port, _arrivals) = echo().await;
    let proxy = Proxy::start(port).await.unwrap();
    let mut stream = connect(&proxy).await;
    stream.write_all(b"hello").await.unwrap();
    assert_eq!(&answer(&mut stream).await.unwrap(), b"hello");
    assert_eq!((proxy.requests().bytes, proxy.requests().bursts), (5, 1));
    assert_eq!(proxy.replies().bytes, 5);
    assert!(proxy.port() < 32_768);
}

#[tokio::test]
async fn a_delay_holds_each_way_and_heal_ends_it() {
    let (port, _arrivals) = echo().await;
    let proxy = Proxy::start(port).await.unwrap();
    let mut stream = connect(&proxy).await;
    let clock = Clock::boot();
    proxy.delay(Duration::from_millis(40));
    let sent = clock.now();
    stream.write_all(b"slow!").await.unwrap();
    answer(&mut stream).await.unwrap();
    // The only bound that holds on any machine is the lower one.
    assert!(clock.now().saturating_since(sent) >= Duration::from_millis(80));
    proxy.heal();
    stream.write_all(b"quick").await.unwrap();
    assert_eq!(&answer(&mut stream).await.unwrap(), b"quick");
}

#[tokio::test]
async fn a_hold_forwards_nothing_and_heal_lets_it_through() {
    let (port, mut arrivals) = echo().await;
    let proxy = Proxy::start(port).await.unwrap();
    let mut stream = connect(&proxy).await;
    proxy.hold();
    stream.write_all(b"later").await.unwrap();
    assert!(is_silent(&mut stream).await);
    assert!(arrivals.try_recv().is_err());
    proxy.heal();
    assert_eq!(&answer(&mut stream).await.unwrap(), b"later");
}

#[tokio::test]
async fn held_replies_let_requests_be_carried_out() {
    let (port, mut arrivals) = echo().await;
    let proxy = Proxy::start(port).await.unwrap();
    let mut stream = connect(&proxy).await;
    proxy.hold_replies();
    stream.write_all(b"doit!").await.unwrap();
    assert_eq!(arrivals.recv().await.unwrap(), *b"doit!");
    assert!(is_silent(&mut stream).await);
    proxy.heal();
    assert_eq!(&answer(&mut stream).await.unwrap(), b"doit!");
}

#[tokio::test]
async fn a_cut_ends_connections_and_refuses_new_ones_until_it_is_healed() {
    let (port, _arrivals) = echo().await;
    let proxy = Proxy::start(port).await.unwrap();
    let mut stream = connect(&proxy).await;
    stream.write_all(b"hello").await.unwrap();
    answer(&mut stream).await.unwrap();
    proxy.cut();
    assert!(TcpStream::connect(("127.0.0.1", proxy.port())).await.is_err());
    assert!(answer(&mut stream).await.is_err());
    proxy.heal();
    let mut stream = connect(&proxy).await;
    stream.write_all(b"again").await.unwrap();
    assert_eq!(&answer(&mut stream).await.unwrap(), b"again");
}

#[tokio::test]
async fn a_chosen_reply_is_lost_although_its_request_was_carried_out() {
    let (port, mut arrivals) = echo().await;
    let proxy = Proxy::start(port).await.unwrap();
    let mut stream = connect(&proxy).await;
    proxy.cut_at_reply(1);
    stream.write_all(b"first").await.unwrap();
    assert_eq!(&answer(&mut stream).await.unwrap(), b"first");
    stream.write_all(b"secnd").await.unwrap();
    assert!(answer(&mut stream).await.is_err());
    assert_eq!(arrivals.recv().await.unwrap(), *b"first");
    assert_eq!(arrivals.recv().await.unwrap(), *b"secnd");
    let mut stream = connect(&proxy).await;
    stream.write_all(b"third").await.unwrap();
    assert_eq!(&answer(&mut stream).await.unwrap(), b"third");
}
